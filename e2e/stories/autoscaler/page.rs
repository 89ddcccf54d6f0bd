//! The blocks of `docs/autoscaler.md` that a reader applies.

use crate::world::step;

const PAGE: &str = include_str!("../../../docs/autoscaler.md");

/// The block with this title on the page, e.g. "rights": it begins with a line of three backquotes and `yaml title="rights"`.
pub fn block(title: &str) -> String {
    let fence = format!("```yaml title=\"{title}\"\n");
    let start = PAGE.find(&fence).unwrap_or_else(|| panic!("docs/autoscaler.md has no block {title:?}")) + fence.len();
    let length = PAGE[start..].find("\n```").unwrap_or_else(|| panic!("docs/autoscaler.md: the block {title:?} does not end"));
    step(format!("docs/autoscaler.md: {title}"));
    PAGE[start..start + length].to_owned() + "\n"
}
