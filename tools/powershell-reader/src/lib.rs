//! Reads PowerShell as PowerShell's own parser does, so that tests find, without Windows, a script that Windows would reject. Tests
//! only. Its rules follow the tokenizer, the parser and the semantic checks of PowerShell; it stops at the first error.

mod characters;
mod checks;
mod commands;
mod expressions;
mod literals;
mod loops;
mod numbers;
mod parser;
mod scanner;
mod statements;
mod strings;
#[cfg(test)]
mod tests;
mod token;
mod tree;
mod types;
mod variables;
mod words;

pub use tree::{Access, Kind, Node, PART};
pub use variables::{is_in_drive, unqualified};

use parser::Parser;

/// The version of PowerShell whose rules apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Windows PowerShell 5.1. Syntax that only later versions support, or read in another way, is rejected.
    Windows,
    /// PowerShell 7.6.
    Seven,
}

/// The reason why a script is rejected.
#[derive(Debug)]
pub struct Fault {
    pub line: usize,
    pub what: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// The parsed value, or the reason why it is rejected.
pub type Parsed<T> = Result<T, Fault>;

/// Returns the script as a tree, or the first error in it.
pub fn parse(text: &str, dialect: Dialect) -> Parsed<Node> {
    let script = Parser::new(text, dialect).script()?;
    checks::whole(&script)?;
    Ok(script)
}
