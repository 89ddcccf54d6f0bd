//! containerd's `config.toml`, and the command line of its service.

use toml::{Table, Value};

use super::tables::{list, table, text};
use crate::api::bootstrap_config::{Containerd, ContainerdLine, HYPER_V_HANDLER, PROCESS_HANDLER};
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::paths;
use crate::compat;

/// The limit for a pull, in minutes. Windows layers take gigabytes.
const PULL_MINUTES: i32 = 30;

/// Returns the user's sandbox image, or the image for this Kubernetes version and Windows release.
pub(in crate::bootstrap::render) fn sandbox_image(facts: &BootstrapFacts) -> Result<String, RenderError> {
    let given = facts.spec.containerd.sandbox_image.clone();
    let version = facts.kubernetes.to_string();
    given.or_else(|| compat::pause_image(facts.spec.windows_release, &version)).ok_or_else(|| {
        let remedy =
            format!("no sandbox image is known for Kubernetes {version} on this Windows release: give one, e.g. registry.k8s.io/pause:3.10.2");
        RenderError::invalid("spec.containerd.sandboxImage", "", remedy)
    })
}

/// Returns the configuration: schema 2 for 1.7, 3 for 2.x. containerd migrates an older schema and exits with a newer one.
pub(in crate::bootstrap::render) fn configuration(spec: &Containerd, sandbox_image: &str) -> Table {
    let mut document = Table::new();
    document.insert("version".into(), Value::Integer(if spec.line == ContainerdLine::V1 { 2 } else { 3 }));
    if let Some(directory) = &spec.directory {
        document.insert("root".into(), format!(r"{directory}\root").into());
        document.insert("state".into(), format!(r"{directory}\state").into());
    }
    if let Some(address) = &spec.metrics_address {
        document.insert("metrics".into(), Value::Table(table([("address", address.as_str().into())])));
    }
    document.insert("plugins".into(), Value::Table(plugins(spec, sandbox_image)));
    document
}

/// Returns `config.toml`.
pub(in crate::bootstrap) fn config_toml(configuration: &Table) -> Result<String, RenderError> {
    text("containerd's configuration", configuration)
}

/// Returns the CRI plug-in: one in 1.7, two in 2.x.
fn plugins(spec: &Containerd, sandbox_image: &str) -> Table {
    let sandbox = Value::from(sandbox_image);
    let timeout = Value::from(format!("{}m", spec.pull_progress_timeout_minutes.unwrap_or(PULL_MINUTES)));
    let registry = Value::Table(table([("config_path", paths::REGISTRIES.into())]));
    let conf_dir = ("conf_dir", Value::from(paths::CNI_CONF));
    let containerd = Value::Table(table([("default_runtime_name", PROCESS_HANDLER.into()), ("runtimes", Value::Table(handlers(spec)))]));
    match spec.line {
        ContainerdLine::V1 => {
            let cni = table([("bin_dir", paths::CNI_BIN.into()), conf_dir]);
            let cri = table([
                ("sandbox_image", sandbox),
                ("image_pull_progress_timeout", timeout),
                ("registry", registry),
                ("cni", Value::Table(cni)),
                ("containerd", containerd),
            ]);
            table([("io.containerd.grpc.v1.cri", Value::Table(cri))])
        }
        ContainerdLine::V2 => {
            let images = table([
                ("image_pull_progress_timeout", timeout),
                ("pinned_images", Value::Table(table([("sandbox", sandbox)]))),
                ("registry", registry),
            ]);
            let cni = table([("bin_dirs", list([paths::CNI_BIN])), conf_dir]);
            let runtime = table([("cni", Value::Table(cni)), ("containerd", containerd)]);
            table([("io.containerd.cri.v1.images", Value::Table(images)), ("io.containerd.cri.v1.runtime", Value::Table(runtime))])
        }
    }
}

/// Returns both handlers in full: containerd replaces a handler that the file names, it does not merge it.
fn handlers(spec: &Containerd) -> Table {
    let scratch = spec.scratch_size_gib.map(|size| ("DefaultContainerScratchSizeInGb".to_owned(), Value::Integer(size.into())));
    // This option keeps environment variables and arguments of containers out of the shim's log.
    let mut process = table([("ScrubLogs", true.into())]);
    let mut hypervisor = table([("ScrubLogs", true.into()), ("SandboxIsolation", Value::Integer(1)), ("ScaleCpuLimitsToSandbox", true.into())]);
    process.extend(scratch.clone());
    hypervisor.extend(scratch);
    let vm = spec.hyper_v.clone().unwrap_or_default();
    for (option, size) in [("VmProcessorCount", vm.processors), ("VmMemorySizeInMb", vm.memory_mib)] {
        hypervisor.extend(size.map(|size| (option.to_owned(), Value::Integer(size.into()))));
    }
    let handler = |options: Table, pod: &[&str]| {
        let mut handler = table([("runtime_type", "io.containerd.runhcs.v1".into()), ("container_annotations", list(["io.microsoft.container.*"]))]);
        if !pod.is_empty() {
            handler.insert("pod_annotations".into(), Value::Array(pod.iter().map(|name| Value::from(*name)).collect()));
        }
        handler.insert("options".into(), Value::Table(options));
        Value::Table(handler)
    };
    table([(PROCESS_HANDLER, handler(process, &[])), (HYPER_V_HANDLER, handler(hypervisor, &["io.microsoft.virtualmachine.*"]))])
}

/// Returns the command line that `containerd --register-service` would store.
pub(in crate::bootstrap) fn command_line() -> String {
    format!(
        r#""{}" --run-service --config "{}" --log-level info --log-file {}\containerd.log"#,
        paths::CONTAINERD,
        paths::CONTAINERD_CONFIG,
        paths::CONTAINERD_LOG
    )
}
