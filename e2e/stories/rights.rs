//! Least rights: the rights of CAPW's ServiceAccount, from its roles, are the rights that a whole life of machines uses, from the audit log.

pub mod role;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use self::role::Right;
use crate::standalone::install_rights;
use crate::world::{self, AuditEvent, Capw, ControlPlane, Kind, Options, text, wait_for};

/// Rights that a life uses only if an answer is lost, a watch is late or someone removes owner references, and the reason for each.
const AT_TIMES: [(&str, &str); 3] = [
    ("get infrastructure.cluster.x-k8s.io/windowsmachines", "a machine whose creation had no answer, or that no watch shows, is found again"),
    ("get bootstrap.cluster.x-k8s.io/windowsbootstrapconfigs", "the same of its configuration"),
    ("delete bootstrap.cluster.x-k8s.io/windowsbootstrapconfigs", "a configuration that has lost its owner, and whose machine is gone"),
];
/// Rights that no life uses, and the reason for each.
const UNUSED: [(&str, &str); 10] = [
    ("patch /secrets", "the token of a machine that takes longer to join than half its life is extended"),
    ("patch apiextensions.k8s.io/customresourcedefinitions/status", "a definition has another stored version than before: story definitions"),
    ("patch infrastructure.cluster.x-k8s.io/windowsclustertemplates", "the same: its objects are written again"),
    ("patch infrastructure.cluster.x-k8s.io/windowsnodepooltemplates", "the same"),
    ("patch infrastructure.cluster.x-k8s.io/windowsmachinetemplates", "the same: managedFields of a version that is not served go"),
    ("patch bootstrap.cluster.x-k8s.io/windowsbootstrapconfigtemplates", "the same"),
    ("patch controlplane.cluster.x-k8s.io/externalcontrolplanetemplates", "the same"),
    ("approve certificates.k8s.io/signers", "asked for by the admission plugin CertificateApproval alone"),
    ("update bootstrap.cluster.x-k8s.io/windowsbootstrapconfigs/finalizers", "asked for by OwnerReferencesPermissionEnforcement alone"),
    ("update controlplane.cluster.x-k8s.io/externalcontrolplanes/finalizers", "asked for by OwnerReferencesPermissionEnforcement alone"),
];
const ROLES: [&str; 7] = [
    "capw-system-manager",
    "capw-system-definitions",
    "capw-bootstrap-system-manager",
    "capw-bootstrap-system-definitions",
    "capw-control-plane-system-manager",
    "capw-control-plane-system-definitions",
    "capw-system-standalone",
];

/// A life from the first Secret to the last finalizer, with failures on the way, uses every right and misses none.
#[test]
fn every_right_is_used_and_none_is_missing() {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("rights")).await;
        install_rights(&cp).await;
        change_definitions(&cp).await;
        let mark = cp.audit_mark();
        let capw = Capw::start(&cp, &["--leader-elect=true"]).await;
        tokio::select! {
            () = a_whole_life(&cp) => {}
            never = capw.keep_leading() => match never {},
        }
        capw.stop();
        let events = cp.audit_since(mark);
        let used: BTreeSet<String> = events.iter().filter(|e| e.user == Capw::USER).filter_map(right_of).collect();
        let granted = granted(&cp).await;
        let report = judge(&granted, &used);
        assert!(report.is_empty(), "{report:#?}");
    });
}

/// Changes the definitions as an upgrade does, after which objects may have another version.
async fn change_definitions(cp: &ControlPlane) {
    let all = cp.list(Kind::CUSTOM_RESOURCE_DEFINITION, None).await;
    let names = all.iter().map(|definition| text(definition, "/metadata/name"));
    let ours: Vec<&str> = names.filter(|name| name.starts_with("windows") || name.starts_with("externalcontrolplane")).collect();
    assert_eq!(ours.len(), 11, "{ours:?}");
    for name in ours {
        cp.patch(Kind::CUSTOM_RESOURCE_DEFINITION, name, &json!({"spec": {"names": {"categories": ["cluster-api", "changed"]}}}))
            .await
            .expect("a definition");
    }
}

