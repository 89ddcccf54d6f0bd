//! Story *Calico by its operator*: the Tigera operator set up the cluster for VXLAN, and its administrator did not think of Windows. A WindowsCluster
//! reports what is missing, with commands. On request, CAPW configures the operator for Windows nodes step by step. It enables Windows last, because
//! from then on the operator refuses an invalid configuration for Linux nodes too. CAPW brings kube-proxy to Calico's network, and a node accepts
//! pods once both work. The story plays the operator.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::doctor::FOUND;
use crate::linux_side::{
    BROUGHT, COMPATIBLE, COMPONENTS, DAEMON_SETS, LIMIT, LINUX_SIDE, cost, is_unverified, pod_is_ready, probes, says, unverified_node, verified,
    writes_since, written_since,
};
use crate::workers::Workers;
use crate::world::{self, Capw, ControlPlane, Kind, Options, Tools, condition, simulated_vms, step, text, wait_for};

pub const RECORDING: &str = "src/components/fixtures/calico-operator-installed.yaml";
pub const INSTALLATIONS: Kind = Kind::new("operator.tigera.io/v1", "installations");
const POOLS: Kind = Kind::new("crd.projectcalico.org/v1", "ippools");
/// The namespace of the operator's objects.
const CALICO: &str = "calico-system";
pub const ENDPOINT: &str = "kubernetes-services-endpoint";

#[test]
fn calicos_operator_is_told_of_windows_nodes() {
    world::run(async {
        let options = Options { scheduler: true, ..Options::default() };
        let cp = ControlPlane::start(options.named("calico-side")).await;
        cp.apply_objects(&definitions()).await;
        cp.apply_recording(RECORDING).await;
        let capw = Capw::start(&cp, &["--image=registry.example.com/capw:v0"]).await;
        let mut workers = Workers { replicas: 0, ..Workers::new("calico", &cp).await };
        workers.apply(&cp).await;
        let name = workers.name(&workers.cluster);

        tunnel(&cp, "CrossSubnet", "VXLANCrossSubnet").await;
        cp.patch(Kind::WINDOWS_CLUSTER, &name, &json!({"spec": {"components": {"linuxSide": "Change"}}})).await.expect("changes can be asked for");
        let mark = cp.audit_mark();
        says(&cp, &name, LINUX_SIDE, "ChangeNeeded", &["IPPool default-ipv4-ippool", "manages Linux no more"]).await;
        assert_eq!(written_since(&cp, mark), [""; 0], "no write without a reason");
        step("a pool that the operator would refuse with Windows nodes keeps CAPW from all changes");

        cp.patch(Kind::WINDOWS_CLUSTER, &name, &json!({"spec": {"components": {"linuxSide": "Report"}}}))
            .await
            .expect("changes can be left to people");
        // A reconcile that began earlier may still change something.
        cp.wait_object(Kind::WINDOWS_CLUSTER, &name, "no change is asked for", LIMIT, |object| condition(object, LINUX_SIDE).is_none().then_some(()))
            .await;
        tunnel(&cp, "Always", "VXLAN").await;
        says(&cp, &name, COMPATIBLE, "StrictAffinityOff", &["spec.serviceCIDRs", "ConfigMap tigera-operator/kubernetes-services-endpoint"]).await;
        let object = cp.get(Kind::WINDOWS_CLUSTER, &name).await.expect("the WindowsCluster");
        let findings = object["status"]["components"]["findings"].as_array().cloned().unwrap_or_default();
        let reasons: Vec<&str> = findings.iter().map(|finding| text(finding, "/reason")).collect();
        assert_eq!(reasons, ["StrictAffinityOff", "ServiceNetworkNotConfigured", "ApiServerNotConfigured"]);
        for finding in &findings {
            would_do(&cp, text(finding, "/command"));
        }
        step("what the operator has to know is said, with commands that work");

        let mark = cp.audit_mark();
        cp.patch(Kind::WINDOWS_CLUSTER, &name, &json!({"spec": {"components": {"linuxSide": "Change"}}})).await.expect("changes can be asked for");
        cp.wait_condition(Kind::WINDOWS_CLUSTER, &name, LINUX_SIDE, "True", LIMIT).await;
        cp.wait_condition(Kind::WINDOWS_CLUSTER, &name, COMPATIBLE, "True", LIMIT).await;
        let installation = "patch /apis/operator.tigera.io/v1/installations/default";
        let expected = [
            "patch /apis/projectcalico.org/v3/ipamconfigurations/default",
            installation,
            "patch /api/v1/namespaces/tigera-operator/configmaps/kubernetes-services-endpoint",
            installation,
        ];
        let written = writes_since(&cp, mark, expected.len()).await;
        let is_right = written.len() == expected.len() && written.iter().zip(expected).all(|(is, expected)| is.starts_with(expected));
        assert!(is_right, "{written:#?}");
        let spec = cp.get(INSTALLATIONS, "default").await.expect("the Installation")["spec"].clone();
        let found = (&spec["serviceCIDRs"], &spec["calicoNetwork"]["windowsDataplane"], &spec["windowsNodes"]["cniBinDir"]);
        assert_eq!(found, (&json!(["10.96.0.0/16"]), &json!("HNS"), &json!("/opt/cni/bin")), "{spec:#}");
        let endpoint = cp.get(Kind::CONFIG_MAP, &format!("tigera-operator/{ENDPOINT}")).await.expect("the ConfigMap");
        assert_eq!(endpoint["data"], json!({"KUBERNETES_SERVICE_HOST": "10.0.0.10", "KUBERNETES_SERVICE_PORT": "6443"}));
        let network = cp.get(Kind::WINDOWS_CLUSTER, &name).await.expect("the WindowsCluster")["status"]["components"]["network"].clone();
        assert_eq!(network["podsPerNode"], json!(60), "of a /26: {network:#}");
        step("the operator is told, one thing after the other, and switched on last");

        let of_aks = json!({"spec": {"windowsNodes": {"cniBinDir": "/k/azurecni/bin"}}});
        cp.patch(INSTALLATIONS, "default", &of_aks).await.expect("the Installation");
        cp.wait_object(INSTALLATIONS, "default", "the folder of CAPW's nodes is back", LIMIT, |object| {
            let changed = text(object, "/metadata/annotations/infrastructure.cluster.x-k8s.io~1linux-side-changed");
            (object["spec"]["windowsNodes"]["cniBinDir"] == "/opt/cni/bin" && changed.contains("CniFoldersDiffer")).then_some(())
        })
        .await;
        cp.wait_condition(Kind::WINDOWS_CLUSTER, &name, COMPATIBLE, "True", LIMIT).await;
        step("Calico's plugin is where CAPW's nodes look for it");

        too_many_pods_are_told(&cp, &capw, &workers).await;
        it_brings_kube_proxy(&cp, &capw, &mut workers, &name).await;

        cp.patch(Kind::WINDOWS_CLUSTER, &name, &json!({"spec": {"components": {"mode": "Off"}}})).await.expect("components can be left out");
        cp.wait_gone(Kind::NAMESPACE, BROUGHT, LIMIT).await;
        let left = cp.get(INSTALLATIONS, "default").await.expect("the Installation");
        assert_eq!(left["spec"]["calicoNetwork"]["windowsDataplane"], "HNS", "Calico stays as it is");
        assert!(cp.get(DAEMON_SETS, &format!("{CALICO}/calico-node-windows")).await.is_some());
        step("what was brought is gone");
    });
}

