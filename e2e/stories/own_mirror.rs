//! Story *own mirror*: a node without a route to the internet. Its kubelet comes from a user's mirror, and its images come from a registry that
//! requires a password and a certificate. One of our servers plays both, with a CA that only the spec's bundle contains. The clients are the real
//! programs.

use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use crate::program_logs::faultless;
use crate::real_windows_node::{CNI, processes_of};
use crate::workers::Workers;
use crate::world::{self, Capw, ControlPlane, Kind, Options, condition, simulated_vms, step, text, wait_for, wine};

const LIMIT: Duration = Duration::from_secs(300);
const USER: &str = "reader";
const PASSWORD: &str = "pass:word";

/// One request as the server received it.
#[derive(Clone, Debug)]
struct Asked {
    path: String,
    authorization: String,
    /// Whether the client presented a certificate of our CA.
    known: bool,
}

/// The CA, and the identities of the server and a client, in PEM.
struct Authority {
    certificate: String,
    server: (String, String),
    client: (String, String),
}

impl Authority {
    fn new(address: IpAddr) -> Self {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "authority of the mirror");
        let certificate = parameters.self_signed(&key).expect("a certificate").pem();
        let issuer = rcgen::Issuer::new(parameters, key);
        let signed = |names: Vec<String>, usage| {
            let key = rcgen::KeyPair::generate().expect("a key");
            let mut parameters = rcgen::CertificateParams::new(names).expect("parameters");
            parameters.extended_key_usages = vec![usage];
            (parameters.signed_by(&key, &issuer).expect("a certificate").pem(), key.serialize_pem())
        };
        let server = signed(vec![address.to_string()], rcgen::ExtendedKeyUsagePurpose::ServerAuth);
        let client = signed(vec!["node".into()], rcgen::ExtendedKeyUsagePurpose::ClientAuth);
        Self { certificate, server, client }
    }

    fn config(&self) -> ServerConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.certificate.as_bytes()).expect("PEM")).expect("an authority");
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let verifier = verifier.allow_unauthenticated().build().expect("a verifier");
        let chain = vec![CertificateDer::from_pem_slice(self.server.0.as_bytes()).expect("PEM")];
        let key = PrivateKeyDer::from_pem_slice(self.server.1.as_bytes()).expect("PEM");
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
        builder.with_client_cert_verifier(verifier).with_single_cert(chain, key).expect("an identity")
    }
}

/// Serves files by path, and a registry that is empty for authorized clients.
async fn serve(listener: TcpListener, config: ServerConfig, files: Arc<Vec<(String, Vec<u8>)>>, asked: Arc<Mutex<Vec<Asked>>>) {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, files, asked) = (acceptor.clone(), files.clone(), asked.clone());
        tokio::spawn(async move {
            // A client that does not trust our CA disconnects here.
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let known = stream.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty());
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") && head.len() < 16_384 {
                let Ok(byte) = stream.read_u8().await else { return };
                head.push(byte);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default().to_owned();
            let value = |name: &str| {
                head.lines().filter_map(|line| line.split_once(": ")).find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
            };
            let request = Asked { path: path.clone(), authorization: value("authorization").unwrap_or_default().to_owned(), known };
            let welcome = request.authorization == basic() && known;
            asked.lock().expect("the list").push(request);
            let none = Vec::new();
            let (status, body) = match files.iter().find(|(name, _)| *name == path) {
                Some((_, body)) => ("200 OK", body),
                None if path.starts_with("/v2/") && !welcome => ("401 Unauthorized", &none),
                None => ("404 Not Found", &none),
            };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(answer.as_bytes()).await;
            if !head.starts_with("HEAD ") {
                let _ = stream.write_all(body).await;
            }
            let _ = stream.shutdown().await;
        });
    }
}

fn basic() -> String {
    format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")))
}

fn from_secret(key: &str) -> Value {
    json!({"secretKeyRef": {"name": "mirror", "key": key}})
}

