//! `WindowsBootstrapConfig` and its template: how a Windows machine becomes a node (bootstrap contract v1beta2,
//! docs/design/cluster-api.md). One file per part of the spec.

mod cel;
mod containerd;
mod credential_provider;
mod delivery;
mod file;
mod join;
mod known_versions;
mod kube_proxy;
mod kubelet;
mod network;
mod programs;
mod registry;
mod secret;
mod secret_uses;
mod spec;
mod steps;
mod windows;

pub use self::containerd::*;
pub use self::credential_provider::*;
pub use self::delivery::*;
pub use self::file::*;
pub use self::join::*;
pub use self::known_versions::*;
pub use self::kube_proxy::*;
pub use self::kubelet::*;
pub use self::network::*;
pub use self::programs::*;
pub use self::registry::*;
pub use self::secret::*;
pub use self::secret_uses::*;
pub use self::spec::*;
pub use self::steps::*;
pub use self::windows::*;
