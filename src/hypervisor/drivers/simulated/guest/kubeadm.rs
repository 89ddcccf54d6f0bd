//! The fields that kubeadm and the kubelet read from the rendered files: JoinConfiguration v1beta4 and KubeletConfiguration v1beta1.
//!
//! They are read as by those programs; nothing is taken from the operator's own structs.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::JoinError;

/// The fields of a JoinConfiguration that matter to a guest.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinConfiguration {
    api_version: String,
    kind: String,
    pub discovery: Discovery,
    pub node_registration: NodeRegistration,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Discovery {
    pub bootstrap_token: BootstrapToken,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapToken {
    pub api_server_endpoint: String,
    #[serde(deserialize_with = "secret")]
    pub token: SecretString,
    pub ca_cert_hashes: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRegistration {
    pub name: Option<String>,
}

fn secret<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
    String::deserialize(deserializer).map(SecretString::from)
}

impl JoinConfiguration {
    pub fn read(bytes: &[u8]) -> Result<Self, JoinError> {
        let configuration: Self = yaml("kubeadm's JoinConfiguration", bytes)?;
        if (configuration.api_version.as_str(), configuration.kind.as_str()) != ("kubeadm.k8s.io/v1beta4", "JoinConfiguration") {
            return Err(JoinError(format!(
                "kubeadm cannot read {} {}: expected kubeadm.k8s.io/v1beta4 JoinConfiguration",
                configuration.api_version, configuration.kind
            )));
        }
        Ok(configuration)
    }
}

/// The fields of a KubeletConfiguration that show in a Node.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeletConfiguration {
    #[serde(rename = "providerID")]
    pub provider_id: Option<String>,
    pub register_with_taints: Vec<Taint>,
    pub max_pods: Option<i64>,
    pub system_reserved: BTreeMap<String, String>,
    pub kube_reserved: BTreeMap<String, String>,
    pub eviction_hard: BTreeMap<String, String>,
}

impl KubeletConfiguration {
    /// Applies our patch to the cluster's configuration, as kubeadm does: fields of the patch win, `null` removes.
    pub fn merged(cluster: &[u8], patch: &[u8]) -> Result<Self, JoinError> {
        let mut merged = Value::Object(serde_json::Map::new());
        json_patch::merge(&mut merged, &yaml("kube-system/kubelet-config", cluster)?);
        let patch: Value = yaml("the kubelet's patch", patch)?;
        let kind = |value: &Value| value.get("kind").and_then(Value::as_str).map(str::to_owned);
        if kind(&patch).as_deref() != Some("KubeletConfiguration") || kind(&merged) != kind(&patch) {
            return Err(JoinError(format!(
                "the kubelet cannot use a configuration of kind {:?} with a patch of kind {:?}",
                kind(&merged),
                kind(&patch)
            )));
        }
        json_patch::merge(&mut merged, &patch);
        serde_json::from_value(merged).map_err(|error| JoinError(format!("the kubelet cannot read its configuration: {error}")))
    }
}

fn yaml<T: serde::de::DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, JoinError> {
    let text = std::str::from_utf8(bytes).map_err(|error| JoinError(format!("{what} is not UTF-8: {error}")))?;
    serde_saphyr::from_str(text).map_err(|error| {
        // Only the position: a parser's message may quote the token.
        let place = error.location().map_or_else(String::new, |at| format!(" at line {}, column {}", at.line(), at.column()));
        JoinError(format!("{what} cannot be read{place}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOIN: &str = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ndiscovery:\n  bootstrapToken:\n    apiServerEndpoint: 127.0.0.1:6443\n    token: abcdef.0123456789abcdef\n    caCertHashes: ['sha256:00']\nnodeRegistration:\n  name: win-1\n  taints: [{key: os, value: windows, effect: NoSchedule}]\n  kubeletExtraArgs:\n  - {name: node-labels, value: 'a=b,c=d'}\ntimeouts: {tlsBootstrap: 10m0s}\n";

    #[test]
    fn a_join_configuration() {
        let join = JoinConfiguration::read(JOIN.as_bytes()).unwrap();
        assert_eq!(join.node_registration.name.as_deref(), Some("win-1"));
        assert_eq!(join.discovery.bootstrap_token.ca_cert_hashes, ["sha256:00"]);
        let old = JOIN.replace("v1beta4", "v1beta3");
        assert!(JoinConfiguration::read(old.as_bytes()).err().unwrap().to_string().contains("v1beta3"));
        let torn = JOIN.replace("name: win-1", "name: [");
        let error = JoinConfiguration::read(torn.as_bytes()).err().unwrap().to_string();
        assert!(error.contains("line") && !error.contains("0123456789abcdef"), "{error}");
    }

    #[test]
    fn the_patch_wins_and_the_rest_stays() {
        let cluster = b"kind: KubeletConfiguration\nmaxPods: 110\nevictionHard: {nodefs.available: 10%}\nclusterDNS: [10.96.0.10]\nsystemReserved: {cpu: '1'}\n";
        let patch = b"kind: KubeletConfiguration\nmaxPods: 30\nproviderID: windows://lab/x\nevictionHard: {memory.available: 500Mi}\nkubeReserved: {memory: 1Gi}\n";
        let merged = KubeletConfiguration::merged(cluster, patch).unwrap();
        assert_eq!((merged.max_pods, merged.provider_id.as_deref()), (Some(30), Some("windows://lab/x")));
        assert_eq!(merged.eviction_hard.len(), 2);
        let nothing_to_remove = b"kind: KubeletConfiguration\nevictionHard: {pid.available: null, memory.available: 500Mi}\n";
        let merged = KubeletConfiguration::merged(b"kind: KubeletConfiguration\n", nothing_to_remove).unwrap();
        assert_eq!(merged.eviction_hard.len(), 1, "a null that meets nothing leaves nothing");
        assert!(KubeletConfiguration::merged(cluster, b"kind: Pod").is_err());
    }
}
