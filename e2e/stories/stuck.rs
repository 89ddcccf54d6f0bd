//! Story *why is it stuck*: whatever keeps a machine from becoming a node, within 30 s the object reports the problem, the place and the remedy in a
//! condition, an event and a column of `kubectl get`. A stuck machine can be fixed or deleted.

mod judge;
mod libvirt;
mod on;

use std::time::Instant;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use self::judge::{LIMIT, TOLD, Told, everything_goes, hypervisor_says, one_machine, said, told, true_of, unseen_and_ready, until};
use crate::workers::{self, Workers};
use crate::world::{self, Capw, ControlPlane, Kind, Options, condition, simulated_vms, text, wait_for};

#[test]
fn why_is_it_stuck() {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("stuck")).await;
        let capw = Capw::start(&cp, &[]).await;
        tokio::join!(
            image_missing(&cp, &capw),
            hypervisor_unreachable(&cp),
            wrong_kubeconfigs(&cp),
            token_expired(&cp),
            vm_removed(&cp, &capw),
            never_joined(&cp),
            name_too_long(&cp, &capw),
            payload_too_large(&cp, &capw),
        );
        everything_goes(&cp, &capw).await;
    });
}

/// Checks that no VM is in the data centre of a namespace.
fn assert_no_vm(capw: &Capw, namespace: &str) {
    let vms = simulated_vms(capw.state());
    let own: Vec<_> = vms.iter().filter(|vm| vm.datacenter == format!("{namespace}.lab")).collect();
    assert!(own.is_empty(), "{own:?}");
}

async fn image_missing(cp: &ControlPlane, capw: &Capw) {
    let mut workers = one_machine("image", cp).await;
    workers.machine["image"] = json!("windows-server-1999");
    workers.apply(cp).await;
    let fact = true_of(cp, Kind::WINDOWS_BOOTSTRAP_CONFIG, "image", "DataSecretAvailable").await;
    told(
        cp,
        "image",
        fact,
        Told {
            kind: Kind::WINDOWS_MACHINE,
            condition: ("Ready", "False"),
            reason: "ImageMissing",
            says: &["windows-server-1999", "WindowsHypervisor lab", "windows-server-2022"],
        },
    )
    .await;
    assert_no_vm(capw, "image");
    // The remedy: a user uploads the image.
    let images = json!({"spec": {"simulated": {"images": ["windows-server-1999"]}}});
    cp.patch(Kind::WINDOWS_HYPERVISOR, "image/lab", &images).await.expect("images can be added");
    workers.wait_settled(cp, cp, LIMIT).await;
}

async fn hypervisor_unreachable(cp: &ControlPlane) {
    let mut workers = one_machine("unreachable", cp).await;
    workers.apply(cp).await;
    workers.wait_settled(cp, cp, LIMIT).await;
    let cut = |unreachable: bool| json!({"spec": {"simulated": {"unreachable": unreachable}}});
    cp.patch(Kind::WINDOWS_HYPERVISOR, "unreachable/lab", &cut(true)).await.expect("the endpoint can be cut off");
    let fact = Instant::now();
    workers.replicas = 2;
    cp.apply_objects(&[workers.machine_deployment()]).await;
    hypervisor_says(cp, "unreachable", "HypervisorUnreachable", &["unreachable"]).await;
    let is_unreachable = "WindowsHypervisor lab is unreachable";
    unseen_and_ready(cp, "unreachable", &[is_unreachable]).await;
    // The new machine waits, and reports the reason.
    let waiting = Told { kind: Kind::WINDOWS_MACHINE, condition: ("Ready", "False"), reason: "HypervisorUnreachable", says: &[is_unreachable] };
    told(cp, "unreachable", fact, waiting).await;
    cp.patch(Kind::WINDOWS_HYPERVISOR, "unreachable/lab", &cut(false)).await.expect("the endpoint can come back");
    workers.wait_settled(cp, cp, LIMIT).await;
    let back = ("VirtualMachineReady", "True");
    wait_for("the running machine is seen again", TOLD, || async {
        let objects = cp.list(Kind::WINDOWS_MACHINE, Some("unreachable")).await;
        let seen = objects.iter().filter(|object| condition(object, back.0).is_some_and(|found| found["status"] == back.1)).count();
        (seen == 2).then_some(())
    })
    .await;
}

