//! Standard output, which may be closed.

use std::io::Write;

/// Prints an answer.
pub fn print(answer: impl AsRef<[u8]>) -> Result<(), String> {
    std::io::stdout().write_all(answer.as_ref()).map_err(|e| format!("standard output: {e}"))
}
