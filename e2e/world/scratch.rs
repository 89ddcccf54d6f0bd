//! A directory that lives as long as a story: certificates, data, logs. It stays after a failure (or with CAPW_KEEP set), and
//! then says where it is and how its logs end. It must not be used for anything that outlives the story.

use std::fs;
use std::path::{Path, PathBuf};

use super::guardian;

/// Lines of each log that are printed after a failure.
const TAIL: usize = 12;

/// The directory; removed on drop unless the thread panics.
pub(super) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes `capw-NAME.XXXXXX` in the system's directory for temporary files.
    pub(super) fn new(name: &str) -> Self {
        let dir = tempfile::Builder::new().prefix(&format!("capw-{name}.")).tempdir().expect("a directory for temporary files ($TMPDIR)");
        let path = dir.keep();
        assert!(
            !path.to_string_lossy().contains(char::is_whitespace),
            "{}: programs and the guardian want a path without blanks; set TMPDIR to one",
            path.display()
        );
        guardian::guard_directory(&path);
        Self { path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file below the directory, making its parent directories, and gives its path.
    pub(super) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).unwrap_or_else(|e| panic!("{}: {e}", parent.display()));
        }
        fs::write(&path, content).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    fn report(&self) {
        eprintln!("\nkept for a look: {}", self.path.display());
        let mut logs: Vec<PathBuf> = fs::read_dir(&self.path)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|e| e == "log"))
            .collect();
        logs.sort();
        for log in logs {
            let end = last_lines(&log, TAIL);
            if !end.is_empty() {
                eprintln!("--- end of {}\n{end}", log.display());
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        if failed {
            self.report();
        }
        if !failed && std::env::var_os("CAPW_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.path);
        }
        guardian::forget_directory(&self.path);
    }
}

/// The last `count` lines of a file, each cut at 400 characters; empty if it cannot be read.
pub(super) fn last_lines(path: &Path, count: usize) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(count);
    lines[from..].iter().map(|line| line.chars().take(400).collect::<String>()).collect::<Vec<_>>().join("\n")
}
