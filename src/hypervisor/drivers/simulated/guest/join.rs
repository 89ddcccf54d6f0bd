//! `kubeadm join` in a guest: discovery, the cluster's configuration, the node's certificate. The result is all that the kubelet
//! needs from then on.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{Api, Client};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::{Instant, sleep};

use super::disk::Disk;
use super::error::JoinError;
use super::kubeadm::{BootstrapToken, JoinConfiguration, KubeletConfiguration};
use super::kubelet::Running;
use super::node::Kubelet;
use super::powered::Guest;
use super::server::{Credentials, Server};
use super::{certificate, discovery, files};
use crate::api::hypervisor::Fault;
use crate::bootstrap::paths;
use crate::bootstrap::read::Payload;
use crate::hypervisor::drivers::simulated::record::after;

/// kubeadm's own limit for discovery.
const DISCOVERY: Duration = Duration::from_secs(300);
/// The time between two attempts of discovery.
const DISCOVERY_EVERY: Duration = Duration::from_secs(2);
/// The namespace of kubeadm's objects in the cluster.
const SYSTEM: &str = "kube-system";

/// Joins with the rendered files and stores the kubelet's files. `configuration` is the path of kubeadm's file on the guest's disk.
pub async fn join(guest: &Guest, payload: &Payload, disk: &Disk, configuration: &str) -> Result<(), JoinError> {
    let file = |path: &str| payload.file(path).filter(|_| disk.has_file(path)).ok_or_else(|| JoinError(format!("{path} does not exist")));
    let configuration = JoinConfiguration::read(file(configuration)?)?;
    let computer_name = disk.computer_name();
    let node = configuration.node_registration.name.clone().unwrap_or_else(|| computer_name.clone());
    let kubelet_name = disk.flag("kubelet", "hostname-override").unwrap_or(&computer_name);
    if node != kubelet_name {
        return Err(JoinError(format!("kubeadm waits for node {node}, but the kubelet calls itself {kubelet_name}: give both the same name")));
    }
    guest.until(after(guest.record.boots_at(), guest.record.join_milliseconds)).await;

    let bootstrap = &configuration.discovery.bootstrap_token;
    let server = discover(guest, bootstrap).await?;
    if guest.record.has(Fault::NoJoin) {
        return Err(JoinError("the simulated fault NoJoin hits this VM: it finds its cluster and never joins".into()));
    }
    let token = &bootstrap.token;
    let permit = guest.request().await;
    let client = server.client(&Credentials::Token(token))?;
    let cluster = cluster_configuration(&server, &client, &node).await?;
    drop((client, permit));
    let kubelet = Kubelet {
        labels: labels(disk.flag("kubelet", "node-labels").unwrap_or_default()),
        version: payload.plan.kubernetes.clone(),
        server: server.url.clone(),
        configuration: KubeletConfiguration::merged(cluster.as_bytes(), file(paths::KUBELET_PATCH)?)?,
        node,
    };
    let (key, certificate) = identity(guest, &server, token, &kubelet.node).await?;
    files::keep(guest, &Running { kubelet, server, certificate, key }).await
}

/// Repeats discovery until it succeeds, as long as kubeadm does. The first failure and each new failure are printed, so that a reader of
/// the console need not wait for the end; a report comes only at the end, as on Windows.
async fn discover(guest: &Guest, bootstrap: &BootstrapToken) -> Result<Server, JoinError> {
    let deadline = Instant::now() + DISCOVERY;
    let mut last = None;
    loop {
        let tried = {
            let _permit = guest.request().await;
            discovery::discover(bootstrap).await
        };
        let error = match tried {
            Ok(server) => return Ok(server),
            Err(error) => error,
        };
        if Instant::now() > deadline {
            return Err(error);
        }
        if last.as_ref() != Some(&error) {
            print(guest, &error.to_string()).await;
            last = Some(error);
        }
        sleep(DISCOVERY_EVERY).await;
    }
}

/// Checks what kubeadm checks before it starts the kubelet: its own configuration and the name. Returns the kubelet's
/// configuration.
async fn cluster_configuration(server: &Server, client: &Client, node: &str) -> Result<String, JoinError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM);
    maps.get("kubeadm-config").await.map_err(|error| server.explain("get kube-system/kubeadm-config", &error))?;
    let nodes: Api<Node> = Api::all(client.clone());
    let found = nodes.get_opt(node).await.map_err(|error| server.explain("get node", &error))?;
    let conditions = found.and_then(|node| node.status).and_then(|status| status.conditions).unwrap_or_default();
    if conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True") {
        return Err(JoinError(format!("a Node {node} exists in the cluster and is Ready: delete it, or give this machine another name")));
    }
    let map = maps.get("kubelet-config").await.map_err(|error| server.explain("get kube-system/kubelet-config", &error))?;
    let configuration = map.data.and_then(|mut data| data.remove("kubelet"));
    configuration.ok_or_else(|| JoinError("kube-system/kubelet-config has no key kubelet: run kubeadm init phase upload-config kubelet".into()))
}

/// Returns key and certificate: from the disk, or new.
async fn identity(guest: &Guest, server: &Server, token: &SecretString, node: &str) -> Result<(SecretString, String), JoinError> {
    let (key, certificate) = files::identity(guest).await?;
    let key = match key {
        Some(key) => key,
        None => {
            let key = certificate::new_key()?;
            let bytes = key.expose_secret().as_bytes().to_vec();
            files::write(guest, files::KEY, bytes).await?;
            key
        }
    };
    let certificate = match certificate {
        Some(certificate) => certificate,
        None => {
            let waiting = async |text: String| print(guest, &text).await;
            let certificate = certificate::obtain(server, token, node, &key, waiting).await?;
            files::write(guest, files::CERTIFICATE, certificate.clone().into_bytes()).await?;
            certificate
        }
    };
    Ok((key, certificate))
}

/// Prints a message of kubeadm.
async fn print(guest: &Guest, text: &str) {
    guest.print(format!("kubeadm: {text}\n")).await;
}

/// Parses `a=b,c=d`.
fn labels(flag: &str) -> BTreeMap<String, String> {
    flag.split(',').filter_map(|pair| pair.split_once('=')).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