async fn wrong_kubeconfigs(cp: &ControlPlane) {
    let right = workers::remote_kubeconfig(cp).await;
    let stranger = rcgen::generate_simple_self_signed(vec!["stranger".to_owned()]).expect("a certificate").cert.pem();
    let (ca, server, rights) = (
        changed(&right, "certificate-authority-data", &base64(stranger.as_bytes())),
        changed(&right, "server", "https://127.0.0.1:9"),
        powerless(cp).await,
    );
    let address = cp.server();
    let refused = [
        ("config-garbage", "what is this?".to_owned(), "KubeconfigInvalid", vec!["config-garbage/c1-external-kubeconfig", "kubeconfig"]),
        ("config-ca", ca, "EndpointUnreachable", vec![address.as_str(), "certificate-authority-data"]),
        ("config-rights", rights, "PermissionsMissing", vec!["create secrets in namespace kube-system", "another kubeconfig"]),
        ("config-server", server, "EndpointUnreachable", vec!["https://127.0.0.1:9", "correct the server in the kubeconfig"]),
    ];
    join_all(refused.iter().map(|(namespace, kubeconfig, reason, parts)| async {
        let workers = Workers { kubeconfig: kubeconfig.clone(), ..one_machine(namespace, cp).await };
        workers.apply(cp).await;
        let fact = Instant::now();
        let wrong = Told { kind: Kind::EXTERNAL_CONTROL_PLANE, condition: ("Available", "False"), reason, says: parts };
        told(cp, namespace, fact, wrong).await;
    }))
    .await;
    // The remedy: the right kubeconfig.
    let workers = Workers { kubeconfig: right, ..one_machine("config-garbage", cp).await };
    let secret = workers.objects().into_iter().find(|object| object["kind"] == "Secret").expect("the kubeconfig's Secret");
    cp.apply_objects(&[secret]).await;
    workers.wait_settled(cp, cp, LIMIT).await;
}

/// Returns a kubeconfig with another value for a key that it contains once.
fn changed(kubeconfig: &str, key: &str, value: &str) -> String {
    let mut config: Value = serde_saphyr::from_str(kubeconfig).expect("a kubeconfig");
    let cluster = config.pointer_mut("/clusters/0/cluster").expect("a kubeconfig has a cluster");
    assert!(cluster.get(key).is_some(), "no {key} in it");
    cluster[key] = json!(value);
    config.to_string()
}

/// Returns a kubeconfig of an account without any rights.
async fn powerless(cp: &ControlPlane) -> String {
    cp.apply_objects(&[json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "powerless", "namespace": "default"}})]).await;
    let path = cp.kubeconfig_for("default", "powerless").await;
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The guest joins too late, and CAPW does not renew its token without end.
async fn token_expired(cp: &ControlPlane) {
    let mut workers = one_machine("token", cp).await;
    workers.bootstrap = json!({"join": {"tokenTTLSeconds": 60, "tokenMaxAgeSeconds": 60}});
    workers.driver = json!({"simulated": {"faults": [{"names": "*", "fault": "NoJoin"}]}});
    workers.apply(cp).await;
    let made = wait_for("the bootstrap token is made", LIMIT, || async {
        let configs = cp.list(Kind::WINDOWS_BOOTSTRAP_CONFIG, Some("token")).await;
        configs.iter().find_map(|config| text(config, "/status/tokenCreatedAt").parse::<Timestamp>().ok())
    })
    .await;
    let fact = until(made.saturating_add(SignedDuration::from_secs(60)).expect("a time")).await;
    let config = told(
        cp,
        "token",
        fact,
        Told {
            kind: Kind::WINDOWS_BOOTSTRAP_CONFIG,
            condition: ("JoinCredentialValid", "False"),
            reason: "TokenExpired",
            says: &["60 s (spec.join.tokenMaxAgeSeconds)", "WindowsMachine", "MachineHealthCheck"],
        },
    )
    .await;
    let secret = format!("kube-system/bootstrap-token-{}", text(&config, "/status/tokenID"));
    cp.wait_gone(Kind::SECRET, &secret, TOLD).await;
}

