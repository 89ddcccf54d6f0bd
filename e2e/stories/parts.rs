//! The real parts themselves: a control plane starts, does what stories need, and leaves nothing behind.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::world::{self, AuditEvent, AuditMark, ControlPlane, Kind, Options, Process, wait_for};

/// Core's defaulting and validating webhooks process every Cluster.
#[test]
fn core_defaults_and_refuses() {
    world::run(async {
        let cp = ControlPlane::start(Options::cluster_api().named("core")).await;
        assert!(cp.core().is_running());
        let said = cp.try_apply(&cluster("controlPlaneEndpoint: {host: 127.0.0.1, port: 6443}")).await;
        let said = said.expect_err("core's webhook refuses a Cluster of nothing");
        assert!(said.contains("one of spec.controlPlaneRef, spec.infrastructureRef or spec.topology must be set"), "{said}");

        cp.apply(DUMMY_DEFINITION).await;
        let mark = cp.audit_mark();
        cp.apply(&cluster("infrastructureRef: {apiGroup: dummy.test, kind: DummyCluster, name: one}")).await;
        // We do not write this finalizer: it shows that core's controllers run too.
        let finalizer = json!("cluster.cluster.x-k8s.io");
        cp.wait_object(Kind::CLUSTER, "default/one", "core's finalizer", Duration::from_secs(20), |cluster| {
            cluster.pointer("/metadata/finalizers")?.as_array()?.contains(&finalizer).then_some(())
        })
        .await;
        // The audit log shows every user's requests since the mark. A request is logged when it ends, maybe after others have seen its effect.
        let by_core = |e: &AuditEvent| e.user == "system:serviceaccount:capi-system:capi-manager" && e.is_write() && e.name == "one";
        let events = wait_for("core's write is in the audit log", Duration::from_secs(20), || async {
            let events = cp.audit_since(mark);
            if events.iter().any(by_core) { Ok(events) } else { Err(format!("{events:?}")) }
        })
        .await;
        let created = events.iter().find(|e| e.is_write() && e.resource == "clusters" && e.name == "one").expect("the apply is in the audit log");
        assert_eq!((created.verb.as_str(), created.code, created.user.as_str()), ("patch", 201, "kubernetes-super-admin"));
        assert!(cp.audit_since(AuditMark::default()).len() > events.len());
    });
}

fn cluster(spec: &str) -> String {
    format!("{{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {{name: one, namespace: default}}, spec: {{{spec}}}}}")
}

/// Core stops at a Cluster whose parts have no known kind.
const DUMMY_DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: dummyclusters.dummy.test, labels: {cluster.x-k8s.io/v1beta2: v1}}
spec:
  group: dummy.test
  scope: Namespaced
  names: {kind: DummyCluster, plural: dummyclusters}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
";

/// A node that knows only a token can find the cluster's CA and verify it.
#[test]
fn bootstrap_tokens_sign_the_discovery_document() {
    world::run(async {
        let cp = ControlPlane::start(Options::plain().named("join")).await;
        let token = cp.kubeadm(&["token", "create"]).await;
        let (id, secret) = token.trim().split_once('.').expect("a token is ID.SECRET");
        let key = format!("jws-kubeconfig-{id}");
        let (kubeconfig, jws) = wait_for("cluster-info is signed for the new token", Duration::from_secs(20), || async {
            let info =
                anonymous(&cp).request::<Value>(get("/api/v1/namespaces/kube-public/configmaps/cluster-info")).await.map_err(|e| e.to_string())?;
            let jws = info["data"].get(&key).and_then(Value::as_str).ok_or("no signature for it")?.to_owned();
            Ok::<_, String>((world::text(&info, "/data/kubeconfig").to_owned(), jws))
        })
        .await;
        let (header, signature) = jws.split_once("..").expect("a JWS without its content");
        let signed = format!("{header}.{}", base64url(kubeconfig.as_bytes()));
        assert_eq!(signature, base64url(&hmac_sha256(secret.as_bytes(), signed.as_bytes())));
        assert!(kubeconfig.contains(&format!("server: {}", cp.server())), "{kubeconfig}");
        // Every joining node reads this configuration, so it must not name a path on this machine.
        let configuration = cp.kubectl(&["-n", "kube-system", "get", "configmap", "kubeadm-config", "kubelet-config", "-o", "yaml"]).await;
        assert!(!configuration.contains(&cp.directory().display().to_string()), "{configuration}");
    });
}

