//! Tests of `capw status` with objects as the API server returns them.

use std::process::ExitCode;

use clap::Parser;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::entry::State;
use super::objects::Objects;
use super::report::{Report, report};
use super::{Status, code, show};
use crate::api::machine::WindowsMachine;
use crate::kube_api::cluster::Cluster;
use crate::kube_api::mock::{Script, refuse, step};

const TROUBLE: &str = include_str!("fixtures/trouble.yaml");
const OTHERS: &str = include_str!("fixtures/others.yaml");

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn typed<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

fn objects(text: &str) -> Objects {
    let mut all = Objects { templates: Some(Vec::new()), ..Objects::default() };
    for object in serde_saphyr::from_multiple::<Value>(text).unwrap() {
        match object["kind"].as_str().unwrap() {
            "Cluster" => all.clusters.push(typed(object)),
            "MachineDeployment" => all.machine_deployments.push(typed(object)),
            "Machine" => all.machines.push(typed(object)),
            "ExternalControlPlane" => all.control_planes.push(typed(object)),
            "WindowsCluster" => all.windows_clusters.push(typed(object)),
            "WindowsHypervisor" => all.hypervisors.push(typed(object)),
            "WindowsNodePool" => all.pools.push(typed(object)),
            "WindowsMachineTemplate" => all.templates.as_mut().unwrap().push(typed(object)),
            "WindowsMachine" => all.windows_machines.push(typed(object)),
            "WindowsBootstrapConfig" => all.configs.push(typed(object)),
            other => panic!("{other}"),
        }
    }
    all
}

fn told(objects: &Objects, name: Option<&str>) -> Report {
    report(objects, name, now()).unwrap()
}

fn text(objects: &Objects) -> String {
    show::text(&told(objects, None))
}

#[test]
fn the_page_about_troubleshooting_shows_what_is_printed() {
    let page = include_str!("../../../docs/troubleshooting.md");
    let shown = page.split_once("```text\n").unwrap().1.split_once("```").unwrap().0;
    let printed = text(&objects(TROUBLE));
    assert!(shown == printed, "docs/troubleshooting.md: between ```text and ``` write:\n{printed}");
}

#[test]
fn what_hangs_is_shown_in_a_tree() {
    insta::assert_snapshot!(text(&objects(OTHERS)));
}

#[test]
fn programs_read_the_same_tree() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&told(&objects(TROUBLE), None)).unwrap());
}

#[test]
fn one_cluster_or_one_standalone_pool_by_its_name() {
    let all = objects(&format!("{TROUBLE}---\n{OTHERS}"));
    for (name, root) in [("first", "Cluster lab/first"), ("paused", "Cluster lab/paused"), ("alone", "WindowsNodePool lab/alone")] {
        let shown = show::text(&told(&all, Some(name)));
        let roots: Vec<&str> = shown.lines().filter(|line| line.contains(" lab/")).collect();
        assert!(roots.len() == 1 && roots[0].starts_with(root), "{name}: {shown}");
    }
    // The pool of a MachinePool is part of its Cluster, and a Cluster without CAPW's objects is not reported.
    for name in ["of-core", "linux-only", "nobody"] {
        let error = report(&all, Some(name), now()).unwrap_err();
        assert!(error.contains(name) && error.contains("-n NAME"), "{error}");
    }
}

