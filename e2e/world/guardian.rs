//! Ends the processes of this program when this program cannot: killed, interrupted, or exiting with something still in a `static`.
//! A shell waits on a pipe that only this program holds; when the pipe closes, it kills the process groups and removes the
//! directories that are still registered. It must not touch anything else.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Registrations are stored as shell words between blanks; directories come from [`super::scratch`] and contain no blanks.
const SCRIPT: &str = r#"
groups=' ' dirs=' '
without() { for word in $1; do [ "$word" = "$2" ] || printf '%s ' "$word"; done; }
while read -r what value; do
    case $what in
        group) groups="$groups$value " ;;
        ended) groups=" $(without "$groups" "$value")" ;;
        dir) dirs="$dirs$value " ;;
        gone) dirs=" $(without "$dirs" "$value")" ;;
    esac
done
for group in $groups; do kill -s KILL -- "-$group" 2> /dev/null; done
# Twice, for what a dying process still writes.
for dir in $dirs; do rm -rf -- "$dir" || { sleep 1; rm -rf -- "$dir"; }; done
"#;

static GUARDIAN: LazyLock<Mutex<Child>> = LazyLock::new(|| {
    let shell = Command::new("sh")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A group of its own, so that Ctrl-C in a terminal does not end it first.
        .process_group(0)
        .spawn()
        .expect("the program sh runs");
    Mutex::new(shell)
});

fn tell(what: &str, value: &str) {
    let mut shell = GUARDIAN.lock().unwrap_or_else(PoisonError::into_inner);
    // Without the guardian the ordinary clean-up still works, so the test need not fail.
    if let Some(pipe) = &mut shell.stdin {
        let _ = writeln!(pipe, "{what} {value}");
    }
}

/// Registers a process group that must end with this program.
pub(super) fn guard_group(leader: u32) {
    tell("group", &leader.to_string());
}

/// Removes a process group that has ended; its number may be reused.
pub(super) fn forget_group(leader: u32) {
    tell("ended", &leader.to_string());
}

/// Registers a directory that must be removed with this program.
pub(super) fn guard_directory(path: &Path) {
    tell("dir", &path.display().to_string());
}

/// Removes a directory that was deleted, or has to stay.
pub(super) fn forget_directory(path: &Path) {
    tell("gone", &path.display().to_string());
}
