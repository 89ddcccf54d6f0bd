//! How much a story does: what a change has to pass is kept short.

/// Whether `make judge` runs it, where stories may take longer: more machines, more looks. nextest names its profile to every test.
pub fn is_judge() -> bool {
    std::env::var("NEXTEST_PROFILE").is_ok_and(|profile| profile == "judge")
}

/// Whether times are held against goals: the story runs alone then, on a machine that does nothing else.
pub fn has_goals() -> bool {
    std::env::var_os("CAPW_GOALS").is_some()
}
