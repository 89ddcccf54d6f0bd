//! Statements: conditions, functions, `try`, and statements that leave a block. Loops are in their own module.

use super::Parsed;
use super::checks;
use super::parser::{Parser, refuse};
use super::scanner::Mode;
use super::token::{Kind as Token, Token as Read};
use super::tree::{Kind, Node};

impl Parser {
    /// Parses the next statement; returns none where a block closes or the text ends.
    pub fn statement(&mut self) -> Parsed<Option<Node>> {
        let mut token = self.next()?;
        let start = token.start;
        let mut attributes = false;
        if token.kind == Token::Word && self.scanner.text.get(start).is_some_and(|glyph| glyph.c == '[') {
            self.go_to(start);
            let found = self.attributes()?;
            token = self.next()?;
            attributes = !found.is_empty();
            let type_name = found.iter().any(|attribute| matches!(attribute.kind, Kind::Type(_)));
            if attributes && token.refuses_attributes() {
                if !type_name {
                    return refuse(&token, "no attribute may stand before this statement");
                }
                self.go_to(start);
                token = self.next()?;
            } else if attributes && token.kind == Token::Keyword {
                if type_name {
                    return refuse(&token, "no type may stand before this statement");
                }
            } else if attributes {
                self.go_to(start);
                token = self.next()?;
            }
        }
        if token.kind == Token::Label {
            return self.labelled(token);
        }
        if token.kind == Token::Keyword
            && let Some(statement) = self.keyword_statement(&token)?
        {
            return Ok(Some(statement));
        }
        if attributes {
            self.go_to(start);
        } else {
            self.give_back(token);
        }
        self.chain()
    }

    /// Parses a statement that begins with a keyword. Returns none if the word begins no statement, so it is the name of a command.
    fn keyword_statement(&mut self, keyword: &Read) -> Parsed<Option<Node>> {
        Ok(Some(match keyword.text.as_str() {
            "if" => self.if_statement(keyword)?,
            "switch" => self.switch(None, keyword)?,
            "foreach" => self.foreach(None, keyword)?,
            "for" => self.for_loop(None, keyword)?,
            "while" => self.while_loop(None, keyword)?,
            "do" => self.do_loop(None, keyword)?,
            "function" | "filter" => self.function(keyword)?,
            "return" | "throw" | "exit" => {
                let value = self.chain()?;
                Node::new(Kind::Leave(keyword.text.clone()), keyword.line, value.into_iter().collect())
            }
            "break" | "continue" => {
                let label = self.label_or_key()?;
                Node::new(Kind::Jump(keyword.text.clone()), keyword.line, label.into_iter().collect())
            }
            "trap" => self.trap(keyword)?,
            "try" => self.try_statement(keyword)?,
            "from" | "define" | "var" => return refuse(keyword, "a word that PowerShell reserves"),
            "using" => return refuse(keyword, "`using` stands only at the beginning of a script"),
            "parallel" | "sequence" | "workflow" => return refuse(keyword, "there are no workflows"),
            "data" | "class" | "enum" | "configuration" => return refuse(keyword, "this statement is not read here"),
            _ => return Ok(None),
        }))
    }

    fn if_statement(&mut self, keyword: &Read) -> Parsed<Node> {
        let mut children = Vec::new();
        loop {
            self.skip_newlines()?;
            children.push(self.condition("if")?);
            children.push(self.body("after the condition of `if` comes a block")?);
            let after = self.place();
            self.skip_newlines()?;
            if self.accept_keyword("elseif")? {
                continue;
            }
            if self.accept_keyword("else")? {
                children.push(self.body("after `else` comes a block")?);
            } else {
                self.go_to(after);
            }
            return Ok(Node::new(Kind::If, keyword.line, children));
        }
    }

    /// Parses `( … )` after a keyword.
    pub fn condition(&mut self, keyword: &str) -> Parsed<Node> {
        let open = self.expect(Token::OpenParen, &format!("after `{keyword}` comes a parenthesis"))?;
        self.rest_of_condition(&open)
    }

    pub fn rest_of_condition(&mut self, open: &Read) -> Parsed<Node> {
        self.skip_newlines()?;
        let Some(condition) = self.chain()? else { return refuse(&self.peek()?, "a condition or a value is missing") };
        self.skip_newlines()?;
        self.close(open)?;
        Ok(condition)
    }

    /// Parses a word, or an expression without a list.
    pub fn label_or_key(&mut self) -> Parsed<Option<Node>> {
        if let Some(name) = self.simple_name()? {
            return Ok(Some(name));
        }
        if matches!(self.peek()?.kind, Token::NewLine | Token::Semicolon) {
            return Ok(None);
        }
        self.with_lists(false, |parser| parser.unary(false))
    }

