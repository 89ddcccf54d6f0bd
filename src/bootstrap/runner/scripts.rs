//! The text of the scripts.

use std::sync::LazyLock;

const LOADER_SOURCE: &str = include_str!("loader.ps1");
const REPORT: &str = include_str!("report.ps1");
const FILES: &str = include_str!("files.ps1");

/// The name of [`LOADER`] in the payload's `runner/`, where the boot task finds it.
pub(in crate::bootstrap) const LOADER_NAME: &str = "loader.ps1";

/// The name and text of each script in the payload's `runner/`, except the loader.
pub(in crate::bootstrap) const SCRIPTS: [(&str, &str); 13] = [
    ("run.ps1", include_str!("run.ps1")),
    ("plan.ps1", include_str!("plan.ps1")),
    ("report.ps1", REPORT),
    ("files.ps1", FILES),
    ("journal.ps1", include_str!("journal.ps1")),
    ("windows.ps1", include_str!("windows.ps1")),
    ("items.ps1", include_str!("items.ps1")),
    ("programs.ps1", include_str!("programs.ps1")),
    ("scripts.ps1", include_str!("scripts.ps1")),
    ("logs.ps1", include_str!("logs.ps1")),
    ("network.ps1", include_str!("network.ps1")),
    ("routes.ps1", include_str!("routes.ps1")),
    ("collect.ps1", include_str!("collect.ps1")),
];

/// The loader, without an archive. In the source tree it reads two of the scripts; on a machine it contains their text, because it
/// must be able to report that they are damaged.
pub(in crate::bootstrap) static LOADER: LazyLock<String> = LazyLock::new(|| {
    [("files.ps1", FILES), ("report.ps1", REPORT)]
        .into_iter()
        .fold(LOADER_SOURCE.to_owned(), |text, (name, part)| text.replacen(&format!(". \"$PSScriptRoot/{name}\"\n"), part, 1))
});
