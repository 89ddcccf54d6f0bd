//! Classes of characters. PowerShell treats typographic quotes and dashes as plain ones.

pub(super) fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{a0}') || (c > '\u{ff}' && c.is_whitespace())
}

pub(super) fn is_single_quote(c: char) -> bool {
    matches!(c, '\'' | '\u{2018}'..='\u{201b}')
}

pub(super) fn is_double_quote(c: char) -> bool {
    matches!(c, '"' | '\u{201c}'..='\u{201e}')
}

pub(super) fn is_dash(c: char) -> bool {
    matches!(c, '-' | '\u{2013}'..='\u{2015}')
}

pub(super) fn starts_variable(c: char) -> bool {
    matches!(c, '$' | '?' | '^' | ':' | '_') || c.is_alphanumeric()
}

pub(super) fn starts_identifier(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

pub(super) fn continues_identifier(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Whether the character ends a word of any kind.
pub(super) fn ends_word(c: char) -> bool {
    matches!(c, '\0' | '\r' | '\n' | '&' | '(' | ')' | ',' | ';' | '{' | '|' | '}') || is_blank(c)
}

/// Whether the character is one of those that also end a number in an expression.
pub(super) fn ends_number(c: char) -> bool {
    matches!(c, '!' | '#' | '%' | '*' | '+' | '.' | '/' | '<' | '=' | '>' | ']') || is_dash(c)
}
