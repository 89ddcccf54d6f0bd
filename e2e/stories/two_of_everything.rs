//! Story *two of everything*: two workload clusters and two namespaces with objects of the same names: Cluster, hypervisor, machines, even the data
//! centre behind the hypervisors. Nothing is mixed up, and the deletion of one cluster does not touch the other.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use capw::api::name::VmUuid;
use serde_json::{Value, json};

use crate::workers::{self, Workers};
use crate::world::{self, AuditEvent, Capw, ControlPlane, Kind, Options, SimulatedVm, simulated_vms, text, wait_for};

const LIMIT: Duration = Duration::from_secs(90);
/// Before the first cluster is deleted, nothing of the second is written for this time: twice the interval between listings of a hypervisor.
const REST: Duration = Duration::from_secs(15);
/// The name of a Machine in each namespace.
const TWIN: &str = "win-1";
/// The second hypervisor of each namespace, which a second MachineDeployment uses.
const ANNEX: &str = "annex";

#[test]
fn two_of_everything_and_nothing_mixes() {
    world::run(async {
        let (one, two) = tokio::join!(
            ControlPlane::start(Options::default().named("two-management")),
            ControlPlane::start(Options::plain().named("two-workload")),
        );
        let capw = Capw::start(&one, &[]).await;
        // The first joins the management cluster itself, the second another cluster. Both hypervisors show the same data centre.
        let shared = json!({"simulated": {"datacenter": "shared"}});
        let machine = json!({"image": "windows-server-2022", "cpus": 4, "memory": "8Gi", "hypervisorRef": {"name": "lab"}});
        let twin = |like: Workers| Workers { driver: shared.clone(), machine: machine.clone(), replicas: 1, ..like };
        let here = twin(Workers::new("here", &one).await);
        let there = twin(Workers::new("there", &two).await);
        for workers in [&here, &there] {
            let mut objects = workers.objects();
            objects.extend(beside(workers));
            one.apply_objects(&objects).await;
        }
        let (in_one, in_two) = tokio::join!(settled(&one, &here, &one), settled(&one, &there, &two));

        apart(&in_one, &in_two);
        same_names_other_machines(&one).await;
        let vms = simulated_vms(capw.state());
        for (workers, machines) in [(&here, &in_one), (&there, &in_two)] {
            on_the_right_hypervisor(&one, workers, machines, &vms).await;
        }
        tokens_were_made_where_they_belong(&one, &two).await;

        wait_for("the second cluster's guests have had their last word", LIMIT, || async {
            let machines = one.list(Kind::WINDOWS_MACHINE, Some("there")).await;
            let states: Vec<String> = machines.iter().map(|machine| machine["status"]["bootstrap"]["state"].to_string()).collect();
            if states.iter().all(|state| state == "\"finished\"") { Ok(()) } else { Err(format!("{states:?}")) }
        })
        .await;
        let before = at_rest(&one, &two, &there, &capw).await;
        one.delete(Kind::CLUSTER, &here.name(&here.cluster)).await;
        here.wait_gone(&one, LIMIT).await;
        wait_for("nothing of the first is left", LIMIT, || async {
            let vms: Vec<SimulatedVm> = simulated_vms(capw.state()).into_iter().filter(|vm| vm.cluster.starts_with("here/")).collect();
            let left = workers::left_in_workload(&one).await;
            if vms.is_empty() && left.is_empty() { Ok(()) } else { Err(format!("{vms:?} {left:?}")) }
        })
        .await;
        assert_eq!(witness(&one, &two, &there, &capw).await, before, "the end of the first cluster touched the second");

        // The remaining cluster still works: it grows, and can be deleted on its own.
        let there = Workers { replicas: 2, ..there };
        one.apply_objects(&[there.machine_deployment()]).await;
        settled(&one, &there, &two).await;
        one.delete(Kind::CLUSTER, &there.name(&there.cluster)).await;
        there.wait_gone(&one, LIMIT).await;
        workers::wait_nothing_left(&two, &capw, LIMIT).await;
    });
}

