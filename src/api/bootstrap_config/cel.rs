//! Rules in CEL that several fields share.

/// In a URL, the text in brackets must be an IP address. The rule beside this one requires a colon in that text.
pub(super) const BRACKETS: &str = "self.indexOf(']') <= self.indexOf('[') || isIP(self.substring(self.indexOf('[') + 1, self.indexOf(']')))";
