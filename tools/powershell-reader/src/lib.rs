//! Reads PowerShell as PowerShell's own parser does, so that a script that Windows would refuse is found without Windows. Tests
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

/// Whose rules hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Windows PowerShell 5.1. What only later versions know, or read in another way, is refused.
    Windows,
    /// PowerShell 7.6.
    Seven,
}

/// Why a script is refused.
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

/// What is read, or why it is refused.
pub type Parsed<T> = Result<T, Fault>;

/// The script as a tree, or the first error in it.
pub fn parse(text: &str, dialect: Dialect) -> Parsed<Node> {
    let script = Parser::new(text, dialect).script()?;
    checks::whole(&script)?;
    Ok(script)
}