/// Returns the objects beside the MachineDeployment: a second hypervisor with its own machines, and a Machine with a fixed name.
fn beside(workers: &Workers) -> Vec<Value> {
    let annex = Workers { hypervisor: ANNEX.to_owned(), driver: json!({"simulated": {}}), template: ANNEX.to_owned(), ..workers.clone() };
    let own = |name: &str| json!({"name": name, "namespace": workers.namespace});
    let mut deployment = annex.machine_deployment();
    deployment["metadata"] = own(ANNEX);
    deployment["spec"]["template"]["spec"]["failureDomain"] = json!(ANNEX);
    let mut infrastructure = workers.windows_cluster();
    infrastructure["spec"]["hypervisors"] = json!([{"name": workers.hypervisor}, {"name": ANNEX}]);
    let label = json!({"cluster.x-k8s.io/cluster-name": workers.cluster});
    let twin = |kind: &str, group: &str, spec: Value| {
        let metadata = json!({"name": TWIN, "namespace": workers.namespace, "labels": label});
        json!({"apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec})
    };
    let (machines, bootstrap) = ("infrastructure.cluster.x-k8s.io", "bootstrap.cluster.x-k8s.io");
    vec![
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsHypervisor", "metadata": own(ANNEX),
            "spec": {"simulated": {}},
        }),
        infrastructure,
        annex.machine_template(),
        deployment,
        twin("WindowsMachine", &format!("{machines}/v1alpha1"), workers.machine.clone()),
        twin("WindowsBootstrapConfig", &format!("{bootstrap}/v1alpha1"), workers.bootstrap.clone()),
        twin(
            "Machine",
            "cluster.x-k8s.io/v1beta2",
            json!({
                "clusterName": workers.cluster,
                "version": workers.version,
                "bootstrap": {"configRef": {"apiGroup": bootstrap, "kind": "WindowsBootstrapConfig", "name": TWIN}},
                "infrastructureRef": {"apiGroup": machines, "kind": "WindowsMachine", "name": TWIN},
            }),
        ),
    ]
}

/// Waits for both MachineDeployments and the twin. Returns their Machines.
async fn settled(cp: &ControlPlane, workers: &Workers, to: &ControlPlane) -> Vec<Value> {
    let all = Workers { replicas: workers.replicas + 2, ..workers.clone() };
    all.wait_settled(cp, to, LIMIT).await
}

fn by_node(machines: &[Value]) -> BTreeMap<String, String> {
    let node = |machine: &Value| (text(machine, "/status/nodeRef/name").to_owned(), text(machine, "/spec/providerID").to_owned());
    machines.iter().map(node).collect()
}

fn apart(one: &[Value], two: &[Value]) {
    let (one, two) = (by_node(one), by_node(two));
    assert!(one.contains_key(TWIN) && two.contains_key(TWIN), "{one:?} {two:?}");
    assert!(one.values().all(|id| two.values().all(|other| other != id)), "a VM belongs to both clusters: {one:?} {two:?}");
}

/// Checks that the machines of the same name in both namespaces are two different machines.
async fn same_names_other_machines(cp: &ControlPlane) {
    let mut ids = Vec::new();
    for namespace in ["here", "there"] {
        let twin = cp.get(Kind::WINDOWS_MACHINE, &format!("{namespace}/{TWIN}")).await.expect("the twin is there");
        let id = VmUuid::of(text(&twin, "/metadata/uid"));
        assert_eq!(text(&twin, "/spec/providerID"), format!("windows://lab/{id}"));
        ids.push(id);
    }
    assert_ne!(ids[0], ids[1]);
}

/// Checks that each Machine's Node, VM and identity agree: data centre, owner, name.
async fn on_the_right_hypervisor(cp: &ControlPlane, workers: &Workers, machines: &[Value], vms: &[SimulatedVm]) {
    for machine in machines {
        let annex = text(machine, "/metadata/labels/cluster.x-k8s.io~1deployment-name") == ANNEX;
        let (hypervisor, datacenter) =
            if annex { (ANNEX, format!("{}.{ANNEX}", workers.namespace)) } else { (workers.hypervisor.as_str(), "shared".to_owned()) };
        let id = text(machine, "/spec/providerID");
        let uuid = id.strip_prefix(&format!("windows://{hypervisor}/")).unwrap_or_else(|| panic!("{id} is not on {hypervisor}"));
        let found: Vec<&SimulatedVm> = vms.iter().filter(|vm| vm.directory == uuid).collect();
        assert_eq!(found.len(), 1, "{id}: {found:?}");
        let cluster = format!("{}/{}", workers.namespace, workers.cluster);
        assert_eq!((found[0].datacenter.as_str(), found[0].cluster.as_str()), (datacenter.as_str(), cluster.as_str()));
        assert_eq!(found[0].name, text(machine, "/spec/infrastructureRef/name"));
        let own = cp.get(Kind::WINDOWS_MACHINE, &workers.name(&found[0].name)).await.expect("the WindowsMachine of a Machine");
        assert_eq!(text(&own, "/status/failureDomain"), hypervisor);
    }
    // Each namespace has exactly three VMs.
    assert_eq!(vms.iter().filter(|vm| vm.cluster.starts_with(&format!("{}/", workers.namespace))).count(), machines.len());
}

