//! The placement rules of the DaemonSet controller, which uses only labels and taints of nodes.
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/controller/daemon/daemon_controller.go> (`NodeShouldRunDaemonPod`)

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration};

/// Taints that every pod of a DaemonSet tolerates.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// The taint that pods on the network of their node tolerate too.
const NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// Whether the pod's node selector and affinity match the node.
pub fn selects(pod: &PodSpec, node: &Node) -> bool {
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let by_labels = pod.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let affinity = pod.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    by_labels && required.is_none_or(|required| required.node_selector_terms.iter().any(|term| matches(term, node)))
}

/// Whether a term matches the node. A term without expressions matches nothing.
fn matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let (expressions, fields) = (term.match_expressions.iter().flatten(), term.match_fields.iter().flatten());
    let is_empty = expressions.clone().next().is_none() && fields.clone().next().is_none();
    !is_empty
        && expressions.into_iter().all(|wanted| holds(wanted, labels.get(&wanted.key)))
        && fields.into_iter().all(|wanted| holds(wanted, node.metadata.name.as_ref().filter(|_| wanted.key == "metadata.name")))
}

fn holds(wanted: &NodeSelectorRequirement, value: Option<&String>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let numbers = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match wanted.operator.as_str() {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(is, limit)| is > limit),
        "Lt" => numbers().is_some_and(|(is, limit)| is < limit),
        _ => false,
    }
}

/// The taints of a node that keep the pods of a DaemonSet away.
pub fn not_tolerated<'a>(pod: &PodSpec, taints: &'a [Taint]) -> Vec<&'a Taint> {
    let by_all = |taint: &Taint| {
        let is = |(key, effect): (&str, &str)| taint.key == key && taint.effect == effect;
        TOLERATED.into_iter().any(is) || (pod.host_network == Some(true) && is(NETWORK))
    };
    let keeps_away = |taint: &&Taint| ["NoSchedule", "NoExecute"].contains(&taint.effect.as_str());
    let by_own = |taint: &Taint| pod.tolerations.iter().flatten().any(|toleration| tolerates(toleration, taint));
    taints.iter().filter(keeps_away).filter(|taint| !by_all(taint) && !by_own(taint)).collect()
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is_or_any = |given: &Option<String>, is: &str| given.as_deref().is_none_or(|given| given.is_empty() || given == is);
    let value = toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
    let by_value = toleration.operator.as_deref() == Some("Exists") || value;
    is_or_any(&toleration.effect, &taint.effect) && is_or_any(&toleration.key, &taint.key) && by_value
}
