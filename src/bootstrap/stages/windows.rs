//! Windows itself: its checks, settings, features, restart and directories.

use super::builder::{BOOT_TASK, CLOUDBASE_DOCS, NODE_DOCS, PlanBuilder, item, owned, why};
use super::registry::number;
use super::{gmsa, hardening, network, proxy, registry};
use crate::api::bootstrap_config::{CrashDump, PowerPlan, WindowsUpdate};
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::paths;
use crate::bootstrap::plan::{Access, Check, FeatureState, Item, Kind, RegistryData, Script, When};
use crate::bootstrap::render::Documents;
use crate::bootstrap::runner::LOADER_NAME;
use crate::vm::FailureCode;

/// The power plan that every Windows Server has.
const HIGH_PERFORMANCE: &str = "8c5e7fda-e8bf-4a96-9a85-a6e23a8c635c";

const POWER_DOCS: &str = "https://learn.microsoft.com/windows-server/administration/performance-tuning/hardware/power/power-performance-tuning";
const UPDATE_DOCS: &str = "https://learn.microsoft.com/windows/deployment/update/waas-wu-settings";
const CRASH_DOCS: &str = "https://learn.microsoft.com/troubleshoot/windows-server/performance/memory-dump-file-options";
const ZONE_DOCS: &str = "https://learn.microsoft.com/windows-server/administration/windows-commands/tzutil";
const PAGE_FILE_DOCS: &str = "https://learn.microsoft.com/troubleshoot/windows-client/performance/introduction-to-the-page-file";
const HYPER_V_DOCS: &str = "https://learn.microsoft.com/virtualization/windowscontainers/manage-containers/hyperv-container";

/// Adds the conditions that must hold before anything is installed.
pub(super) fn stage(all: &mut PlanBuilder, facts: &BootstrapFacts, documents: &Documents<'_>) -> Result<(), RenderError> {
    boot_task(all);
    machine(all, facts);
    // The directories must exist before the first file is written.
    directories(all);
    settings(all, facts);
    network::stage(all, facts)?;
    proxy::stage(all, facts)?;
    network::clock(all, facts);
    with_restart(all, facts, documents)?;
    hardening::firewall(all, facts);
    if facts.spec.windows.defender_exclusions {
        hardening::defender(all);
    }
    network::ports_and_routes(all, facts)
}

/// Adds the task that continues the plan after restarts.
fn boot_task(all: &mut PlanBuilder) {
    // The task starts the loader, not the runner: the loader checks that the runner is complete.
    let loader = format!(r"{}\runner\{LOADER_NAME}", paths::PAYLOAD);
    let argv = [paths::POWERSHELL, "-NoProfile", "-NonInteractive", "-ExecutionPolicy", "RemoteSigned", "-File", &loader, "-Source", "task"];
    all.add(Item {
        unless: Some(Check::File(paths::SENTINEL.into())),
        ..item(
            "boot-task",
            FailureCode::NodePreparation,
            60,
            Kind::Task { name: BOOT_TASK.into(), argv: owned(&argv), every_minutes: None },
            why(
                "The plan continues after any restart, even if cloudbase-init does not run it again.",
                CLOUDBASE_DOCS,
                "Start the Task Scheduler service.",
            ),
        )
    });
}

/// Adds the checks that the plan was rendered for this machine.
fn machine(all: &mut PlanBuilder, facts: &BootstrapFacts) {
    let build = facts.spec.windows_release.build();
    let reason = "The build of Windows decides on the sandbox image, registry values and pod images.";
    let remedy = "Name the release of the image in spec.windowsRelease, or use another image.";
    let kind = Kind::Script(Script::Identity { build });
    all.add(Item { attempts: 1, ..item("identity", FailureCode::WindowsRelease, 60, kind, why(reason, NODE_DOCS, remedy)) });
    let gibibytes = facts.spec.windows.free_space_gib.unsigned_abs();
    let reason = "Windows images take gigabytes; a full disk makes the node evict its pods.";
    let remedy = "Give the machine a larger system disk (spec.systemDisk of the WindowsMachine), remove a partition behind C: from the image, or lower spec.windows.freeSpaceGiB.";
    let kind = Kind::Script(Script::FreeSpace { drive: 'C', gibibytes });
    // Later the space is in use, so the check is skipped then.
    let unless = Some(Check::File(paths::KUBELET_PATCH.into()));
    all.add(Item { attempts: 1, unless, ..item("free-space", FailureCode::FreeSpace, 120, kind, why(reason, NODE_DOCS, remedy)) });
    if let Some(name) = &facts.host_name {
        let check = Check::Registry {
            key: r"HKLM:\SYSTEM\CurrentControlSet\Control\ComputerName\ActiveComputerName".into(),
            name: "ComputerName".into(),
            equals: name.to_string(),
        };
        let remedy = "Use an image whose cloudbase-init has SetHostNamePlugin before UserDataPlugin.";
        all.add(item(
            "host-name",
            FailureCode::HostName,
            60,
            Kind::Wait { check },
            why("cloudbase-init gives Windows the name of the Node; network plug-ins find the Node by that name.", CLOUDBASE_DOCS, remedy),
        ));
    }
}

