//! containerd.

use super::{CONTAINERD_DOCS, Procedure, RESET_SECONDS, item, owned, proxy, why};
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::plan::{Access, Check, Kind, Start};
use crate::bootstrap::{containerd, paths};

const MIRROR_DOCS: &str = "https://github.com/containerd/containerd/blob/main/docs/hosts.md";

/// Configuration and service.
pub(super) fn stage(all: &mut Procedure, facts: &BootstrapFacts) -> Result<(), RenderError> {
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
    for (number, file) in containerd::registry_files(&facts.spec.containerd.registries)?.into_iter().enumerate() {
        let kind = all.file(&format!("files/registry-{number:02}"), &file.path, Access::Readable, file.text);
        all.add(item(
            &format!("registry-{number:02}"),
            50,
            60,
            kind,
            why(
                "Where images of this registry come from; containerd reads it at each pull.",
                MIRROR_DOCS,
                "Check the free space and the health of drive C:.",
            ),
        ));
    }
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
    let mut after = owned(&["containerd-config", "containerd-service"]);
    after.extend(proxy::service(all, facts, "containerd")?);
    let kind = Kind::Running { name: "containerd".into(), after };
    all.add(item("containerd-running", 52, 120, kind, why("It reads its configuration only when it starts.", CONTAINERD_DOCS, broken)));
    let kind = Kind::Wait { check: Check::Pipe(paths::CRI_PIPE.into()) };
    all.add(item("containerd-pipe", 53, 120, kind, why("The kubelet talks to containerd through this pipe.", CONTAINERD_DOCS, broken)));
    Ok(())
}
