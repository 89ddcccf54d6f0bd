//! Standard output and standard error, which may be closed.

use std::io::Write;

/// Prints an answer.
pub fn print(answer: impl AsRef<[u8]>) -> Result<(), String> {
    std::io::stdout().write_all(answer.as_ref()).map_err(|e| format!("standard output: {e}"))
}

/// Tells the person at the terminal how it goes. If standard error is closed, that person is gone.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
