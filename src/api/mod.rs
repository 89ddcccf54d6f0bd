//! The objects that users write: the kinds, their conditions, parsed names, and the part of Cluster API that CAPW reads.
//!
//! No I/O. Rules that a schema can express are in the schema (CEL), the others in [`name`].

pub mod bootstrap_config;
pub mod capi;
pub mod cluster;
pub mod cluster_ref;
pub mod components;
pub mod condition;
pub mod control_plane;
pub mod decode;
pub mod definition;
pub(crate) mod documented;
pub mod fit;
pub mod hypervisor;
mod kinds;
pub mod kubeconfig;
pub mod kubernetes_version;
pub mod listing;
pub mod machine;
pub mod name;
pub mod namespaces;
pub mod pool;

pub use self::kinds::{KINDS, OwnKind, custom_resource_definitions};

#[cfg(test)]
mod explained;
#[cfg(test)]
mod readable;
#[cfg(test)]
mod samples;
