//! What must not, or should not, be rendered: [`validate`] looks at the facts, [`lint`] at the documents made from them.

pub(super) mod lint;
pub(super) mod validate;
