//! Standard output and standard error, which may be closed, and the forms of an answer.

use std::io::Write;

use clap::ValueEnum;
use serde::Serialize;

/// For people or for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

/// Prints an answer.
pub fn print(answer: impl AsRef<[u8]>) -> Result<(), String> {
    std::io::stdout().write_all(answer.as_ref()).map_err(|e| format!("standard output: {e}"))
}

/// Tells the person at the terminal how it goes. If standard error is closed, that person is gone.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// An answer for programs.
pub fn json(answer: &impl Serialize) -> Result<String, String> {
    Ok(serde_json::to_string_pretty(answer).map_err(|e| e.to_string())? + "\n")
}

/// The words of a text in Markdown.
pub fn plain(markdown: &str) -> String {
    markdown.replace('`', "")
}
