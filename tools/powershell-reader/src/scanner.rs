//! Divides the text into tokens. The meaning of a character depends on its place, so the parser requests one token at a time
//! and sets the mode in which the scanner reads it.

use super::characters::{ends_word, is_blank, is_dash, is_double_quote, is_single_quote, starts_identifier, starts_variable};
use super::token::{Glyph, Kind, Token};
use super::{Dialect, Fault, Parsed};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Words are arguments.
    Command,
    /// Words are operators, numbers and names of members.
    Expression,
    TypeName,
}

pub(super) struct Scanner {
    pub text: Vec<Glyph>,
    pub at: usize,
    /// The position where the current token begins.
    pub start: usize,
    pub mode: Mode,
    pub dialect: Dialect,
    /// Whether a sign belongs to the number after it.
    pub signed_numbers: bool,
    /// Whether `?` and `:` end a number, because the number is in a ternary expression.
    pub ternary: bool,
    /// Whether a keyword is a name here.
    pub simple_name: bool,
}

impl Scanner {
    pub fn new(text: &str, dialect: Dialect) -> Self {
        let mut line = 1;
        let glyph = |c: char| {
            let glyph = Glyph { c, line };
            line += usize::from(c == '\n');
            glyph
        };
        let text = text.chars().map(glyph).collect();
        Self { text, at: 0, start: 0, mode: Mode::Command, dialect, signed_numbers: false, ternary: false, simple_name: false }
    }

    pub fn peek(&self) -> Option<char> {
        self.text.get(self.at).map(|glyph| glyph.c)
    }