async fn vm_removed(cp: &ControlPlane, capw: &Capw) {
    let workers = one_machine("removed", cp).await;
    workers.apply(cp).await;
    workers.wait_settled(cp, cp, LIMIT).await;
    let vm = simulated_vms(capw.state()).into_iter().find(|vm| vm.datacenter == "removed.lab").expect("the VM");
    let home = capw.state().join(&vm.datacenter).join(&vm.directory);
    // One atomic step, as on a hypervisor: a guest may still be writing below the directory.
    std::fs::rename(&home, cp.directory().join("removed-behind-our-back")).expect("the VM's directory can be taken away");
    let removed = Told {
        kind: Kind::WINDOWS_MACHINE,
        condition: ("Ready", "False"),
        reason: "VirtualMachineRemoved",
        says: &[&vm.directory, "WindowsHypervisor lab", "delete the Machine", "MachineHealthCheck"],
    };
    told(cp, "removed", Instant::now(), removed).await;
    // Core copies the condition to the Machine, where users read it.
    let machine = wait_for("the Machine says it too", TOLD, || async {
        let machines = cp.list(Kind::MACHINE, Some("removed")).await;
        machines.into_iter().find(|machine| condition(machine, "InfrastructureReady").is_some_and(|found| found["status"] == "False"))
    })
    .await;
    assert_eq!(condition(&machine, "InfrastructureReady").map(|found| text(found, "/reason")), Some("VirtualMachineRemoved"));
}

async fn never_joined(cp: &ControlPlane) {
    let mut workers = one_machine("nojoin", cp).await;
    workers.machine["joinDeadlineSeconds"] = json!(10);
    // The guest is still joining when its deadline passes.
    workers.driver = json!({"simulated": {"delays": {"joinMilliseconds": 600_000}}});
    workers.apply(cp).await;
    let on = wait_for("the VM is switched on", LIMIT, || async {
        let machines = cp.list(Kind::WINDOWS_MACHINE, Some("nojoin")).await;
        machines.iter().find_map(|machine| text(machine, "/status/poweredOnAt").parse::<Timestamp>().ok())
    })
    .await;
    let fact = until(on.saturating_add(SignedDuration::from_secs(10)).expect("a time")).await;
    let never = Told {
        kind: Kind::WINDOWS_MACHINE,
        condition: ("NodeJoined", "False"),
        reason: "NodeNeverJoined",
        // The message contains the guest's last report, which names the step where it hangs.
        says: &[
            "10 s after power on",
            "last word: ",
            "hangs at the step the guest last reported",
            "C:\\ProgramData\\capw",
            "(F07)",
            "MachineHealthCheck",
        ],
    };
    told(cp, "nojoin", fact, never).await;
}

async fn name_too_long(cp: &ControlPlane, capw: &Capw) {
    let mut workers = one_machine("name", cp).await;
    workers.machine["hostName"] = json!("ObjectName");
    let mut objects = workers.objects();
    let deployment = objects.last_mut().expect("the MachineDeployment is the last");
    deployment["spec"]["machineNaming"]["template"] = json!("much-too-long-for-windows-{{ .random }}");
    cp.apply_objects(&objects).await;
    let long = Told {
        kind: Kind::WINDOWS_MACHINE,
        condition: ("Ready", "False"),
        reason: "HostNameTooLong",
        says: &["metadata.name", "much-too-long-for-windows-", "at most 15", "machineNaming", "hostName: Auto"],
    };
    told(cp, "name", Instant::now(), long).await;
    assert_no_vm(capw, "name");
}

async fn payload_too_large(cp: &ControlPlane, capw: &Capw) {
    let mut workers = one_machine("payload", cp).await;
    let noise: Vec<u8> = (0u32..2_400).flat_map(|index| Sha256::digest(index.to_le_bytes())).collect();
    let content: String = base64(&noise).chars().take(100 << 10).collect();
    workers.bootstrap = json!({"channel": "GuestInfo", "files": [{"path": "C:\\k\\noise.txt", "content": content}]});
    workers.apply(cp).await;
    let fact = true_of(cp, Kind::EXTERNAL_CONTROL_PLANE, "payload", "Available").await;
    let large = Told {
        kind: Kind::WINDOWS_BOOTSTRAP_CONFIG,
        condition: ("Ready", "False"),
        reason: "PayloadTooLarge",
        says: &["spec.channel", "GuestInfo", "the limit is 65536", "bytes"],
    };
    told(cp, "payload", fact, large).await;
    assert_no_vm(capw, "payload");
    // The machine waits, and reports where to find the cause.
    let machine = Told {
        kind: Kind::WINDOWS_MACHINE,
        condition: ("Ready", "False"),
        reason: "WaitingForBootstrapData",
        says: &["see its bootstrap configuration"],
    };
    said(cp, "payload", &machine).await;
}

fn base64(bytes: &[u8]) -> String {
    use ::base64::Engine;
    ::base64::engine::general_purpose::STANDARD.encode(bytes)
}
