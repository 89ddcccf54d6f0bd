//! Rules in CEL that several fields share.

/// In an address of the web, what stands in brackets is an IP address; the rule beside this one asks for a colon in it.
pub(super) const BRACKETS: &str = "self.indexOf(']') <= self.indexOf('[') || isIP(self.substring(self.indexOf('[') + 1, self.indexOf(']')))";