async fn a_whole_life(cp: &ControlPlane) {
    let minutes = Duration::from_secs(180);
    let kubeconfig = std::fs::read_to_string(cp.kubeconfig()).expect("the administrator's kubeconfig");
    give_kubeconfig(cp, &kubeconfig).await;
    let sample = std::fs::read_to_string("config/samples/three-nodes.yaml").expect("the first sample");
    // The first template names an image that does not exist. An event reports that, and a second template fixes it.
    cp.apply(&sample.replace("image: windows-server-2022", "image: windows-server-1803")).await;
    wait_for("the missing image is told", minutes, || async {
        let events = cp.list(Kind::EVENT, Some("default")).await;
        events.iter().any(|e| text(e, "/reason") == "ImageMissing").then_some(())
    })
    .await;
    let fixed = json!({"apiVersion": Kind::WINDOWS_MACHINE_TEMPLATE.api_version, "kind": "WindowsMachineTemplate",
        "metadata": {"name": "fixed", "namespace": "default"}, "spec": {"template": {"spec": {"image": "windows-server-2022"}}}});
    cp.apply(&fixed.to_string()).await;
    let infrastructure = json!({"spec": {"template": {"spec": {"infrastructureRef": {"name": "fixed"}}}}});
    cp.patch(Kind::MACHINE_DEPLOYMENT, "default/windows", &infrastructure).await.expect("another template");
    cp.wait_object(Kind::MACHINE_DEPLOYMENT, "default/windows", "three of the new template are available", minutes, |md| {
        let count = |field: &str| md.pointer(&format!("/status/{field}")).and_then(Value::as_i64);
        ["replicas", "upToDateReplicas", "availableReplicas"].iter().all(|field| count(field) == Some(3)).then_some(())
    })
    .await;
    a_pool(cp).await;
    a_pool_that_stands_alone(cp).await;
    // CAPW passes on a renewed kubeconfig.
    let renewed = format!("{kubeconfig}\n# renewed\n");
    give_kubeconfig(cp, &renewed).await;
    cp.wait_object(Kind::SECRET, "default/first-kubeconfig", "the renewed kubeconfig", minutes, |secret| {
        use base64::Engine;
        let held = base64::engine::general_purpose::STANDARD.decode(text(secret, "/data/value")).ok()?;
        (held == renewed.as_bytes()).then_some(())
    })
    .await;
    // CAPW brings objects to the workload cluster, and removes them with the Cluster.
    cp.patch(Kind::WINDOWS_CLUSTER, "default/first", &json!({"spec": {"components": {"mode": "Auto"}}})).await.expect("components can be brought");
    let has_finalizer = |object: &Value| object["metadata"]["finalizers"].is_array().then_some(());
    cp.wait_object(Kind::WINDOWS_CLUSTER, "default/first", "it is kept until that is gone", minutes, has_finalizer).await;
    cp.delete(Kind::CLUSTER, "default/first").await;
    cp.wait_gone(Kind::CLUSTER, "default/first", minutes).await;
    cp.delete(Kind::WINDOWS_HYPERVISOR, "default/lab").await;
    cp.wait_gone(Kind::WINDOWS_HYPERVISOR, "default/lab", minutes).await;
}

/// A MachinePool that sets the number, and later follows its WindowsNodePool, which removes a machine.
async fn a_pool(cp: &ControlPlane) {
    let sample = std::fs::read_to_string("config/samples/machine-pool.yaml").expect("the sample of a pool");
    cp.apply(&sample).await;
    let minutes = Duration::from_secs(180);
    let available = |count: i64| move |pool: &Value| (pool.pointer("/status/availableReplicas").and_then(Value::as_i64) == Some(count)).then_some(());
    cp.wait_object(Kind::WINDOWS_NODE_POOL, "default/pool", "3 are available", minutes, available(3)).await;
    // A machine's configuration gets its owner reference back.
    let configs = cp.list(Kind::WINDOWS_BOOTSTRAP_CONFIG, Some("default")).await;
    let of_machine = |config: &Value| text(config, "/metadata/ownerReferences/0/kind") == "WindowsMachine";
    let config = format!("default/{}", text(configs.iter().find(|config| of_machine(config)).expect("one of a pool's machine"), "/metadata/name"));
    cp.patch(Kind::WINDOWS_BOOTSTRAP_CONFIG, &config, &json!({"metadata": {"ownerReferences": null}})).await.expect("no owner");
    cp.wait_object(Kind::WINDOWS_BOOTSTRAP_CONFIG, &config, "its owner again", minutes, |config| of_machine(config).then_some(())).await;
    cp.patch(Kind::WINDOWS_NODE_POOL, "default/pool", &json!({"spec": {"replicas": 2}})).await.expect("a number");
    let annotation = json!({"metadata": {"annotations": {"cluster.x-k8s.io/replicas-managed-by": "rights"}}});
    cp.patch(Kind::MACHINE_POOL, "default/pool", &annotation).await.expect("an annotation");
    cp.wait_object(Kind::WINDOWS_NODE_POOL, "default/pool", "2 are available", minutes, available(2)).await;
    let told = |pool: &Value| (pool["spec"]["replicas"] == json!(2)).then_some(());
    cp.wait_object(Kind::MACHINE_POOL, "default/pool", "2 replicas in its spec", minutes, told).await;
}

