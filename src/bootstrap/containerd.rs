//! containerd's `config.toml` and the command line of its service (`windows-bootstrap.md` §1.6, §3.3).

use toml::{Table, Value};

use super::error::RenderError;
use super::facts::BootstrapFacts;
use super::paths;
use crate::api::bootstrap_config::{ContainerdLine, WindowsRelease};

/// Windows layers have gigabytes.
const PULL_TIMEOUT: &str = "30m";

/// Nested tables down to the last of `path`.
fn at<const N: usize>(path: [&str; N], leaf: Table) -> Table {
    path.into_iter().rev().fold(leaf, |inner, key| Table::from_iter([(key.to_owned(), Value::Table(inner))]))
}

fn table<const N: usize>(pairs: [(&str, Value); N]) -> Table {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The sandbox image that has the Windows build of the node: kubeadm's own for the minor, except that only 3.10.2 has 2025.
pub(super) fn sandbox_image(facts: &BootstrapFacts) -> String {
    let tag = match (facts.spec.windows_release, facts.kubernetes.minor) {
        (WindowsRelease::Server2025, _) => "3.10.2",
        (_, ..=33) => "3.10",
        (_, 34..=35) => "3.10.1",
        _ => "3.10.2",
    };
    facts.spec.containerd.sandbox_image.clone().unwrap_or_else(|| format!("registry.k8s.io/pause:{tag}"))
}

/// Schema 2 for 1.7, 3 for 2.x: an older one is migrated by containerd, a newer one is fatal.
pub(super) fn configuration(facts: &BootstrapFacts) -> Result<String, RenderError> {
    let sandbox = Value::from(sandbox_image(facts));
    let registry = Value::Table(table([("config_path", paths::REGISTRIES.into())]));
    let conf_dir = ("conf_dir", Value::from(paths::CNI_CONF));
    let (version, plugins) = match facts.spec.containerd.line {
        ContainerdLine::V1 => {
            let cri = table([
                ("sandbox_image", sandbox),
                ("image_pull_progress_timeout", PULL_TIMEOUT.into()),
                ("registry", registry),
                ("cni", Value::Table(table([("bin_dir", paths::CNI_BIN.into()), conf_dir]))),
            ]);
            (2, at(["io.containerd.grpc.v1.cri"], cri))
        }
        ContainerdLine::V2 => {
            let images = table([
                ("image_pull_progress_timeout", PULL_TIMEOUT.into()),
                ("pinned_images", Value::Table(table([("sandbox", sandbox)]))),
                ("registry", registry),
            ]);
            let runtime = at(["cni"], table([("bin_dirs", Value::Array(vec![paths::CNI_BIN.into()])), conf_dir]));
            (3, table([("io.containerd.cri.v1.images", Value::Table(images)), ("io.containerd.cri.v1.runtime", Value::Table(runtime))]))
        }
    };
    let document = table([("version", Value::Integer(version)), ("plugins", Value::Table(plugins))]);
    toml::to_string(&document).map_err(|e| RenderError::Serialize { what: "containerd's configuration", reason: e.to_string() })
}

/// As `containerd --register-service` would store it.
pub(super) fn command_line() -> String {
    format!(
        r#""{}" --run-service --config "{}" --log-level info --log-file {}\containerd.log"#,
        paths::CONTAINERD,
        paths::CONTAINERD_CONFIG,
        paths::CONTAINERD_LOG
    )
}
