//! The limits of HNS, the network service of Windows, and the fewest pods of a useful node.

/// The lowest VNI that HNS supports.
pub(super) const LEAST_VNI: u32 = 4096;
/// The highest VNI that an HNS route to another node supports.
pub(super) const MOST_VNI: u32 = u16::MAX as u32;
/// The only VXLAN port that HNS supports.
pub const PORT: u32 = 4789;
/// The number of pods that a node must have room for: with fewer, the node is useless. Whether it has room for as many pods as its kubelet accepts
/// is checked where the configuration of its kubelet is created.
pub(super) const LEAST_PODS: u64 = 16;
