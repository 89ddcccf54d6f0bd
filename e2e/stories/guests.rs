//! Simulated guests against a real API server: they read the config drive, and act like kubeadm and the kubelet. The operator does not run; the story
//! plays its part (the token, the drive, the VM).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use capw::api::bootstrap_config::Channel;
use capw::api::hypervisor::{Simulated, SimulatedDelays, WindowsHypervisor, WindowsHypervisorSpec};
use capw::api::kubernetes_version::KubernetesVersion;
use capw::api::name::{HostName, ProviderId, VmUuid};
use capw::bootstrap::delivery::{Instance, build};
use capw::bootstrap::{BootstrapFacts, ca_hash, render};
use capw::hypervisor::DriverStep;
use capw::hypervisor::drivers::{DriverSettings, Drivers};
use capw::vm::{GuestReport, Journal, MachineKey, Observed, Seed, StopMode, VmSpec};
use tokio_util::sync::CancellationToken;

use crate::world::{self, ControlPlane, Kind, Options, text, wait_for};

/// The drivers and guests of one operator.
struct Operator {
    drivers: Arc<Drivers>,
    stop: CancellationToken,
    state: PathBuf,
}

impl Operator {
    fn start(cp: &ControlPlane) -> Self {
        let state = cp.directory().join("simulated");
        let drivers = Arc::new(Drivers::new(DriverSettings {
            simulated_state: state.clone(),
            simulated_guests: true,
            wine_programs: None,
            passes: 32,
            clock: Arc::new(jiff::Timestamp::now),
            hook: Arc::new(|_| ()),
            requests: Arc::new(|_, _, _| ()),
        }));
        let stop = CancellationToken::new();
        let (running, stopped) = (drivers.clone(), stop.clone());
        tokio::spawn(async move { running.run(stopped).await });
        Self { drivers, stop, state }
    }

