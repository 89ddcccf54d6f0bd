//! The base of all rules: tokens with one token of look-ahead, ways to continue in another mode, and blocks of statements.

use super::scanner::{Mode, Scanner};
use super::token::{Kind as Token, Token as Read};
use super::tree::{Kind, Node};
use super::{Dialect, Fault, Parsed};

pub(super) struct Parser {
    pub scanner: Scanner,
    /// A token that was read but not used yet.
    ahead: Option<Read>,
    /// Whether a comma divides arguments instead of making a list.
    pub no_lists: bool,
}

impl Parser {
    pub fn new(text: &str, dialect: Dialect) -> Self {
        Self { scanner: Scanner::new(text, dialect), ahead: None, no_lists: false }
    }

    pub fn script(&mut self) -> Parsed<Node> {
        let children = self.script_block(None)?;
        Ok(Node::new(Kind::Block, 1, children))
    }

    pub fn dialect(&self) -> Dialect {
        self.scanner.dialect
    }

    pub fn next(&mut self) -> Parsed<Read> {
        match self.ahead.take() {
            Some(token) => Ok(token),
            None => self.scanner.next(),
        }
    }

    pub fn peek(&mut self) -> Parsed<Read> {
        let token = self.next()?;
        self.ahead = Some(token.clone());
        Ok(token)
    }

    pub fn sees(&mut self, kind: Token) -> Parsed<bool> {
        Ok(self.peek()?.kind == kind)
    }

    pub fn accept(&mut self, kind: Token) -> Parsed<Option<Read>> {
        Ok(if self.sees(kind)? { self.ahead.take() } else { None })
    }

    pub fn accept_keyword(&mut self, word: &str) -> Parsed<bool> {
        let found = self.peek()?.is_keyword(word);
        if found {
            self.ahead = None;
        }
        Ok(found)
    }

    pub fn expect(&mut self, kind: Token, what: &str) -> Parsed<Read> {
        let token = self.next()?;
        if token.kind == kind { Ok(token) } else { refuse(&token, what) }
    }

    pub fn give_back(&mut self, token: Read) {
        self.ahead = Some(token);
    }

    pub fn looks_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    pub fn go_to(&mut self, at: usize) {
        self.ahead = None;
        self.scanner.at = at;
    }

    /// Returns the position where the next token may begin.
    pub fn place(&self) -> usize {
        self.ahead.as_ref().map_or(self.scanner.at, |token| token.start)
    }

    pub fn reread(&mut self, condition: impl Fn(&Read) -> bool) {
        if let Some(token) = self.ahead.take_if(|token| condition(token)) {
            self.scanner.at = token.start;
        }
    }

    pub fn skip_newlines(&mut self) -> Parsed<()> {
        self.skip(false)
    }

    pub fn skip_separators(&mut self) -> Parsed<()> {
        self.skip(true)
    }

    fn skip(&mut self, semicolons: bool) -> Parsed<()> {
        let skipped = |token: &Read| token.kind == Token::NewLine || (semicolons && token.kind == Token::Semicolon);
        if self.ahead.as_ref().is_none_or(skipped) {
            self.ahead = None;
            self.scanner.skip_newlines(semicolons)?;
        }
        Ok(())
    }

    fn set_mode(&mut self, mode: Mode) {
        if mode != self.scanner.mode {
            self.reread(|token| !token.kind.is_invariant());
        }
        self.scanner.mode = mode;
    }

    pub fn in_mode<T>(&mut self, mode: Mode, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        let before = self.scanner.mode;
        self.set_mode(mode);
        let found = read(self)?;
        self.set_mode(before);
        Ok(found)
    }

    pub fn with_lists<T>(&mut self, lists: bool, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        let before = std::mem::replace(&mut self.no_lists, !lists);
        let found = read(self)?;
        self.no_lists = before;
        Ok(found)
    }

    /// Parses parameters, then statements, to the brace that closes this one, or to the end of the text.
    pub fn script_block(&mut self, brace: Option<&Read>) -> Parsed<Vec<Node>> {
        self.skip_newlines()?;
        if brace.is_none() {
            self.using_statements()?;
        }
        let start = self.scanner.at;
        let mut children = match self.param_block()? {
            Some(parameters) => parameters,
            None => {
                self.go_to(start);
                Vec::new()
            }
        };
        self.skip_separators()?;
        if self.peek()?.names_block() {
            children.extend(self.named_blocks()?);
        } else {
            children.extend(self.statements()?);
        }
        if let Some(brace) = brace {
            self.close(brace)?;
        } else {
            let token = self.next()?;
            if token.kind != Token::End {
                return refuse(&token, "it closes nothing");
            }
        }
        Ok(children)
    }

