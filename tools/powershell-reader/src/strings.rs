//! Texts in quotes and here-strings. The text between double quotes may contain variables and subexpressions.

use super::characters::{is_blank, is_double_quote, is_single_quote, starts_variable};
use super::scanner::{Mode, Scanner};
use super::token::{Kind, Part, Token};
use super::tree::PART;
use super::{Dialect, Parsed};

impl Scanner {
    pub fn quoted(&mut self) -> Parsed<Token> {
        let mut text = String::new();
        self.read_quoted(&mut text)?;
        Ok(self.token_with(Kind::Quoted, text))
    }

    pub fn expandable(&mut self) -> Parsed<Token> {
        let (mut text, mut parts) = (String::new(), Vec::new());
        self.read_expandable(&mut text, &mut parts)?;
        let mut token = self.token_with(Kind::Expandable, text);
        token.parts = parts;
        Ok(token)
    }

    /// Reads to the closing single quote; two quotes are one character.
    pub fn read_quoted(&mut self, text: &mut String) -> Parsed<()> {
        let start = self.at;
        while let Some(mut c) = self.take() {
            if is_single_quote(c) {
                match self.peek().filter(|c| is_single_quote(*c)) {
                    Some(second) => c = second,
                    None => return Ok(()),
                }
                self.at += 1;
            }
            text.push(c);
        }
        self.fault(start, "a single quote without its other half")
    }

    pub fn read_expandable(&mut self, text: &mut String, parts: &mut Vec<Part>) -> Parsed<()> {
        let start = self.at;
        while let Some(mut c) = self.take() {
            if is_double_quote(c) {
                match self.peek().filter(|c| is_double_quote(*c)) {
                    Some(second) => c = second,
                    None => return Ok(()),
                }
                self.at += 1;
            } else if c == '$' && self.read_part(false, parts)? {
                c = PART;
            } else if c == '`'
                && let Some(second) = self.take()
            {
                c = self.escaped(second)?;
            }
            text.push(c);
        }
        self.fault(start, "a double quote without its other half")
    }

    /// Reads the part after a dollar. Returns false if the dollar is a plain character.
    pub fn read_part(&mut self, here_string: bool, parts: &mut Vec<Part>) -> Parsed<bool> {
        let (start, mode) = (self.start, self.mode);
        self.mode = Mode::Expression;
        let part = match self.peek() {
            Some('(') => Some(self.subexpression(here_string)?),
            Some(c) if c == '{' || starts_variable(c) => {
                self.start = self.at - 1;
                Some(Part::Variable(self.variable(false, true)?))
            }
            _ => None,
        };
        (self.start, self.mode) = (start, mode);
        let found = part.is_some();
        parts.extend(part);
        Ok(found)
    }

    /// Reads to the matching parenthesis, which is found by counting, whatever quotes are between. Doubled quotes are one character.
    fn subexpression(&mut self, here_string: bool) -> Parsed<Part> {
        let start = self.at - 1;
        let mut text: Vec<_> = self.text.get(start..=self.at).unwrap_or_default().to_vec();
        self.at += 1;
        let mut depth = 1;
        while depth > 0 {
            let Some(mut glyph) = self.text.get(self.at).copied() else {
                return self.fault(start, "a $( without its other half");
            };
            self.at += 1;
            match glyph.c {
                '(' => depth += 1,
                ')' => depth -= 1,
                c if (c == '`' || is_double_quote(c)) && !here_string => {
                    if let Some(second) = self.peek().filter(|c| is_double_quote(*c)) {
                        self.at += 1;
                        glyph.c = second;
                    }
                }
                _ => {}
            }
            text.push(glyph);
        }
        Ok(Part::Sub(text))
    }

    /// Returns the character that a backtick and this character stand for.
    pub fn escaped(&mut self, c: char) -> Parsed<char> {
        Ok(match c {
            '0' => '\0',
            'a' => '\u{7}',
            'b' => '\u{8}',
            'e' | 'u' if self.dialect == Dialect::Windows => return self.fault(self.at, format!("`{c} is a plain {c} in Windows PowerShell")),
            'e' => '\u{1b}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => return self.unicode(),
            'v' => '\u{b}',
            _ => c,
        })
    }

    fn unicode(&mut self) -> Parsed<char> {
        let begun = self.accept('{');
        let digits = self.take_while(|c| c.is_ascii_hexdigit());
        match u32::from_str_radix(&digits, 16) {
            // PowerShell counts a surrogate as a character, Rust does not: the replacement character stands for it.
            Ok(number) if begun && digits.len() <= 6 && number <= 0x10_ffff && self.accept('}') => {
                Ok(char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER))
            }
            _ => self.fault(self.at, "`u is not followed by the number of a character in braces"),
        }
    }

    /// Reads a here-string after `@'` or `@"`.
    pub fn here_string(&mut self, expandable: bool) -> Parsed<Token> {
        let (start, quote) = (self.start, if expandable { is_double_quote } else { is_single_quote });
        self.skip_blanks();
        match self.take() {
            Some(c @ ('\r' | '\n')) => self.end_line(c),
            Some(_) => return self.fault(start, "something stands behind the head of a here-string"),
            None => return self.fault(start, "a here-string without an end"),
        }
        let (mut text, mut parts) = (String::new(), Vec::new());
        let mut line_begins = true;
        loop {
            if line_begins {
                if self.sees(quote) && self.text.get(self.at + 1).is_some_and(|glyph| glyph.c == '@') {
                    self.at += 2;
                    text.pop();
                    let kind = if expandable { Kind::Expandable } else { Kind::Quoted };
                    let mut token = self.token_with(kind, text);
                    token.parts = parts;
                    return Ok(token);
                }
                // An end marker after blanks does not end the here-string.
                text += &self.take_while(is_blank);
                if self.sees(quote) && self.text.get(self.at + 1).is_some_and(|glyph| glyph.c == '@') {
                    text.extend(self.take());
                    text.extend(self.take());
                }
            }
            let Some(mut c) = self.take() else { return self.fault(start, "a here-string without an end") };
            line_begins = c == '\r' || c == '\n';
            if line_begins {
                self.end_line(c);
                c = '\n';
            } else if expandable && c == '$' && self.read_part(true, &mut parts)? {
                c = PART;
            } else if expandable
                && c == '`'
                && let Some(second) = self.take()
            {
                c = self.escaped(second)?;
            }
            text.push(c);
        }
    }
}