#[test]
fn the_verdict_and_the_exit_code() {
    let well: String = TROUBLE.replace("reason: JoinFailed", "reason: Joined").replace("reason: Joining", "reason: Joined");
    let well = well
        .replace("\"False\", reason: Joined", "\"True\", reason: Joined")
        .replace("{type: NetworkCompatible, status: \"False\"", "{type: NetworkCompatible, status: \"True\"");
    let mut well = objects(&well);
    well.windows_clusters.iter_mut().for_each(|object| object.status.as_mut().unwrap().components.as_mut().unwrap().findings.clear());
    let joining = || objects(&TROUBLE.replace("reason: JoinFailed", "reason: Joining"));
    let unread = |mut objects: Objects| {
        objects.not_looked_at.push("list machines lab/: no".into());
        objects
    };
    let one = |mut objects: Objects| {
        objects.windows_clusters.clear();
        objects
    };
    for (objects, verdict, exit) in [
        (objects(TROUBLE), "2 objects hang, 1 object is under way.", 3),
        (one(joining()), "Nothing hangs, 2 objects are under way.", 0),
        (one(objects(TROUBLE)), "1 object hangs, 1 object is under way.", 3),
        (unread(objects(TROUBLE)), "2 objects hang, 1 object is under way, as far as it could be looked at.", 3),
        (Objects::default(), "There is nothing of CAPW here (another namespace? -n NAME, or -A for all).", 0),
        (unread(Objects::default()), "There is nothing of CAPW here, as far as it could be looked at.", 1),
    ] {
        let report = told(&objects, None);
        assert_eq!((report.verdict.as_str(), format!("{:?}", code(&report))), (verdict, format!("{:?}", ExitCode::from(exit))));
    }
    let report = told(&well, None);
    assert_eq!((report.verdict.as_str(), format!("{:?}", code(&report))), ("All is well.", format!("{:?}", ExitCode::SUCCESS)));
    let shown = show::text(&report);
    assert!(shown.contains("MachineDeployment windows: WindowsMachineTemplate windows, 5 of 5 ready") && !shown.contains("win-"), "{shown}");
}

#[test]
fn a_taint_that_nothing_takes_away_hangs_with_its_command() {
    let nodes = crate::components::read(&[
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "win-1", "labels": {"kubernetes.io/os": "windows"}},
        "spec": {"taints": [{"key": crate::api::components::UNVERIFIED_TAINT, "effect": "NoSchedule"}]}}),
    ])
    .nodes;
    let said = crate::kinds::windows_cluster::decide::windows_side::taint_not_removed(&nodes).unwrap();
    let mut all = objects(TROUBLE);
    let status = all.windows_clusters[0].status.as_mut().unwrap();
    status.conditions = typed(json!([{"type": said.type_.as_str(), "status": "False", "reason": said.reason.as_str(), "message": said.message,
        "lastTransitionTime": "2026-01-01T11:59:30Z"}]));
    let report = told(&all, None);
    let shown = show::text(&report);
    assert_eq!(report.hangs, 2);
    for part in ["hangs", "TaintNotRemoved", "`kubectl taint nodes win-1 startup-taint.cluster-autoscaler.kubernetes.io/windows-unverified-`"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn a_machine_is_told_by_the_worst_that_is_said_of_it() {
    let condition = |type_: &str, status: &str, reason: &str, at: &str| json!({"type": type_, "status": status, "reason": reason, "message": format!("of {type_}"), "lastTransitionTime": at});
    let (long, soon) = ("2026-01-01T10:59:00Z", "2026-01-01T11:59:30Z");
    let joined = condition("NodeJoined", "True", "Joined", soon);
    let ready = condition("Ready", "True", "Provisioned", soon);
    let node = |status: &str, at: &str| Some(condition("NodeReady", status, "NodeNotReady", at));
    for (created, metadata, conditions, core, expected) in [
        (soon, json!({}), json!([ready, joined]), None, None),
        (soon, json!({}), json!([ready, joined]), node("True", soon), None),
        (soon, json!({}), json!([ready, joined]), node("False", soon), Some((State::UnderWay, "NodeNotReady"))),
        (soon, json!({}), json!([ready, joined]), node("Unknown", long), Some((State::Hangs, "NodeNotReady"))),
        (soon, json!({}), json!([]), None, Some((State::UnderWay, "provisioning"))),
        (long, json!({}), json!([]), None, Some((State::Hangs, "provisioning"))),
        (soon, json!({}), json!([condition("Ready", "False", "Provisioning", soon)]), None, Some((State::UnderWay, "Provisioning"))),
        (long, json!({}), json!([condition("Ready", "False", "Provisioning", soon)]), None, Some((State::Hangs, "Provisioning"))),
        (soon, json!({}), json!([condition("NodeJoined", "False", "NodeNeverJoined", soon), ready]), None, Some((State::Hangs, "NodeNeverJoined"))),
        (
            soon,
            json!({}),
            json!([ready, joined, condition("VirtualMachineReady", "Unknown", "HypervisorUnreachable", soon)]),
            None,
            Some((State::Hangs, "HypervisorUnreachable")),
        ),
        (soon, json!({}), json!([condition("Ready", "False", "OfANewerController", soon)]), None, Some((State::Hangs, "OfANewerController"))),
        (
            soon,
            json!({}),
            json!([condition("Paused", "True", "Paused", soon), condition("Ready", "False", "Provisioning", soon)]),
            None,
            Some((State::Hangs, "Paused")),
        ),
        (soon, json!({}), json!([condition("Paused", "True", "Paused", soon), ready, joined]), None, None),
        (
            soon,
            json!({"deletionTimestamp": soon}),
            json!([condition("Deleting", "True", "DrainingNode", soon), ready, joined]),
            None,
            Some((State::UnderWay, "DrainingNode")),
        ),
        (soon, json!({"deletionTimestamp": soon}), json!([ready, joined]), node("False", long), Some((State::UnderWay, "removing"))),
        (
            soon,
            json!({"deletionTimestamp": "2026-01-01T09:00:00Z"}),
            json!([condition("Deleting", "True", "Deleting", soon), ready, joined]),
            None,
            Some((State::Hangs, "Deleting")),
        ),
    ] {
        let mut object = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsMachine", "spec": {"image": "w"},
            "metadata": {"name": "m", "namespace": "lab", "creationTimestamp": created,
                "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "m", "uid": "1"}]},
            "status": {"conditions": conditions}});
        json_patch::merge(&mut object["metadata"], &metadata);
        let core = core.into_iter().map(|condition| {
            typed(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "m", "namespace": "lab", "uid": "1"},
                "spec": {}, "status": {"conditions": [condition]}}))
        });
        let machine: WindowsMachine = typed(object.clone());
        let all = Objects { machines: core.collect(), ..Objects::default() };
        let entry = super::machine::machine(&all, &machine, now());
        let found = entry.as_ref().map(|entry| (entry.state, entry.troubles[0].reason.as_str()));
        assert_eq!(found, expected, "{object:#}");
    }
}

