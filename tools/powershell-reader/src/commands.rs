//! Pipelines, and commands with their arguments and redirections.

use super::parser::{Parser, refuse};
use super::scanner::Mode;
use super::token::{Kind as Token, Token as Read};
use super::tree::{Kind, Node};
use super::{Dialect, Parsed};

impl Parser {
    /// Parses pipelines with `&&` and `||` between them. The first may begin with an expression that was read already.
    pub fn pipelines(&mut self, first: Option<Node>) -> Parsed<Option<Node>> {
        let mut found = self.pipeline(first)?;
        loop {
            let token = self.peek()?;
            let Some(left) = found else { return Ok(None) };
            if !matches!(token.kind, Token::AndAnd | Token::OrOr | Token::Ampersand) {
                return Ok(Some(left));
            }
            if self.dialect() == Dialect::Windows {
                return refuse(&token, "Windows PowerShell has no such operator between commands");
            }
            self.next()?;
            if token.kind == Token::Ampersand {
                let after = self.peek()?;
                if matches!(after.kind, Token::AndAnd | Token::OrOr) {
                    return refuse(&after, "what runs in the background has no result");
                }
                return Ok(Some(left));
            }
            self.skip_newlines()?;
            let Some(right) = self.pipeline(None)? else { return refuse(&token, "a command is missing behind this") };
            let line = left.line;
            found = Some(Node::new(Kind::Pipeline, line, vec![left, right]));
        }
    }

    fn pipeline(&mut self, first: Option<Node>) -> Parsed<Option<Node>> {
        let mut elements: Vec<Node> = Vec::new();
        let mut expression = first;
        loop {
            if expression.is_none() {
                expression = self.in_mode(Mode::Expression, |parser| parser.expression(false))?;
            }
            let element = match expression.take() {
                Some(expression) if elements.is_empty() => Some(self.redirected(expression)?),
                Some(_) => return refuse(&self.peek()?, "an expression stands only at the beginning of a pipeline"),
                None => self.command()?,
            };
            let empty = element.is_none();
            elements.extend(element);
            let mut token = self.peek()?;
            if empty && (!elements.is_empty() || token.kind == Token::Pipe) {
                return refuse(&token, "a pipeline has an empty place");
            }
            if token.kind == Token::NewLine && self.dialect() == Dialect::Seven && self.pipe_follows(token.end) {
                self.skip_newlines()?;
                token = self.peek()?;
            }
            match token.kind {
                Token::Pipe => {
                    self.next()?;
                    self.skip_newlines()?;
                }
                Token::Semicolon | Token::NewLine | Token::CloseParen | Token::CloseBrace | Token::End => break,
                Token::AndAnd | Token::OrOr | Token::Ampersand => break,
                _ => return refuse(&token, "nothing of this kind can follow here"),
            }
        }
        let line = elements.first().map_or(1, |element| element.line);
        Ok(if elements.len() > 1 { Some(Node::new(Kind::Pipeline, line, elements)) } else { elements.pop() })
    }

    /// Whether the next line that is not a comment begins with `|`.
    fn pipe_follows(&self, mut at: usize) -> bool {
        let c = |at: usize| self.scanner.text.get(at).map(|glyph| glyph.c);
        let mut line_is_empty = true;
        while let Some(next) = c(at) {
            at += 1;
            match next {
                '\n' if line_is_empty => return false,
                '\n' => line_is_empty = true,
                '#' => {
                    line_is_empty = false;
                    while c(at).is_some_and(|c| c != '\n') {
                        at += 1;
                    }
                }
                _ if next.is_whitespace() => {}
                _ => return next == '|',
            }
        }
        false
    }

    fn redirected(&mut self, expression: Node) -> Parsed<Node> {
        let mut streams = Vec::new();
        let mut children = vec![expression];
        loop {
            let token = self.peek()?;
            if !matches!(token.kind, Token::Redirection(_) | Token::Merge(..) | Token::Input) {
                break;
            }
            self.next()?;
            children.push(self.redirection(&token, &mut streams)?);
        }
        if streams.is_empty()
            && let Some(expression) = children.pop()
        {
            return Ok(expression);
        }
        let line = children.first().map_or(1, |child| child.line);
        Ok(Node::new(Kind::Pipeline, line, children))
    }

    fn redirection(&mut self, token: &Read, streams: &mut Vec<u8>) -> Parsed<Node> {
        let (from, file) = match token.kind {
            Token::Merge(from, to) if to != 1 || from == 1 => return refuse(token, "streams are merged only into the first"),
            Token::Merge(from, _) => (from, None),
            Token::Redirection(from) => match self.single_argument(false)? {
                Some(file) => (from, Some(file)),
                None => return refuse(token, "a file is named behind a redirection"),
            },
            _ => return refuse(token, "no file can be read by <"),
        };
        if streams.contains(&from) {
            return refuse(token, "a stream is redirected twice");
        }
        streams.push(from);
        Ok(Node::new(Kind::Redirection, token.line, file.into_iter().collect()))
    }

