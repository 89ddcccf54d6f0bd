//! Windows itself.

use super::{BOOT_TASK, CLOUDBASE_DOCS, NODE_DOCS, Procedure, item, owned, why};
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::paths;
use crate::bootstrap::plan::{Access, Check, FeatureState, Item, Kind, When};

/// What must be true before anything is installed.
pub(super) fn stage(all: &mut Procedure, facts: &BootstrapFacts) {
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
        Kind::Feature { names: owned(&["Containers"]), state: FeatureState::Enabled },
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
            &[paths::SECRET, paths::KUBERNETES, paths::PATCHES, paths::KUBELET_DROP_INS, paths::KUBELET_PKI][..],
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
