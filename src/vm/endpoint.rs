//! The description that a hypervisor gives of itself.

/// The facts that an endpoint reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// The identity of the hypervisor, which lasts as long as its VMs: another id means another or a reinstalled hypervisor.
    pub id: String,
    pub version: String,
    pub cpus: Option<i64>,
    pub memory_mib: Option<u64>,
    /// The permissions that the credentials lack, each with its purpose.
    pub lacks: Vec<String>,
    /// Why the endpoint cannot run VMs as its settings require, with the observation and the remedy.
    pub unfit: Option<String>,
}
