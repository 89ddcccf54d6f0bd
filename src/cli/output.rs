//! Standard output and standard error, which may be closed, and the output formats.

use std::io::Write;

use clap::ValueEnum;
use serde::Serialize;

/// For people or for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

/// Prints the output.
pub fn print(answer: impl AsRef<[u8]>) -> Result<(), String> {
    std::io::stdout().write_all(answer.as_ref()).map_err(|e| format!("standard output: {e}"))
}

/// Prints a progress message on standard error. If standard error is closed, nobody reads the message.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Formats the output for programs.
pub fn json(answer: &impl Serialize) -> Result<String, String> {
    Ok(serde_json::to_string_pretty(answer).map_err(|e| e.to_string())? + "\n")
}

/// Removes the code marks of Markdown.
pub fn plain(markdown: &str) -> String {
    markdown.replace('`', "")
}
