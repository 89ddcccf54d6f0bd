//! Expressions: operators, values, and access to members and elements.

use super::parser::{Parser, refuse};
use super::scanner::Mode;
use super::token::{Kind as Token, Token as Read};
use super::tree::{Access, Kind, Node};
use super::{Dialect, Parsed, checks};

impl Parser {
    /// Parses an expression, if one begins here.
    pub fn expression(&mut self, ternary: bool) -> Parsed<Option<Node>> {
        self.in_mode(Mode::Expression, |parser| {
            let Some(condition) = parser.binary(ternary)? else { return Ok(None) };
            let Some(question) = parser.accept(Token::Question)? else { return Ok(Some(condition)) };
            let mut children = vec![condition];
            parser.skip_newlines()?;
            children.push(parser.operand(&question)?);
            parser.skip_newlines()?;
            let colon = parser.expect(Token::Colon, "behind the first value of `? :` comes a colon")?;
            parser.skip_newlines()?;
            children.push(parser.operand(&colon)?);
            Ok(Some(Node::new(Kind::Ternary, question.line, children)))
        })
    }

    fn operand(&mut self, operator: &Read) -> Parsed<Node> {
        match self.expression(true)? {
            Some(operand) => Ok(operand),
            None => refuse(operator, "a value is missing behind this"),
        }
    }

    fn binary(&mut self, ternary: bool) -> Parsed<Option<Node>> {
        let Some(first) = self.list(ternary)? else { return Ok(None) };
        let mut operators = Vec::new();
        let mut operands = vec![first];
        loop {
            let operator = self.peek()?;
            if matches!(operator.kind, Token::Option(_)) {
                return refuse(&operator, "there is no such operator");
            }
            if !operator.is_binary() {
                break;
            }
            self.next()?;
            self.skip_newlines()?;
            let Some(operand) = self.list(true)? else { return refuse(&operator, "a value is missing behind this operator") };
            operands.push(operand);
            operators.push(operator.text);
        }
        let line = operands.first().map_or(1, |operand| operand.line);
        Ok(if operators.is_empty() { operands.pop() } else { Some(Node::new(Kind::Binary(operators), line, operands)) })
    }

    fn list(&mut self, ternary: bool) -> Parsed<Option<Node>> {
        let Some(first) = self.unary(ternary)? else { return Ok(None) };
        if self.no_lists || !self.sees(Token::Comma)? {
            return Ok(Some(first));
        }
        let line = first.line;
        let mut elements = vec![first];
        while let Some(comma) = self.accept(Token::Comma)? {
            self.skip_newlines()?;
            let Some(element) = self.unary(true)? else { return refuse(&comma, "a value is missing behind the comma") };
            elements.push(element);
        }
        Ok(Some(Node::new(Kind::List, line, elements)))
    }

    pub fn unary(&mut self, ternary: bool) -> Parsed<Option<Node>> {
        let before = (self.scanner.signed_numbers, self.scanner.ternary);
        (self.scanner.signed_numbers, self.scanner.ternary) = (true, ternary);
        self.reread(|token| token.text == "-" && token.kind == Token::Operator || ternary && token.kind == Token::Word);
        let token = self.peek()?;
        (self.scanner.signed_numbers, self.scanner.ternary) = before;

        let found = if token.is_unary() {
            if self.no_lists && token.kind == Token::Comma {
                return Ok(None);
            }
            self.next()?;
            self.skip_newlines()?;
            let Some(operand) = self.unary(true)? else { return refuse(&token, "a value is missing behind this operator") };
            if matches!(token.kind, Token::Increment | Token::Decrement) {
                checks::step(&operand)?;
            }
            let kind = if token.kind == Token::Comma { Kind::List } else { Kind::Unary(token.text) };
            Some(Node::new(kind, token.line, vec![operand]))
        } else if token.kind == Token::OpenBracket {
            self.converted()?
        } else {
            self.primary(true)?
        };
        let Some(found) = found else { return Ok(None) };
        let token = self.peek()?;
        if !matches!(token.kind, Token::Increment | Token::Decrement) {
            return Ok(Some(found));
        }
        self.next()?;
        checks::step(&found)?;
        Ok(Some(Node::new(Kind::Unary(token.text), token.line, vec![found])))
    }

    /// Parses types and attributes, and the value that they apply to.
    fn converted(&mut self) -> Parsed<Option<Node>> {
        let mut attributes = self.expression_attributes()?;
        let Some(last) = attributes.pop() else { return Ok(None) };
        let mut found = if let Kind::Type(name) = &last.kind {
            let access = if self.looks_ahead() { None } else { self.scanner.member_access(false)? };
            if let Some(access) = access {
                self.accesses(Some(access), last)?
            } else if matches!(self.peek()?.kind, Token::NewLine | Token::Comma) {
                last
            } else {
                match self.unary(true)? {
                    Some(value) => checks::converted(name, last.line, value)?,
                    None => last,
                }
            }
        } else {
            self.skip_newlines()?;
            let Some(value) = self.unary(true)? else { return refuse(&self.peek()?, "an attribute is put on nothing") };
            checks::attributed(last, value)?
        };
        for attribute in attributes.into_iter().rev() {
            found = match &attribute.kind {
                Kind::Type(name) => checks::converted(name, attribute.line, found)?,
                _ => checks::attributed(attribute, found)?,
            };
        }
        Ok(Some(found))
    }