/// Adds the settings of Windows: power, updates, time zone.
fn settings(all: &mut PlanBuilder, facts: &BootstrapFacts) {
    let windows = &facts.spec.windows;
    let command = |argv: &[&str], check| Kind::Command {
        argv: owned(argv),
        raw: None,
        directory: r"C:\Windows".into(),
        check: Some(check),
        exit_codes: Default::default(),
        undo: Vec::new(),
    };
    let registry = |key: &str, name: &str, equals: &str| Check::Registry { key: key.into(), name: name.into(), equals: equals.into() };
    if windows.power_plan == PowerPlan::HighPerformance {
        let remedy = "Set spec.windows.powerPlan to AsInImage if the image has no such plan.";
        // Windows reads the value when it starts, and the page file needs a restart anyway.
        let kind = Kind::Registry {
            key: r"HKLM:\SYSTEM\CurrentControlSet\Control\Power\User\PowerSchemes".into(),
            name: "ActivePowerScheme".into(),
            data: RegistryData::String(HIGH_PERFORMANCE.into()),
            restart: true,
        };
        let reason = "The balanced plan slows the processors down between requests.";
        all.add(item("power-plan", FailureCode::WindowsSetting, 60, kind, why(reason, POWER_DOCS, remedy)));
        let kind = number(r"HKLM:\SYSTEM\CurrentControlSet\Control\Power", "HibernateEnabled", 0, true);
        let reason = "A node must not hibernate, and the hibernation file is as large as the memory.";
        all.add(item("no-hibernation", FailureCode::WindowsSetting, 60, kind, why(reason, POWER_DOCS, remedy)));
    }
    if windows.windows_update == WindowsUpdate::Disabled {
        for (id, name, value) in [("no-automatic-updates", "NoAutoUpdate", 1), ("updates-ask-first", "AUOptions", 2)] {
            let kind = number(r"HKLM:\SOFTWARE\Policies\Microsoft\Windows\WindowsUpdate\AU", name, value, false);
            let reason = "An update restarts the node without draining it, and may change how container networks work.";
            all.add(item(id, FailureCode::WindowsSetting, 60, kind, why(reason, UPDATE_DOCS, "Set spec.windows.windowsUpdate to AsInImage.")));
        }
    }
    let dump = match windows.crash_dump {
        CrashDump::AsInImage => None,
        CrashDump::Disabled => Some(0),
        CrashDump::Kernel => Some(2),
        CrashDump::Small => Some(3),
    };
    if let Some(dump) = dump {
        let kind = number(r"HKLM:\SYSTEM\CurrentControlSet\Control\CrashControl", "CrashDumpEnabled", dump, true);
        let remedy = "Set spec.windows.crashDump to AsInImage.";
        all.add(item("crash-dump", FailureCode::WindowsSetting, 60, kind, why("spec.windows.crashDump asks for it.", CRASH_DOCS, remedy)));
    }
    if let Some(zone) = &windows.time_zone {
        let check = registry(r"HKLM:\SYSTEM\CurrentControlSet\Control\TimeZoneInformation", "TimeZoneKeyName", zone);
        let kind = command(&["tzutil.exe", "/s", zone], check);
        all.add(item(
            "time-zone",
            FailureCode::WindowsSetting,
            60,
            kind,
            why("spec.windows.timeZone asks for it.", ZONE_DOCS, "Use a name that tzutil /l lists."),
        ));
    }
}

