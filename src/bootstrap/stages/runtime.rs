//! The items for containerd.

use super::builder::{CONTAINERD_DOCS, PlanBuilder, RESET_SECONDS, item, owned, why};
use super::{programs, proxy};
use crate::api::bootstrap_config::Program;
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::paths;
use crate::bootstrap::plan::{Access, Check, Item, Kind, Start};
use crate::bootstrap::render::{Documents, containerd};
use crate::vm::FailureCode;

const CRICTL_DOCS: &str = "https://kubernetes.io/docs/tasks/debug/debug-cluster/crictl/";
const MIRROR_DOCS: &str = "https://github.com/containerd/containerd/blob/main/docs/hosts.md";

/// Adds containerd's configuration and service.
pub(super) fn stage(all: &mut PlanBuilder, facts: &BootstrapFacts, documents: &Documents<'_>) -> Result<(), RenderError> {
    let broken = "Read C:\\var\\log\\containerd\\containerd.log.";
    let kind = all.file("files/containerd.toml", paths::CONTAINERD_CONFIG, Access::Readable, containerd::config_toml(&documents.containerd)?);
    all.add(item(
        "containerd-config",
        FailureCode::ContainerdConfig,
        60,
        kind,
        why(
            "It names the sandbox image for this Windows release and the directories of the network plug-in.",
            CONTAINERD_DOCS,
            "Check the free space and the health of drive C:.",
        ),
    ));
    for (number, file) in containerd::registry_files(&facts.spec.containerd.registries, &facts.secrets)?.into_iter().enumerate() {
        let (folder, access, reason) = if file.secret {
            ("secret", Access::Admins, "Credentials for the servers of this registry; containerd reads them at each pull.")
        } else {
            ("files", Access::Readable, "Where images of this registry come from; containerd reads it at each pull.")
        };
        let kind = all.file(&format!("{folder}/registry-{number:02}"), &file.path, access, file.text);
        all.add(item(
            &format!("registry-{number:02}"),
            FailureCode::ContainerdConfig,
            60,
            kind,
            why(reason, MIRROR_DOCS, "Check the free space and the health of drive C:."),
        ));
    }
    let kind = Kind::Service {
        name: "containerd".into(),
        command_line: containerd::command_line(),
        start: Start::Auto,
        depends_on: Vec::new(),
        reset_seconds: RESET_SECONDS,
        restart_delays: vec![15_000, 30_000, 60_000],
        address: None,
    };
    all.add(item(
        "containerd-service",
        FailureCode::ContainerdService,
        60,
        kind,
        why("It gives containerd a log file, and restarts it after every failure.", CONTAINERD_DOCS, broken),
    ));
    let mut after = owned(&["containerd-config", "containerd-service"]);
    after.extend(proxy::service(all, facts, "containerd")?);
    after.extend(programs::unpacked(facts, Program::Containerd));
    let kind = Kind::Running { name: "containerd".into(), after };
    all.add(item(
        "containerd-running",
        FailureCode::ContainerdStart,
        120,
        kind,
        why("It reads its configuration only when it starts.", CONTAINERD_DOCS, broken),
    ));
    let kind = Kind::Wait { check: Check::Pipe(paths::CRI_PIPE.into()) };
    all.add(item(
        "containerd-pipe",
        FailureCode::ContainerdPipe,
        120,
        kind,
        why("The kubelet talks to containerd through this pipe.", CONTAINERD_DOCS, broken),
    ));
    crictl(all);
    Ok(())
}

/// Configures crictl for debugging, and checks containerd with it. Images may lack crictl.
fn crictl(all: &mut PlanBuilder) {
    let settings = format!("runtime-endpoint: {0}\nimage-endpoint: {0}\ntimeout: 30\n", paths::CRI_SOCKET);
    let kind = all.file("files/crictl.yaml", paths::CRICTL_CONFIG, Access::Readable, settings);
    let remedy = "Check the free space and the health of drive C:.";
    all.add(item(
        "crictl-config",
        FailureCode::ContainerdAnswer,
        60,
        kind,
        why("crictl finds containerd without options: it looks beside itself.", CRICTL_DOCS, remedy),
    ));
    let probe = owned(&[paths::CRICTL, "info"]);
    let kind = Kind::Wait { check: Check::Succeeds(probe) };
    let reason = "containerd answers the calls that the kubelet will make; its pipe alone does not prove that.";
    let remedy = "Read C:\\var\\log\\containerd\\containerd.log for a plug-in io.containerd.grpc.v1.cri that failed to load.";
    all.add(Item {
        unless: Some(without_crictl()),
        optional: true,
        ..item("crictl-info", FailureCode::ContainerdAnswer, 60, kind, why(reason, CRICTL_DOCS, remedy))
    });
}

fn without_crictl() -> Check {
    Check::Not(Box::new(Check::File(paths::CRICTL.into())))
}

/// Pulls the sandbox image, without which no pod ever starts.
pub(super) fn sandbox_image(all: &mut PlanBuilder, documents: &Documents<'_>) {
    let image = documents.sandbox_image.as_str();
    let kind = Kind::Command {
        argv: owned(&[paths::CRICTL, "pull", image]),
        raw: None,
        directory: r"C:\".into(),
        // A present image is not pulled: the node may have no access to the registry.
        check: Some(Check::Succeeds(owned(&[paths::CRICTL, "inspecti", "-q", image]))),
        exit_codes: Default::default(),
        undo: Vec::new(),
    };
    let remedy = "Check that the machine can reach the registry or its mirror and that it has this image, or name another one in spec.containerd.sandboxImage.";
    let reason = "Every pod starts with this image: it must be present or pullable.";
    all.add(Item {
        unless: Some(without_crictl()),
        ..item("sandbox-image", FailureCode::SandboxImage, 900, kind, why(reason, CONTAINERD_DOCS, remedy))
    });
}