    /// Parses a value; `accesses` includes its members and elements.
    pub fn primary(&mut self, accesses: bool) -> Parsed<Option<Node>> {
        let token = self.next()?;
        let found = match token.kind {
            Token::Variable | Token::Splat => self.variable_value(&token, accesses)?,
            Token::Number => Node::new(Kind::Number(token.text), token.line, Vec::new()),
            Token::Expandable => self.text(&token)?,
            Token::Quoted => Node::new(Kind::Constant(token.text), token.line, Vec::new()),
            Token::OpenParen => self.parenthesis(&token)?,
            Token::AtParen | Token::DollarParen => self.subexpression(&token)?,
            Token::AtBrace => self.table(&token)?,
            Token::OpenBrace => self.script_block_value(&token)?,
            _ => {
                self.give_back(token);
                return Ok(None);
            }
        };
        if !accesses {
            return Ok(Some(found));
        }
        let access = self.member_access()?;
        self.accesses(access, found).map(Some)
    }

    pub fn variable_value(&mut self, token: &Read, accesses: bool) -> Parsed<Node> {
        let node = |name: &str| {
            let kind = if token.kind == Token::Splat { Kind::Splat(name.to_owned()) } else { Kind::Variable(name.to_owned()) };
            Node::new(kind, token.line, Vec::new())
        };
        let used = token.text.split_once(':').filter(|(drive, name)| drive.eq_ignore_ascii_case("using") && !name.is_empty());
        let Some((_, name)) = used else { return Ok(node(&token.text)) };
        let mut inner = node(name);
        if accesses {
            let access = self.member_access()?;
            inner = self.accesses(access, inner)?;
        }
        checks::used(&inner)?;
        Ok(Node::new(Kind::Using, token.line, vec![inner]))
    }

    fn member_access(&mut self) -> Parsed<Option<Read>> {
        if self.looks_ahead() { Ok(None) } else { self.scanner.member_access(true) }
    }

    fn accesses(&mut self, mut access: Option<Read>, mut found: Node) -> Parsed<Node> {
        while let Some(token) = access {
            self.skip_newlines()?;
            found = match token.kind {
                Token::Dot => self.member(found, &token, Access::Instance)?,
                Token::ColonColon => self.member(found, &token, Access::Static)?,
                Token::QuestionDot => self.member(found, &token, Access::Conditional)?,
                Token::OpenBracket => self.element(found, &token, Access::Instance)?,
                _ => self.element(found, &token, Access::Conditional)?,
            };
            access = self.member_access()?;
        }
        Ok(found)
    }

    fn member(&mut self, target: Node, operator: &Read, access: Access) -> Parsed<Node> {
        let Some(name) = self.member_name()? else { return refuse(&self.peek()?, "the name of a member is missing") };
        let line = operator.line;
        if !self.looks_ahead() {
            let after = self.scanner.at;
            let generic = self.generic_arguments(after)?;
            if self.scanner.accept('(') {
                let mut children = vec![target, name];
                let open = Read { kind: Token::OpenParen, text: "(".to_owned(), ..operator.clone() };
                children.extend(self.call_arguments(&open)?);
                return Ok(Node::new(Kind::Invoke(access), line, children));
            }
            if self.scanner.sees(|c| c == '{') {
                let brace = self.next()?;
                let block = self.script_block_value(&brace)?;
                return Ok(Node::new(Kind::Invoke(access), line, vec![target, name, block]));
            }
            if generic {
                self.go_to(after);
            }
        }
        Ok(Node::new(Kind::Member(access), line, vec![target, name]))
    }

    fn member_name(&mut self) -> Parsed<Option<Node>> {
        if let Some(name) = self.simple_name()? {
            return Ok(Some(name));
        }
        let token = self.peek()?;
        if token.is_unary() || token.kind == Token::OpenBracket { self.unary(false) } else { self.primary(false) }
    }

    /// Parses `[type]` between the name of a method and its arguments.
    fn generic_arguments(&mut self, after: usize) -> Parsed<bool> {
        if self.dialect() == Dialect::Windows {
            return Ok(false);
        }
        if self.next()?.kind != Token::OpenBracket {
            self.go_to(after);
            return Ok(false);
        }
        let found = self.in_mode(Mode::TypeName, |parser| {
            parser.skip_newlines()?;
            let first = parser.next()?;
            if first.kind != Token::Identifier {
                return Ok(false);
            }
            parser.type_arguments(first)?;
            Ok(true)
        })?;
        if !found {
            self.go_to(after);
        }
        Ok(found)
    }

    fn call_arguments(&mut self, open: &Read) -> Parsed<Vec<Node>> {
        self.with_lists(false, |parser| {
            let mut arguments = Vec::new();
            let mut comma: Option<Read> = None;
            loop {
                parser.skip_newlines()?;
                match (parser.expression(false)?, &comma) {
                    (Some(argument), _) => arguments.push(argument),
                    (None, Some(comma)) => return refuse(comma, "an argument is missing behind the comma"),
                    (None, None) => break,
                }
                parser.skip_newlines()?;
                comma = parser.accept(Token::Comma)?;
                if comma.is_none() {
                    break;
                }
            }
            parser.skip_newlines()?;
            parser.close(open)?;
            Ok(arguments)
        })
    }

    fn element(&mut self, target: Node, bracket: &Read, access: Access) -> Parsed<Node> {
        self.skip_newlines()?;
        let index = self.with_lists(true, |parser| parser.expression(false))?;
        let Some(index) = index else { return refuse(&self.peek()?, "an index is missing") };
        self.skip_newlines()?;
        self.close(bracket)?;
        Ok(Node::new(Kind::Index(access), bracket.line, vec![target, index]))
    }
}
