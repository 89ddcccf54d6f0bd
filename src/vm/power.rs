//! The power of a VM.

/// The power state as the hypervisor reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// The VM is still being created: it has no power state yet.
    Creating,
    Off,
    On,
    Stopping,
}

/// How a VM is stopped before it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// Request a shutdown from the guest, and poll again.
    Graceful,
    /// Cut the power.
    Hard,
}