#[test]
fn a_hypervisor_of_two_clusters_counts_once() {
    let mut all = objects(TROUBLE);
    let unreachable = json!([{"type": "Ready", "status": "False", "reason": "HypervisorUnreachable", "message": "no", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    all.hypervisors[0].status.as_mut().unwrap().conditions = typed(unreachable);
    let before = told(&all, None);
    let mut second = all.windows_clusters[0].clone();
    second.metadata.name = Some("second".into());
    second.metadata.labels = Some([("cluster.x-k8s.io/cluster-name".to_owned(), "second".to_owned())].into());
    second.status.as_mut().unwrap().components = None;
    second.status.as_mut().unwrap().conditions.clear();
    all.windows_clusters.push(second);
    let after = told(&all, None);
    assert_eq!((before.hangs, after.hangs), (3, 3));
    assert_eq!((before.objects.len(), after.objects.len()), (1, 2), "a Cluster that only its WindowsCluster names");
}

#[test]
fn a_windows_cluster_of_standalone_pools_stands_alone() {
    let mut all = objects(TROUBLE);
    let mut alone = all.windows_clusters[0].clone();
    alone.metadata = typed(json!({"name": "there", "namespace": "lab"}));
    alone.spec.cluster = Some(typed(json!({"kubeconfigSecretRef": {"name": "there"}})));
    all.windows_clusters.push(alone);
    for (name, count) in [(None, 2), (Some("there"), 1)] {
        let told = told(&all, name);
        let found = told.objects.iter().find(|entry| entry.name == "there").unwrap();
        assert_eq!((found.kind, told.objects.len()), ("WindowsCluster", count));
        assert!(!found.troubles.is_empty(), "what keeps its network");
    }
}

/// The lists, in order.
const KINDS: [&str; 10] = [
    "infrastructure.cluster.x-k8s.io/v1alpha1 windowsmachines",
    "infrastructure.cluster.x-k8s.io/v1alpha1 windowsnodepools",
    "infrastructure.cluster.x-k8s.io/v1alpha1 windowsclusters",
    "infrastructure.cluster.x-k8s.io/v1alpha1 windowshypervisors",
    "infrastructure.cluster.x-k8s.io/v1alpha1 windowsmachinetemplates",
    "bootstrap.cluster.x-k8s.io/v1alpha1 windowsbootstrapconfigs",
    "controlplane.cluster.x-k8s.io/v1alpha1 externalcontrolplanes",
    "cluster.x-k8s.io/v1beta2 clusters",
    "cluster.x-k8s.io/v1beta2 machinedeployments",
    "cluster.x-k8s.io/v1beta2 machines",
];

fn request(kind: &str, namespace: Option<&str>) -> String {
    let (group, plural) = kind.split_once(' ').unwrap();
    format!("GET /apis/{group}/{}{plural}", namespace.map(|name| format!("namespaces/{name}/")).unwrap_or_default())
}

fn empty() -> Value {
    json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": []})
}

#[tokio::test]
async fn each_kind_is_listed_once_and_one_that_is_not_installed_has_no_objects() {
    for namespace in [Some("lab"), None] {
        let answer = |kind: &&str| {
            let request = request(kind, namespace);
            // Cluster API is not installed.
            if kind.starts_with("cluster.x-k8s.io") { refuse(&request, 404, "Failed to parse error data") } else { step(&request, empty()) }
        };
        let (client, script) = Script::new(KINDS.iter().map(answer).collect());
        let objects = Objects::read(&Cluster::new(client), namespace).await.unwrap();
        assert_eq!((objects.not_looked_at.len(), script.seen().len()), (0, KINDS.len()));
    }
}

#[tokio::test]
async fn a_list_that_is_forbidden_is_told_with_verb_and_resource_and_the_rest_is_looked_at() {
    let answer = |kind: &&str| {
        let request = request(kind, Some("lab"));
        if kind.ends_with("machinetemplates") || kind.ends_with(" machines") { refuse(&request, 403, "Forbidden") } else { step(&request, empty()) }
    };
    let (client, _script) = Script::new(KINDS.iter().map(answer).collect());
    let mut read = Objects::read(&Cluster::new(client), Some("lab")).await.unwrap();
    assert!(read.templates.is_none(), "a MachineDeployment may have its template");
    let told_of = std::mem::take(&mut read.not_looked_at);
    let [templates, machines] = told_of.as_slice() else { panic!("{told_of:?}") };
    assert!(templates.starts_with("list windowsmachinetemplates lab/: ") && machines.starts_with("list machines lab/: "), "{told_of:?}");
    let objects = Objects { not_looked_at: told_of, templates: None, ..objects(TROUBLE) };
    let shown = text(&objects);
    assert!(shown.contains("\nnot looked at: list machines lab/: ") && shown.contains("win-zk3lp") && !shown.contains("TemplateMissing"), "{shown}");
}

#[tokio::test]
async fn an_api_server_that_does_not_know_who_asks_is_asked_once() {
    let (client, _script) = Script::new(vec![refuse(&request(KINDS[0], Some("lab")), 401, "Unauthorized")]);
    let error = Objects::read(&Cluster::new(client), Some("lab")).await.unwrap_err();
    assert!(error.contains("list windowsmachines lab/") && error.contains("credentials"), "{error}");
}

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    status: Status,
}

#[test]
fn one_namespace_or_all() {
    assert!(Line::try_parse_from(["status", "first", "-n", "lab", "-o", "json"]).is_ok());
    assert!(Line::try_parse_from(["status", "-A"]).unwrap().status.all_namespaces);
    let error = Line::try_parse_from(["status", "-A", "-n", "lab"]).err().unwrap().to_string();
    assert!(error.contains("--all-namespaces") && error.contains("--namespace"), "{error}");
}
