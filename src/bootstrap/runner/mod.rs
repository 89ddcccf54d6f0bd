//! The scripts that carry out a plan on Windows: static text, the same for every machine. They know nothing of Kubernetes.
//! `loader.ps1` carries the payload ([`super::cloudbase`]) and starts `run.ps1`, which reads the others.

/// Name and text of each script in the payload's `runner/`.
pub(super) const SCRIPTS: [(&str, &str); 9] = [
    ("run.ps1", include_str!("run.ps1")),
    ("journal.ps1", include_str!("journal.ps1")),
    ("windows.ps1", include_str!("windows.ps1")),
    ("items.ps1", include_str!("items.ps1")),
    ("programs.ps1", include_str!("programs.ps1")),
    ("scripts.ps1", include_str!("scripts.ps1")),
    ("logs.ps1", include_str!("logs.ps1")),
    ("network.ps1", include_str!("network.ps1")),
    ("routes.ps1", include_str!("routes.ps1")),
];

#[cfg(test)]
mod gate;
#[cfg(test)]
mod syntax;
#[cfg(test)]
mod tests;
