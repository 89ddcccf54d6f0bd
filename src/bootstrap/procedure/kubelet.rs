//! The kubelet's service and the join.

use super::{KUBEADM_DOCS, KUBELET_DOCS, NODE_DOCS, Procedure, RESET_SECONDS, item, owned, proxy, why};
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::plan::{Access, Action, Check, Direction, Item, Kind, Protocol, Start};
use crate::bootstrap::{join, kubelet, paths};

const PROVIDER_DOCS: &str = "https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/";
const DROP_IN_DOCS: &str = "https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/#kubelet-configuration-merging-order";

/// Longer than kubeadm's own limits together, so that it can say what it waited for: 5 minutes for the discovery, 10 for the certificate
/// and 8 for the kubelet ([`join`]), and one for each of its calls of the API.
const JOIN_SECONDS: u32 = 1800;

/// Configuration, service, join.
pub(super) fn stage(all: &mut Procedure, facts: &BootstrapFacts) -> Result<(), RenderError> {
    node_files(all, facts)?;
    node(all, facts)
}

/// What lies in the kubelet's own directory, and who may write there.
fn directories(all: &mut Procedure, [private, volumes]: [&str; 2]) {
    let keys = [&[paths::KUBELET_PKI][..], &paths::KUBELET_PLUGINS].concat();
    for (id, access, paths, reason) in [
        (private, Access::Admins, &keys[..], "Keys and the sockets of plug-ins are for administrators only."),
        (volumes, Access::Shared, &[paths::KUBELET_PODS][..], "Containers that run as ordinary users read and write volumes below it."),
    ] {
        let kind = Kind::Directory { paths: owned(paths), access };
        all.add(item(id, 13, 60, kind, why(reason, NODE_DOCS, "Check the free space and the health of drive C:.")));
    }
}

/// What the kubelet and kubeadm read.
fn node_files(all: &mut Procedure, facts: &BootstrapFacts) -> Result<(), RenderError> {
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
    if let Some(text) = kubelet::drop_in(facts)? {
        let kind = all.file("files/kubelet-user.yaml", paths::KUBELET_DROP_IN, Access::Admins, text);
        all.add(item(
            "kubelet-drop-in",
            72,
            60,
            kind,
            why(
                "You asked for these fields in spec.kubelet.extraConfig; the kubelet lays them over its configuration at each start.",
                DROP_IN_DOCS,
                "Check the free space and the health of drive C:.",
            ),
        ));
    }
    credential_providers(all, facts)
}

/// The programs that the kubelet asks for credentials, and for what.
fn credential_providers(all: &mut Procedure, facts: &BootstrapFacts) -> Result<(), RenderError> {
    let (Some(spec), Some(text)) = (&facts.spec.kubelet.image_credential_provider, kubelet::credential_providers(facts)?) else { return Ok(()) };
    for (number, provider) in spec.providers.iter().enumerate() {
        let program = format!(r"{}\{}.exe", spec.directory, provider.name);
        let remedy = "Use an image that has this program there, or correct spec.kubelet.imageCredentialProvider; spec.files can bring small ones.";
        let reason = "A kubelet does not start when a program for credentials is missing.";
        let id = format!("credentials-{number:02}");
        all.add(Item { attempts: 1, ..item(&id, 41, 5, Kind::Wait { check: Check::File(program) }, why(reason, PROVIDER_DOCS, remedy)) });
    }
    let kind = all.file("files/credential-providers.yaml", paths::CREDENTIAL_PROVIDERS, Access::Admins, text);
    let reason = "Which program the kubelet asks for which images.";
    all.add(item("credential-providers", 72, 60, kind, why(reason, PROVIDER_DOCS, "Check the free space and the health of drive C:.")));
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
    proxy::service(all, facts, "kubelet")?;
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
        check: Some(joined),
        exit_codes: Default::default(),
        undo: owned(&[paths::KUBEADM, "reset", "--force", "--cri-socket", paths::CRI_SOCKET]),
    };
    let remedy = "Check from the node that the API server's address answers, that the clock is right, and that the token has not expired.";
    all.add(item(
        "join",
        71,
        JOIN_SECONDS,
        kind,
        why("kubeadm finds the cluster by the CA's hash and asks for the node's certificate with the token.", KUBEADM_DOCS, remedy),
    ));
    // What undoes an attempt empties the kubelet's directory, and what the kubelet then makes itself has the access of what lies above.
    directories(all, ["kubelet-private-still", "kubelet-volumes-still"]);
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