    /// Parses one argument, whatever the mode.
    pub fn single_argument(&mut self, lists: bool) -> Parsed<Option<Node>> {
        if matches!(self.peek()?.kind, Token::Comma | Token::End) {
            return Ok(None);
        }
        self.in_mode(Mode::Command, |parser| {
            let token = parser.next()?;
            parser.argument(token, lists)
        })
    }

    fn command(&mut self) -> Parsed<Option<Node>> {
        self.in_mode(Mode::Command, |parser| {
            let mut token = parser.next()?;
            let first = token.clone();
            let invoked = matches!(token.kind, Token::Dot | Token::Ampersand);
            if invoked {
                token = parser.next()?;
            }
            let elements = parser.command_elements(token, invoked)?;
            if elements.is_empty() && invoked {
                return refuse(&first, "a command is missing behind this");
            }
            Ok((!elements.is_empty()).then(|| Node::new(Kind::Command(invoked), first.line, elements)))
        })
    }

    fn command_elements(&mut self, mut token: Read, invoked: bool) -> Parsed<Vec<Node>> {
        use Token::*;
        let mut elements: Vec<Node> = Vec::new();
        let mut streams = Vec::new();
        let mut options_end = false;
        loop {
            let name = elements.is_empty();
            match token.kind {
                Pipe | CloseBrace | CloseParen | End | NewLine | Semicolon | AndAnd | OrOr | Ampersand => {
                    self.give_back(token);
                    return Ok(elements);
                }
                Comma => return refuse(&token, "an argument is missing"),
                Decrement => {
                    options_end = true;
                    elements.push(word(&token));
                }
                Option(_) if name || options_end => elements.push(word(&token)),
                Option(colon) => elements.push(self.option(&token, colon)?),
                Redirection(_) | Merge(..) | Input if !name => elements.push(self.redirection(&token, &mut streams)?),
                Redirection(_) | Merge(..) | Input => elements.push(word(&token)),
                Word if token.text == "--%" => {
                    elements.push(word(&token));
                    self.scanner.skip_verbatim();
                }
                Word if name && !invoked => elements.push(word(&token)),
                _ => {
                    elements.extend(self.argument(token, !name)?);
                }
            }
            token = self.next()?;
        }
    }

    fn option(&mut self, token: &Read, colon: bool) -> Parsed<Node> {
        let mut value = None;
        if colon && !self.sees(Token::Comma)? {
            let next = self.next()?;
            value = self.argument(next, true)?;
            if value.is_none() {
                return refuse(token, "a value comes behind the colon of an option");
            }
        }
        Ok(Node::new(Kind::Option(token.text.clone()), token.line, value.into_iter().collect()))
    }

    /// Parses an argument that begins with this token; several arguments with commas between them are a list.
    fn argument(&mut self, mut token: Read, lists: bool) -> Parsed<std::option::Option<Node>> {
        use Token::*;
        let mut found: Vec<Node> = Vec::new();
        loop {
            let argument = match token.kind {
                Pipe | CloseBrace | CloseParen | End | NewLine | Semicolon | Redirection(_) | Merge(..) | Input | AndAnd | OrOr | Ampersand
                | Decrement | Comma => {
                    if !found.is_empty() {
                        return refuse(&token, "behind a comma comes another argument");
                    }
                    self.give_back(token);
                    return Ok(None);
                }
                Variable | Splat | Number | Quoted | Expandable | OpenParen | DollarParen | AtParen | AtBrace | OpenBrace => {
                    self.give_back(token);
                    let argument = self.primary(true)?;
                    argument.into_iter().collect()
                }
                Word if !token.parts.is_empty() => vec![Node::new(Kind::Expandable(token.text.clone()), token.line, self.parts(&token)?)],
                _ => vec![word(&token)],
            };
            found.extend(argument);
            if !lists || !self.sees(Comma)? {
                break;
            }
            self.next()?;
            self.skip_newlines()?;
            token = self.next()?;
        }
        let line = found.first().map_or(1, |argument| argument.line);
        Ok(if found.len() > 1 { Some(Node::new(Kind::List, line, found)) } else { found.pop() })
    }
}

/// Returns the token as a word.
fn word(token: &Read) -> Node {
    Node::new(Kind::Word(token.text.clone()), token.line, Vec::new())
}