/// Returns an address of this host that guests reach. It is found without sending a packet.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// Collects the arguments of every program that guests run, until `end` is set.
fn watch_arguments(state: PathBuf, end: Arc<AtomicBool>) -> std::thread::JoinHandle<BTreeSet<String>> {
    std::thread::spawn(move || {
        let mut seen = BTreeSet::new();
        while !end.load(Ordering::Relaxed) {
            for process in processes_of(&state) {
                // A process that has ended has no arguments any more.
                let arguments = std::fs::read(format!("{process}/cmdline")).unwrap_or_default();
                seen.insert(String::from_utf8_lossy(&arguments).replace('\0', " "));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        seen
    })
}

#[test]
fn a_node_from_an_own_mirror() {
    if let Some(lacks) = wine::lacks(&[&wine::kubernetes()]) {
        return wine::skip("a_node_from_an_own_mirror", &lacks);
    }
    let Some(address) = own_address() else { return wine::skip("a_node_from_an_own_mirror", "a route by which guests reach this host") };
    world::run(async move {
        let version = wine::kubernetes();
        let authority = Authority::new(address);
        let listener = TcpListener::bind((address, 0)).await.expect("a port");
        let origin = format!("https://{}", listener.local_addr().expect("its address"));
        // A different file than in the image: Windows ignores data after the end of a program.
        let mut kubelet = std::fs::read(wine::programs().join(format!("kubelet-windows-{version}/kubelet.exe"))).expect("kubelet.exe");
        kubelet.extend(b"from the mirror");
        let digest = Sha256::digest(&kubelet).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let files = Arc::new(vec![(format!("/kubernetes/v{version}/bin/windows/amd64/kubelet.exe"), kubelet)]);
        let asked = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn(serve(listener, authority.config(), files, asked.clone()));

        let cp = ControlPlane::start(Options::default().named("mirror")).await;
        let capw = Capw::start(&cp, &[&format!("--wine-programs={}", wine::programs().display())]).await;
        let end = Arc::new(AtomicBool::new(false));
        let watch = watch_arguments(capw.state().to_owned(), end.clone());
        let spec = |digest: &str| {
            json!({
                "files": [{"path": CNI.0, "content": CNI.1}],
                "network": {"caBundleFrom": {"configMapKeyRef": {"name": "authorities", "key": "ca.crt"}}},
                "programs": {"baseURL": format!("{origin}/kubernetes"), "downloads": [{"name": "kubelet", "digest": format!("sha256:{digest}")}]},
                "kubelet": {"imageCredentialProvider": {"directory": r"C:\k", "providers": [
                    // The kubelet never runs it, because no image is in this registry, but it checks that the program exists.
                    {"name": "kubeadm", "matchImages": ["*.registry.example.com"]}]}},
                "containerd": {"sandboxImage": "registry.example.com/pause:1", "registries": [{"host": "registry.example.com", "fallback": "None",
                    "mirrors": [{"url": origin, "caCertificates": authority.certificate,
                        "basicAuth": {"usernameFrom": from_secret("username"), "passwordFrom": from_secret("password")},
                        "clientCertificate": {"certificateFrom": from_secret("tls.crt"), "keyFrom": from_secret("tls.key")}}]}]},
            })
        };
        let mut pools = Vec::new();
        for (namespace, digest) in [("mirror", digest.clone()), ("wrong", "0".repeat(64))] {
            let workers = Workers {
                replicas: 1,
                driver: json!({"simulated": {"guest": "Wine"}}),
                bootstrap: spec(&digest),
                ..Workers::new(namespace, &cp).await
            };
            workers.apply(&cp).await;
            let given = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mirror", "namespace": namespace},
                "stringData": {"username": USER, "password": PASSWORD, "tls.crt": authority.client.0, "tls.key": authority.client.1}});
            cp.apply(&given.to_string()).await;
            let public = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "authorities", "namespace": namespace},
                "data": {"ca.crt": authority.certificate}});
            cp.apply(&public.to_string()).await;
            pools.push(workers);
        }

        let machines = pools[0].wait_settled(&cp, &cp, LIMIT).await;
        let node = text(&machines[0], "/status/nodeRef/name").to_owned();
        step("the node is Ready with the kubelet of the mirror");
        let vm = simulated_vms(capw.state()).into_iter().find(|vm| vm.datacenter.starts_with("mirror.")).expect("its VM");
        let guest = wine::WineGuest::of(capw.state(), &vm.datacenter, &vm.directory);
        let there = std::fs::read(guest.path(r"C:\k\kubelet.exe")).expect("its kubelet");
        assert!(there.ends_with(b"from the mirror"), "the kubelet is that of the image");
        faultless(&guest.read(r"C:\var\log\kubelet\kubelet.log").expect("the kubelet's log"));

        let refused = wait_for("the wrong digest is told", LIMIT, || async {
            let machines = cp.list(Kind::WINDOWS_MACHINE, Some("wrong")).await;
            let joined = machines.first().and_then(|machine| condition(machine, "NodeJoined")).cloned().unwrap_or_default();
            if joined["reason"] == "ProgramsUnavailable" { Ok(text(&joined, "/message").to_owned()) } else { Err(joined.to_string()) }
        })
        .await;
        assert!(refused.contains("kubelet.exe") && refused.contains("digest"), "{refused}");
        step(format!("the other one is not: {refused}"));

        // Every pod starts with its sandbox.
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "any", "namespace": "default"}, "spec": {
            "nodeName": node, "hostNetwork": true, "tolerations": [{"operator": "Exists"}],
            "securityContext": {"windowsOptions": {"hostProcess": true, "runAsUserName": "NT AUTHORITY\\SYSTEM"}},
            "containers": [{"name": "a", "image": "registry.example.com/a:1", "command": ["a.exe"]}]}});
        cp.apply(&pod.to_string()).await;
        wait_for("containerd asks the mirror as it was told", LIMIT, || async {
            let asked: Vec<Asked> = asked.lock().expect("the list").iter().filter(|asked| asked.path.starts_with("/v2/")).cloned().collect();
            let good = asked.iter().find(|asked| asked.path == "/v2/pause/manifests/1" && asked.authorization == basic() && asked.known);
            good.map(|_| ()).ok_or_else(|| format!("{asked:?}; containerd: {}", last(&guest.read(r"C:\var\log\containerd\containerd.log"))))
        })
        .await;
        step("containerd showed the mirror its password and its certificate");
        for secret in ["hosts.toml", "mirror-0-client-key.pem"] {
            assert!(guest.path(&format!(r"C:\etc\containerd\certs.d\registry.example.com\{secret}")).exists(), "{secret}");
        }
        step("a machine whose seed was taken away starts again from its own disk");
        let home = capw.state().join(&vm.datacenter).join(&vm.directory);
        wait_for("the seed is taken away", LIMIT, || async { if home.join("config-drive.iso").exists() { Err("it is attached") } else { Ok(()) } })
            .await;
        let starts = || guest.read(r"C:\var\log\kubelet\kubelet.log").map(|log| log.matches("\"Kubelet version\"").count());
        let before = starts().expect("the kubelet's log");
        capw.restart().await;
        wait_for("the kubelet has started once more", LIMIT, || async {
            let now = starts()?;
            if now > before { Ok(()) } else { Err(format!("{now} starts")) }
        })
        .await;
        assert!(
            std::fs::read_to_string(home.join("console.log")).expect("its console").lines().all(|line| !line.contains(" failed ")),
            "the plan failed"
        );
        // Everyone on a machine may read arguments, so they must not contain the secrets that files pass on.
        end.store(true, Ordering::Relaxed);
        let arguments = watch.join().expect("the watch of arguments");
        assert!(arguments.iter().any(|line| line.contains("kubeadm.exe join")), "{arguments:#?}");
        let machine = cp.list(Kind::MACHINE, Some("mirror")).await.remove(0);
        let secret = cp.get(Kind::SECRET, &pools[0].name(text(&machine, "/spec/bootstrap/dataSecretName"))).await.expect("a bootstrap Secret");
        let token = String::from_utf8(STANDARD.decode(text(&secret, "/data/token")).expect("base64")).expect("text");
        let (_, half) = token.split_once('.').expect("a bootstrap token");
        let key = authority.client.1.lines().nth(1).expect("a key");
        for secret in [half, PASSWORD, key, basic().as_str()] {
            assert!(!arguments.iter().any(|line| line.contains(secret)), "a secret is among the arguments of a program");
        }
        for pool in &pools {
            cp.delete(Kind::CLUSTER, &pool.name(&pool.cluster)).await;
        }
        wait_for("no VM is left", LIMIT, || async {
            let left = simulated_vms(capw.state()).len();
            if left == 0 { Ok(()) } else { Err(format!("{left} VMs")) }
        })
        .await;
    });
}

fn last(log: &Result<String, String>) -> String {
    log.as_ref().map_or_else(Clone::clone, |text| text.lines().rev().take(3).collect::<Vec<_>>().join(" | "))
}
