//! Checks for input that must not, or should not, be rendered: [`validate`] checks the facts, [`lint`] the rendered documents.

pub(super) mod lint;
pub(super) mod validate;
