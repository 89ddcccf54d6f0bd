//! Names of variables: `$name`, `$scope:name`, `$drive:name`, `${any name}`.

use super::Parsed;
use super::characters::{ends_word, is_double_quote, starts_variable};
use super::scanner::Scanner;
use super::token::{Kind, Token};

const SCOPES: [&str; 4] = ["global", "local", "private", "script"];

/// Returns the name without scope or drive.
pub fn unqualified(name: &str) -> &str {
    let name = match name.split_once(':') {
        Some((scope, rest)) if scope.eq_ignore_ascii_case("variable") => rest,
        _ => name,
    };
    match name.split_once(':') {
        Some((_, rest)) => rest,
        None => name,
    }
}

/// Whether the name is in a drive other than that of variables, e.g. `$env:Path`.
pub fn is_in_drive(name: &str) -> bool {
    let scope = name.split_once(':').map_or("", |(scope, _)| scope).to_lowercase();
    !scope.is_empty() && scope != "variable" && !SCOPES.contains(&scope.as_str())
}

impl Scanner {
    /// Reads a variable after `$` or `@`.
    pub fn variable(&mut self, splatted: bool, in_text: bool) -> Parsed<Token> {
        if self.accept('{') {
            return self.braced_variable(in_text);
        }
        let Some(first) = self.peek().filter(|c| starts_variable(*c)) else { return self.word("$".to_owned()) };
        self.at += 1;
        let mut name = String::from(first);
        if matches!(first, '$' | '?' | '^') {
            if self.in_command() && !self.word_ends() {
                return self.word_again();
            }
        } else {
            while let Some(c) = self.peek() {
                match c {
                    ':' if self.text.get(self.at + 1).is_some_and(|glyph| glyph.c == ':') => break,
                    '_' | '?' | ':' => {}
                    '.' | '[' | '=' => break,
                    _ if c.is_alphanumeric() => {}
                    _ if self.in_command() && !ends_word(c) => return self.word_again(),
                    _ => break,
                }
                name.push(c);
                self.at += 1;
            }
        }
        if unqualified(&name).is_empty() {
            let plain = name.trim_end_matches(':');
            let what = format!("${name} is a variable without a name in the drive {plain}; before a colon write ${{{plain}}}");
            return self.fault(self.start, what);
        }
        Ok(self.token_with(if splatted { Kind::Splat } else { Kind::Variable }, name))
    }

    /// Reads the text again as a word: it only begins like a variable.
    fn word_again(&mut self) -> Parsed<Token> {
        self.at = self.start;
        self.word(String::new())
    }

    fn braced_variable(&mut self, in_text: bool) -> Parsed<Token> {
        let mut name = String::new();
        loop {
            match self.take() {
                None => return self.fault(self.start, "a ${ without its other half"),
                Some('}') => break,
                Some('{') => return self.fault(self.start, "a brace within ${…}"),
                Some('`') => {
                    if let Some(c) = self.take() {
                        name.push(self.escaped(c)?);
                    }
                }
                Some(c) => {
                    if in_text && is_double_quote(c) && self.sees(is_double_quote) {
                        self.at += 1;
                    }
                    name.push(c);
                }
            }
        }
        if name.is_empty() {
            return self.fault(self.start, "a variable without a name");
        }
        if self.in_command() && !self.word_ends() && !self.sees(|c| c == '.' || c == '[') {
            return self.word_again();
        }
        if unqualified(&name).is_empty() {
            return self.fault(self.start, format!("${{{name}}} has no name behind its scope or drive"));
        }
        Ok(self.token_with(Kind::Variable, name))
    }
}
