//! The source and the platform that this program was built from and for.

use std::env::consts::{ARCH, OS};

/// Version, commit and platform of a program.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// The version, as tags name it.
    pub version: &'static str,
    /// The commit; `unknown` if the build did not get one.
    pub revision: &'static str,
    /// The platform, as images name it, e.g. `linux/amd64`.
    pub platform: &'static str,
}

/// The build of this program.
pub const BUILD: Build = Build {
    version: concat!("v", env!("CARGO_PKG_VERSION")),
    revision: match option_env!("CAPW_REVISION") {
        Some(revision) => revision,
        None => "unknown",
    },
    platform: platform(),
};

const fn platform() -> &'static str {
    match (OS.as_bytes(), ARCH.as_bytes()) {
        (b"linux", b"x86_64") => "linux/amd64",
        (b"linux", b"aarch64") => "linux/arm64",
        (b"macos", b"aarch64") => "darwin/arm64",
        (b"macos", b"x86_64") => "darwin/amd64",
        _ => "unknown",
    }
}

impl Build {
    /// Returns the user agent, which an API server's audit log shows.
    pub fn user_agent(&self) -> String {
        format!("capw/{} ({}) {}", self.version, self.platform, self.revision)
    }
}
