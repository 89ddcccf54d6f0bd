use serde_json::json;

use crate::kube_api::mock::{Script, refuse, step};
use crate::kube_api::workload::*;

fn certificate() -> String {
    rcgen::generate_simple_self_signed(vec!["api".into()]).unwrap().cert.pem()
}

pub(in crate::kube_api) fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts:\n- name: x\n  context: {{cluster: c, user: u}}\nclusters:\n- name: c\n  cluster: {{{cluster}}}\nusers:\n- name: u\n  user: {{{user}}}\n"
    )
}

pub(in crate::kube_api) fn good(token: &str) -> String {
    kubeconfig(&format!("server: 'https://10.0.0.1:6443', certificate-authority-data: {}", base64(&certificate())), &format!("token: {token}"))
}

#[tokio::test]
async fn a_good_kubeconfig_gives_client_endpoint_and_ca() {
    let workload = Workload::from_kubeconfig("Secret lab/c1-kubeconfig", good("secret-token").as_bytes()).await.unwrap();
    assert_eq!(workload.server, "https://10.0.0.1:6443");
    let ca = workload.ca_pem.unwrap();
    assert!(ca.starts_with("-----BEGIN CERTIFICATE-----\n") && ca.ends_with("-----END CERTIFICATE-----\n"), "{ca}");
    assert_eq!(workload.fingerprint.len(), 64);
}

#[tokio::test]
async fn what_would_run_read_or_trust_something_local_is_refused_by_name() {
    let server = "server: 'https://10.0.0.1:6443'";
    for (cluster, user, field) in [
        (server, "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh}", "exec"),
        (server, "auth-provider: {name: gcp, config: {}}", "auth-provider"),
        (server, "tokenFile: /etc/passwd", "tokenFile"),
        (server, "client-certificate: /etc/passwd", "client-certificate"),
        (server, "client-key: /etc/passwd", "client-key"),
        ("server: 'https://a', certificate-authority: /etc/passwd", "token: t", "certificate-authority"),
        ("server: 'https://a', proxy-url: 'http://p'", "token: t", "proxy-url"),
        ("server: 'https://a', insecure-skip-tls-verify: true", "token: t", "insecure-skip-tls-verify"),
        ("server: 'http://a'", "token: t", "https://"),
    ] {
        let error = Workload::from_kubeconfig("Secret lab/k", kubeconfig(cluster, user).as_bytes()).await.err().unwrap().to_string();
        assert!(error.contains(field) && error.contains("Secret lab/k"), "{field}: {error}");
    }
}

#[tokio::test]
async fn nonsense_is_refused_without_being_quoted() {
    for text in ["", "a: [", "canary", "users:\n- name: u\n  user: {token: canary\n", "current-context: x\nusers: canary"] {
        let error = Workload::from_kubeconfig("Secret lab/k", text.as_bytes()).await.err().unwrap();
        assert!(matches!(error, WorkloadError::KubeconfigInvalid { .. }), "{error}");
        assert!(!error.to_string().contains("canary"), "{error}");
    }
}

#[tokio::test]
async fn the_version_is_asked_again_only_for_a_newer_kubelet() {
    let version = |git: &str| json!({"major": "1", "minor": "", "gitVersion": git, "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
    let answers = ["v1.35.4", "v1.36.0"].map(|git| step("GET /version", version(git)));
    let failures = [(403, "Forbidden"), (503, "ServiceUnavailable")].map(|(code, reason)| refuse("GET /version", code, reason));
    let (client, script) = Script::new(answers.into_iter().chain(failures).collect());
    let workload = Workload::of(client);
    assert_eq!(workload.minor_for(34).await.unwrap(), Some(35));
    assert_eq!(workload.minor_for(35).await.unwrap(), Some(35));
    assert_eq!(script.seen().len(), 1);
    assert_eq!(workload.minor_for(36).await.unwrap(), Some(36), "upgraded meanwhile");
    assert_eq!(workload.minor_for(37).await.unwrap(), None, "it does not say so to these credentials");
    workload.minor_for(37).await.unwrap_err();
    assert_eq!(script.seen().len(), 4);
}
