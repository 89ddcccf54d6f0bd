//! Certificates and kubeconfigs: kubeadm's phases create those of a control plane, as they would on a real machine, and rcgen
//! creates the certificate of Cluster API core's webhooks. It must not know which processes use them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Command;

use super::scratch::{Scratch, last_lines};
use super::tools::Tools;

/// kubeadm refuses to advertise a loopback address. This address is for documentation (RFC 5737): no host has it.
pub(super) const ADVERTISED: &str = "192.0.2.10";
pub(super) const POD_SUBNET: &str = "10.244.0.0/16";
pub(super) const SERVICE_SUBNET: &str = "10.96.0.0/16";

/// The configuration for kubeadm's phases. `local` adds the settings for this machine only: the copy that is stored in the
/// cluster for joining nodes must not contain a path of this machine.
fn kubeadm_config(version: &str, endpoint: SocketAddr, local: Option<&Path>) -> String {
    let certificates = local.map(|dir| format!("certificatesDir: {}\n", dir.join("pki").display())).unwrap_or_default();
    let (address, port) = (endpoint.ip(), endpoint.port());
    format!(
        "---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {{advertiseAddress: {ADVERTISED}, bindPort: {port}}}
nodeRegistration: {{name: control-plane}}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: {version}
encryptionAlgorithm: ECDSA-P256
{certificates}apiServer: {{certSANs: [{address}]}}
controlPlaneEndpoint: {endpoint}
networking: {{serviceSubnet: {SERVICE_SUBNET}, podSubnet: {POD_SUBNET}}}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
"
    )
}

/// Writes the two configurations of kubeadm below the scratch directory; returns the future path of the administrator's kubeconfig.
pub(super) fn configure(scratch: &Scratch, endpoint: SocketAddr) -> PathBuf {
    let version = &Tools::ensure().kubernetes_version;
    scratch.write("kubeadm.yaml", kubeadm_config(version, endpoint, Some(scratch.path())));
    scratch.write("kubeadm-upload.yaml", kubeadm_config(version, endpoint, None));
    scratch.path().join("kube/super-admin.conf")
}

/// Creates `pki/` and `kube/` below the scratch directory, from the existing configurations.
pub(super) async fn make(scratch: &Scratch, endpoint: SocketAddr) {
    kubeadm(scratch, &["init", "phase", "certs", "all", "--config", "kubeadm.yaml"]).await;
    kubeadm(scratch, &["init", "phase", "kubeconfig", "all", "--config", "kubeadm.yaml", "--kubeconfig-dir", "kube"]).await;
    for who in ["super-admin", "controller-manager", "scheduler"] {
        let path = scratch.path().join(format!("kube/{who}.conf"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        // Two of the kubeconfigs name the advertised address.
        scratch.write(&format!("kube/{who}.conf"), text.replace(&format!("https://{ADVERTISED}:"), &format!("https://{}:", endpoint.ip())));
    }
}

/// Replaces the API server's port in the texts of a copied control plane.
pub(super) struct Move {
    from: String,
    to: String,
}

impl Move {
    /// Changes the port in the kubeconfigs from their current one to `to`.
    pub(super) fn kubeconfigs(scratch: &Scratch, to: u16) -> Self {
        let directory = scratch.path().join("kube");
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let server = read(&directory.join("super-admin.conf"));
        let from = server.lines().find_map(|line| line.trim().strip_prefix("server: ")?.rsplit(':').next()).expect("a kubeconfig names a server");
        let moved = Self { from: format!(":{from}"), to: format!(":{to}") };
        for file in std::fs::read_dir(&directory).expect("kubeconfigs") {
            let path = file.expect("a kubeconfig").path();
            std::fs::write(&path, moved.text(&read(&path))).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        moved
    }

    pub(super) fn text(&self, text: &str) -> String {
        text.replace(&self.from, &self.to)
    }
}

/// Uploads the ConfigMaps that `kubeadm join` reads, and the rights to read them.
pub(super) async fn upload(scratch: &Scratch, kubeconfig: &Path) {
    let kubeconfig = kubeconfig.to_str().expect("a path in UTF-8");
    for phase in [&["upload-config", "all"][..], &["bootstrap-token"]] {
        let args = [&["init", "phase"][..], phase, &["--config", "kubeadm-upload.yaml", "--kubeconfig", kubeconfig]].concat();
        kubeadm(scratch, &args).await;
    }
}

/// Runs kubeadm in the scratch directory and returns its output; panics with the end of `kubeadm.log` if it fails.
pub(super) async fn kubeadm(scratch: &Scratch, args: &[&str]) -> String {
    let path = scratch.path().join("kubeadm.log");
    let log = std::fs::OpenOptions::new().create(true).append(true).open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let output = Command::new(&Tools::ensure().kubeadm)
        .args(args)
        .current_dir(scratch.path())
        .stdin(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .output()
        .await
        .unwrap_or_else(|e| panic!("kubeadm: {e}"));
    assert!(output.status.success(), "kubeadm {}: {}\n{}", args.join(" "), output.status, last_lines(&path, 20));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A kubeconfig for the server of another kubeconfig, with a bearer token instead of a certificate.
pub(super) fn kubeconfig_with_token(admin: &str, namespace: &str, user: &str, token: &str) -> String {
    let admin: Value = serde_saphyr::from_str(admin).expect("kubeadm's kubeconfig");
    let cluster = admin.pointer("/clusters/0/cluster").expect("a cluster in kubeadm's kubeconfig");
    // JSON is YAML: readers of kubeconfigs accept it.
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "default",
        "clusters": [{"name": "default", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": user, "namespace": namespace}}],
    })
    .to_string()
}

/// Writes `DIR/tls.crt` and `DIR/tls.key`, valid for https://127.0.0.1, and returns the certificate, which is self-signed.
pub(super) fn loopback_certificate(scratch: &Scratch, dir: &str) -> String {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a self-signed certificate");
    let certificate = made.cert.pem();
    scratch.write(&format!("{dir}/tls.crt"), &certificate);
    scratch.write(&format!("{dir}/tls.key"), made.signing_key.serialize_pem());
    certificate
}
