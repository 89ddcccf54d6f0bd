//! Nodes join while connections fail, pods are evicted and settings change at random: a node passes only after real connections.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::kinds::windows_cluster::decide::probes::tests::*;

const NODES: usize = 10;

/// A random event on one of the nodes, caused by a kubelet, the API server or a person.
#[derive(Clone, Debug)]
enum Event {
    /// The pod on the Windows node tries its next connection.
    Connects(bool),
    /// The pod on the Windows node answers from now on, or does not.
    Answers(bool),
    /// The pod on a Linux node tries one of its connections.
    ConnectsBack(usize, bool),
    /// The pod on the Windows node is evicted.
    Evicted,
    /// A pod that is being removed disappears.
    Gone,
    /// Other settings are requested.
    Settings(u8),
    Cordoned(bool),
}

fn event() -> impl Strategy<Value = (usize, Event)> {
    let often = || prop::bool::weighted(0.8);
    let event = prop_oneof![
        8 => often().prop_map(Event::Connects),
        3 => often().prop_map(Event::Answers),
        4 => (0..2_usize, often()).prop_map(|(which, succeeds)| Event::ConnectsBack(which, succeeds)),
        1 => Just(Event::Evicted),
        2 => Just(Event::Gone),
        1 => (0..2_u8).prop_map(Event::Settings),
        1 => any::<bool>().prop_map(Event::Cordoned),
    ];
    (0..NODES, event)
}

/// A pod, with the connections that it has really established.
#[derive(Default)]
struct Truth {
    reached: BTreeSet<String>,
    answers: bool,
    is_evicted: bool,
}

fn nodes_with(cordoned: &BTreeSet<String>) -> Vec<Node> {
    let node = |at: usize| {
        let (name, address) = (node_name(at), format!("192.168.0.{at}"));
        let taints: Vec<Value> = cordoned.iter().filter(|cordoned| **cordoned == name).map(|_| json!({"key": CORDONED})).collect();
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/os": "windows"}},
            "spec": {"taints": taints}, "status": {"addresses": [{"type": "InternalIP", "address": address}]}})
    };
    read(&(0..NODES).map(node).collect::<Vec<_>>()).nodes
}

/// A cluster with new nodes.
struct Cluster {
    objects: BTreeMap<(String, String), Value>,
    truths: BTreeMap<String, Truth>,
    tainted: BTreeSet<String>,
    cordoned: BTreeSet<String>,
    nodes: Vec<Node>,
    made: usize,
    asked: Probe,
}

fn node_name(at: usize) -> String {
    format!("win-{at}")
}

impl Cluster {
    fn new() -> Self {
        let (tainted, cordoned) = ((0..NODES).map(node_name).collect(), BTreeSet::new());
        Self { objects: BTreeMap::new(), truths: BTreeMap::new(), tainted, nodes: nodes_with(&cordoned), cordoned, made: 0, asked: probe() }
    }

    fn pod(&mut self, name: String) -> Option<(&mut Value, &mut Truth)> {
        let pod = self.objects.get_mut(&("Pod".to_owned(), name))?;
        let truth = self.truths.get_mut(text(pod, "/metadata/uid"))?;
        Some((pod, truth))
    }

    fn happens(&mut self, at: usize, event: &Event) {
        let (node, there, back) = (node_name(at), format!("probe-{}", node_name(at)), format!("probe-back-{}", node_name(at)));
        match event {
            Event::Connects(succeeds) => {
                let Some((pod, truth)) = self.pod(there).filter(|(_, truth)| !truth.is_evicted) else { return };
                let next = names(pod, "initContainers").into_iter().find(|name| !truth.reached.contains(name));
                if let Some(next) = next {
                    connect(pod, truth, "initContainerStatuses", next, *succeeds);
                }
            }
            Event::Answers(answers) => {
                let Some((pod, truth)) = self.pod(there).filter(|(_, truth)| !truth.is_evicted) else { return };
                if names(pod, "initContainers").iter().all(|name| truth.reached.contains(name)) {
                    truth.answers = *answers;
                    pod["status"]["podIP"] = json!(format!("10.244.{at}.4"));
                    pod["status"]["conditions"] = json!([{"type": "Ready", "status": if *answers { "True" } else { "False" }}]);
                }
            }
            Event::ConnectsBack(which, succeeds) => {
                let Some((pod, truth)) = self.pod(back) else { return };
                let left: Vec<String> = names(pod, "containers").into_iter().filter(|name| !truth.reached.contains(name)).collect();
                if !left.is_empty() {
                    connect(pod, truth, "containerStatuses", left[which % left.len()].clone(), *succeeds);
                }
            }
            Event::Evicted => {
                let Some((pod, truth)) = self.pod(there) else { return };
                truth.is_evicted = true;
                pod["status"]["phase"] = json!("Failed");
            }
            Event::Gone => self.goes(),
            Event::Settings(settings) => self.asked.image = format!("agnhost:2.63.{settings}"),
            Event::Cordoned(is_cordoned) => {
                self.cordoned.remove(&node);
                self.cordoned.extend(is_cordoned.then_some(node));
                self.nodes = nodes_with(&self.cordoned);
            }
        }
    }