/// Creates and deletes a standalone pool of the same cluster, with a pod that never ends on its own.
async fn a_pool_that_stands_alone(cp: &ControlPlane) {
    let minutes = Duration::from_secs(180);
    let pool = json!({"apiVersion": Kind::WINDOWS_NODE_POOL.api_version, "kind": "WindowsNodePool", "metadata": {"name": "alone", "namespace": "default"},
        "spec": {"cluster": {}, "replicas": 1, "version": "v1.36.3", "drain": {"hungPodSeconds": 1}, "template": {"metadata": {"labels": {"node-role.kubernetes.io/windows": ""}}, "machine": {"image": "windows-server-2022"}}}});
    cp.apply(&pool.to_string()).await;
    let available = |pool: &Value| (pool.pointer("/status/availableReplicas") == Some(&json!(1))).then_some(());
    cp.wait_object(Kind::WINDOWS_NODE_POOL, "default/alone", "its machine is available", minutes, available).await;
    let machines = cp.list(Kind::WINDOWS_MACHINE, Some("default")).await;
    let alone = machines.iter().map(|machine| text(machine, "/metadata/name")).find(|name| name.starts_with("alone-")).expect("its machine");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "left", "namespace": "default"},
        "spec": {"nodeName": alone, "terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "none.invalid/none"}]}});
    cp.apply(&pod.to_string()).await;
    cp.delete(Kind::WINDOWS_NODE_POOL, "default/alone").await;
    cp.wait_gone(Kind::WINDOWS_NODE_POOL, "default/alone", minutes).await;
}

async fn give_kubeconfig(cp: &ControlPlane, kubeconfig: &str) {
    let labels = json!({"cluster.x-k8s.io/cluster-name": "first"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "first-external-kubeconfig", "namespace": "default", "labels": labels},
        "stringData": {"value": kubeconfig}});
    cp.apply(&secret.to_string()).await;
}

/// Returns `VERB GROUP/RESOURCE[/SUBRESOURCE]`; `None` for URLs that are no resources and for requests that every user may send.
fn right_of(event: &AuditEvent) -> Option<String> {
    let own_business = event.group == "authorization.k8s.io" || event.group == "authentication.k8s.io";
    if event.resource.is_empty() || own_business {
        return None;
    }
    let refused = if event.code == 403 { " (refused)" } else { "" };
    let slash = if event.subresource.is_empty() { "" } else { "/" };
    Some(format!("{} {}/{}{slash}{}{refused}", event.verb, event.group, event.resource, event.subresource))
}

async fn granted(cp: &ControlPlane) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for name in ROLES {
        all.extend(rights(&cp.get(Kind::CLUSTER_ROLE, name).await.unwrap_or_else(|| panic!("config/default has no ClusterRole {name}"))));
    }
    for namespace in ["capw-system", "kube-system", "kube-public"] {
        let mut own = cp.list(Kind::new("rbac.authorization.k8s.io/v1", "roles"), Some(namespace)).await;
        own.retain(|role| text(role, "/metadata/name").starts_with("capw-"));
        all.extend(own.iter().flat_map(rights));
    }
    all
}

/// Returns every verb on every resource of a role.
fn rights(role: &Value) -> Vec<String> {
    Right::all(role).iter().map(Right::name).collect()
}

/// Returns the errors: missing rights, unused rights, and exceptions that no longer apply.
fn judge(granted: &BTreeSet<String>, used: &BTreeSet<String>) -> Vec<String> {
    let excused = |right: &String| UNUSED.iter().chain(&AT_TIMES).any(|(unused, _)| unused == right);
    let missing = used.difference(granted).map(|right| format!("used, but in no role: {right}"));
    let idle = granted.difference(used).filter(|right| !excused(right)).map(|right| format!("in a role, but never used: {right}"));
    let used_after_all = UNUSED.iter().filter(|(right, _)| used.contains(*right));
    let gone = UNUSED.iter().chain(&AT_TIMES).filter(|(right, _)| !granted.contains(*right));
    let stale = used_after_all.chain(gone);
    missing.chain(idle).chain(stale.map(|(right, _)| format!("take it from the list of unused rules: {right}"))).collect()
}

#[test]
fn the_judge_sees_what_is_missing_and_what_is_idle() {
    let role = json!({"rules": [{"apiGroups": ["a.b"], "resources": ["xs", "xs/status"], "verbs": ["list", "patch"]}]});
    let mut granted: BTreeSet<String> = rights(&role).into_iter().collect();
    assert_eq!(granted.iter().map(String::as_str).collect::<Vec<_>>(), ["list a.b/xs", "list a.b/xs/status", "patch a.b/xs", "patch a.b/xs/status"]);
    granted.extend(UNUSED.iter().chain(&AT_TIMES).map(|(right, _)| (*right).to_owned()));
    let used = ["list a.b/xs", "patch a.b/xs", "patch a.b/xs/status", "get /secrets (refused)"].map(str::to_owned).into();
    assert_eq!(judge(&granted, &used), ["used, but in no role: get /secrets (refused)", "in a role, but never used: list a.b/xs/status"]);
    let mut used: BTreeSet<String> = rights(&role).into_iter().collect();
    used.extend([UNUSED[0].0, AT_TIMES[0].0].map(str::to_owned));
    assert_eq!(judge(&granted, &used), [format!("take it from the list of unused rules: {}", UNUSED[0].0)]);
}
