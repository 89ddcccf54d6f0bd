//! The guards that are taken away: preconditions, reads of an owner mark, and orders of two effects. What a plan of `kinds/model` has to notice
//! is in `src/guards.rs` instead.

mod domain;
mod kinds;
mod kube_api;

/// The guards of one file.
pub struct Guarded {
    pub file: &'static str,
    /// What the names of the tests have in them that have to notice.
    pub tests: &'static [&'static str],
    pub guards: &'static [Guard],
}

/// One of them.
pub struct Guard {
    /// What holds as long as it is there.
    pub keeps: &'static str,
    /// What is in the file once. The guard is an expression, between « and »; around it is only what tells it from others.
    pub text: &'static str,
    /// The expression in its place.
    pub without: &'static str,
}

/// A guard that is gone when `without` is in its place.
pub const fn gone(keeps: &'static str, text: &'static str, without: &'static str) -> Guard {
    Guard { keeps, text, without }
}

const fn of(file: &'static str, tests: &'static [&'static str], guards: &'static [Guard]) -> Guarded {
    Guarded { file, tests, guards }
}

/// All files with guards.
pub fn files() -> impl Iterator<Item = &'static Guarded> {
    [domain::FILES, kinds::FILES, kube_api::FILES].into_iter().flatten()
}