    /// Deletes the objects that are being removed, and Services with their pods.
    fn goes(&mut self) {
        self.objects.retain(|_, object| !is_leaving(object));
        let there: BTreeSet<String> = self.objects.values().map(|object| text(object, "/metadata/uid").to_owned()).collect();
        self.objects.retain(|(kind, _), object| kind == "Pod" || there.contains(text(object, "/metadata/ownerReferences/0/uid")));
    }

    /// One pass, and its effects.
    fn look(&mut self) {
        let live: Vec<Value> = self.objects.values().cloned().collect();
        let tainted: Vec<String> = self.tainted.iter().cloned().collect();
        let Probes { passed, make, remove, said } = probes(&tainted, &self.nodes, &self.asked, &live, NOW.parse().unwrap());
        assert_eq!(passed.len() + said.len(), tainted.len(), "each node passes or is said: {said:?}");
        for node in passed {
            self.has_really_passed(&node);
            self.tainted.remove(&node);
        }
        for object in remove {
            let key = (text(object, "/kind").to_owned(), text(object, "/metadata/name").to_owned());
            self.objects.get_mut(&key).unwrap()["metadata"]["deletionTimestamp"] = json!(NOW);
        }
        for mut object in make {
            self.made += 1;
            let uid = format!("u-{}", self.made);
            object["metadata"]["uid"] = json!(uid);
            object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
            if object["kind"] == "Service" {
                object["spec"]["ports"][0]["nodePort"] = json!(30_000 + self.made);
            }
            let key = (text(&object, "/kind").to_owned(), text(&object, "/metadata/name").to_owned());
            // The API server keeps an existing Service.
            if !self.objects.contains_key(&key) {
                self.truths.insert(uid, Truth::default());
                self.objects.insert(key, object);
            }
        }
        for at in 0..NODES {
            let of = self.objects.keys().filter(|(kind, name)| kind == "Pod" && name.ends_with(&format!("-{}", node_name(at)))).count();
            assert!(of <= 2, "{of} pods of one node");
        }
    }

    fn has_really_passed(&self, node: &str) {
        let get = |kind: &str, name: String| self.objects.get(&(kind.to_owned(), name)).unwrap();
        let (there, back) = (get("Pod", format!("probe-{node}")), get("Pod", format!("probe-back-{node}")));
        let truth = |pod: &Value| &self.truths[text(pod, "/metadata/uid")];
        let has_reached = |pod: &Value, list: &str| names(pod, list).iter().all(|name| truth(pod).reached.contains(name));
        assert!(truth(there).answers && !truth(there).is_evicted && !is_leaving(there), "{node} has a pod that answers");
        assert!(has_reached(there, "initContainers") && has_reached(back, "containers"), "{node} has reached everything, and was reached");
        assert_eq!(text(there, "/spec/containers/0/image"), self.asked.image, "{node} was tried out as is asked for");
        let port = get("Service", format!("probe-{node}"))["spec"]["ports"][0]["nodePort"].clone();
        let number = node.trim_start_matches("win-");
        let addresses = [text(back, "/spec/containers/0/args/1"), text(back, "/spec/containers/1/args/1")];
        assert_eq!(addresses, [format!("10.244.{number}.4:{PORT}"), format!("192.168.0.{number}:{port}")], "{node} was reached itself");
        assert!(!self.cordoned.contains(node), "{node} takes pods");
    }
}

/// The names of the containers that open connections.
fn names(pod: &Value, list: &str) -> Vec<String> {
    let all = pod["spec"][list].as_array().into_iter().flatten();
    all.map(|container| text(container, "/name").to_owned()).filter(|name| name != ANSWER).collect()
}

fn connect(pod: &mut Value, truth: &mut Truth, list: &str, name: String, succeeds: bool) {
    let status = container(&name, ended(i64::from(!succeeds), "TIMEOUT\n"), json!({}));
    let mut statuses = pod["status"][list].as_array().cloned().unwrap_or_default();
    statuses.retain(|status| status["name"] != name);
    statuses.push(status);
    pod["status"][list] = json!(statuses);
    if succeeds {
        truth.reached.insert(name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    /// Two hundred nodes in all.
    #[test]
    fn no_node_passes_before_it_has_reached_everything(events in prop::collection::vec(event(), 0..150)) {
        let mut cluster = Cluster::new();
        for (at, event) in events {
            cluster.happens(at, &event);
            cluster.look();
        }
        // From now on, everything works.
        for _ in 0..20 {
            for at in 0..NODES {
                let connections = std::iter::repeat_n(Event::Connects(true), 5);
                let back = std::iter::repeat_n(Event::ConnectsBack(0, true), 2);
                let rest = [Event::Cordoned(false), Event::Answers(true)].into_iter().chain(back).chain([Event::Gone]);
                connections.chain(rest).for_each(|event| cluster.happens(at, &event));
            }
            cluster.look();
        }
        prop_assert!(cluster.tainted.is_empty(), "{:?}", cluster.tainted);
        cluster.goes();
        prop_assert!(cluster.objects.is_empty(), "{:?}", cluster.objects.keys());
    }
}
