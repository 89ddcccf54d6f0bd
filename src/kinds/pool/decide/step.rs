//! The next step of a pool.

/// The next step: at most one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolStep {
    Wait,
    /// Create one machine for each entry, on the hypervisor that the entry or the template specifies.
    Make(Vec<Option<String>>),
    /// Remove these machines, in the order of their ranks.
    Remove {
        names: Vec<String>,
        why: Why,
    },
}

/// Why machines are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Named,
    TooMany,
    Failed,
    Outdated,
}
