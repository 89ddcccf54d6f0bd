//! The kubelet's service and the join.

use super::builder::{KUBEADM_DOCS, KUBELET_DOCS, NODE_DOCS, PlanBuilder, RESET_SECONDS, item, owned, why};
use super::proxy;
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::paths;
use crate::bootstrap::plan::{Access, Action, AddressFlag, Check, Direction, Item, Kind, Protocol, Start};
use crate::bootstrap::render::{Documents, kubeadm, kubelet};
use crate::vm::FailureCode;

const PROVIDER_DOCS: &str = "https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/";
const DROP_IN_DOCS: &str = "https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/#kubelet-configuration-merging-order";

/// The time limit of the join. It exceeds the sum of kubeadm's own limits, so that kubeadm can report what it waited for.
pub(super) const JOIN_SECONDS: u32 = kubeadm::LONGEST_SECONDS + 120;

/// Adds the kubelet's configuration and service, and the join.
pub(super) fn stage(all: &mut PlanBuilder, facts: &BootstrapFacts, documents: &Documents<'_>) -> Result<(), RenderError> {
    node_files(all, facts, documents)?;
    node(all, facts, documents)
}

/// Adds the kubelet's directories, and who may write there.
fn directories(all: &mut PlanBuilder, [private, volumes]: [&str; 2]) {
    let keys = [&[paths::KUBELET_PKI][..], &paths::KUBELET_PLUGINS].concat();
    for (id, access, paths, reason) in [
        (private, Access::Admins, &keys[..], "Keys and plug-in sockets are for administrators only."),
        (volumes, Access::Shared, &[paths::KUBELET_PODS][..], "Containers that run as ordinary users read and write volumes below this directory."),
    ] {
        let kind = Kind::Directory { paths: owned(paths), access };
        all.add(item(id, FailureCode::NodePreparation, 60, kind, why(reason, NODE_DOCS, "Check the free space and the health of drive C:.")));
    }
}

/// Adds the files that the kubelet and kubeadm read.
fn node_files(all: &mut PlanBuilder, facts: &BootstrapFacts, documents: &Documents<'_>) -> Result<(), RenderError> {
    directories(all, ["kubelet-private", "kubelet-volumes"]);
    let kind = Kind::Firewall {
        name: "capw-kubelet".into(),
        direction: Direction::Inbound,
        action: Action::Allow,
        protocol: Protocol::Tcp,
        ports: owned(&["10250"]),
        remote: Vec::new(),
    };
    all.add(item(
        "kubelet-port",
        FailureCode::Firewall,
        60,
        kind,
        why(
            "The API server reaches the kubelet here for logs, exec and metrics.",
            NODE_DOCS,
            "Start the Windows Defender Firewall service (mpssvc).",
        ),
    ));
    let kind = all.file("files/kubelet-patch.yaml", paths::KUBELET_PATCH, Access::Admins, kubelet::patch(&documents.kubelet)?);
    all.add(item(
        "kubelet-patch",
        FailureCode::KubeletConfig,
        60,
        kind,
        why(
            "kubeadm applies these fields to the cluster's configuration, which is made for Linux.",
            KUBELET_DOCS,
            "Check the free space and the health of drive C:.",
        ),
    ));
    if let Some(text) = kubelet::drop_in(facts)? {
        let kind = all.file("files/kubelet-user.yaml", paths::KUBELET_DROP_IN, Access::Admins, text);
        all.add(item(
            "kubelet-drop-in",
            FailureCode::KubeletConfig,
            60,
            kind,
            why(
                "spec.kubelet.extraConfig sets these fields; the kubelet applies them at each start.",
                DROP_IN_DOCS,
                "Check the free space and the health of drive C:.",
            ),
        ));
    }
    credential_providers(all, facts)
}

/// Adds the credential providers of the kubelet, and their configuration.
fn credential_providers(all: &mut PlanBuilder, facts: &BootstrapFacts) -> Result<(), RenderError> {
    let (Some(spec), Some(text)) = (&facts.spec.kubelet.image_credential_provider, kubelet::credential_providers(facts)?) else { return Ok(()) };
    for (number, provider) in spec.providers.iter().enumerate() {
        let program = format!(r"{}\{}.exe", spec.directory, provider.name);
        let remedy =
            "Use an image that has this program at this path, or correct spec.kubelet.imageCredentialProvider; spec.files can add small programs.";
        let reason = "The kubelet does not start if a credential provider is missing.";
        let id = format!("credentials-{number:02}");
        all.add(Item {
            attempts: 1,
            ..item(&id, FailureCode::ProgramMissing, 5, Kind::Wait { check: Check::File(program) }, why(reason, PROVIDER_DOCS, remedy))
        });
    }
    let kind = all.file("files/credential-providers.yaml", paths::CREDENTIAL_PROVIDERS, Access::Admins, text);
    let reason = "It says which program the kubelet asks for which images.";
    all.add(item(
        "credential-providers",
        FailureCode::KubeletConfig,
        60,
        kind,
        why(reason, PROVIDER_DOCS, "Check the free space and the health of drive C:."),
    ));
    Ok(())
}

