//! What is done on a node, in which order, and why: the items of the plan of one machine.
//!
//! Conditions are settled here, not on the node. Values come from the modules beside this one.

use std::collections::BTreeMap;

use super::error::RenderError;
use super::facts::{BootstrapFacts, sha256};
use super::plan::{Access, Check, Item, Kind, Limits, PLAN_VERSION, Plan, PlanMachine, Protocol, Start, When, Why};
use super::{containerd, join, kubelet, paths};

/// Name of the scheduled task that goes on after a restart without cloudbase-init.
const BOOT_TASK: &str = "capw";
/// The form of a bootstrap token: what no log may show.
const TOKEN_FORM: &str = "[a-z0-9]{6}[.][a-z0-9]{16}";
/// Seconds without a failure after which the service manager forgets the failures before.
const RESET_SECONDS: u32 = 900;

const NODE_DOCS: &str = "https://kubernetes.io/docs/setup/production-environment/windows/";
const KUBEADM_DOCS: &str = "https://kubernetes.io/docs/tasks/administer-cluster/kubeadm/adding-windows-nodes/";
const KUBELET_DOCS: &str = "https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/";
const CONTAINERD_DOCS: &str = "https://github.com/containerd/containerd/blob/main/docs/cri/config.md";
const CLOUDBASE_DOCS: &str = "https://cloudbase-init.readthedocs.io/en/latest/plugins.html";
const CONTRACT_DOCS: &str = "https://cluster-api.sigs.k8s.io/developer/providers/contracts/bootstrap-config";

fn item(id: &str, code: u32, seconds: u32, kind: Kind, why: Why) -> Item {
    Item { id: id.into(), kind, code, seconds, attempts: 3, unless: None, why }
}

fn why(reason: &'static str, link: &'static str, remedy: &'static str) -> Why {
    Why { reason, link, remedy }
}

fn owned(paths: &[&str]) -> Vec<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

/// Items in order, and the files that they take from the payload.
#[derive(Default)]
struct Procedure {
    items: Vec<Item>,
    files: BTreeMap<String, Vec<u8>>,
}

impl Procedure {
    fn add(&mut self, item: Item) {
        self.items.push(item);
    }

    /// Puts the bytes into the payload; the kind of item that writes them to `path`.
    fn file(&mut self, source: &str, path: &str, access: Access, bytes: impl Into<Vec<u8>>) -> Kind {
        let bytes = bytes.into();
        let kind = Kind::File { path: path.into(), source: source.into(), sha256: sha256(&bytes), access };
        self.files.insert(source.into(), bytes);
        kind
    }
}

/// The plan, and the files that belong to it.
pub(super) fn plan(facts: &BootstrapFacts) -> Result<(Plan, BTreeMap<String, Vec<u8>>), RenderError> {
    let mut all = Procedure::default();
    machine(&mut all, facts);
    runtime(&mut all, facts)?;
    node_files(&mut all, facts)?;
    node(&mut all, facts)?;
    finish(&mut all);
    let plan = Plan {
        plan_version: PLAN_VERSION,
        machine: PlanMachine { uid: facts.machine_uid.clone(), name: facts.machine_name.clone(), generation: facts.generation },
        kubernetes: facts.kubernetes.to_string(),
        limits: Limits { reboots: 3, minutes: 45 },
        report: owned(&["serial:COM1", "file"]),
        redact: owned(&[TOKEN_FORM]),
        items: all.items,
    };
    Ok((plan, all.files))
}

