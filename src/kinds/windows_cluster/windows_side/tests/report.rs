//! The report of `mode: Report` equals the later writes of `mode: Auto`, in each recording.

use std::collections::BTreeSet;
use std::fs;

use crate::components::ObjectRef;
use crate::kinds::windows_cluster::windows_side::tests::*;

/// `create`, `change` or `remove`, and the object.
type Change = (&'static str, String);

/// The changes that the report names.
fn changes(said: &[String]) -> BTreeSet<Change> {
    let mut changes = BTreeSet::new();
    for line in said {
        let (verb, rest) = line.split_once(' ').unwrap();
        let object = rest.split([',', '(']).next().unwrap().trim().to_owned();
        match verb {
            "create" => changes.insert(("create", object)),
            "change" => changes.insert(("change", object)),
            "remove" => changes.insert(("remove", object)),
            // An immutable object is removed first.
            "replace" => changes.insert(("remove", object.clone())) && changes.insert(("change", object)),
            "take" => changes.insert(("change", rest.split_once(" from ").unwrap().1.to_owned())),
            reason => {
                assert!(reason.ends_with(':'), "{line}");
                continue;
            }
        };
    }
    changes
}

struct Case {
    server: Arc<Mutex<Server>>,
    recording: String,
    object: WindowsCluster,
}

impl Case {
    /// The objects that watches show: of the kinds that CAPW may bring, only objects with its label, except DaemonSets.
    fn objects(&self) -> Vec<Value> {
        let server = self.server.lock();
        let is_shown = |object: &&Value| object["kind"] == "DaemonSet" || object["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "capw";
        let shown: Vec<Value> = server.objects.values().filter(is_shown).cloned().collect();
        [recorded(&self.recording), server.others.clone(), shown].concat()
    }

    /// Plans the writes, carries them out, and compares.
    async fn compare(&self, of: &str) -> Vec<String> {
        let (shared, _script) = shared(Caches::empty(), 1, vec![]);
        let (ctx, objects) = (shared.windows_cluster(), self.objects());
        let (workload, side) = (workload(&self.server), read(&objects));
        self.server.lock().asked.clear();
        let said = planned(&ctx, &workload, &objects, &side, &self.object, &cluster()).await.unwrap();
        let before = self.server.lock().objects.clone();
        let asked = std::mem::take(&mut self.server.lock().asked);
        assert!(asked.iter().all(|line| line.starts_with("GET ")), "{of}: {asked:?}");
        let brought = bring(&ctx, &workload, &objects, &side, &self.object, &cluster()).await.unwrap();
        assert_eq!(changes(&said), self.written(&before), "{of}: {said:#?}");
        let is_hindered = [Reason::NotDeployed, Reason::NameTaken, Reason::ImageUnknown].contains(&brought.condition.reason);
        let mut hindrances = said.iter().filter_map(|line| line.split_once(": ").filter(|(reason, _)| Reason::from_name(reason).is_some()));
        assert!(!is_hindered || hindrances.clone().next().is_some(), "{of}: {said:#?} {:?}", brought.condition);
        assert!(hindrances.all(|(_, why)| brought.condition.message.contains(why)), "{of}: {said:#?} {:?}", brought.condition);
        said
    }

    /// The writes that the cluster has received.
    fn written(&self, before: &BTreeMap<String, Value>) -> BTreeSet<Change> {
        let server = self.server.lock();
        let change = |line: &String| {
            let (method, path) = line.split_once(' ').unwrap();
            let name = match path.strip_prefix("/api/v1/nodes/") {
                Some(node) => format!("Node {node}"),
                None => ObjectRef::of(server.objects.get(path).or(before.get(path)).unwrap()).to_string(),
            };
            match method {
                "DELETE" => Some(("remove", name)),
                "PATCH" if before.contains_key(path) || name.starts_with("Node ") => Some(("change", name)),
                "PATCH" => Some(("create", name)),
                _ => None,
            }
        };
        server.asked.iter().filter(|line| !line.starts_with("GET ")).filter_map(change).collect()
    }
}

fn recordings() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/components/fixtures");
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let all: Vec<String> = names.filter(|name| name.ends_with(".yaml")).collect();
    assert!(all.len() > 40, "{all:?}");
    all
}

/// A case with a Windows node that has what it needs.
fn case(recording: &str) -> Case {
    let server = Arc::new(Mutex::new(Server { others: vec![windows_node("10.0.20348")], ..Server::default() }));
    Case { server, recording: recording.to_owned(), object: with_validation("Warn") }
}

#[tokio::test]
async fn what_is_said_of_each_recording_is_what_is_then_written() {
    let mut with_network = 0;
    for recording in recordings() {
        let case = case(&recording);
        let said = case.compare(&recording).await;
        assert!(said.contains(&"create RuntimeClass windows-2022".to_owned()), "{said:#?}");
        with_network += usize::from(said.contains(&"create Namespace capw-windows".to_owned()));
        let said = case.compare(&format!("{recording}, again")).await;
        assert_eq!(changes(&said), BTreeSet::new(), "{recording}");

        // All objects are changed at once.
        for object in case.server.lock().objects.values_mut() {
            object["metadata"]["labels"]["app.kubernetes.io/part-of"] = json!("other");
        }
        let count = case.server.lock().objects.len();
        let said = case.compare(&format!("{recording}, changed")).await;
        let changed = said.iter().filter(|line| line.starts_with("change ") && line.ends_with(" (metadata.labels[app.kubernetes.io/part-of])"));
        assert_eq!(changed.count(), count, "{said:#?}");
    }
    assert_eq!(with_network, 9, "recordings of networks that CAPW brings, and that are right");
}

#[tokio::test]
async fn what_is_anothers_is_said_as_it_then_is() {
    for recording in [RECORDING, "calico-operator-windows.yaml", "cilium.yaml"] {
        let brought = case(recording);
        brought.compare(recording).await;
        let there = brought.server.lock().objects.clone();
        for path in there.keys() {
            let case = case(recording);
            case.server.lock().objects.clone_from(&there);
            case.server.lock().objects.get_mut(path).unwrap()["metadata"]["labels"] = json!({});
            let said = case.compare(path).await;
            // Calico's operator leaves kube-proxy to whoever runs it.
            let is_left =
                |line: &String| line.starts_with("NotDeployed: ") && line.contains(", and DaemonSet capw-windows/kube-proxy runs kube-proxy there");
            assert!(said.iter().any(|line| line.starts_with("NameTaken: ") || is_left(line)), "{path}: {said:#?}");
        }
    }
}

#[tokio::test]
async fn classes_and_taints_are_said_too() {
    let mut case = case("cilium.yaml");
    case.server.lock().objects.extend([class("windows-2019", "runhcs-wcow-process"), class("windows-2022", "runc")]);
    let said = case.compare("classes").await;
    for line in ["remove RuntimeClass windows-2019, once no pod uses it", "replace RuntimeClass windows-2022"] {
        assert!(said.contains(&line.to_owned()), "{said:#?}");
    }

    let taken = "take the taint startup-taint.cluster-autoscaler.kubernetes.io/windows-unverified from Node win-1";
    let ready = ["flannel", "kube-proxy"].map(ready_pod);
    for (recording, mode, expected) in [
        ("wmco.yaml", ProbesMode::Datapath, taken),
        (RECORDING, ProbesMode::Off, taken),
        (RECORDING, ProbesMode::Datapath, "create Pod capw-windows/probe-win-1"),
    ] {
        case.recording = recording.to_owned();
        case.object.spec.components.as_mut().unwrap().probes.mode = mode;
        case.server = Arc::new(Mutex::new(Server { others: std::iter::once(tainted_node()).chain(ready.clone()).collect(), ..Server::default() }));
        let said = case.compare(recording).await;
        assert!(said.contains(&expected.to_owned()), "{recording}: {said:#?}");
    }
}

/// The first line is enough: objects that are not CAPW's are not listed.
#[tokio::test]
async fn without_an_image_no_network_is_said() {
    let (shared, _script) = shared(Caches::empty(), 1, vec![]);
    let (case, ctx) = (case(RECORDING), crate::kinds::windows_cluster::windows_side::Context { image: None, ..shared.windows_cluster() });
    let objects = case.objects();
    let said = planned(&ctx, &workload(&case.server), &objects, &read(&objects), &case.object, &cluster()).await.unwrap();
    assert!(said[0].starts_with("ImageUnknown: ") && said[1..].iter().all(|line| !line.contains("capw-windows/")), "{said:#?}");
}

/// The other writer is named once its change is set back. The pods are reported after that.
#[tokio::test]
async fn another_writer_is_named() {
    let case = case(RECORDING);
    case.compare("first").await;
    let set = "/apis/apps/v1/namespaces/capw-windows/daemonsets/flannel";
    case.server.lock().held.insert(set.to_owned(), "kubectl-edit");
    case.server.lock().objects.get_mut(set).unwrap()["spec"]["template"]["spec"]["containers"][0]["image"] = json!("stranger");
    let (shared, _script) = shared(Caches::empty(), 1, vec![]);
    let objects = case.objects();
    let brought = bring(&shared.windows_cluster(), &workload(&case.server), &objects, &read(&objects), &case.object, &cluster()).await.unwrap();
    assert_eq!((brought.condition.status, brought.condition.reason), (Some(false), Reason::FieldManagerConflict));
    let words = "DaemonSet capw-windows/flannel, .spec.template.spec.containers[name=\"flannel\"].image: the field manager kubectl-edit has set something else";
    assert!(brought.condition.message.contains(words), "{}", brought.condition.message);
    assert_eq!(case.compare("after it").await, [""; 0], "it is set back");
}
