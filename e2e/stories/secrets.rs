//! Story *secrets*: the secrets that let a machine join, and that let CAPW into the workload cluster, appear only in its Secrets and on the config
//! drive. The token is worthless once the machine has joined.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use capw::bootstrap::read::Payload;
use serde_json::{Value, json};

use crate::workers::Workers;
use crate::world::{self, Capw, ControlPlane, Kind, Options, search, text, wait_for};

/// The values that fields of the spec take from a user's Secret: a djoin blob, and a proxy's URL with its user.
const BLOB: &str = "canary-djoin-0d7b2a4c3e5e9c1f";
const PROXY: &str = "http://capw:canary-proxy-9c1f0d7b@proxy.example.com:3128";
const PROXY_PASSWORD: &str = "canary-proxy-9c1f0d7b";
const LICENCE: &str = "canary-5e9c1f0d7b2a4c3e";
const PASSWORD: &str = "Canary-7d1f&pass";
const PRODUCT_KEY: &str = "CANAR-YCANA-RYCAN-ARYCA-N1234";
const MIRROR_PASSWORD: &str = "canary-mirror-9c1f0d7b2a4c";
const MIRROR_KEY: &str = "-----BEGIN PRIVATE KEY-----\nY2FuYXJ5LWNsaWVudC1rZXktNWU5YzFm\n-----END PRIVATE KEY-----\n";
const MIRROR_KEY_BODY: &str = "Y2FuYXJ5LWNsaWVudC1rZXktNWU5YzFm";
const CA: &str = include_str!("../../src/bootstrap/sample-ca.pem");
const LIMIT: Duration = Duration::from_secs(90);
/// The objects that the program writes and that many people can read.
const PUBLIC: [Kind; 9] = [
    Kind::EVENT,
    Kind::MACHINE,
    Kind::CLUSTER,
    Kind::WINDOWS_MACHINE,
    Kind::WINDOWS_BOOTSTRAP_CONFIG,
    Kind::WINDOWS_HYPERVISOR,
    Kind::WINDOWS_CLUSTER,
    Kind::EXTERNAL_CONTROL_PLANE,
    Kind::NODE,
];