    async fn advance(&self, machine: &Machine) {
        let driver = self.driver();
        wait_for("the VM runs", Duration::from_secs(20), || async {
            match driver.advance(&machine.key, &machine.spec, &machine.seed, &Journal::new(), &Observed::Absent).await {
                Ok(DriverStep::Done) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }

    async fn retire(&self, machine: &Machine) {
        let driver = self.driver();
        wait_for("the VM is gone", Duration::from_secs(20), || async {
            match driver.retire(&machine.key, StopMode::Graceful, &Journal::new(), &Observed::Absent).await {
                Ok(DriverStep::Done) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }

    fn driver(&self) -> Arc<dyn capw::hypervisor::Driver> {
        let delays = SimulatedDelays { boot_milliseconds: 200, ..SimulatedDelays::default() };
        let mut object = WindowsHypervisor::new(
            "lab",
            WindowsHypervisorSpec { simulated: Some(Simulated { delays, ..Simulated::default() }), ..Default::default() },
        );
        object.metadata.namespace = Some("default".to_owned());
        self.drivers.connect(&object, &Default::default()).expect("a driver")
    }

    /// Returns the newest report once `found` accepts it.
    async fn report(&self, machine: &Machine, what: &str, found: impl Fn(&GuestReport) -> bool) -> GuestReport {
        let driver = self.driver();
        wait_for(what, Duration::from_secs(60), || async {
            match driver.observe(&machine.key, &Journal::new()).await {
                Ok(Observed::Present(vm)) => match vm.report {
                    Some(report) if found(&report) => Ok(report),
                    other => Err(format!("{other:?}")),
                },
                other => Err(format!("{other:?}")),
            }
        })
        .await
    }

    fn console(&self, machine: &Machine) -> String {
        let path = self.state.join("default.lab").join(machine.key.vm.to_string()).join("console.log");
        std::fs::read_to_string(path).unwrap_or_default()
    }
}

struct Machine {
    key: MachineKey,
    spec: VmSpec,
    seed: Seed,
}

impl Machine {
    fn name(&self) -> &str {
        self.spec.host_name.as_str()
    }
}

/// A machine whose drive contains the correct facts as modified by `change`.
fn machine(cp: &ControlPlane, token: &str, name: &str, change: impl FnOnce(&mut BootstrapFacts)) -> Machine {
    let ca_pem = std::fs::read_to_string(cp.directory().join("pki/ca.crt")).expect("the cluster's CA");
    let host_name = HostName::parse(name).expect("a host name");
    let vm = VmUuid::of(name);
    let mut facts = BootstrapFacts {
        machine_uid: name.to_owned(),
        machine_name: name.to_owned(),
        generation: 1,
        host_name: Some(host_name.clone()),
        provider_id: Some(ProviderId { hypervisor: "lab".to_owned(), vm }.to_string()),
        kubernetes: KubernetesVersion::supported("v1.36.1").expect("a version"),
        api_server_minor: None,
        endpoint: cp.server().trim_start_matches("https://").to_owned(),
        ca_hash: ca_hash(&ca_pem).expect("a CA"),
        ca_pem,
        token: token.to_owned().into(),
        cpus: Some(4),
        memory_mib: Some(16_384),
        system_disk_gib: None,
        cluster_dns: Vec::new(),
        cluster_domain: String::new(),
        pod_networks: Vec::new(),
        service_networks: Vec::new(),
        pods_per_node: None,
        secrets: Default::default(),
        spec: Default::default(),
    };
    facts.spec.kubelet.node_labels.insert("example.com/rack".to_owned(), "r1".to_owned());
    change(&mut facts);
    let user_data = render(&facts).expect("a rendering").user_data;
    let seed = build(Channel::ConfigDrive, &Instance { vm, host_name: Some(&host_name), user_data: user_data.as_bytes(), answer: &[] });
    let spec = VmSpec {
        image: "windows-server-2022".to_owned(),
        cpus: 4,
        memory_mib: 16_384,
        system_disk_gib: None,
        disks: Vec::new(),
        nics: Vec::new(),
        uefi: true,
        secure_boot: true,
        tpm: true,
        nested_virtualization: false,
        host_name,
    };
    Machine { key: MachineKey { vm, cluster: "default/one".to_owned(), name: name.to_owned() }, spec, seed }
}

/// Replaces the cluster's CA with another CA.
fn another_ca(facts: &mut BootstrapFacts) {
    facts.ca_pem = include_str!("../../src/bootstrap/sample-ca.pem").to_owned();
    facts.ca_hash = ca_hash(&facts.ca_pem).expect("a CA");
}

/// A VM that has only a config drive becomes a Node, stays a Node when the operator restarts, and stops when it is switched off.
#[test]
fn a_guest_joins_by_its_config_drive() {
    world::run(async {
        let cp = ControlPlane::start(Options::plain().named("guest")).await;
        let token = cp.kubeadm(&["token", "create"]).await;
        let token = token.trim();
        let operator = Operator::start(&cp);
        let win = machine(&cp, token, "win-1", |_| ());
        operator.advance(&win).await;
        let node = cp
            .wait_object(Kind::NODE, win.name(), "the Node is Ready", Duration::from_secs(40), |node| {
                let ready = world::condition(node, "Ready")?;
                (ready["status"] == "True").then(|| node.clone())
            })
            .await;
        assert_eq!(text(&node, "/spec/providerID"), format!("windows://lab/{}", win.key.vm));
        assert_eq!(text(&node, "/status/nodeInfo/kubeletVersion"), "v1.36.1");
        assert_eq!(text(&node, "/metadata/labels/kubernetes.io~1os"), "windows");
        assert_eq!(text(&node, "/metadata/labels/example.com~1rack"), "r1");
        let taints: Vec<&str> = node["spec"]["taints"].as_array().unwrap().iter().map(|taint| text(taint, "/key")).collect();
        assert!(taints.contains(&"os") && taints.contains(&"node.cluster.x-k8s.io/uninitialized"), "{taints:?}");
        let report = operator.report(&win, "the plan is finished", |report| report.item == "plan").await;
        assert_eq!(report.state, "finished", "{}", operator.console(&win));
        let (_, secret) = token.split_once('.').unwrap();
        assert!(!operator.console(&win).contains(secret));
        cp.wait_object(Kind::LEASE, "kube-node-lease/win-1", "its lease", Duration::from_secs(10), |lease| {
            (text(lease, "/metadata/ownerReferences/0/uid") == text(&node, "/metadata/uid")).then_some(())
        })
        .await;

        // Another operator takes over: the same certificate, no second request, and the lease is still renewed.
        let renewed = async |after: String| {
            cp.wait_object(Kind::LEASE, "kube-node-lease/win-1", "a renewal", Duration::from_secs(40), |lease| {
                let time = text(lease, "/spec/renewTime").to_owned();
                (time > after).then_some(time)
            })
            .await
        };
        operator.stop.cancel();
        let operator = Operator::start(&cp);
        let before = renewed(jiff::Timestamp::now().to_string()).await;
        assert_eq!(cp.list(Kind::CERTIFICATE_SIGNING_REQUEST, None).await.len(), 1);

        // A running kubelet does not recreate a Node that was deleted in the cluster.
        cp.delete(Kind::NODE, win.name()).await;
        cp.wait_gone(Kind::LEASE, "kube-node-lease/win-1", Duration::from_secs(60)).await;
        assert!(cp.get(Kind::NODE, win.name()).await.is_none(), "after {before}");
        operator.retire(&win).await;
        operator.stop.cancel();
    });
}

/// The console shows within seconds why a guest does not join, and such a guest leaves nothing in the cluster. As on Windows, the report waits until
/// kubeadm gives up, which takes minutes while kubeadm searches for its cluster.
#[test]
fn a_guest_says_why_it_does_not_join() {
    world::run(async {
        let cp = ControlPlane::start(Options::plain().named("guests")).await;
        let token = cp.kubeadm(&["token", "create"]).await;
        let token = token.trim();
        let operator = Operator::start(&cp);
        let stuck = [
            (machine(&cp, "abcdef.0123456789abcdef", "win-token", |_| ()), "token abcdef is not known"),
            (machine(&cp, token, "win-hash", another_ca), "another cluster"),
            (machine(&cp, token, "win-endpoint", |facts| facts.endpoint = "127.0.0.1:1".to_owned()), "cannot be reached"),
        ];
        let refused = machine(&cp, token, "win-nojoin", |_| ());
        for (machine, _) in &stuck {
            operator.advance(machine).await;
        }
        operator.advance(&refused).await;
        for (machine, why) in &stuck {
            let printed = wait_for(why, Duration::from_secs(60), || async {
                let console = operator.console(machine);
                console.lines().find(|line| line.starts_with("kubeadm: ") && line.contains(why)).map(str::to_owned).ok_or(console)
            })
            .await;
            world::step(&printed);
            operator.report(machine, "the join goes on", |report| (report.item.as_str(), report.state.as_str()) == ("join", "started")).await;
        }
        let report = operator.report(&refused, "NoJoin", |report| report.code == 71 && report.message.contains("NoJoin")).await;
        world::step(&report.message);
        let damaged = Machine { seed: Seed::Drive { label: "nothing", files: Default::default() }, ..machine(&cp, token, "win-drive", |_| ()) };
        operator.advance(&damaged).await;
        let report = operator.report(&damaged, "a drive that is none", |report| report.state == "failed").await;
        assert!(report.message.contains("config drive"), "{report:?}");
        let silent = machine(&cp, token, "win-noboot", |_| ());
        operator.advance(&silent).await;

        assert!(cp.list(Kind::NODE, None).await.is_empty());
        assert_eq!(cp.list(Kind::CERTIFICATE_SIGNING_REQUEST, None).await.len(), 0);
        assert_eq!(operator.console(&silent), "");
        operator.stop.cancel();
    });
}