    /// Parses an identifier, which may be a keyword elsewhere.
    pub fn simple_name(&mut self) -> Parsed<Option<Node>> {
        self.scanner.simple_name = true;
        let token = self.peek();
        self.scanner.simple_name = false;
        let token = token?;
        if token.kind != Token::Identifier {
            return Ok(None);
        }
        self.next()?;
        Ok(Some(Node::new(Kind::Word(token.text), token.line, Vec::new())))
    }

    fn function(&mut self, keyword: &Read) -> Parsed<Node> {
        use Token::*;
        self.skip_newlines()?;
        let name = self.next()?;
        if matches!(
            name.kind,
            Pipe | OpenParen
                | OpenBrace
                | AtParen
                | AtBrace
                | CloseBrace
                | CloseParen
                | End
                | Semicolon
                | Redirection(_)
                | Merge(..)
                | Input
                | AndAnd
                | OrOr
                | Ampersand
                | Variable
                | Splat
                | Quoted
                | Expandable
        ) {
            return refuse(&name, "a function has a name");
        }
        self.skip_newlines()?;
        let mut children = Vec::new();
        let mut listed = false;
        if let Some(open) = self.accept(OpenParen)? {
            listed = true;
            children = self.parameters()?;
            self.skip_newlines()?;
            self.close(&open)?;
            self.skip_newlines()?;
        }
        let brace = self.expect(OpenBrace, "a function has a body in braces")?;
        let body = Node::new(Kind::Block, brace.line, self.script_block(Some(&brace))?);
        if listed && body.children.iter().any(|child| matches!(child.kind, Kind::Parameter(_))) {
            return refuse(&brace, "a function has one list of parameters");
        }
        checks::parameters(&children)?;
        children.push(body);
        Ok(Node::new(Kind::Function(name.text), keyword.line, children))
    }

    fn trap(&mut self, keyword: &Read) -> Parsed<Node> {
        self.skip_newlines()?;
        let mut children: Vec<Node> = self.attribute()?.into_iter().collect();
        if children.iter().any(|child| !matches!(child.kind, Kind::Type(_))) {
            return refuse(keyword, "`trap` takes a type");
        }
        children.push(self.body("after `trap` comes a block")?);
        Ok(Node::new(Kind::Trap, keyword.line, children))
    }

    fn try_statement(&mut self, keyword: &Read) -> Parsed<Node> {
        let mut children = vec![self.body("after `try` comes a block")?];
        loop {
            self.skip_newlines()?;
            let token = self.peek()?;
            if !self.accept_keyword("catch")? {
                break;
            }
            children.push(self.catch(&token)?);
        }
        let token = self.peek()?;
        if self.accept_keyword("finally")? {
            let body = self.body("after `finally` comes a block")?;
            children.push(Node::new(Kind::Finally, token.line, vec![body]));
        }
        if children.len() == 1 {
            return refuse(&token, "a `try` has neither `catch` nor `finally`");
        }
        checks::catches(&children)?;
        Ok(Node::new(Kind::Try, keyword.line, children))
    }

    fn catch(&mut self, keyword: &Read) -> Parsed<Node> {
        let mut children = Vec::new();
        loop {
            self.skip_newlines()?;
            let Some(attribute) = self.attribute()? else {
                if !children.is_empty() {
                    return refuse(&self.peek()?, "behind the comma comes another type");
                }
                break;
            };
            if !matches!(attribute.kind, Kind::Type(_)) {
                return refuse(keyword, "`catch` takes types");
            }
            children.push(attribute);
            self.skip_newlines()?;
            if self.accept(Token::Comma)?.is_none() {
                break;
            }
        }
        children.push(self.body("after `catch` comes a block")?);
        Ok(Node::new(Kind::Catch, keyword.line, children))
    }

    /// Parses pipelines joined by `&&` and `||`, or an assignment.
    pub fn chain(&mut self) -> Parsed<Option<Node>> {
        let (target, assignment) = self.in_mode(Mode::Expression, |parser| {
            let target = parser.expression(false)?;
            let assignment = if target.is_some() { parser.accept(Token::Assignment)? } else { None };
            Ok((target, assignment))
        })?;
        match (target, assignment) {
            (Some(target), Some(operator)) => {
                self.skip_newlines()?;
                let Some(value) = self.statement()? else { return refuse(&operator, "nothing is assigned") };
                checks::assignment(&target, operator.text == "=")?;
                let line = target.line;
                Ok(Some(Node::new(Kind::Assign(operator.text), line, vec![target, value])))
            }
            (target, _) => self.pipelines(target),
        }
    }
}