#[test]
fn secrets_are_where_they_belong_and_nowhere_else() {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("secrets")).await;
        // The log level of a developer who wants to see everything.
        let capw = Capw::start(&cp, &["--log-level=debug,hyper=info"]).await;
        let workers = Workers {
            replicas: 2,
            bootstrap: json!({
                "channel": "Unattend",
                "unattend": {"administratorPasswordFrom": from_secret("password"), "productKeyFrom": from_secret("product")},
                "files": [{"path": r"C:\k\licence.key", "contentFrom": from_secret("key")}],
                "containerd": {"registries": [{"host": "registry.example.com", "mirrors": [{"url": "https://mirror.example.com",
                    "basicAuth": {"usernameFrom": from_secret("user"), "passwordFrom": from_secret("mirror")},
                    "clientCertificate": {"certificateFrom": from_secret("crt"), "keyFrom": from_secret("pem")}}]}]},
                "network": {"caBundleFrom": {"configMapKeyRef": {"name": "authorities", "key": "ca.crt"}},
                    "proxy": {"urlFrom": from_secret("proxy")}},
                "windows": {"gmsa": {"domain": {"name": "corp.example.com", "blobFrom": from_secret("djoin")}}},
            }),
            ..Workers::new("vault", &cp).await
        };
        workers.apply(&cp).await;
        // CAPW waits for a Secret that a field names.
        wait_for("the missing Secret is told", LIMIT, || async {
            let all = cp.list(Kind::WINDOWS_BOOTSTRAP_CONFIG, Some(&workers.namespace)).await;
            let told = all.iter().filter(|c| c.to_string().contains("Secret vault/licence does not exist")).count();
            if told == 2 { Ok(()) } else { Err(format!("{told} configurations say so")) }
        })
        .await;
        let licence = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "licence", "namespace": workers.namespace}, "stringData": {"key": LICENCE, "password": PASSWORD, "product": PRODUCT_KEY,
            "user": "reader", "mirror": MIRROR_PASSWORD, "crt": CA, "pem": MIRROR_KEY, "djoin": BLOB, "proxy": PROXY}});
        cp.apply(&licence.to_string()).await;
        wait_for("the missing ConfigMap is told", LIMIT, || async {
            let all = cp.list(Kind::WINDOWS_BOOTSTRAP_CONFIG, Some(&workers.namespace)).await;
            let told = all.iter().filter(|c| c.to_string().contains("ConfigMap vault/authorities does not exist")).count();
            if told == 2 { Ok(()) } else { Err(format!("{told} configurations say so")) }
        })
        .await;
        let authorities = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "authorities", "namespace": workers.namespace}, "data": {"ca.crt": CA}});
        cp.apply(&authorities.to_string()).await;
        let machines = workers.wait_settled(&cp, &cp, LIMIT).await;

        let mut canaries = vec![kubeconfig_token(&workers.kubeconfig)];
        let header = STANDARD.encode(format!("reader:{MIRROR_PASSWORD}"));
        for given in [LICENCE, PASSWORD, PRODUCT_KEY, MIRROR_PASSWORD, MIRROR_KEY_BODY, BLOB, PROXY_PASSWORD, header.as_str()] {
            canaries.extend([given.to_owned(), STANDARD.encode(given)]);
        }
        // Windows encodes the password in an answer file, which is another form of the plain text.
        let hidden = STANDARD.encode(PASSWORD.encode_utf16().flat_map(u16::to_le_bytes).take(30).collect::<Vec<u8>>());
        canaries.push(hidden.clone());
        for machine in &machines {
            let secret = cp.get(Kind::SECRET, &workers.name(text(machine, "/spec/bootstrap/dataSecretName"))).await.expect("a bootstrap Secret");
            let token = String::from_utf8(STANDARD.decode(text(&secret, "/data/token")).unwrap()).unwrap();
            let (id, half) = token.split_once('.').expect("a bootstrap token");
            assert_eq!((id.len(), half.len()), (6, 16), "not a bootstrap token");
            // The search below would pass if no secret existed, so this checks that the Secret has all of them.
            let answer = String::from_utf8(STANDARD.decode(text(&secret, "/data/unattend.xml")).unwrap()).unwrap();
            assert!(answer.contains(PRODUCT_KEY) && answer.contains(&hidden), "not what Windows Setup is to be told");
            let payload = Payload::from_user_data(&STANDARD.decode(text(&secret, "/data/value")).unwrap()).expect("a payload");
            for (file, canary) in [("domain-join", BLOB), ("kubelet-environment", PROXY), ("containerd-environment", PROXY), ("user-00", LICENCE)] {
                assert!(contains(&payload.files[&format!("secret/{file}")], canary), "{file} is not what the spec asked for");
            }
            canaries.push(half.to_owned());
            wait_for("the token is gone from the workload cluster", LIMIT, || async {
                let name = format!("kube-system/bootstrap-token-{id}");
                if cp.get(Kind::SECRET, &name).await.is_none() { Ok(()) } else { Err(format!("{name} is still there")) }
            })
            .await;
        }
        // The seed on a VM delivers the token, and is removed after use.
        wait_for("the seeds are taken away", LIMIT, || async {
            let left = search::files(capw.state())
                .into_iter()
                .filter(|file| file.file_name().is_some_and(|name| name == "config-drive.iso" || name == "guestinfo.json"));
            let left: Vec<_> = left.collect();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
        // A search that finds nothing would always pass.
        assert!(!found_in_log(&capw, &["windowsmachine".to_owned()]).is_empty(), "the log is not searched");

        let mut found = found_in_log(&capw, &canaries);
        for kind in PUBLIC {
            let all = Value::Array(cp.list(kind, None).await).to_string();
            found.extend(canaries.iter().filter(|c| all.contains(*c)).map(|_| format!("objects {}", kind.plural)));
        }
        found.extend(canaries.iter().filter(|c| capw.metrics().contains(*c)).map(|_| "metrics".to_owned()));
        let id = capw.process().id().expect("capw runs");
        let arguments = std::fs::read(format!("/proc/{id}/cmdline")).expect("its arguments");
        found.extend(canaries.iter().filter(|c| contains(&arguments, c)).map(|_| "arguments".to_owned()));
        let files = canaries.iter().flat_map(|c| search::files_with(capw.state(), c));
        found.extend(files.map(|file| file.display().to_string()));
        assert!(found.is_empty(), "a secret was found in: {found:#?}");
    });
}

fn from_secret(key: &str) -> Value {
    json!({"secretKeyRef": {"name": "licence", "key": key}})
}

fn kubeconfig_token(kubeconfig: &str) -> String {
    let line = kubeconfig.lines().find_map(|line| line.split_once("token")).map(|(_, rest)| rest);
    let token = line.expect("a kubeconfig with a token").trim_matches([':', ' ', '"', '\'', ',', '}', ']']);
    let signature = token.rsplit('.').next().unwrap_or_default();
    assert!(signature.len() > 40, "not a signed token");
    signature.split(['"', '\'']).next().unwrap_or_default().to_owned()
}

fn found_in_log(capw: &Capw, canaries: &[String]) -> Vec<String> {
    let log = capw.log();
    canaries.iter().filter(|c| log.contains(*c)).map(|_| "the log".to_owned()).collect()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}