/// Three machines joined each cluster: CAPW created three tokens in it, and approved only the requests of its kubelets. CAPW may have repeated only
/// the requests that the API server failed to answer.
async fn tokens_were_made_where_they_belong(one: &ControlPlane, two: &ControlPlane) {
    for cp in [one, two] {
        let events = cp.audit();
        let writes = |resource: &str, subresource: &str| -> (Vec<&AuditEvent>, usize) {
            let by_capw = events.iter().filter(|event| event.user == workers::REMOTE_USER && event.is_write());
            let (done, failed): (Vec<_>, Vec<_>) = by_capw
                .filter(|event| event.resource == resource && event.subresource == subresource)
                .filter(|event| event.code < 300 || event.code >= 500)
                .partition(|event| (200..300).contains(&event.code));
            (done, failed.len())
        };
        let (tokens, failed) = writes("secrets", "");
        let tokens = tokens.iter().filter(|event| event.verb == "create").count();
        assert!((3..=3 + failed).contains(&tokens), "{tokens} tokens in {}, {failed} requests failed", cp.directory().display());
        let (approvals, failed) = writes("certificatesigningrequests", "approval");
        let approved: BTreeSet<&str> = approvals.iter().map(|event| event.name.as_str()).collect();
        let requests = cp.list(Kind::CERTIFICATE_SIGNING_REQUEST, None).await;
        let of_kubelets = requests.iter().filter(|request| text(request, "/spec/signerName") == "kubernetes.io/kube-apiserver-client-kubelet");
        assert_eq!(approved, of_kubelets.map(|request| text(request, "/metadata/name")).collect(), "{}", cp.directory().display());
        assert!(approved.len() >= 3 && approvals.len() <= approved.len() + failed, "{approvals:#?}");
    }
}

/// Returns the result of [`witness`] once it stays the same for a while: tokens are removed and labels set after the guests' last reports.
async fn at_rest(cp: &ControlPlane, to: &ControlPlane, workers: &Workers, capw: &Capw) -> BTreeMap<String, String> {
    let last = RefCell::new((witness(cp, to, workers, capw).await, Instant::now()));
    wait_for("nothing of the second cluster is written for a while", LIMIT, || async {
        let now = witness(cp, to, workers, capw).await;
        let mut last = last.borrow_mut();
        if now != last.0 {
            *last = (now, Instant::now());
            return Err("it was written");
        }
        if last.1.elapsed() >= REST { Ok(now) } else { Err("it was written some seconds ago") }
    })
    .await
}

/// Returns everything of a cluster that the deletion of another cluster must not touch, by identity and version.
async fn witness(cp: &ControlPlane, to: &ControlPlane, workers: &Workers, capw: &Capw) -> BTreeMap<String, String> {
    let mut seen = BTreeMap::new();
    for kind in [Kind::WINDOWS_MACHINE, Kind::WINDOWS_BOOTSTRAP_CONFIG, Kind::SECRET, Kind::WINDOWS_CLUSTER, Kind::EXTERNAL_CONTROL_PLANE] {
        for object in cp.list(kind, Some(&workers.namespace)).await {
            let name = format!("{} {}", kind.plural, text(&object, "/metadata/name"));
            seen.insert(name, text(&object, "/metadata/resourceVersion").to_owned());
        }
    }
    for node in to.list(Kind::NODE, None).await {
        seen.insert(format!("node {}", text(&node, "/metadata/name")), text(&node, "/metadata/uid").to_owned());
    }
    for vm in simulated_vms(capw.state()).into_iter().filter(|vm| vm.cluster.starts_with(&format!("{}/", workers.namespace))) {
        seen.insert(format!("vm {}", vm.directory), format!("{vm:?}"));
    }
    seen
}