/// Adds the changes that take effect only after a restart, and one restart for all of them.
fn with_restart(all: &mut PlanBuilder, facts: &BootstrapFacts, documents: &Documents<'_>) -> Result<(), RenderError> {
    let windows = &facts.spec.windows;
    let size = documents.reserves.page_file_mib;
    let kind = Kind::Registry {
        key: r"HKLM:\SYSTEM\CurrentControlSet\Control\Session Manager\Memory Management".into(),
        name: "PagingFiles".into(),
        data: RegistryData::MultiString(vec![format!(r"C:\pagefile.sys {size} {size}")]),
        restart: true,
    };
    let reason = "By default Windows lets it grow to three times the memory, it can fill the disk, and the kubelet counts it as memory.";
    all.add(item(
        "page-file",
        FailureCode::WindowsSetting,
        60,
        kind,
        why(reason, PAGE_FILE_DOCS, "Check the free space of drive C:, or set spec.windows.pageFileMiB."),
    ));
    if windows.registry_overrides {
        registry::overrides(all, facts.spec.windows_release)?;
    }
    hardening::stage(all, &windows.hardening);
    if let Some(gmsa) = &windows.gmsa {
        gmsa::stage(all, facts, gmsa)?;
    }
    all.add(item(
        "containers-feature",
        FailureCode::ContainersFeature,
        900,
        Kind::Feature { names: owned(&["Containers"]), state: FeatureState::Enabled },
        why("Windows runs containers only with this feature.", NODE_DOCS, "Use an image that has the feature Containers or its installation source."),
    ));
    if windows.hyper_v_isolation {
        let remedy =
            "Give the machine nested virtualization (spec.nestedVirtualization of the WindowsMachine), or leave spec.windows.hyperVIsolation off.";
        let kind = Kind::Feature { names: owned(&["Microsoft-Hyper-V", "Microsoft-Hyper-V-Management-PowerShell"]), state: FeatureState::Enabled };
        let reason = "Pods with Hyper-V isolation run in their own virtual machines.";
        all.add(item("hyper-v-feature", FailureCode::HyperV, 1200, kind, why(reason, HYPER_V_DOCS, remedy)));
        let kind = Kind::Script(Script::Hypervisor);
        all.add(item(
            "hypervisor-launch",
            FailureCode::HyperV,
            60,
            kind,
            why("Hyper-V works only if its hypervisor starts with Windows.", HYPER_V_DOCS, remedy),
        ));
    }
    all.add(item(
        "settle",
        FailureCode::PendingRestart,
        900,
        Kind::Reboot { when: When::Pending },
        why(
            "A feature that needs a restart does not work before it.",
            NODE_DOCS,
            "Look into C:\\Windows\\Logs\\CBS\\CBS.log to see what asks for restarts.",
        ),
    ));
    if let Some(gmsa) = &windows.gmsa {
        gmsa::joined(all, gmsa);
    }
    Ok(())
}

/// Adds all directories, and who may write there. Parents come first: the directories below them inherit their access.
fn directories(all: &mut PlanBuilder) {
    let guarded = [
        r"C:\etc",
        r"C:\opt",
        r"C:\run",
        r"C:\usr",
        r"C:\var",
        r"C:\var\lib",
        r"C:\var\log",
        paths::KUBERNETES_BIN,
        paths::CNI_BIN,
        paths::CNI_CONF,
        paths::REGISTRIES,
        paths::SENTINEL_DIR,
        paths::KUBELET_ROOT,
        paths::KUBELET_LOG,
        paths::CONTAINERD_LOG,
        paths::VOLUME_PLUGINS,
    ];
    let private = [paths::SECRET, paths::KUBERNETES, paths::MANIFESTS, paths::PATCHES, paths::KUBELET_DROP_INS];
    for (id, access, paths, reason) in [
        (
            "directories-guarded",
            Access::Readable,
            &guarded[..],
            "By default every user may create directories in C:\\; ordinary users must not plant programs or configuration here.",
        ),
        ("directories-private", Access::Admins, &private[..], "Keys, tokens and static pods are for administrators only."),
        ("directories", Access::Inherited, &[r"C:\tmp"][..], "Scripts of network plug-ins expect this directory for temporary files."),
    ] {
        all.add(item(
            id,
            FailureCode::NodePreparation,
            60,
            Kind::Directory { paths: owned(paths), access },
            why(reason, NODE_DOCS, "Check the free space and the health of drive C:."),
        ));
    }
}
