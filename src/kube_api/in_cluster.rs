//! The cluster that this process runs in, as a workload cluster. Its address and CA come from the ConfigMap `kube-public/cluster-info`, which
//! `kubeadm join` reads too: a new node cannot reach the address that pods use.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use data_encoding::HEXLOWER;
use kube::Client;
use kube::config::Kubeconfig;
use sha2::{Digest, Sha256};

use super::workload::{Workload, WorkloadError};

const SOURCE: &str = "ConfigMap kube-public/cluster-info";

/// Returns the cluster with the client of this process, and the address and CA of `cluster-info`.
pub async fn workload(client: &Client) -> Result<Workload, WorkloadError> {
    let unread = Workload {
        client: client.clone(),
        ca_pem: None,
        server: "the cluster that CAPW runs in".into(),
        fingerprint: String::new(),
        minor: Default::default(),
        gate: Default::default(),
        keeping: Default::default(),
    };
    let found = unread.config_map("kube-public", "cluster-info").await?;
    let text = found.and_then(|map| map.data?.remove("kubeconfig")).unwrap_or_default();
    let (server, ca_pem) = read(&text).map_err(|why| WorkloadError::KubeconfigInvalid { source_name: SOURCE.into(), why: why.into() })?;
    Ok(Workload { ca_pem: Some(ca_pem), server, fingerprint: HEXLOWER.encode(&Sha256::digest(text.as_bytes())), ..unread })
}

/// Returns the server and the CA in PEM.
fn read(text: &str) -> Result<(String, String), &'static str> {
    const MISSING: &str = "nodes that join read server and certificate-authority-data there; `kubeadm init phase bootstrap-token` makes it";
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|_| "it holds no kubeconfig in YAML")?;
    let cluster = kubeconfig.clusters.into_iter().find_map(|c| c.cluster).ok_or(MISSING)?;
    let server = cluster.server.filter(|s| s.starts_with("https://")).ok_or(MISSING)?;
    let data = cluster.certificate_authority_data.ok_or(MISSING)?;
    let pem =
        STANDARD.decode(data).ok().and_then(|bytes| String::from_utf8(bytes).ok()).ok_or("its certificate-authority-data is not PEM in base64")?;
    Ok((server.trim_end_matches('/').to_owned(), pem))
}

#[cfg(test)]
mod tests {
    use super::super::mock::{Script, refuse, step};
    use super::*;
    use serde_json::json;

    const READ: &str = "GET /api/v1/namespaces/kube-public/configmaps/cluster-info";

    fn info(cluster: &str) -> serde_json::Value {
        let kubeconfig = format!("apiVersion: v1\nkind: Config\nclusters:\n- name: ''\n  cluster: {{{cluster}}}\n");
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": {"kubeconfig": kubeconfig}})
    }

    #[tokio::test]
    async fn address_and_ca_are_those_that_kubeadm_join_reads() {
        let ca = STANDARD.encode("-----BEGIN CERTIFICATE-----\n");
        let (client, _script) = Script::new(vec![step(READ, info(&format!("server: 'https://10.0.0.1:6443', certificate-authority-data: {ca}")))]);
        let workload = workload(&client).await.unwrap();
        let endpoint = workload.endpoint();
        assert_eq!((endpoint.host.as_str(), endpoint.port), ("10.0.0.1", 6443));
        assert_eq!(workload.ca_pem.as_deref(), Some("-----BEGIN CERTIFICATE-----\n"));
    }

    #[tokio::test]
    async fn what_is_missing_is_told_with_its_place() {
        for answer in [info("server: 'http://a'"), info("server: 'https://a'"), json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})] {
            let (client, _script) = Script::new(vec![step(READ, answer)]);
            let error = workload(&client).await.err().unwrap().to_string();
            assert!(error.contains("kube-public/cluster-info"), "{error}");
        }
        let (client, _script) = Script::new(vec![refuse(READ, 403, "Forbidden")]);
        assert!(matches!(workload(&client).await, Err(WorkloadError::Forbidden { .. })));
    }
}