    pub fn take(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    pub fn accept(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    pub fn sees(&self, class: impl Fn(char) -> bool) -> bool {
        self.peek().is_some_and(class)
    }

    pub fn take_while(&mut self, class: impl Fn(char) -> bool) -> String {
        let mut taken = String::new();
        while let Some(c) = self.peek().filter(|c| class(*c)) {
            taken.push(c);
            self.at += 1;
        }
        taken
    }

    pub fn word_ends(&self) -> bool {
        self.peek().is_none_or(ends_word)
    }

    pub fn in_command(&self) -> bool {
        self.mode == Mode::Command
    }

    pub fn in_expression(&self) -> bool {
        self.mode == Mode::Expression
    }

    pub fn line(&self, at: usize) -> usize {
        self.text.get(at).or(self.text.last()).map_or(1, |glyph| glyph.line)
    }

    pub fn fault<T>(&self, at: usize, what: impl Into<String>) -> Parsed<T> {
        Err(Fault { line: self.line(at), what: what.into() })
    }

    pub fn token(&self, kind: Kind) -> Token {
        let text = self.text.get(self.start..self.at).unwrap_or_default().iter().map(|glyph| glyph.c).collect();
        self.token_with(kind, text)
    }

    pub fn token_with(&self, kind: Kind, text: String) -> Token {
        Token { kind, text, parts: Vec::new(), start: self.start, end: self.at, line: self.line(self.start) }
    }

    pub fn skip_blanks(&mut self) {
        self.take_while(is_blank);
    }

    pub fn skip_comment_line(&mut self) {
        self.take_while(|c| c != '\r' && c != '\n');
    }

    /// Skips to the end of a comment that began with `<#`.
    pub fn skip_comment(&mut self) -> Parsed<()> {
        let start = self.at;
        while let Some(c) = self.take() {
            if c == '#' && self.accept('>') {
                return Ok(());
            }
        }
        self.fault(start, "a comment without an end")
    }

    /// Reads the second half of `\r\n`.
    pub fn end_line(&mut self, c: char) {
        if c == '\r' {
            self.accept('\n');
        }
    }

    pub fn skip_newlines(&mut self, semicolons: bool) -> Parsed<()> {
        while let Some(c) = self.peek() {
            let next = self.text.get(self.at + 1).map(|glyph| glyph.c);
            match c {
                '\r' | '\n' => self.at += 1,
                ';' if semicolons => self.at += 1,
                '#' => self.skip_comment_line(),
                '<' if next == Some('#') => {
                    self.at += 2;
                    self.skip_comment()?;
                }
                '`' if next.is_some_and(char::is_whitespace) => self.at += 2,
                _ if is_blank(c) => self.skip_blanks(),
                _ => break,
            }
        }
        Ok(())
    }

    pub fn next(&mut self) -> Parsed<Token> {
        loop {
            self.start = self.at;
            let Some(c) = self.take() else { return Ok(self.token(Kind::End)) };
            match c {
                '#' => self.skip_comment_line(),
                '<' if self.accept('#') => self.skip_comment()?,
                '`' => match self.take() {
                    None => return self.fault(self.start, "a backtick at the end"),
                    Some(c @ ('\r' | '\n')) => self.end_line(c),
                    Some(c) if c.is_whitespace() => self.skip_blanks(),
                    Some(c) => {
                        let c = self.escaped(c)?;
                        return self.word(c.to_string());
                    }
                },
                _ if is_blank(c) => self.skip_blanks(),
                _ => return self.token_from(c),
            }
        }
    }

    fn token_from(&mut self, c: char) -> Parsed<Token> {
        let kind = match c {
            _ if is_single_quote(c) => return self.quoted(),
            _ if is_double_quote(c) => return self.expandable(),
            _ if is_dash(c) => return self.dash(),
            _ if c.is_ascii_digit() => return self.digit(c),
            '\r' | '\n' => {
                self.end_line(c);
                Kind::NewLine
            }
            '@' => return self.at_sign(),
            '$' if self.accept('(') => Kind::DollarParen,
            '$' => return self.variable(false, false),
            '+' if self.accept('+') => return self.operator(Kind::Increment),
            '+' if self.signed_numbers && self.sees(|c| c.is_ascii_digit() || c == '.') => return self.number('+'),
            '*' if self.accept('>') => return Ok(self.redirection(0, &['1'])),
            '+' | '*' | '/' | '%' if self.accept('=') => return self.operator(Kind::Assignment),
            '+' | '*' | '/' | '%' => return self.operator(Kind::Operator),
            '=' => return self.operator(Kind::Assignment),
            '<' => Kind::Input,
            '>' => return Ok(self.redirection(1, &[])),
            '(' => Kind::OpenParen,
            ')' => Kind::CloseParen,
            '{' => Kind::OpenBrace,
            '}' => Kind::CloseBrace,
            '[' => return self.operator(Kind::OpenBracket),
            ']' => Kind::CloseBracket,
            ';' => Kind::Semicolon,
            ',' => Kind::Comma,
            '.' => return self.dot(),
            '&' if self.accept('&') => Kind::AndAnd,
            '&' => Kind::Ampersand,
            '|' if self.accept('|') => Kind::OrOr,
            '|' => Kind::Pipe,
            '!' => return self.exclamation(),
            ':' if self.accept(':') && !self.simple_name => return self.operator(Kind::ColonColon),
            ':' if self.at > self.start + 1 => Kind::ColonColon,
            ':' if self.in_command() => return self.label(),
            ':' => Kind::Colon,
            '?' if self.in_expression() && self.dialect == Dialect::Seven => return Ok(self.question()),
            _ if starts_identifier(c) => return self.identifier(),
            _ => return self.word(c.to_string()),
        };
        Ok(self.token(kind))
    }

    /// Reads an operator. In a command the token is an operator only if a word ends after it.
    fn operator(&mut self, kind: Kind) -> Parsed<Token> {
        let token = self.token(kind);
        if self.in_command() && !self.word_ends() { self.word(token.text) } else { Ok(token) }
    }

    fn at_sign(&mut self) -> Parsed<Token> {
        if self.accept('{') {
            return Ok(self.token(Kind::AtBrace));
        }
        if self.accept('(') {
            return Ok(self.token(Kind::AtParen));
        }
        match self.peek() {
            Some(c) if is_single_quote(c) || is_double_quote(c) => {
                self.at += 1;
                self.here_string(is_double_quote(c))
            }
            Some(c) if starts_variable(c) => self.variable(true, false),
            _ => self.fault(self.start, "an @ that begins nothing"),
        }
    }

    fn dash(&mut self) -> Parsed<Token> {
        match self.peek() {
            Some(c) if is_dash(c) => {
                self.at += 1;
                self.operator(Kind::Decrement)
            }
            Some('=') => {
                self.at += 1;
                self.operator(Kind::Assignment)
            }
            Some(c) if c.is_alphabetic() || c == '_' || c == '?' => self.option(),
            Some(c) if self.signed_numbers && (c.is_ascii_digit() || c == '.') => self.number('-'),
            _ => {
                let mut token = self.operator(Kind::Operator)?;
                if token.kind == Kind::Operator {
                    token.text = "-".to_owned();
                }
                Ok(token)
            }
        }
    }

    fn digit(&mut self, c: char) -> Parsed<Token> {
        if !('1'..='6').contains(&c) || !self.accept('>') {
            return self.number(c);
        }
        let token = self.redirection(c as u8 - b'0', &['1', '2']);
        if self.in_expression() && matches!(token.kind, Kind::Redirection(_)) {
            // The number is a value, and the redirection writes its output to the file.
            self.at = self.start + 1;
            return Ok(self.token(Kind::Number));
        }
        Ok(token)
    }

    /// Reads a redirection after `>`.
    fn redirection(&mut self, from: u8, streams: &[char]) -> Token {
        let start = self.at;
        if !self.accept('>') && !streams.is_empty() && self.accept('&') {
            if let Some(to) = self.take().filter(|c| streams.contains(c)) {
                return self.token(Kind::Merge(from, to as u8 - b'0'));
            }
            self.at = start;
        }
        self.token(Kind::Redirection(from))
    }

    fn dot(&mut self) -> Parsed<Token> {
        if self.accept('.') {
            return self.operator(Kind::Operator);
        }
        if self.sees(|c| c.is_ascii_digit()) {
            return self.number('.');
        }
        if self.in_command() && !self.word_ends() && !self.sees(|c| matches!(c, '$' | '"' | '\'')) {
            return self.word(".".to_owned());
        }
        Ok(self.token(Kind::Dot))
    }

    fn exclamation(&mut self) -> Parsed<Token> {
        let word = (self.in_command() && !self.word_ends()) || (self.in_expression() && self.sees(starts_identifier));
        if word {
            return self.word("!".to_owned());
        }
        if self.in_expression() && self.sees(|c| c.is_ascii_digit() || c == '.') {
            let at = self.at;
            let number = self.read_number('!').is_some();
            self.at = at;
            if !number {
                return self.word("!".to_owned());
            }
        }
        Ok(self.token(Kind::Operator))
    }

    fn question(&mut self) -> Token {
        if !self.accept('?') {
            return self.token(Kind::Question);
        }
        let kind = if self.accept('=') { Kind::Assignment } else { Kind::Operator };
        self.token(kind)
    }
}
