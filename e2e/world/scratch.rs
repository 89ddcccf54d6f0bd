//! A directory that lives as long as a story: certificates, data, logs. After a failure its files are copied to `out/failed`, and the ends of
//! the logs with errors are printed. It must not be used for anything that outlives the story.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::guardian;
use super::tools::checkout;

/// The number of log lines that are printed after a failure.
const TAIL: usize = 20;
/// The most characters of such a line.
const WIDTH: usize = 300;

/// The existing directories, for a test that is ended from outside.
static LIVING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The scratch directory; removed on drop.
pub(super) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates `capw-NAME.XXXXXX` in the system's directory for temporary files.
    pub(super) fn new(name: &str) -> Self {
        let dir = tempfile::Builder::new().prefix(&format!("capw-{name}.")).tempdir().expect("a directory for temporary files ($TMPDIR)");
        let path = dir.keep();
        assert!(
            !path.to_string_lossy().contains(char::is_whitespace),
            "{}: programs and the guardian want a path without blanks; set TMPDIR to one",
            path.display()
        );
        guardian::guard_directory(&path);
        LIVING.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
        Self { path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file below the directory, creating its parent directories, and returns its path.
    pub(super) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).unwrap_or_else(|e| panic!("{}: {e}", parent.display()));
        }
        fs::write(&path, content).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            report(&self.path);
        }
        LIVING.lock().unwrap_or_else(PoisonError::into_inner).retain(|path| *path != self.path);
        // With CAPW_KEEP set the directory stays, also after a story that passed.
        if std::env::var_os("CAPW_KEEP").is_some() {
            eprintln!("kept: {}", self.path.display());
        } else {
            let _ = fs::remove_dir_all(&self.path);
        }
        guardian::forget_directory(&self.path);
    }
}

/// Reports all existing directories.
pub(super) fn report_all() {
    LIVING.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|path| report(path));
}

/// Copies the files to a place that outlives the test, and prints the ends of the logs with errors.
fn report(scratch: &Path) {
    let mut files: Vec<PathBuf> = fs::read_dir(scratch).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.is_file());
    files.sort();
    keep(scratch, &files);
    for log in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "log")) {
        if has_errors(log) {
            eprintln!("--- end of {}\n{}", log.file_name().unwrap_or_default().display(), last_lines(log, TAIL));
        }
    }
}

/// Copies files of a directory to a place that outlives the test.
pub(super) fn keep(directory: &Path, files: &[PathBuf]) {
    if files.is_empty() {
        return;
    }
    let to = place().join(directory.file_name().unwrap_or_default());
    let copy = |file: &PathBuf| fs::copy(file, to.join(file.file_name().unwrap_or_default())).map(drop);
    let copied = fs::create_dir_all(&to).and_then(|()| files.iter().try_for_each(copy));
    match copied {
        Ok(()) => eprintln!("\nfiles of {}: {}", directory.display(), to.display()),
        Err(error) => eprintln!("\n{}: {error}", to.display()),
    }
}

/// `out/failed/TEST/attempt-N`, where `cargo xtask` finds the files.
fn place() -> PathBuf {
    let own = |name: &str| std::env::var(name).ok();
    let failed = own("CAPW_FAILED").map_or_else(|| checkout().join("out/failed"), PathBuf::from);
    let test = own("NEXTEST_TEST_NAME").or_else(|| std::thread::current().name().map(str::to_owned)).unwrap_or_default();
    failed.join(test.replace("::", ".")).join(format!("attempt-{}", own("NEXTEST_ATTEMPT").unwrap_or_else(|| "1".to_owned())))
}

/// Whether a log of a Go program (klog, zap) or of CAPW has errors.
fn has_errors(log: &Path) -> bool {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    text.lines().any(|line| {
        let klog = line.strip_prefix(['E', 'F']).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        klog || [" ERROR ", " WARN ", "\"level\":\"error\"", "\"level\":\"fatal\"", "panic"].iter().any(|mark| line.contains(mark))
    })
}

/// The last `count` lines of a file, each cut; empty if the file is unreadable.
pub(super) fn last_lines(path: &Path, count: usize) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(count);
    lines[from..].iter().map(|line| line.chars().take(WIDTH).collect::<String>()).collect::<Vec<_>>().join("\n")
}