/// CAPW creates no VM for a node that is configured for more pods than Calico's network has addresses for.
async fn too_many_pods_are_told(cp: &ControlPlane, capw: &Capw, workers: &Workers) {
    let bootstrap = json!({"kubelet": {"maxPods": 61}});
    let greedy = Workers { replicas: 1, bootstrap_template: "greedy".to_owned(), bootstrap, ..workers.clone() };
    cp.apply_objects(&[greedy.bootstrap_template(), greedy.machine_deployment()]).await;
    wait_for("a configuration says that it asks for too many pods", LIMIT, || async {
        let configs = cp.list(Kind::WINDOWS_BOOTSTRAP_CONFIG, Some(&workers.namespace)).await;
        let found = condition(configs.first().ok_or("none")?, "Ready").cloned().unwrap_or_default();
        let words = ["L18: spec.kubelet.maxPods: \"61\"", "addresses for 60 pods"];
        let is_told = found["reason"] == "InvalidSpec" && words.iter().all(|part| text(&found, "/message").contains(part));
        if is_told { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
    assert_eq!(simulated_vms(capw.state()).len(), 0, "a VM is made");
    cp.apply_objects(&[workers.machine_deployment()]).await;
    wait_for("its machine is gone", LIMIT, || async {
        let left = cp.list(Kind::WINDOWS_MACHINE, Some(&workers.namespace)).await.len();
        if left == 0 { Ok(()) } else { Err(format!("{left} are left")) }
    })
    .await;
    step("a configuration that asks for more pods than have an address is told before its VM is made");
}

/// CAPW brings kube-proxy to Calico's network, and a node accepts pods once both work.
async fn it_brings_kube_proxy(cp: &ControlPlane, capw: &Capw, workers: &mut Workers, name: &str) {
    cp.patch(Kind::WINDOWS_CLUSTER, name, &json!({"spec": {"components": {"mode": "Auto"}}})).await.expect("components can be brought");
    says(cp, name, COMPONENTS, "PartNotReady", &["DaemonSet calico-system/calico-node-windows is not there", "kubectl get tigerastatus"]).await;
    let set = cp.get(DAEMON_SETS, &format!("{BROUGHT}/kube-proxy")).await.expect("kube-proxy");
    assert!(
        set["spec"]["template"]["spec"]["containers"][0]["args"].as_array().is_some_and(|all| all.contains(&json!("--network=calico"))),
        "{set:#}"
    );
    let settings = cp.get(Kind::CONFIG_MAP, &format!("{BROUGHT}/kube-proxy")).await.expect("its settings");
    let settings: Value = serde_json::from_str(text(&settings, "/data/config.json")).expect("JSON");
    assert_eq!((&settings["winkernel"]["networkName"], &settings["clusterCIDR"]), (&json!("Calico"), &json!("10.244.0.0/16")));
    assert!(cp.get(DAEMON_SETS, &format!("{BROUGHT}/flannel")).await.is_none());
    step("kube-proxy is brought to Calico's network, and the operator has not made the rest");

    cp.apply_objects(&[calico_node_windows()]).await;
    cp.wait_condition(Kind::WINDOWS_CLUSTER, name, COMPONENTS, "True", LIMIT).await;
    let joins = cp.audit_mark();
    workers.replicas = 1;
    cp.apply_objects(&[workers.machine_deployment()]).await;
    let node = unverified_node(cp).await;
    pod_is_ready(cp, BROUGHT, "kube-proxy", &node).await;
    says(cp, name, COMPONENTS, "PartNotReady", &["calico-node-windows: 0 of 1 pods are ready"]).await;
    assert!(cp.get(Kind::NODE, &node).await.is_some_and(|node| is_unverified(&node)), "the taint stays until Calico works");
    let (exit, shown, errors) = capw.diagnose(cp, &["machine", &node, "-n", &workers.namespace]).await;
    let words = ["PartNotReady", "calico-node-windows: 0 of 1 pods are ready", "look at the pods in the namespace capw-windows"];
    assert!(exit == FOUND && words.iter().all(|part| shown.contains(part)), "{exit} {shown} {errors}");
    pod_is_ready(cp, CALICO, "calico-node-windows", &node).await;
    probes::it_reaches_what_pods_need(cp, name, &node).await;
    cp.wait_object(Kind::NODE, &node, "its taint is gone", LIMIT, |node| (!is_unverified(node)).then_some(())).await;
    verified(cp, name, "1/1").await;
    cp.wait_condition(Kind::WINDOWS_CLUSTER, name, COMPONENTS, "True", LIMIT).await;
    cost::assert_within(cp, joins, None);
    workers.replicas = 0;
    cp.apply_objects(&[workers.machine_deployment()]).await;
    verified(cp, name, "0/0").await;
    step("a new node takes pods once Calico and kube-proxy work");
}

/// Sets the tunnel mode in the IPPool and in the Installation.
pub async fn tunnel(cp: &ControlPlane, mode: &str, encapsulation: &str) {
    cp.patch(POOLS, "default-ipv4-ippool", &json!({"spec": {"vxlanMode": mode}})).await.expect("the pool");
    let pools = json!([{"name": "default-ipv4-ippool", "cidr": "10.244.0.0/16", "blockSize": 26, "encapsulation": encapsulation}]);
    cp.patch(INSTALLATIONS, "default", &json!({"spec": {"calicoNetwork": {"ipPools": pools}}})).await.expect("the Installation");
}

/// Returns the CRDs of Calico and its operator that the story needs.
pub fn definitions() -> Vec<Value> {
    let kinds = [
        ("operator.tigera.io", "v1", "Installation"),
        ("crd.projectcalico.org", "v1", "IPPool"),
        ("crd.projectcalico.org", "v1", "FelixConfiguration"),
        ("projectcalico.org", "v3", "IPAMConfiguration"),
    ];
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = |(group, version, kind): (&str, &str, &str)| {
        let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("{plural}.{group}")},
            "spec": {"group": group, "scope": "Cluster", "names": {"kind": kind, "singular": singular, "plural": plural, "listKind": format!("{kind}List")},
                "versions": [{"name": version, "served": true, "storage": true, "schema": schema}]}})
    };
    kinds.into_iter().map(definition).collect()
}

/// Returns the part of the operator's DaemonSet that matters here. <https://github.com/tigera/operator/blob/v1.42.3/pkg/render/windows.go>
fn calico_node_windows() -> Value {
    let labels = json!({"k8s-app": "calico-node-windows", "app.kubernetes.io/name": "calico-node-windows"});
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "calico-node-windows", "namespace": CALICO, "labels": labels},
        "spec": {"selector": {"matchLabels": {"k8s-app": "calico-node-windows"}}, "template": {"metadata": {"labels": labels}, "spec": {
            "nodeSelector": {"kubernetes.io/os": "windows"}, "tolerations": [{"operator": "Exists"}], "hostNetwork": true,
            "containers": [{"name": "felix", "image": "quay.io/calico/node-windows:v3.32.1"}]}}}})
}

/// Checks that the API server accepts the command, which a shell runs as a dry run.
fn would_do(cp: &ControlPlane, command: &str) {
    let folder = Tools::ensure().kubectl.parent().map(Path::to_path_buf).expect("the folder of kubectl");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").expect("PATH"));
    let script = format!("{command} --dry-run=server");
    let output = Command::new("sh").args(["-c", &script]).env("PATH", path).env("KUBECONFIG", cp.kubeconfig()).output().expect("sh runs");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}
