//! Part of the story *sequences*: every field of every kind gets every value that its schema suggests, in a dry run. Each refusal must name
//! the field itself, or a parent field that the refusal is about. `CAPW_SEQUENCES=all` tries all values in all places, otherwise a field
//! that stands in several places gets all values in the first one and a part of them in the others.

use std::collections::{BTreeSet, HashSet};

use futures::StreamExt;
use kube::core::Status;
use serde_json::{Value, json};

use super::schema;
use super::values::{Field, Step, fields, put, sample, take_away, values};
use crate::world::{self, ControlPlane, Kind, Options, step};

/// In a short run, one of this many values is tried of a field that had all its values in another place.
const PART: usize = 8;
/// The number of concurrent requests.
const ABREAST: usize = 16;

/// A kind, its name, and a valid spec.
#[rustfmt::skip]
const SUBJECTS: [(Kind, &str, &str); 15] = [
    (Kind::WINDOWS_HYPERVISOR, "WindowsHypervisor", r#"{"simulated": {}}"#),
    (Kind::WINDOWS_HYPERVISOR, "WindowsHypervisor", r#"{"libvirt": {"address": "qemu+tls://kvm1.example.com/system"}}"#),
    (Kind::WINDOWS_HYPERVISOR, "WindowsHypervisor", r#"{"vsphere": {"server": "v.example.com", "datacenter": "d", "datastore": "ds", "resourcePool": "c/Resources", "network": "n"}}"#),
    (Kind::WINDOWS_HYPERVISOR, "WindowsHypervisor", r#"{"proxmox": {"servers": ["p.example.com"], "nodes": ["p"], "pool": "capw", "isoStorage": "isos", "network": "vmbr0"}}"#),
    (Kind::WINDOWS_CLUSTER, "WindowsCluster", "{}"),
    (Kind::WINDOWS_CLUSTER_TEMPLATE, "WindowsClusterTemplate", r#"{"template": {}}"#),
    (Kind::EXTERNAL_CONTROL_PLANE, "ExternalControlPlane", "{}"),
    (Kind::EXTERNAL_CONTROL_PLANE_TEMPLATE, "ExternalControlPlaneTemplate", r#"{"template": {}}"#),
    (Kind::WINDOWS_MACHINE, "WindowsMachine", r#"{"image": "windows-server-2022"}"#),
    (Kind::WINDOWS_MACHINE_TEMPLATE, "WindowsMachineTemplate", r#"{"template": {"spec": {"image": "windows-server-2022"}}}"#),
    (Kind::WINDOWS_BOOTSTRAP_CONFIG, "WindowsBootstrapConfig", "{}"),
    (Kind::WINDOWS_BOOTSTRAP_CONFIG, "WindowsBootstrapConfig", include_str!("../../../src/bootstrap/sample-full.yaml")),
    (Kind::WINDOWS_BOOTSTRAP_CONFIG_TEMPLATE, "WindowsBootstrapConfigTemplate", r#"{"template": {}}"#),
    (Kind::WINDOWS_NODE_POOL, "WindowsNodePool", r#"{"template": {"machine": {"image": "windows-server-2022"}, "bootstrap": {}}}"#),
    (Kind::WINDOWS_NODE_POOL_TEMPLATE, "WindowsNodePoolTemplate", r#"{"template": {"spec": {"template": {"machine": {"image": "windows-server-2022"}}}}}"#),
];

#[test]
fn every_refusal_names_its_field() {
    world::run(async {
        let cp = ControlPlane::start(Options::standalone().named("refusals")).await;
        let mut choice = Choice::new(super::are_all_wanted(), world::seed());
        let (mut tried, mut refused, mut wrong) = (0, 0, BTreeSet::new());
        for (kind, name, spec) in SUBJECTS {
            let spec: Value = serde_saphyr::from_str(spec).expect("JSON or YAML");
            let object = json!({"apiVersion": kind.api_version, "kind": name, "metadata": {"name": "x", "namespace": "default"}, "spec": spec});
            let root = schema(&cp, kind).await;
            let all = fields(&json!({"properties": {"spec": root["properties"]["spec"]}}), &[]);
            let tries: Vec<(&Field, Value)> =
                all.iter().flat_map(|field| choice.values(&root, field).into_iter().map(move |value| (field, value))).collect();
            tried += tries.len();
            let answers: Vec<Option<Result<(), String>>> = futures::stream::iter(tries)
                .map(|(field, value)| judge(&cp, kind, &root, &object, field, value))
                .buffer_unordered(ABREAST)
                .collect()
                .await;
            refused += answers.iter().flatten().count();
            wrong.extend(answers.into_iter().flatten().filter_map(Result::err));
        }
        step(format!("{refused} of {tried} values were refused"));
        let least = if choice.is_whole { 8000 } else { 3000 };
        assert!(refused > least, "{refused} refusals: the values are no good");
        assert!(wrong.is_empty(), "{} refusals do not name their field:\n{}", wrong.len(), wrong.into_iter().collect::<Vec<_>>().join("\n"));
    });
}

/// Chooses the values to try.
struct Choice {
    /// Whether all values are tried in all places.
    is_whole: bool,
    /// The fields that had all their values, each with the schema that it stands in.
    known: HashSet<(String, String)>,
    /// Counts the values of fields that had all their values.
    repeated: usize,
}

impl Choice {
    fn new(is_whole: bool, seed: u64) -> Self {
        Self { is_whole, known: HashSet::new(), repeated: seed as usize % PART }
    }

    /// All values of a field, if no field of that name was in an equal schema before, else a part of them: the API server refuses a value by the
    /// rules of the field and of the field's parents, and the parents' rules are in the schema.
    fn values(&mut self, root: &Value, field: &Field) -> Vec<Value> {
        let (parent, name) = around(root, field);
        let is_new = self.known.insert((parent.to_string(), name.to_owned()));
        let mut values = values(&field.schema);
        if !is_new && !self.is_whole {
            values.retain(|_| {
                self.repeated += 1;
                self.repeated.is_multiple_of(PART)
            });
        }
        values
    }
}

/// The schema that the field stands in, and the field's name there.
fn around<'a>(root: &'a Value, field: &'a Field) -> (&'a Value, &'a str) {
    let Some((Step::Key(name), way)) = field.path.split_last() else { return (root, "") };
    let parent = way.iter().fold(root, |at, step| match step {
        Step::Key(key) => &at["properties"][key],
        Step::Item => &at["items"],
    });
    (parent, name)
}

/// The fault of a refusal, if the value was refused because of itself.
async fn judge(cp: &ControlPlane, kind: Kind, root: &Value, object: &Value, field: &Field, value: Value) -> Option<Result<(), String>> {
    let mut changed = object.clone();
    put(field, root, &mut changed, &value);
    let what = || format!("{} {} = {}", kind.plural, field.name(), value.to_string().chars().take(40).collect::<String>());
    let causes = match refusal(cp, kind, &changed).await {
        Ok(causes) if causes.is_empty() => return None,
        Ok(causes) => causes,
        Err(failed) => return Some(Err(format!("{}\n    failed: {failed}", what()))),
    };
    if causes.iter().any(|(at, message)| names(field, at, message)) {
        return Some(Ok(()));
    }
    let others = async |other: Option<Value>| {
        let mut changed = changed.clone();
        match other {
            Some(value) => put(field, root, &mut changed, &value),
            None => take_away(field, &mut changed),
        }
        refusal(cp, kind, &changed).await.unwrap_or_default()
    };
    (!are_of_another(field, &causes, others).await).then(|| Err(format!("{}\n    {causes:?}", what())))
}

/// Whether the same causes occur with another value of the field, or without a value: then they are not about this field. Example: a list's only
/// item that lacks a field.
pub async fn are_of_another(field: &Field, causes: &[Cause], with: impl AsyncFn(Option<Value>) -> Vec<Cause>) -> bool {
    let mut others = with(None).await;
    if others.iter().any(|(at, _)| *at == field.name()) {
        // The field is required, and the API server checks rules only once it exists.
        others = with(Some(sample(&field.schema))).await;
    }
    causes.iter().all(|cause| others.contains(cause))
}

/// The field that the API server names, and its message.
pub type Cause = (String, String);

/// Each cause for which an object is refused; none if it is accepted.
async fn refusal(cp: &ControlPlane, kind: Kind, object: &Value) -> Result<Vec<Cause>, String> {
    match cp.dry_run(kind, object).await {
        Ok(()) => Ok(Vec::new()),
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => Ok(causes(&status)),
        Err(error) => Err(error.to_string()),
    }
}

/// Each cause of a refusal; its whole message if it has none.
pub fn causes(status: &Status) -> Vec<Cause> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let causes: Vec<_> = causes.map(|cause| (cause.field.clone(), cause.message.clone())).collect();
    if causes.is_empty() { vec![(String::new(), status.message.clone())] } else { causes }
}

/// Whether a refusal at `at` is about the field, or about something in it, or names the part of `at` that leads to the field.
pub fn names(field: &Field, at: &str, message: &str) -> bool {
    let name = field.name();
    if is_within(at, &name) {
        return true;
    }
    let keys: Vec<&str> = field.path.iter().filter_map(|step| if let Step::Key(key) = step { Some(key.as_str()) } else { None }).collect();
    // `.spec.x[0]` has as many keys before the next one as it has points.
    let above = if at.is_empty() || at == "<nil>" { 0 } else { at.split('.').filter(|part| !part.is_empty()).count() };
    let is_above = at.is_empty() || at == "<nil>" || is_within(&name, at);
    let word = |key: &str| message.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == key);
    is_above && keys.get(above).is_some_and(|key| word(key))
}

/// Whether `inner` is the field `outer` or lies in it: `spec.x[0].y` lies in `spec.x`, `spec.xs` does not.
fn is_within(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[test]
fn a_refusal_that_names_another_field_is_noticed() {
    let path = ["spec", "kubelet", "maxPods"].map(|key| Step::Key(key.to_owned())).to_vec();
    let field = Field { path, schema: Value::Null };
    for (at, message, expected) in [
        ("spec.kubelet.maxPods", "Invalid value", true),
        ("spec.kubelet.maxPods.value", "Invalid value", true),
        ("spec.kubelet.maxPods[0].value", "Invalid value", true),
        ("spec.kubelet.maxPodsX", "Invalid value", false),
        ("spec.kubelet", "maxPods is too large", true),
        ("spec", "kubelet: is not for this", true),
        ("spec.kubelet", "the number is too large", false),
        ("spec.kubelet.podPidsLimit", "maxPods is too large", false),
        ("spec.kube", "maxPods is too large", false),
        ("spec", "maxPodsPerCore", false),
    ] {
        assert_eq!(names(&field, at, message), expected, "{at}: {message}");
    }
}
