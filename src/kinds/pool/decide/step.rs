//! The next step of a pool.

/// The next step: at most one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolStep {
    Wait,
    /// Create one machine for each entry, on the hypervisor that it names, or where the template says.
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
