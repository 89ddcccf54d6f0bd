//! The template of a pool's machines, and its hash: machines with another hash are outdated.

use data_encoding::HEXLOWER;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::api::bootstrap_config::WindowsBootstrapConfigSpec;
use crate::api::decode::from_value;
use crate::api::machine::WindowsMachineSpec;

/// Machine, bootstrap and version, with every reference resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    pub machine: WindowsMachineSpec,
    pub bootstrap: Option<WindowsBootstrapConfigSpec>,
    /// The Kubernetes version; `None` where another provider creates the bootstrap data.
    pub version: Option<String>,
}

/// Fields of a machine that change without another VM: they are written into existing machines.
const OF_MACHINE: [&str; 2] = ["joinDeadlineSeconds", "providerID"];
/// Fields of the bootstrap configuration that apply to later machines only: a running machine is not replaced for them.
const OF_BOOTSTRAP: [&str; 1] = ["join"];
const OF_KUBELET: [&str; 2] = ["nodeLabels", "taints"];

impl Template {
    /// Ten characters of 0-9a-f. The hash depends only on fields that require another VM. Values that equal the default count as
    /// absent, so that a release with a new field replaces no machine.
    pub fn hash(&self) -> String {
        let machine = essential(&self.machine, &json!({"image": ""}), &OF_MACHINE);
        let bootstrap = self.bootstrap.as_ref().map(|spec| {
            let mut value = essential(spec, &json!({}), &OF_BOOTSTRAP);
            if let Some(Value::Object(kubelet)) = value.get_mut("kubelet") {
                OF_KUBELET.iter().for_each(|field| drop(kubelet.remove(*field)));
            }
            drop_empty(value)
        });
        let version = self.version.as_deref().map(|v| v.trim_start_matches('v'));
        let text = json!({"machine": machine, "bootstrap": bootstrap, "version": version}).to_string();
        HEXLOWER.encode(&Sha256::digest(text.as_bytes())).chars().take(10).collect()
    }
}

/// The spec as JSON, without values that equal the default and without these fields.
fn essential<T>(spec: &T, least: &Value, without: &[&str]) -> Value
where
    T: serde::Serialize + serde::de::DeserializeOwned,
{
    // Both conversions are of our own types: they cannot fail, and after a failure the hash would only depend on more.
    let default = from_value::<T>(least).ok().and_then(|d| serde_json::to_value(d).ok()).unwrap_or_default();
    let mut value = serde_json::to_value(spec).unwrap_or_default();
    if let Value::Object(fields) = &mut value {
        without.iter().for_each(|field| drop(fields.remove(*field)));
    }
    difference(value, &default)
}

/// The part of `value` that is not in `default`.
fn difference(value: Value, default: &Value) -> Value {
    let Value::Object(fields) = value else { return value };
    let kept: Map<String, Value> = fields
        .into_iter()
        .filter(|(key, value)| default.get(key) != Some(value))
        .map(|(key, value)| {
            let part = difference(value, default.get(&key).unwrap_or(&Value::Null));
            (key, part)
        })
        .collect();
    Value::Object(kept)
}

/// Drops objects that have become empty, as if they had never been written.
fn drop_empty(value: Value) -> Value {
    let Value::Object(fields) = value else { return value };
    let kept = fields.into_iter().map(|(key, value)| (key, drop_empty(value))).filter(|(_, value)| value.as_object().is_none_or(|o| !o.is_empty()));
    Value::Object(kept.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(machine: Value, bootstrap: Value, version: &str) -> Template {
        Template {
            machine: serde_json::from_value(machine).unwrap(),
            bootstrap: serde_json::from_value(bootstrap).unwrap(),
            version: Some(version.into()),
        }
    }

    fn usual() -> Template {
        template(json!({"image": "windows-server-2022"}), json!({}), "v1.36.3")
    }

    /// A machine of an older release must not be replaced because a newer release serialises more.
    #[test]
    fn the_hash_is_the_same_in_every_release() {
        assert_eq!(usual().hash(), "3981f9bf57");
    }

    #[test]
    fn what_needs_no_other_vm_does_not_change_the_hash() {
        for same in [
            template(json!({"image": "windows-server-2022", "cpus": 4, "memory": "8Gi", "disks": []}), json!({}), "1.36.3"),
            template(json!({"image": "windows-server-2022", "joinDeadlineSeconds": 77}), json!({}), "v1.36.3"),
            template(
                json!({"image": "windows-server-2022"}),
                json!({"kubelet": {"nodeLabels": {"a": "b"}, "taints": [{"key": "k", "effect": "NoSchedule"}]}, "join": {"tokenTTLSeconds": 60}}),
                "v1.36.3",
            ),
        ] {
            assert_eq!(same.hash(), usual().hash(), "{same:?}");
        }
    }

    #[test]
    fn what_needs_another_vm_changes_the_hash() {
        let mut seen = vec![usual().hash()];
        for other in [
            template(json!({"image": "windows-server-2025"}), json!({}), "v1.36.3"),
            template(json!({"image": "windows-server-2022", "cpus": 8}), json!({}), "v1.36.3"),
            template(json!({"image": "windows-server-2022"}), json!({"kubelet": {"maxPods": 50}}), "v1.36.3"),
            template(json!({"image": "windows-server-2022"}), json!({}), "v1.36.4"),
            Template { bootstrap: None, ..usual() },
            Template { version: None, ..usual() },
        ] {
            assert!(!seen.contains(&other.hash()), "{other:?}");
            seen.push(other.hash());
        }
    }
}