    /// Reads the token that closes this bracket, which must be next.
    pub fn close(&mut self, open: &Read) -> Parsed<()> {
        let wanted = match open.kind {
            Token::OpenBrace | Token::AtBrace => Token::CloseBrace,
            Token::OpenBracket | Token::QuestionBracket => Token::CloseBracket,
            _ => Token::CloseParen,
        };
        let token = self.next()?;
        if token.kind == wanted {
            return Ok(());
        }
        let mut fault = fault(&token, "");
        fault.what = format!("{} is not closed{} in line {}", open.text, fault.what, fault.line);
        Err(Fault { line: open.line, ..fault })
    }

    fn using_statements(&mut self) -> Parsed<()> {
        while self.peek()?.is_keyword("using") {
            let using = self.next()?;
            if self.dialect() == Dialect::Windows {
                return refuse(&using, "`using` is not known before version 5");
            }
            let what = self.next()?;
            if what.kind != Token::Keyword || !["namespace", "module", "assembly"].contains(&what.text.as_str()) {
                return refuse(&what, "`using` takes namespace, module or assembly");
            }
            let name = self.next()?;
            if !matches!(name.kind, Token::Word | Token::Identifier | Token::Quoted) {
                return refuse(&name, "`using` takes a name");
            }
            let end = self.peek()?;
            if !matches!(end.kind, Token::NewLine | Token::Semicolon | Token::End) {
                return refuse(&end, "a statement does not end");
            }
            self.skip_separators()?;
        }
        self.reread(|_| true);
        Ok(())
    }

    fn named_blocks(&mut self) -> Parsed<Vec<Node>> {
        let mut found = Vec::new();
        let mut names: Vec<String> = Vec::new();
        loop {
            let name = self.next()?;
            if matches!(name.kind, Token::CloseBrace | Token::End) {
                self.give_back(name);
                return Ok(found);
            }
            if !name.names_block() {
                return refuse(&name, "beside begin, process and end there is nothing else");
            }
            if name.text == "clean" && self.dialect() == Dialect::Windows {
                return refuse(&name, "Windows PowerShell knows no block `clean`");
            }
            if names.contains(&name.text) {
                return refuse(&name, "this block is there twice");
            }
            found.push(self.body(&format!("after `{}` comes a block", name.text))?);
            names.push(name.text);
            self.skip_separators()?;
        }
    }

    /// Parses `{ statements }`, if that is next.
    pub fn optional_body(&mut self) -> Parsed<Option<Node>> {
        self.skip_newlines()?;
        let Some(brace) = self.accept(Token::OpenBrace)? else { return Ok(None) };
        let statements = self.statements()?;
        self.close(&brace)?;
        Ok(Some(Node::new(Kind::Body, brace.line, statements)))
    }

    pub fn body(&mut self, what: &str) -> Parsed<Node> {
        match self.optional_body()? {
            Some(body) => Ok(body),
            None => refuse(&self.peek()?, what),
        }
    }

    /// Parses statements up to the closing token or the end of the text.
    pub fn statements(&mut self) -> Parsed<Vec<Node>> {
        let mut found = Vec::new();
        self.skip_separators()?;
        while let Some(statement) = self.statement()? {
            found.push(statement);
            self.skip_separators()?;
            if matches!(self.peek()?.kind, Token::CloseParen | Token::CloseBrace) {
                break;
            }
        }
        Ok(found)
    }
}

/// Returns the error for an unexpected token.
pub(super) fn refuse<T>(token: &Read, what: &str) -> Parsed<T> {
    Err(fault(token, what))
}

fn fault(token: &Read, what: &str) -> Fault {
    let found = match token.kind {
        Token::End => "found the end".to_owned(),
        Token::NewLine => "found the end of the line".to_owned(),
        _ => format!("found {:?}", token.text.chars().take(40).collect::<String>()),
    };
    Fault { line: token.line, what: format!("{what}; {found}") }
}
