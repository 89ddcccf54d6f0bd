//! Installation with one kustomization or three clusterctl providers, the rights that they contain, the samples, and the removal.

use std::time::Duration;

use serde_json::{Value, json};

use crate::linux_side;
use crate::world::{self, Capw, ControlPlane, Kind, Options, checkout, files, text, wait_for};

const CORE_USER: &str = "system:serviceaccount:capi-system:capi-manager";
const POLICY: Kind = Kind::new("admissionregistration.k8s.io/v1", "validatingadmissionpolicies");
const POLICY_BINDING: Kind = Kind::new("admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings");
const CLUSTER_ROLE_BINDING: Kind = Kind::new("rbac.authorization.k8s.io/v1", "clusterrolebindings");
const DEPLOYMENT: Kind = Kind::new("apps/v1", "deployments");
const OUR_KINDS: [Kind; 11] = [
    Kind::WINDOWS_CLUSTER,
    Kind::new("infrastructure.cluster.x-k8s.io/v1alpha1", "windowsclustertemplates"),
    Kind::new("infrastructure.cluster.x-k8s.io/v1alpha1", "windowsnodepooltemplates"),
    Kind::WINDOWS_HYPERVISOR,
    Kind::WINDOWS_MACHINE,
    Kind::WINDOWS_MACHINE_TEMPLATE,
    Kind::WINDOWS_NODE_POOL,
    Kind::WINDOWS_BOOTSTRAP_CONFIG,
    Kind::WINDOWS_BOOTSTRAP_CONFIG_TEMPLATE,
    Kind::EXTERNAL_CONTROL_PLANE,
    Kind::new("controlplane.cluster.x-k8s.io/v1alpha1", "externalcontrolplanetemplates"),
];

/// The objects that a WindowsNodePool creates and deletes.
const OF_POOLS: [(&str, Kind); 6] = [
    ("create", Kind::WINDOWS_MACHINE),
    ("delete", Kind::WINDOWS_MACHINE),
    ("create", Kind::WINDOWS_BOOTSTRAP_CONFIG),
    ("delete", Kind::WINDOWS_BOOTSTRAP_CONFIG),
    ("delete", Kind::MACHINE),
    ("patch", Kind::MACHINE),
];

/// `kubectl apply -k config/default` installs definitions, a process with exactly the rights that it needs, and policies. Samples apply.
#[test]
fn one_kustomization_installs_everything() {
    world::run(async {
        let cp = ControlPlane::start(Options::cluster_api().named("install")).await;
        cp.kubectl(&["apply", "-k", "config/default"]).await;
        for kind in OUR_KINDS {
            wait_for(&format!("{} are served", kind.plural), Duration::from_secs(20), || async {
                cp.api(kind, None).list(&kube::api::ListParams::default()).await.map_err(|e| e.to_string())
            })
            .await;
        }
        let explain = ["explain", "windowsmachine.spec", "--api-version", Kind::WINDOWS_MACHINE.api_version];
        // The documentation of a new definition is available some seconds later.
        let explained = wait_for("kubectl explain knows our kinds", Duration::from_secs(20), || cp.try_kubectl(&explain)).await;
        assert!(explained.contains("hypervisorRef"), "{explained}");
        the_process_is_confined(&cp).await;
        rights_are_the_least(&cp).await;
        samples_fit(&cp).await;
        templates_cannot_change(&cp).await;
        topology_makes_new_templates(&cp).await;
    });
}

async fn the_process_is_confined(cp: &ControlPlane) {
    let deployment = cp.get(DEPLOYMENT, "capw-system/capw-controller-manager").await.expect("config/default holds a Deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(text(pod, "/securityContext/seccompProfile/type"), "RuntimeDefault");
    let container = &pod["containers"][0];
    assert_eq!(container["name"], "manager", "clusterctl looks for it by this name");
    let security = &container["securityContext"];
    assert_eq!((&security["readOnlyRootFilesystem"], &security["allowPrivilegeEscalation"]), (&json!(true), &json!(false)));
    assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));
}

