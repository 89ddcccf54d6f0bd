//! Types, attributes and parameters.

use super::parser::{Parser, refuse};
use super::scanner::Mode;
use super::token::{Kind as Token, Token as Read};
use super::tree::{Kind, Node};
use super::{Parsed, checks};

impl Parser {
    /// Parses `param( … )` with its attributes, if that is next.
    pub fn param_block(&mut self) -> Parsed<Option<Vec<Node>>> {
        self.skip_newlines()?;
        let attributes = self.attributes()?;
        self.skip_newlines()?;
        if !self.accept_keyword("param")? {
            return Ok(None);
        }
        self.skip_newlines()?;
        let Some(open) = self.accept(Token::OpenParen)? else { return Ok(None) };
        let parameters = self.parameters()?;
        self.skip_newlines()?;
        self.close(&open)?;
        if attributes.iter().any(|attribute| matches!(attribute.kind, Kind::Type(_))) {
            return refuse(&open, "no type may stand before `param`");
        }
        checks::parameters(&parameters)?;
        Ok(Some(attributes.into_iter().chain(parameters).collect()))
    }

    pub fn parameters(&mut self) -> Parsed<Vec<Node>> {
        let mut found = Vec::new();
        let mut comma: Option<Read> = None;
        loop {
            match (self.parameter()?, &comma) {
                (Some(parameter), _) => found.push(parameter),
                (None, Some(comma)) => return refuse(comma, "a parameter is missing behind the comma"),
                (None, None) => return Ok(found),
            }
            self.skip_newlines()?;
            comma = self.accept(Token::Comma)?;
            if comma.is_none() {
                return Ok(found);
            }
        }
    }

    fn parameter(&mut self) -> Parsed<Option<Node>> {
        self.with_lists(false, |parser| {
            parser.in_mode(Mode::Expression, |parser| {
                parser.skip_newlines()?;
                let mut children = parser.attributes()?;
                parser.skip_newlines()?;
                let token = parser.next()?;
                if !matches!(token.kind, Token::Variable | Token::Splat) {
                    if !children.is_empty() {
                        return refuse(&token, "behind the type of a parameter comes its name");
                    }
                    parser.give_back(token);
                    return Ok(None);
                }
                if token.kind == Token::Splat {
                    return refuse(&token, "a parameter begins with a dollar");
                }
                parser.skip_newlines()?;
                let equals = parser.peek()?;
                if equals.kind == Token::Assignment && equals.text == "=" {
                    parser.next()?;
                    parser.skip_newlines()?;
                    let Some(default) = parser.expression(false)? else { return refuse(&equals, "a default value is missing") };
                    children.push(default);
                }
                Ok(Some(Node::new(Kind::Parameter(token.text), token.line, children)))
            })
        })
    }

    /// Parses types and attributes that follow each other, with line ends between them.
    pub fn attributes(&mut self) -> Parsed<Vec<Node>> {
        let mut found = Vec::new();
        while let Some(attribute) = self.attribute()? {
            found.push(attribute);
            self.skip_newlines()?;
        }
        Ok(found)
    }

    /// Parses types and attributes before a value: after a type the end of the line ends the expression.
    pub fn expression_attributes(&mut self) -> Parsed<Vec<Node>> {
        let mut found = Vec::new();
        while let Some(attribute) = self.attribute()? {
            if matches!(attribute.kind, Kind::Attribute(_)) {
                self.skip_newlines()?;
            }
            found.push(attribute);
        }
        Ok(found)
    }