/// Windows itself.
fn machine(all: &mut Procedure, facts: &BootstrapFacts) {
    let runner = format!(r"{}\runner\run.ps1", paths::PAYLOAD);
    let argv = ["powershell.exe", "-NoProfile", "-NonInteractive", "-ExecutionPolicy", "RemoteSigned", "-File", &runner, "-Source", "task"];
    all.add(Item {
        unless: Some(Check::File(paths::SENTINEL.into())),
        ..item(
            "boot-task",
            13,
            60,
            Kind::Task { name: BOOT_TASK.into(), argv: owned(&argv) },
            why(
                "The plan goes on after any restart, also when cloudbase-init does not call again.",
                CLOUDBASE_DOCS,
                "Start the Task Scheduler service.",
            ),
        )
    });
    if let Some(name) = &facts.host_name {
        let check = Check::Registry {
            key: r"HKLM:\SYSTEM\CurrentControlSet\Control\ComputerName\ActiveComputerName".into(),
            name: "ComputerName".into(),
            equals: name.to_string(),
        };
        let remedy = "Use an image whose cloudbase-init has SetHostNamePlugin before UserDataPlugin.";
        all.add(item(
            "host-name",
            24,
            60,
            Kind::Wait { check },
            why("cloudbase-init gives Windows the name of the Node; network plug-ins find the node by it.", CLOUDBASE_DOCS, remedy),
        ));
    }
    all.add(item(
        "containers-feature",
        21,
        900,
        Kind::Feature { names: owned(&["Containers"]) },
        why(
            "Windows runs containers only with this feature.",
            NODE_DOCS,
            "Use an image that has the feature Containers, or its installation source.",
        ),
    ));
    all.add(item(
        "settle",
        29,
        900,
        Kind::Reboot { when: When::Pending },
        why(
            "A feature that waits for a restart does not work yet.",
            NODE_DOCS,
            "Look into C:\\Windows\\Logs\\CBS\\CBS.log for what asks for restarts.",
        ),
    ));
    for (id, path) in [
        ("program-containerd", paths::CONTAINERD),
        ("program-kubelet", paths::KUBELET),
        ("program-kubeadm", paths::KUBEADM),
        ("program-log-runner", paths::LOG_RUNNER),
    ] {
        let remedy = "Use an image that has this program at this path (image-builder puts them there).";
        let kind = Kind::Wait { check: Check::File(path.into()) };
        all.add(Item { attempts: 1, ..item(id, 41, 5, kind, why("The image brings the programs of the node.", NODE_DOCS, remedy)) });
    }
    for (id, access, paths, reason) in [
        (
            "directories",
            Access::Inherited,
            &[paths::KUBELET_ROOT, paths::KUBELET_LOG, paths::CONTAINERD_LOG][..],
            "kubeadm fails where the kubelet's directory is missing.",
        ),
        (
            "directories-guarded",
            Access::Readable,
            &[paths::KUBERNETES_BIN, paths::CNI_BIN, paths::CNI_CONF, paths::REGISTRIES, paths::SENTINEL_DIR][..],
            "By default every user may make directories in C:\\; nobody may plant programs or configurations here.",
        ),
        (
            "directories-private",
            Access::Admins,
            &[paths::SECRET, paths::KUBERNETES, paths::PATCHES, paths::KUBELET_PKI][..],
            "Keys and tokens are for administrators only.",
        ),
    ] {
        all.add(item(
            id,
            13,
            60,
            Kind::Directory { paths: owned(paths), access },
            why(reason, NODE_DOCS, "Check the free space and the health of drive C:."),
        ));
    }
}

/// containerd.
fn runtime(all: &mut Procedure, facts: &BootstrapFacts) -> Result<(), RenderError> {
    let broken = "Read C:\\var\\log\\containerd\\containerd.log.";
    let kind = all.file("files/containerd.toml", paths::CONTAINERD_CONFIG, Access::Readable, containerd::configuration(facts)?);
    all.add(item(
        "containerd-config",
        50,
        60,
        kind,
        why(
            "Pause image for this Windows release, one pair of directories for the network plug-in.",
            CONTAINERD_DOCS,
            "Check the free space and the health of drive C:.",
        ),
    ));
    let kind = Kind::Service {
        name: "containerd".into(),
        command_line: containerd::command_line(),
        start: Start::Auto,
        depends_on: Vec::new(),
        reset_seconds: RESET_SECONDS,
        restart_delays: vec![15_000, 30_000, 60_000],
    };
    all.add(item(
        "containerd-service",
        51,
        60,
        kind,
        why("A log file, and restarts that do not end after the second failure.", CONTAINERD_DOCS, broken),
    ));
    let kind = Kind::Running { name: "containerd".into(), after: owned(&["containerd-config", "containerd-service"]) };
    all.add(item("containerd-running", 52, 120, kind, why("It reads its configuration only when it starts.", CONTAINERD_DOCS, broken)));
    let kind = Kind::Wait { check: Check::Pipe(paths::CRI_PIPE.into()) };
    all.add(item("containerd-pipe", 53, 120, kind, why("The kubelet talks to containerd through this pipe.", CONTAINERD_DOCS, broken)));
    Ok(())
}

