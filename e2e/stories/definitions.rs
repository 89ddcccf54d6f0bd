//! Story *definitions*: a release stores objects in a new version. CAPW rewrites each object once and reports that in the definition, so that the old
//! version can be removed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{self, AuditEvent, Capw, ControlPlane, Kind, Options, step, text, wait_for};

const LIMIT: Duration = Duration::from_secs(90);
/// The number of objects of each kind.
const OBJECTS: usize = 20;
/// The version of an invented older release, with today's schema.
const OLD: &str = "v1alpha0";
const NEW: &str = "v1alpha1";
/// The header in `kubectl get` of a column that only the last definitions have.
const COLUMN: &str = "ONLY-NEW";

/// A kind in both versions.
struct Stored {
    name: &'static str,
    spec: &'static str,
    old: Kind,
    new: Kind,
}

/// Kinds that only serve as templates, with and without a status, and one kind whose objects have no owner: no other controller writes them.
#[rustfmt::skip]
const KINDS: [Stored; 6] = [
    stored("WindowsMachineTemplate", r#"{"template": {"spec": {"image": "windows-server-2022"}}}"#, "infrastructure.cluster.x-k8s.io/v1alpha0", Kind::WINDOWS_MACHINE_TEMPLATE),
    stored("WindowsClusterTemplate", r#"{"template": {"spec": {}}}"#, "infrastructure.cluster.x-k8s.io/v1alpha0", Kind::WINDOWS_CLUSTER_TEMPLATE),
    stored("WindowsNodePoolTemplate", r#"{"template": {"spec": {"template": {"machine": {"image": "windows-server-2022"}}}}}"#, "infrastructure.cluster.x-k8s.io/v1alpha0", Kind::WINDOWS_NODE_POOL_TEMPLATE),
    stored("WindowsCluster", "{}", "infrastructure.cluster.x-k8s.io/v1alpha0", Kind::WINDOWS_CLUSTER),
    stored("WindowsBootstrapConfigTemplate", r#"{"template": {"spec": {}}}"#, "bootstrap.cluster.x-k8s.io/v1alpha0", Kind::WINDOWS_BOOTSTRAP_CONFIG_TEMPLATE),
    stored("ExternalControlPlaneTemplate", r#"{"template": {"spec": {}}}"#, "controlplane.cluster.x-k8s.io/v1alpha0", Kind::EXTERNAL_CONTROL_PLANE_TEMPLATE),
];

const fn stored(name: &'static str, spec: &'static str, old: &'static str, new: Kind) -> Stored {
    Stored { name, spec, old: Kind::new(old, new.plural), new }
}

#[test]
fn stored_versions_follow_the_definitions() {
    world::run(async {
        let cp = ControlPlane::start(Options::plain().named("definitions")).await;
        let mark = cp.audit_mark();
        let capw = Capw::start(&cp, &[]).await;
        let asked = wait_for("CAPW has looked at all definitions", LIMIT, || async {
            let asked: Vec<AuditEvent> = cp.audit_since(mark).into_iter().filter(of_definitions).collect();
            let seen: BTreeSet<&str> = asked.iter().map(|event| event.name.as_str()).collect();
            let all = KINDS.iter().all(|kind| seen.contains(kind.definition().as_str()));
            if all { Ok(asked) } else { Err(format!("{seen:?}")) }
        })
        .await;
        capw.stop();
        assert!(!asked.iter().any(AuditEvent::is_write), "{asked:#?}");
        step("a new installation needs no note");

        let shipped = an_older_release(&cp, &capw).await;
        let before = objects(&cp).await;
        assert_eq!(before.len(), KINDS.len() * OBJECTS);
        assert!(before.values().any(|object| object["metadata"]["managedFields"].to_string().contains(OLD)), "the old version left a trace");
        step(format!("{} objects are stored in {OLD}", before.len()));

        for (kind, version) in KINDS.iter().zip(&shipped) {
            kind.set_versions(&cp, json!([with(version, NEW, true, true), with(version, OLD, false, false)])).await;
            wait_for(&format!("{OLD} of {} is not served", kind.name), LIMIT, || async {
                cp.api(kind.old, None).list(&kube::api::ListParams::default()).await.is_err().then_some(())
            })
            .await;
        }
        let mark = cp.audit_mark();
        capw.start_again().await;
        for kind in &KINDS {
            kind.wait_stored_in(&cp, NEW).await;
        }
        let asked: Vec<AuditEvent> = cp.audit_since(mark).into_iter().filter(|event| event.user == Capw::USER).collect();
        judge(&before, &objects(&cp).await, &asked);
        assert!(!capw.metrics().contains("capw_stored_versions_outdated{kind=\"windowsmachinetemplates\"} 1"), "{}", capw.metrics());
        step("each was written once");

        for (kind, version) in KINDS.iter().zip(&shipped) {
            let mut version = version.clone();
            version["additionalPrinterColumns"] = json!([{"name": COLUMN, "type": "string", "jsonPath": ".kind"}]);
            kind.set_versions(&cp, json!([version])).await;
        }
        // The API server cannot read an object from etcd in a version that the definition does not contain. It drops that version after a moment,
        // which shows in the columns of the new definition.
        for kind in &KINDS {
            wait_for(&format!("the API server has forgotten {OLD} of {}", kind.name), LIMIT, || async {
                let printed = cp.try_kubectl(&["get", "-n", "default", &kind.definition()]).await?;
                if printed.contains(COLUMN) { Ok(()) } else { Err(printed) }
            })
            .await;
        }
        judge(&before, &objects(&cp).await, &[]);
        step(format!("{OLD} is gone"));
    });
}

fn of_definitions(event: &AuditEvent) -> bool {
    event.user == Capw::USER && event.resource == "customresourcedefinitions"
}

/// Installs definitions that store the old version, and objects of that version, and waits until CAPW reports them. Returns the shipped versions.
async fn an_older_release(cp: &ControlPlane, capw: &Capw) -> Vec<Value> {
    let mut shipped = Vec::new();
    for kind in &KINDS {
        let definition = cp.get(Kind::CUSTOM_RESOURCE_DEFINITION, &kind.definition()).await.expect("an installed definition");
        let version = definition["spec"]["versions"][0].clone();
        kind.set_versions(cp, json!([with(&version, OLD, true, true), with(&version, NEW, true, false)])).await;
        wait_for(&format!("{OLD} of {} is served", kind.name), LIMIT, || async {
            cp.api(kind.old, None).list(&kube::api::ListParams::default()).await.map_err(|e| e.to_string())
        })
        .await;
        let yaml: Vec<String> = (0..OBJECTS).map(|number| kind.object(number).to_string()).collect();
        cp.apply(&yaml.join("\n---\n")).await;
        shipped.push(version);
    }
    capw.start_again().await;
    for kind in &KINDS {
        kind.wait_stored_in(cp, OLD).await;
    }
    wait_for("machine templates have a status", LIMIT, || async {
        let all = cp.list(Kind::WINDOWS_MACHINE_TEMPLATE, None).await;
        all.iter().all(|template| template.pointer("/status/capacity").is_some()).then_some(())
    })
    .await;
    capw.stop();
    shipped
}

impl Stored {
    fn definition(&self) -> String {
        format!("{}.{}", self.new.plural, self.new.api_version.split('/').next().unwrap_or_default())
    }

    fn object(&self, number: usize) -> Value {
        let spec: Value = serde_json::from_str(self.spec).expect("JSON");
        let namespace = if number.is_multiple_of(2) { "default" } else { "kube-public" };
        json!({"apiVersion": self.old.api_version, "kind": self.name, "metadata": {"name": format!("t{number}"), "namespace": namespace}, "spec": spec})
    }

    async fn set_versions(&self, cp: &ControlPlane, versions: Value) {
        let done = cp.patch(Kind::CUSTOM_RESOURCE_DEFINITION, &self.definition(), &json!({"spec": {"versions": versions}})).await;
        done.unwrap_or_else(|e| panic!("versions of {}: {e}", self.name));
    }

    /// Waits until CAPW reports that all objects are stored in this version.
    async fn wait_stored_in(&self, cp: &ControlPlane, version: &str) {
        wait_for(&format!("{} are stored in {version}", self.name), LIMIT, || async {
            let definition = cp.get(Kind::CUSTOM_RESOURCE_DEFINITION, &self.definition()).await.expect("an installed definition");
            let observed = text(&definition, "/metadata/annotations/crd-migration.cluster.x-k8s.io~1observed-generation");
            let (generation, stored) = (&definition["metadata"]["generation"], &definition["status"]["storedVersions"]);
            let done = *stored == json!([version]) && observed.parse().ok() == generation.as_i64();
            if done { Ok(()) } else { Err(format!("{stored}, observed {observed:?} of {generation}")) }
        })
        .await;
    }
}

/// Returns the shipped version under this name.
fn with(version: &Value, name: &str, served: bool, storage: bool) -> Value {
    let mut version = version.clone();
    version["name"] = json!(name);
    version["served"] = json!(served);
    version["storage"] = json!(storage);
    version
}

/// Returns all objects, by `RESOURCE NAMESPACE/NAME`.
async fn objects(cp: &ControlPlane) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for kind in &KINDS {
        for object in cp.list(kind.new, None).await {
            let name = format!("{} {}/{}", kind.new.plural, text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
            all.insert(name, object);
        }
    }
    all
}

/// Checks that no object was lost, changed or written twice, and that no request was refused.
fn judge(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>, asked: &[AuditEvent]) {
    for (name, old) in before {
        let new = after.get(name).unwrap_or_else(|| panic!("{name} is gone"));
        for field in ["/spec", "/status", "/metadata/uid", "/metadata/generation"] {
            assert_eq!(old.pointer(field), new.pointer(field), "{name} {field}");
        }
        let managed = new["metadata"]["managedFields"].to_string();
        assert!(!managed.contains(OLD) && managed.contains(NEW), "{name}: {managed}");
    }
    let refused: Vec<&AuditEvent> = asked.iter().filter(|event| event.code == 403).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    let mut writes: BTreeMap<String, u32> = BTreeMap::new();
    for event in asked.iter().filter(|event| event.is_write()) {
        *writes.entry(format!("{} {}/{}", event.resource, event.namespace, event.name)).or_default() += 1;
    }
    let twice: Vec<_> = writes.iter().filter(|(name, count)| before.contains_key(*name) && **count > 1).collect();
    assert!(twice.is_empty(), "{twice:#?}");
    assert!(asked.is_empty() || before.keys().all(|name| writes.contains_key(name)), "an object was not written: {writes:#?}");
}
