//! The guards that are removed: preconditions, reads of an owner mark, and orders of two effects. Guards whose loss the plans of `kinds/model`
//! have to notice are in `src/guards.rs` instead.

mod domain;
mod kinds;
mod kube_api;

/// The guards of one file.
pub struct Guarded {
    pub file: &'static str,
    /// The tests that have to notice, by a part of their names.
    pub tests: &'static [&'static str],
    pub guards: &'static [Guard],
}

/// A guard of a file.
pub struct Guard {
    /// The property that the guard keeps.
    pub keeps: &'static str,
    /// A text that is in the file once. The guard is an expression, between « and »; the text around it distinguishes it from other expressions.
    pub text: &'static str,
    /// The expression that replaces the guard.
    pub without: &'static str,
}

/// Returns a guard that is removed by putting `without` in its place.
pub const fn gone(keeps: &'static str, text: &'static str, without: &'static str) -> Guard {
    Guard { keeps, text, without }
}

const fn of(file: &'static str, tests: &'static [&'static str], guards: &'static [Guard]) -> Guarded {
    Guarded { file, tests, guards }
}

/// Returns all files with guards.
pub fn files() -> impl Iterator<Item = &'static Guarded> {
    [domain::FILES, kinds::FILES, kube_api::FILES].into_iter().flatten()
}
