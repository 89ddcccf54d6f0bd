//! Loops and `switch`, with or without a label.

use super::Parsed;
use super::parser::{Parser, refuse};
use super::token::{Kind as Token, Token as Read};
use super::tree::{Kind, Node};

impl Parser {
    /// Parses the statement after a label. A label before any other text is the name of a command.
    pub fn labelled(&mut self, label: Read) -> Parsed<Option<Node>> {
        self.skip_newlines()?;
        let token = self.next()?;
        let name = Some(label.text.clone());
        if token.kind == Token::Keyword {
            match token.text.as_str() {
                "switch" => return self.switch(name, &token).map(Some),
                "foreach" => return self.foreach(name, &token).map(Some),
                "for" => return self.for_loop(name, &token).map(Some),
                "while" => return self.while_loop(name, &token).map(Some),
                "do" => return self.do_loop(name, &token).map(Some),
                _ => {}
            }
        }
        self.go_to(label.start);
        self.chain()
    }

    pub fn foreach(&mut self, label: Option<String>, keyword: &Read) -> Parsed<Node> {
        self.skip_newlines()?;
        let token = self.peek()?;
        if matches!(token.kind, Token::Option(_)) {
            return refuse(&token, "`foreach` takes no options");
        }
        let open = self.expect(Token::OpenParen, "after `foreach` comes a parenthesis")?;
        self.skip_newlines()?;
        let token = self.next()?;
        let variable = match token.kind {
            Token::Variable => Kind::Variable(token.text),
            Token::Splat => Kind::Splat(token.text),
            _ => return refuse(&token, "`foreach` names a variable"),
        };
        let variable = Node::new(variable, token.line, Vec::new());
        self.skip_newlines()?;
        if !self.accept_keyword("in")? {
            return refuse(&self.peek()?, "behind the variable of `foreach` comes `in`");
        }
        let over = self.rest_of_condition(&open)?;
        let body = self.body("after the parenthesis of `foreach` comes a block")?;
        Ok(Node::new(Kind::Foreach(label), keyword.line, vec![variable, over, body]))
    }

    pub fn for_loop(&mut self, label: Option<String>, keyword: &Read) -> Parsed<Node> {
        self.skip_newlines()?;
        let open = self.expect(Token::OpenParen, "after `for` comes a parenthesis")?;
        let mut children = Vec::new();
        for last in [false, false, true] {
            self.skip_newlines()?;
            children.extend(self.chain()?);
            if !last {
                self.accept(Token::Semicolon)?;
            }
        }
        self.skip_newlines()?;
        self.close(&open)?;
        children.push(self.body("after the parenthesis of `for` comes a block")?);
        Ok(Node::new(Kind::Loop(label), keyword.line, children))
    }

    pub fn while_loop(&mut self, label: Option<String>, keyword: &Read) -> Parsed<Node> {
        self.skip_newlines()?;
        let condition = self.condition("while")?;
        let body = self.body("after the condition of `while` comes a block")?;
        Ok(Node::new(Kind::Loop(label), keyword.line, vec![condition, body]))
    }

    pub fn do_loop(&mut self, label: Option<String>, keyword: &Read) -> Parsed<Node> {
        let body = self.body("after `do` comes a block")?;
        self.skip_newlines()?;
        let token = self.next()?;
        if !token.is_keyword("while") && !token.is_keyword("until") {
            return refuse(&token, "a `do` ends with `while` or `until`");
        }
        self.skip_newlines()?;
        let condition = self.condition(&token.text)?;
        Ok(Node::new(Kind::Loop(label), keyword.line, vec![body, condition]))
    }

    pub fn switch(&mut self, label: Option<String>, keyword: &Read) -> Parsed<Node> {
        self.skip_newlines()?;
        let mut children = Vec::new();
        let mut file = false;
        while let Token::Option(_) = self.peek()?.kind {
            let option = self.next()?;
            let name = option.text.to_lowercase();
            if ["regex", "wildcard", "exact", "casesensitive"].iter().any(|known| known.starts_with(&name)) {
                continue;
            }
            if !"file".starts_with(&name) {
                return refuse(&option, "`switch` has no such option");
            }
            file = true;
            self.skip_newlines()?;
            let Some(name) = self.single_argument(false)? else { return refuse(&option, "a file is named behind -File") };
            children.push(name);
        }
        if let Some(paren) = self.accept(Token::OpenParen)? {
            if file {
                return refuse(&paren, "`switch` takes a file or a value");
            }
            children.push(self.rest_of_condition(&paren)?);
        } else if !file {
            return refuse(&self.peek()?, "after `switch` comes a value in parentheses");
        }
        self.skip_newlines()?;
        let brace = self.expect(Token::OpenBrace, "after the value of `switch` comes a block")?;
        self.skip_newlines()?;
        let mut default = false;
        loop {
            let token = self.peek()?;
            if self.accept_keyword("default")? {
                if std::mem::replace(&mut default, true) {
                    return refuse(&token, "a `switch` has one default");
                }
            } else {
                let Some(case) = self.single_argument(false)? else { return refuse(&token, "a `switch` has cases") };
                children.push(case);
            }
            children.push(self.body("behind a case comes a block")?);
            self.skip_separators()?;
            if matches!(self.peek()?.kind, Token::CloseBrace | Token::End) {
                self.close(&brace)?;
                return Ok(Node::new(Kind::Switch(label), keyword.line, children));
            }
        }
    }
}
