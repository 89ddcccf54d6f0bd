//! The kubelet: our fields of the KubeletConfiguration, the users' own fields, its flags, and its service.
//!
//! kubeadm downloads the cluster's configuration, which is intended for Linux, and applies our patch: our fields win, the cluster's other
//! choices stay. The kubelet then applies the users' own fields from its drop-in directory.

mod configuration;
mod credential_providers;
mod flags;
mod registration;
pub(in crate::bootstrap) mod surface;

pub(super) use self::configuration::configuration;
pub(in crate::bootstrap) use self::configuration::{KubeletConfiguration, drop_in, patch};
pub(in crate::bootstrap) use self::credential_providers::credential_providers;
pub(in crate::bootstrap) use self::flags::{command_line, flags, log_is_rotated, log_runner};
pub(super) use self::registration::taints;
pub use self::registration::{lasting_taints, node_labels};