/// Adds the kubelet's service and the join.
fn node(all: &mut PlanBuilder, facts: &BootstrapFacts, documents: &Documents<'_>) -> Result<(), RenderError> {
    let joined = Check::File(paths::KUBELET_KUBECONFIG.into());
    let command_line = kubelet::command_line(facts, &documents.kubelet_flags)?;
    let spec = &facts.spec.kubelet;
    // On Windows the kubelet uses the first address that its own name resolves to. A cloud controller manager does not query the kubelet for it.
    let chosen = spec.node_ips.is_empty() && spec.cloud_provider.is_none();
    let service = |start| Kind::Service {
        name: "kubelet".into(),
        command_line: command_line.clone(),
        start,
        depends_on: owned(&["containerd"]),
        reset_seconds: RESET_SECONDS,
        restart_delays: vec![5_000, 10_000, 60_000],
        address: chosen.then(|| AddressFlag { flag: "--node-ip=".into(), to: facts.endpoint.clone() }),
    };
    let broken = "Read C:\\var\\log\\kubelet\\kubelet.log.";
    all.add(Item {
        unless: Some(joined.clone()),
        ..item(
            "kubelet-service",
            FailureCode::KubeletService,
            60,
            service(Start::Demand),
            why("kubeadm starts the service `kubelet` during the join; it has no configuration before that.", KUBEADM_DOCS, broken),
        )
    });
    proxy::service(all, facts, "kubelet")?;
    let kind = all.file("secret/kubeadm-join.yaml", paths::JOIN_CONFIG, Access::Admins, kubeadm::text(&documents.join)?);
    all.add(Item {
        unless: Some(Check::File(paths::SENTINEL.into())),
        ..item(
            "join-config",
            FailureCode::JoinConfig,
            60,
            kind,
            why(
                "The cluster's address, the hash of its CA and a short-lived token.",
                KUBEADM_DOCS,
                "Check the free space and the health of drive C:.",
            ),
        )
    });
    let kind = Kind::Command {
        argv: owned(&[paths::KUBEADM, "join", "--config", paths::JOIN_CONFIG, "--v=2"]),
        // kubeadm writes to \var\lib\kubelet of the current drive.
        raw: None,
        directory: r"C:\".into(),
        check: Some(joined),
        exit_codes: Default::default(),
        undo: owned(&[paths::KUBEADM, "reset", "--force", "--cri-socket", paths::CRI_SOCKET]),
    };
    let remedy = "Check that the API server's address answers from the node, that the clock is right, and that the token has not expired.";
    all.add(item(
        "join",
        FailureCode::Join,
        JOIN_SECONDS,
        kind,
        why("kubeadm verifies the cluster by the hash of its CA and requests the node's certificate with the token.", KUBEADM_DOCS, remedy),
    ));
    // `kubeadm reset` empties the kubelet's directory, and the files that the kubelet creates there inherit its access.
    directories(all, ["kubelet-private-still", "kubelet-volumes-still"]);
    all.add(item(
        "kubelet-automatic",
        FailureCode::KubeletStartType,
        60,
        service(Start::Auto),
        why("From now on the kubelet starts with Windows, after containerd.", KUBEADM_DOCS, broken),
    ));
    all.add(item(
        "kubelet-running",
        FailureCode::KubeletStart,
        120,
        Kind::Running { name: "kubelet".into(), after: Vec::new() },
        why("Without it there is no Node.", KUBEADM_DOCS, broken),
    ));
    let kind = Kind::Wait { check: Check::Url("http://127.0.0.1:10248/healthz".into()) };
    all.add(item(
        "kubelet-healthy",
        FailureCode::KubeletHealth,
        300,
        kind,
        why("The kubelet itself reports that it is healthy.", KUBEADM_DOCS, broken),
    ));
    Ok(())
}
