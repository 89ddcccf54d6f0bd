//! Words: commands, names of members and types, options, labels, and the operators that access members.

use super::characters::{continues_identifier, ends_word, is_blank, is_double_quote, is_single_quote, starts_identifier};
use super::scanner::{Mode, Scanner};
use super::token::{Kind, Token, is_keyword, is_operator};
use super::tree::PART;
use super::{Dialect, Parsed};

impl Scanner {
    /// Reads a word that continues after these characters. It may contain quotes and variables.
    pub fn word(&mut self, mut text: String) -> Parsed<Token> {
        let mut parts = Vec::new();
        while let Some(c) = self.peek().filter(|c| !ends_word(*c)) {
            self.at += 1;
            match c {
                '`' => {
                    if let Some(c) = self.take() {
                        text.push(self.escaped(c)?);
                    }
                }
                '$' if self.read_part(false, &mut parts)? => text.push(PART),
                _ if is_single_quote(c) => self.read_quoted(&mut text)?,
                _ if is_double_quote(c) => self.read_expandable(&mut text, &mut parts)?,
                _ => text.push(c),
            }
        }
        let mut token = self.token_with(Kind::Word, text);
        token.parts = parts;
        Ok(token)
    }

    /// Reads a name that begins with a letter: an identifier, a keyword or the beginning of a word.
    pub fn identifier(&mut self) -> Parsed<Token> {
        self.take_while(continues_identifier);
        if self.mode == Mode::TypeName {
            self.take_while(|c| matches!(c, '.' | '`' | '_' | '+' | '#' | '\\') || c.is_alphanumeric());
            return Ok(self.token(Kind::Identifier));
        }
        let mut token = self.token(Kind::Identifier);
        if self.in_command() && !self.simple_name {
            if !self.word_ends() {
                return self.word(token.text);
            }
            let lower = token.text.to_lowercase();
            if is_keyword(&lower) {
                token.kind = Kind::Keyword;
                token.text = lower;
            }
        }
        Ok(token)
    }

    /// Skips the text after `--%`, which is not PowerShell, up to a pipe outside of quotes or to the end of the line.
    pub fn skip_verbatim(&mut self) {
        let mut quoted = false;
        while let Some(c) = self.peek().filter(|c| !matches!(c, '\r' | '\n') && (quoted || *c != '|')) {
            quoted ^= is_double_quote(c);
            self.at += 1;
        }
    }

    /// Reads an option of a command, or an operator, after a dash.
    pub fn option(&mut self) -> Parsed<Token> {
        let mut name = String::new();
        let mut colon = false;
        while let Some(c) = self.peek() {
            match c {
                '{' | '}' | '(' | ')' | ';' | ',' | '|' | '&' | '.' | '[' | '\r' | '\n' | '\0' => break,
                ':' => {
                    colon = true;
                    self.at += usize::from(self.in_command());
                    break;
                }
                _ if is_blank(c) => break,
                _ if is_single_quote(c) || is_double_quote(c) => {
                    if self.in_command() {
                        return self.word(format!("-{name}"));
                    }
                    break;
                }
                _ if c.is_ascii_alphabetic() || self.in_command() => {
                    name.push(c);
                    self.at += 1;
                }
                _ => break,
            }
        }
        let lower = name.to_lowercase();
        if self.in_expression() && is_operator(&lower) {
            return Ok(self.token_with(Kind::Operator, lower));
        }
        if name.is_empty() {
            return Ok(self.token_with(Kind::Operator, "-".to_owned()));
        }
        Ok(self.token_with(Kind::Option(colon), name))
    }

    /// Reads a label after a colon in a command.
    pub fn label(&mut self) -> Parsed<Token> {
        if !self.sees(starts_identifier) {
            return self.word(":".to_owned());
        }
        let name = self.take_while(continues_identifier);
        match self.peek().filter(|_| !self.word_ends()) {
            None => Ok(self.token_with(Kind::Label, name)),
            // Any character, even a quote, is a plain character here.
            Some(c) => {
                self.at += 1;
                self.word(format!(":{name}{c}"))
            }
        }
    }

    /// Reads `.`, `::`, `[`, `?.` or `?[` directly after a value.
    pub fn member_access(&mut self, brackets: bool) -> Parsed<Option<Token>> {
        self.start = self.at;
        while self.sees(|c| c == '<') {
            if self.text.get(self.at + 1).is_none_or(|glyph| glyph.c != '#') {
                return Ok(None);
            }
            self.at += 2;
            self.skip_comment()?;
            self.start = self.at;
        }
        let kind = match self.peek() {
            Some('.') => {
                self.at += 1;
                (!self.sees(|c| c == '.') && self.joins()).then_some(Kind::Dot)
            }
            Some(':') => {
                self.at += 1;
                (self.accept(':') && self.joins()).then_some(Kind::ColonColon)
            }
            Some('[') if brackets => {
                self.at += 1;
                Some(Kind::OpenBracket)
            }
            Some('?') if self.dialect == Dialect::Seven => {
                self.at += 1;
                if self.accept('.') { Some(Kind::QuestionDot) } else { (brackets && self.accept('[')).then_some(Kind::QuestionBracket) }
            }
            _ => None,
        };
        if kind.is_none() {
            self.at = self.start;
        }
        Ok(kind.map(|kind| self.token(kind)))
    }

    /// Whether the name of a member can follow. In a command it must follow without a blank.
    fn joins(&self) -> bool {
        !self.in_command() || !self.peek().is_none_or(|c| is_blank(c) || matches!(c, '\0' | '\r' | '\n'))
    }

    /// Reads the bracket that begins a type or an attribute, if that is next.
    pub fn open_bracket(&mut self) -> Parsed<Option<Token>> {
        let before = self.at;
        let mut skipped = false;
        loop {
            self.start = self.at;
            match self.peek() {
                Some('[') => {
                    self.at += 1;
                    return Ok(Some(self.token(Kind::OpenBracket)));
                }
                Some('#') => {
                    skipped = true;
                    self.skip_comment_line();
                }
                Some('<') if self.text.get(self.at + 1).is_some_and(|glyph| glyph.c == '#') => {
                    skipped = false;
                    self.at += 2;
                    self.skip_comment()?;
                }
                Some(c) if is_blank(c) => {
                    skipped = true;
                    self.skip_blanks();
                }
                Some('.' | ':') if skipped => {
                    self.at = before;
                    return Ok(None);
                }
                _ => return Ok(None),
            }
        }
    }

    /// Reads the assembly after the comma in `[type, assembly, Version=1.0]`.
    pub fn assembly_name(&mut self) -> String {
        let name = self.assembly_word();
        while self.accept(',') {
            self.assembly_word();
            if self.accept('=') {
                self.assembly_word();
            }
        }
        name
    }

    fn assembly_word(&mut self) -> String {
        self.skip_blanks();
        let word = self.take_while(|c| !matches!(c, '\0' | '\r' | '\n' | ',' | '=' | ']') && !is_blank(c));
        self.skip_blanks();
        word
    }
}