/// Two control planes at the same time do not see each other, and dropping them leaves nothing.
#[test]
fn two_at_once_and_nothing_left() {
    world::run(async {
        let (one, two) = tokio::join!(
            ControlPlane::start(Options { scheduler: true, ..Options::plain().named("one") }),
            ControlPlane::start(Options::plain().named("two"))
        );
        one.kubectl(&["create", "namespace", "only-here"]).await;
        assert!(one.get(Kind::NAMESPACE, "only-here").await.is_some());
        assert!(two.get(Kind::NAMESPACE, "only-here").await.is_none());

        // The API server can stop and start again on its port, with its data.
        one.api_server().kill();
        assert!(one.try_kubectl(&["get", "--raw", "/readyz"]).await.is_err());
        one.api_server().start();
        wait_for("the API server is back", Duration::from_secs(30), || async { one.try_kubectl(&["get", "namespace", "only-here"]).await }).await;

        let directories = [one.directory().to_owned(), two.directory().to_owned()];
        let running = processes_in(&directories[0]);
        assert_eq!(running, ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]);
        drop((one, two));
        for directory in directories {
            assert_eq!(processes_in(&directory), Vec::<String>::new());
            assert!(!directory.exists(), "{} is still there", directory.display());
        }
    });
}

/// Returns the names of the processes whose working directory is below a directory, sorted. Zombies have none.
fn processes_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir("/proc")
        .expect("/proc")
        .filter_map(|entry| {
            let process = entry.ok()?.path();
            // The link of a process that outlived its directory ends in " (deleted)".
            let place = std::fs::read_link(process.join("cwd")).ok()?;
            place.to_str()?.starts_with(directory.to_str()?).then_some(())?;
            let program = std::fs::read_link(process.join("exe")).ok()?;
            Some(program.file_name()?.to_string_lossy().into_owned())
        })
        .collect();
    names.sort();
    names
}

fn anonymous(cp: &ControlPlane) -> kube::Client {
    let mut config = kube::Config::new(cp.server().parse().expect("an address"));
    // Otherwise the client would need the CA from the document that is to be checked.
    config.accept_invalid_certs = true;
    kube::Client::try_from(config).expect("a client")
}

fn get(path: &str) -> http::Request<Vec<u8>> {
    http::Request::get(path).body(Vec::new()).expect("a request")
}

fn base64url(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

/// RFC 2104, for keys of at most 64 bytes.
fn hmac_sha256(key: &[u8], message: &[u8]) -> Vec<u8> {
    let pad = |byte: u8| (0..64).map(|i| key.get(i).copied().unwrap_or_default() ^ byte).collect::<Vec<u8>>();
    let inner = Sha256::digest([&pad(0x36), message].concat());
    Sha256::digest([&pad(0x5c), inner.as_slice()].concat()).to_vec()
}

/// Writes the directory of its control plane to the file `$CAPW_HELD` and never ends. `killed_nothing_is_left` runs and kills it.
#[test]
#[ignore = "runs only inside killed_nothing_is_left"]
fn held_for_ever() {
    let told = std::env::var("CAPW_HELD").expect("the file to write");
    world::run(async {
        let cp = ControlPlane::start(Options::plain().named("held")).await;
        std::fs::write(told, cp.directory().display().to_string()).expect("the file is written");
        std::future::pending::<()>().await;
    });
}

/// A killed test program cannot clean up, and yet nothing is left.
#[test]
fn killed_nothing_is_left() {
    let note = tempfile::NamedTempFile::new().expect("a file");
    let scratch = tempfile::tempdir().expect("a directory");
    let own = std::env::current_exe().expect("the path of this program");
    let held = Process::new("held", &own, scratch.path()).args(["--exact", "parts::held_for_ever", "--ignored"]).env("CAPW_HELD", note.path());
    held.start();
    world::run(async {
        let directory = wait_for("the other program's control plane", Duration::from_secs(60), || async {
            let path = std::fs::read_to_string(note.path()).expect("the file is there");
            (!path.is_empty()).then(|| std::path::PathBuf::from(path))
        })
        .await;
        assert_eq!(processes_in(&directory).len(), 3);
        held.kill();
        wait_for("nothing is left", Duration::from_secs(10), || async {
            match (processes_in(&directory), directory.exists()) {
                (left, false) if left.is_empty() => Ok(()),
                (left, exists) => Err(format!("{left:?}, directory there: {exists}")),
            }
        })
        .await;
    });
}