/// What the kubelet and kubeadm read.
fn node_files(all: &mut Procedure, facts: &BootstrapFacts) -> Result<(), RenderError> {
    let kind = Kind::Firewall { name: "capw-kubelet".into(), protocol: Protocol::Tcp, port: 10_250 };
    all.add(item(
        "kubelet-port",
        34,
        60,
        kind,
        why(
            "The API server reaches the kubelet here for logs, exec and metrics.",
            NODE_DOCS,
            "Start the Windows Defender Firewall service (mpssvc).",
        ),
    ));
    let kind = all.file("files/kubelet-patch.yaml", paths::KUBELET_PATCH, Access::Admins, kubelet::patch(facts)?);
    all.add(item(
        "kubelet-patch",
        72,
        60,
        kind,
        why(
            "kubeadm lays these fields over the cluster's configuration, which is made for Linux.",
            KUBELET_DOCS,
            "Check the free space and the health of drive C:.",
        ),
    ));
    for (number, file) in facts.spec.files.iter().enumerate() {
        let kind = all.file(&format!("files/user-{number:02}"), &file.path, Access::Admins, file.content.as_bytes());
        all.add(item(
            &format!("file-{number:02}"),
            14,
            60,
            kind,
            why("You asked for it in spec.files.", CONTRACT_DOCS, "Check that the drive of the path exists and has space."),
        ));
    }
    Ok(())
}

/// The kubelet's service and the join.
fn node(all: &mut Procedure, facts: &BootstrapFacts) -> Result<(), RenderError> {
    let joined = Check::File(paths::KUBELET_KUBECONFIG.into());
    let service = |start| -> Result<Kind, RenderError> {
        Ok(Kind::Service {
            name: "kubelet".into(),
            command_line: kubelet::command_line(facts)?,
            start,
            depends_on: owned(&["containerd"]),
            reset_seconds: RESET_SECONDS,
            restart_delays: vec![5_000, 10_000, 60_000],
        })
    };
    let broken = "Read C:\\var\\log\\kubelet\\kubelet.log.";
    all.add(Item {
        unless: Some(joined.clone()),
        ..item(
            "kubelet-service",
            73,
            60,
            service(Start::Demand)?,
            why("kubeadm starts the service `kubelet` during the join; before, it has no configuration to start with.", KUBEADM_DOCS, broken),
        )
    });
    let kind = all.file("secret/kubeadm-join.yaml", paths::JOIN_CONFIG, Access::Admins, join::configuration(facts)?);
    all.add(Item {
        unless: Some(Check::File(paths::SENTINEL.into())),
        ..item(
            "join-config",
            70,
            60,
            kind,
            why(
                "The cluster's address, the hash of its CA and a token that lives shortly.",
                KUBEADM_DOCS,
                "Check the free space and the health of drive C:.",
            ),
        )
    });
    let kind = Kind::Command {
        argv: owned(&[paths::KUBEADM, "join", "--config", paths::JOIN_CONFIG, "--v=2"]),
        // kubeadm writes to \var\lib\kubelet of the current drive.
        directory: r"C:\".into(),
        check: joined,
        undo: owned(&[paths::KUBEADM, "reset", "--force", "--cri-socket", paths::CRI_SOCKET]),
    };
    let remedy = "Check from the node that the API server's address answers, that the clock is right, and that the token has not expired.";
    all.add(item(
        "join",
        71,
        900,
        kind,
        why("kubeadm finds the cluster by the CA's hash and asks for the node's certificate with the token.", KUBEADM_DOCS, remedy),
    ));
    all.add(item(
        "kubelet-automatic",
        74,
        60,
        service(Start::Auto)?,
        why("From now on the kubelet starts with Windows, after containerd.", KUBEADM_DOCS, broken),
    ));
    all.add(item(
        "kubelet-running",
        75,
        120,
        Kind::Running { name: "kubelet".into(), after: Vec::new() },
        why("Without it there is no Node.", KUBEADM_DOCS, broken),
    ));
    let kind = Kind::Wait { check: Check::Url("http://127.0.0.1:10248/healthz".into()) };
    all.add(item("kubelet-healthy", 76, 300, kind, why("The kubelet itself says that it works.", KUBEADM_DOCS, broken)));
    Ok(())
}

/// Success is announced once, then nothing secret is left.
fn finish(all: &mut Procedure) {
    let kind = all.file("files/success", paths::SENTINEL, Access::Readable, "success\n");
    all.add(item(
        "sentinel",
        77,
        60,
        kind,
        why("Cluster API's mark that the bootstrap succeeded.", CONTRACT_DOCS, "Check the free space and the health of drive C:."),
    ));
    let kind = Kind::Absent { paths: owned(&[paths::SECRET, paths::PAYLOAD_SECRET, paths::BOOTSTRAP_KUBECONFIG]), tasks: owned(&[BOOT_TASK]) };
    all.add(item(
        "no-secrets",
        15,
        60,
        kind,
        why("The token and the task are not needed any more.", CONTRACT_DOCS, "Remove the named files by hand."),
    ));
}
