//! The extent of a story: the tests that every change must pass are kept short.

/// Whether the story runs in the profile `judge` of nextest, where it may take longer: more machines, more polls. nextest names its profile to
/// every test.
pub fn is_judge() -> bool {
    std::env::var("NEXTEST_PROFILE").is_ok_and(|profile| profile == "judge")
}

/// Whether times are compared with goals: the story then runs alone, on an otherwise idle machine.
pub fn has_goals() -> bool {
    std::env::var_os("CAPW_GOALS").is_some()
}