async fn rights_are_the_least(cp: &ControlPlane) {
    let mut wrong = Vec::new();
    let all = ["get", "list", "watch", "create", "patch", "update", "delete"];
    for kind in OUR_KINDS {
        // Cluster API core gets its rights to our kinds only from the well-known groups.
        for verb in all {
            if !cp.may(CORE_USER, verb, kind).await {
                wrong.push(format!("core may not {verb} {}", kind.plural));
            }
        }
        for verb in ["create", "delete", "deletecollection"] {
            if cp.may(Capw::USER, verb, kind).await && !OF_POOLS.contains(&(verb, kind)) {
                wrong.push(format!("capw may {verb} {}", kind.plural));
            }
        }
    }
    let machines = [Kind::CLUSTER, Kind::MACHINE, Kind::MACHINE_DEPLOYMENT, Kind::MACHINE_SET, Kind::NODE, Kind::CONFIG_MAP, Kind::NAMESPACE];
    let others = [Kind::CLUSTER_ROLE, CLUSTER_ROLE_BINDING, DEPLOYMENT, Kind::new("v1", "pods"), Kind::CERTIFICATE_SIGNING_REQUEST];
    for kind in machines.into_iter().chain(others) {
        for verb in ["create", "patch", "update", "delete"] {
            if cp.may(Capw::USER, verb, kind).await && !OF_POOLS.contains(&(verb, kind)) {
                wrong.push(format!("capw may {verb} {}", kind.plural));
            }
        }
    }
    for kind in [Kind::WINDOWS_MACHINE, Kind::WINDOWS_BOOTSTRAP_CONFIG, Kind::EXTERNAL_CONTROL_PLANE, Kind::CLUSTER, Kind::MACHINE] {
        if !cp.may(Capw::USER, "watch", kind).await {
            wrong.push(format!("capw may not watch {}", kind.plural));
        }
    }
    for verb in ["delete", "deletecollection"] {
        if cp.may(Capw::USER, verb, Kind::SECRET).await {
            wrong.push(format!("capw may {verb} secrets"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

async fn samples_fit(cp: &ControlPlane) {
    let samples: Vec<String> = files(&checkout().join("config/samples"), "yaml").iter().map(|path| path.display().to_string()).collect();
    assert!(samples.len() > 10, "{samples:?}");
    // The ClusterClass sample needs the namespace of its class. The sample without Cluster API reuses names of the first sample.
    for path in samples.iter().filter(|path| !["topology.yaml", "standalone.yaml"].iter().any(|other| path.ends_with(other))) {
        cp.kubectl(&["apply", "-f", path]).await;
    }
    cp.kubectl(&["create", "namespace", "alone"]).await;
    cp.kubectl(&["-n", "alone", "apply", "-f", "config/samples/standalone.yaml"]).await;
    cp.kubectl(&["create", "namespace", "classes"]).await;
    for path in ["config/clusterctl/templates/clusterclass-windows.yaml", "config/samples/topology.yaml"] {
        cp.kubectl(&["-n", "classes", "apply", "-f", path]).await;
    }
}

async fn templates_cannot_change(cp: &ControlPlane) {
    let machine = (Kind::WINDOWS_MACHINE_TEMPLATE, "WindowsMachineTemplate", json!({"cpus": 16}));
    let bootstrap = (Kind::WINDOWS_BOOTSTRAP_CONFIG_TEMPLATE, "WindowsBootstrapConfigTemplate", json!({"windowsRelease": "2025"}));
    for (kind, name, change) in [machine, bootstrap] {
        let change = json!({"spec": {"template": {"spec": change}}});
        // A policy takes effect some moments after its creation.
        let said = wait_for("the policy is in force", Duration::from_secs(20), || async {
            match cp.try_kubectl(&["patch", kind.plural, "windows", "--type=merge", "--dry-run=server", "-p", &change.to_string()]).await {
                Err(said) => Ok(said),
                Ok(said) => Err(said),
            }
        })
        .await;
        assert!(
            said.contains(&format!("spec.template.spec: a {name} cannot change")) && said.contains("Create a template with another name"),
            "{said}"
        );
        let labels = json!({"metadata": {"labels": {"example.com/owner": "us"}}});
        cp.patch(kind, "default/windows", &labels).await.expect("labels may change");
        let mut tried = change.clone();
        tried["metadata"] = json!({"annotations": {"topology.cluster.x-k8s.io/dry-run": ""}});
        let tried = tried.to_string();
        let patch = ["patch", kind.plural, "windows", "--type=merge", "-p", &tried];
        cp.try_kubectl(&[&patch[..], &["--dry-run=server"]].concat()).await.expect("the topology controller's dry run passes");
        cp.try_kubectl(&patch).await.expect_err("the annotation alone opens nothing");
    }
}

/// The topology controller reacts to a change with a new template and leaves the old one unchanged.
async fn topology_makes_new_templates(cp: &ControlPlane) {
    wait_sizes(cp, &["4Gi"]).await;
    let variables = json!({"spec": {"topology": {"variables": [{"name": "memory", "value": "6Gi"}]}}});
    cp.patch(Kind::CLUSTER, "classes/classy", &variables).await.expect("a variable may change");
    wait_sizes(cp, &["4Gi", "6Gi"]).await;
    let reconciled = cp.wait_condition(Kind::CLUSTER, "classes/classy", "TopologyReconciled", "True", Duration::from_secs(30)).await;
    assert_eq!(text(&reconciled, "/reason"), "ReconcileSucceeded");
}

/// Waits for these memory sizes in the topology controller's templates, smallest first.
async fn wait_sizes(cp: &ControlPlane, wanted: &[&str]) {
    wait_for(&format!("templates of the sizes {wanted:?}"), Duration::from_secs(60), || async {
        let templates = cp.list(Kind::WINDOWS_MACHINE_TEMPLATE, Some("classes")).await;
        let owned = templates.iter().filter(|t| t.pointer("/metadata/labels/topology.cluster.x-k8s.io~1owned").is_some());
        let mut sizes: Vec<&str> = owned.map(|t| text(t, "/spec/template/spec/memory")).collect();
        sizes.sort();
        if sizes == wanted {
            return Ok(());
        }
        let cluster = cp.get(Kind::CLUSTER, "classes/classy").await.unwrap_or_default();
        Err(format!("{sizes:?}, and the conditions of the Cluster: {}", cluster["status"]["conditions"]))
    })
    .await;
}

/// `clusterctl init`, `delete`, `init` again, and `generate cluster`, from a repository on this machine. The three processes, each with the rights of
/// its own component, bring up the nodes together.
#[test]
fn clusterctl_installs_removes_and_installs_again() {
    world::run(async {
        let cp = ControlPlane::start(Options::plain().named("providers")).await;
        let core = format!("cluster-api:{}", world::Tools::ensure().cluster_api_version);
        // The bootstrap provider also works with another infrastructure provider, where our infrastructure kinds do not exist.
        cp.clusterctl(&["init", "--core", &core, "--bootstrap", "windows", "--control-plane", "-"]).await;
        let alone = part(&cp, "bootstrap", "capw-bootstrap-system").await;
        alone.start_again().await;
        alone.stop();

        init(&cp, &["--infrastructure", "windows", "--control-plane", "windows"]).await;
        let listed = cp.list(Kind::new("clusterctl.cluster.x-k8s.io/v1alpha3", "providers"), None).await;
        let mut found: Vec<String> = listed.iter().map(|p| format!("{} {}", text(p, "/type"), text(p, "/version"))).collect();
        found.sort();
        let (ours, theirs) = (format!("v{}", env!("CARGO_PKG_VERSION")), &world::Tools::ensure().cluster_api_version);
        let ours = |kind: &str| format!("{kind} {ours}");
        assert_eq!(
            found,
            [ours("BootstrapProvider"), ours("ControlPlaneProvider"), format!("CoreProvider {theirs}"), ours("InfrastructureProvider")]
        );
        each_process_has_its_part(&cp).await;
        nothing_stays_after_delete(&cp).await;

        init(&cp, &["--infrastructure", "windows", "--bootstrap", "windows", "--control-plane", "windows"]).await;
        cp.start_core().await;
        templates_make_clusters(&cp).await;
        three_processes_make_nodes(&cp).await;
    });
}

/// Runs `clusterctl init`. It tests cert-manager in a namespace that the previous run may still be deleting, and would then wait without end.
async fn init(cp: &ControlPlane, providers: &[&str]) {
    cp.wait_gone(Kind::NAMESPACE, "cert-manager-test", Duration::from_secs(60)).await;
    cp.clusterctl(&[&["init"][..], providers].concat()).await;
}

/// The three components and their namespaces.
pub const PARTS: [(&str, &str); 3] =
    [("infrastructure", "capw-system"), ("bootstrap", "capw-bootstrap-system"), ("control-plane", "capw-control-plane-system")];

/// Prepares the process of one component.
async fn part(cp: &ControlPlane, part: &str, namespace: &str) -> Capw {
    Capw::prepare_in(cp, namespace, &[&format!("--controllers={part}"), "--image=registry.example.com/capw:v0"]).await
}

/// Starts the three processes that clusterctl would have started, each with the rights of its own component.
pub async fn start_parts(cp: &ControlPlane) -> Vec<Capw> {
    let mut processes = Vec::new();
    for (name, namespace) in PARTS {
        processes.push(part(cp, name, namespace).await);
    }
    for process in &processes {
        process.start_again().await;
    }
    processes
}

async fn nothing_stays_after_delete(cp: &ControlPlane) {
    for (part, _) in PARTS {
        cp.clusterctl(&["delete", "--include-crd", "--include-namespace", &format!("--{part}"), "windows"]).await;
        // The next `clusterctl delete` lists every kind that the API server reports, and fails at a kind that was deleted since.
        let group = format!("--api-group={}.cluster.x-k8s.io", part.replace('-', ""));
        wait_for(&format!("the API server names no kind of {part}"), Duration::from_secs(60), || async {
            let named = cp.kubectl(&["api-resources", "--cached=false", "--no-headers", &group]).await;
            if named.is_empty() { Ok(()) } else { Err(named) }
        })
        .await;
    }
    for kind in [POLICY, POLICY_BINDING, Kind::CLUSTER_ROLE, CLUSTER_ROLE_BINDING, Kind::NAMESPACE, Kind::CUSTOM_RESOURCE_DEFINITION] {
        wait_for(&format!("no {} of ours are left", kind.plural), Duration::from_secs(60), || async {
            let left: Vec<String> = cp.list(kind, None).await.iter().map(|o| text(o, "/metadata/name").to_owned()).filter(|n| is_ours(n)).collect();
            if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
        })
        .await;
    }
}

async fn templates_make_clusters(cp: &ControlPlane) {
    let version = world::Tools::ensure().kubernetes_version.clone();
    for (name, flavor) in [("plain", ""), ("classy", "topology")] {
        let yaml =
            cp.clusterctl(&["generate", "cluster", name, "--kubernetes-version", &version, "--worker-machine-count", "3", "--flavor", flavor]).await;
        cp.apply(&yaml).await;
        assert!(cp.get(Kind::CLUSTER, &format!("default/{name}")).await.is_some(), "{yaml}");
    }
    let variables = cp.clusterctl(&["generate", "cluster", "plain", "--list-variables"]).await;
    assert!(variables.contains("WORKER_MACHINE_COUNT") && variables.contains("KUBERNETES_VERSION"), "{variables}");
}

async fn three_processes_make_nodes(cp: &ControlPlane) {
    let mark = cp.audit_mark();
    let _processes = start_parts(cp).await;
    let kubeconfig = std::fs::read_to_string(cp.kubeconfig()).expect("the administrator's kubeconfig");
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "plain-external-kubeconfig", "namespace": "default"},
        "stringData": {"value": kubeconfig}});
    let hypervisor = json!({"apiVersion": Kind::WINDOWS_HYPERVISOR.api_version, "kind": "WindowsHypervisor",
        "metadata": {"name": "lab", "namespace": "default"}, "spec": {"simulated": {}}});
    // One process brings the network, and another process waits for that before it creates bootstrap data.
    cp.apply_recording("src/components/fixtures/flannel-vxlan-4096.yaml").await;
    cp.patch(Kind::WINDOWS_CLUSTER, "default/plain", &json!({"spec": {"components": {"mode": "Auto"}}})).await.expect("the network can be brought");
    cp.apply(&format!("{secret}\n---\n{hypervisor}")).await;
    cp.wait_object(Kind::MACHINE_DEPLOYMENT, "default/plain-windows", "three nodes", Duration::from_secs(180), |md| {
        (md.pointer("/status/availableReplicas")? == 3).then_some(())
    })
    .await;
    let nodes = cp.list(Kind::NODE, None).await;
    let windows: Vec<&Value> = nodes.iter().filter(|node| text(node, "/metadata/name").starts_with("win-")).collect();
    assert!(windows.len() == 3 && windows.iter().all(|node| linux_side::is_unverified(node)), "{windows:#?}");
    let ours = |user: &str| PARTS.iter().any(|(_, namespace)| user == format!("system:serviceaccount:{namespace}:capw-controller-manager"));
    let refused: Vec<_> = cp.audit_since(mark).into_iter().filter(|e| e.code == 403 && ours(&e.user)).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    let described = cp.clusterctl(&["describe", "cluster", "plain", "--show-conditions", "all", "--grouping=false", "--echo"]).await;
    for shown in ["ExternalControlPlane default/plain", "WindowsCluster default/plain", "WindowsMachine default/win-", "VirtualMachineReady"] {
        assert!(described.contains(shown), "{shown}: not in\n{described}");
    }
}

fn is_ours(name: &str) -> bool {
    name.starts_with("capw-") || name.starts_with("windows") || name.starts_with("externalcontrolplane")
}

async fn each_process_has_its_part(cp: &ControlPlane) {
    let mut wrong = Vec::new();
    let own = [Kind::WINDOWS_MACHINE, Kind::WINDOWS_BOOTSTRAP_CONFIG, Kind::EXTERNAL_CONTROL_PLANE];
    for (index, (part, namespace)) in PARTS.into_iter().enumerate() {
        let user = format!("system:serviceaccount:{namespace}:capw-controller-manager");
        for (other, kind) in own.into_iter().enumerate() {
            // Each component reports only on its own kinds.
            if cp.may_in(&user, "patch", kind, Some("status")).await != (index == other) {
                wrong.push(format!("{part}: patch the status of {}", kind.plural));
            }
            // The infrastructure component also patches the owners of configurations.
            let is_owner = (part, kind.plural) == ("infrastructure", Kind::WINDOWS_BOOTSTRAP_CONFIG.plural);
            if cp.may(&user, "patch", kind).await != (index == other || is_owner) {
                wrong.push(format!("{part}: patch {}", kind.plural));
            }
        }
        if cp.may(&user, "create", Kind::SECRET).await != (part != "infrastructure") {
            wrong.push(format!("{part}: create secrets"));
        }
        let deployment: Value = cp.get(DEPLOYMENT, &format!("{namespace}/capw-controller-manager")).await.expect("each component has a Deployment");
        let args = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().cloned().unwrap_or_default();
        if !args.contains(&json!(format!("--controllers={part}"))) {
            wrong.push(format!("{part}: runs with {args:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