    /// Parses `[type]` or `[Attribute(…)]`, if that is next.
    pub fn attribute(&mut self) -> Parsed<Option<Node>> {
        let bracket = if self.looks_ahead() { self.accept(Token::OpenBracket)? } else { self.scanner.open_bracket()? };
        let Some(bracket) = bracket else { return Ok(None) };
        self.skip_newlines()?;
        let name = self.in_mode(Mode::TypeName, |parser| {
            let name = parser.next()?;
            if name.kind != Token::Identifier {
                return refuse(&name, "the name of a type is missing");
            }
            parser.type_name(name, true)
        })?;
        let line = bracket.line;
        if let Some(open) = self.accept(Token::OpenParen)? {
            self.skip_newlines()?;
            let arguments = self.in_mode(Mode::Expression, |parser| parser.with_lists(false, Self::attribute_arguments))?;
            self.skip_newlines()?;
            self.close(&open)?;
            self.skip_newlines()?;
            self.close(&bracket)?;
            checks::attribute_arguments(&arguments)?;
            return Ok(Some(Node::new(Kind::Attribute(name), line, arguments)));
        }
        self.close(&bracket)?;
        Ok(Some(Node::new(Kind::Type(name), line, Vec::new())))
    }

    fn attribute_arguments(&mut self) -> Parsed<Vec<Node>> {
        let mut found = Vec::new();
        let mut comma: Option<Read> = None;
        loop {
            self.skip_newlines()?;
            if let Some(name) = self.simple_name()? {
                let text = name.constant().unwrap_or_default().to_owned();
                let mut children = Vec::new();
                let equals = self.peek()?;
                if equals.kind == Token::Assignment && equals.text == "=" {
                    self.next()?;
                    self.skip_newlines()?;
                    let Some(value) = self.expression(false)? else { return refuse(&equals, "a value is missing behind this") };
                    children.push(value);
                }
                found.push(Node::new(Kind::Argument(text), name.line, children));
            } else {
                match (self.expression(false)?, &comma) {
                    (Some(value), _) => found.push(value),
                    (None, Some(comma)) => return refuse(comma, "an argument is missing behind the comma"),
                    (None, None) => {}
                }
            }
            self.skip_newlines()?;
            comma = self.accept(Token::Comma)?;
            if comma.is_none() {
                return Ok(found);
            }
        }
    }

    /// Parses the rest of a name: arguments of a generic type, dimensions, assembly.
    fn type_name(&mut self, name: Read, assemblies: bool) -> Parsed<String> {
        let mut text = name.text;
        while self.accept(Token::OpenBracket)?.is_some() {
            self.skip_newlines()?;
            let token = self.next()?;
            match token.kind {
                Token::CloseBracket => text += "[]",
                Token::Comma => {
                    while self.accept(Token::Comma)?.is_some() {}
                    self.expect(Token::CloseBracket, "the dimensions of a type are not closed")?;
                    text += "[,]";
                }
                Token::OpenBracket | Token::Identifier if !text.ends_with(']') => {
                    self.type_arguments(token)?;
                    text += "[…]";
                }
                _ => return refuse(&token, "the name of a type is missing"),
            }
        }
        if assemblies
            && let Some(comma) = self.accept(Token::Comma)?
            && self.scanner.assembly_name().is_empty()
        {
            return refuse(&comma, "the name of an assembly is missing");
        }
        Ok(text)
    }

    /// Parses `type, type]`.
    pub fn type_arguments(&mut self, first: Read) -> Parsed<()> {
        let mut token = first;
        loop {
            if token.kind == Token::OpenBracket {
                let name = self.expect(Token::Identifier, "the name of a type is missing")?;
                self.type_name(name, true)?;
                self.expect(Token::CloseBracket, "the bracket of a type is not closed")?;
            } else {
                self.type_name(token, false)?;
            }
            self.skip_newlines()?;
            let after = self.next()?;
            if after.kind != Token::Comma {
                self.give_back(after);
                self.expect(Token::CloseBracket, "the arguments of a type are not closed")?;
                return Ok(());
            }
            self.skip_newlines()?;
            token = self.next()?;
            if !matches!(token.kind, Token::Identifier | Token::OpenBracket) {
                return refuse(&token, "the name of a type is missing");
            }
        }
    }
}
