//! Expressions with their own brackets: parentheses, arrays, tables, script blocks, and the parts of an expandable text.

use super::parser::{Parser, refuse};
use super::scanner::Mode;
use super::token::{Kind as Token, Part, Token as Read};
use super::tree::{Kind, Node};
use super::{Parsed, checks};

impl Parser {
    pub fn parenthesis(&mut self, open: &Read) -> Parsed<Node> {
        let inner = self.in_mode(Mode::Command, |parser| {
            parser.with_lists(true, |parser| {
                parser.skip_newlines()?;
                let Some(inner) = parser.chain()? else { return refuse(&parser.peek()?, "nothing between parentheses") };
                parser.skip_newlines()?;
                parser.close(open)?;
                Ok(inner)
            })
        })?;
        Ok(Node::new(Kind::Paren, open.line, vec![inner]))
    }

    /// Parses `@( … )` or `$( … )`.
    pub fn subexpression(&mut self, open: &Read) -> Parsed<Node> {
        let statements = self.in_mode(Mode::Command, |parser| {
            parser.with_lists(true, |parser| {
                let statements = parser.statements()?;
                parser.skip_newlines()?;
                parser.close(open)?;
                Ok(statements)
            })
        })?;
        Ok(Node::new(if open.kind == Token::AtParen { Kind::Array } else { Kind::Sub }, open.line, statements))
    }

    pub fn script_block_value(&mut self, open: &Read) -> Parsed<Node> {
        let children = self.in_mode(Mode::Command, |parser| parser.with_lists(true, |parser| parser.script_block(Some(open))))?;
        Ok(Node::new(Kind::Block, open.line, children))
    }

    pub fn table(&mut self, open: &Read) -> Parsed<Node> {
        self.skip_newlines()?;
        let mut entries = Vec::new();
        while let Some(entry) = self.entry()? {
            entries.push(entry);
            if !matches!(self.peek()?.kind, Token::NewLine | Token::Semicolon) {
                break;
            }
            self.skip_separators()?;
        }
        self.close(open)?;
        checks::keys(&entries)?;
        Ok(Node::new(Kind::Table, open.line, entries))
    }

    fn entry(&mut self) -> Parsed<Option<Node>> {
        let key = self.in_mode(Mode::Expression, |parser| {
            let Some(key) = parser.label_or_key()? else { return Ok(None) };
            let equals = parser.next()?;
            if equals.kind != Token::Assignment || equals.text != "=" {
                return refuse(&equals, "behind a key comes =");
            }
            Ok(Some(key))
        })?;
        let Some(key) = key else { return Ok(None) };
        let value = self.in_mode(Mode::Command, |parser| {
            parser.skip_newlines()?;
            match parser.statement()? {
                Some(value) => Ok(value),
                None => refuse(&parser.peek()?, "a key has no value"),
            }
        })?;
        let line = key.line;
        Ok(Some(Node::new(Kind::Entry, line, vec![key, value])))
    }

    /// Returns the node of a text in double quotes.
    pub fn text(&mut self, token: &Read) -> Parsed<Node> {
        Ok(Node::new(Kind::Expandable(token.text.clone()), token.line, self.parts(token)?))
    }

    /// Parses the variables and subexpressions in a text. The content of each subexpression is parsed separately.
    pub fn parts(&mut self, token: &Read) -> Parsed<Vec<Node>> {
        let mut found = Vec::new();
        for part in &token.parts {
            match part {
                Part::Variable(variable) => found.push(self.variable_value(variable, false)?),
                Part::Sub(text) => {
                    let outer = std::mem::replace(&mut self.scanner.text, text.clone());
                    let at = std::mem::replace(&mut self.scanner.at, 0);
                    found.extend(self.primary(true)?);
                    self.scanner.text = outer;
                    self.go_to(at);
                }
            }
        }
        Ok(found)
    }
}
