//! Finds public variants that nothing uses: the compiler does not report them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::api::condition::Reason;
use crate::references::without_tests;
use crate::vm::FailureCode;

/// Collects the files below `directory` with this extension.
fn files(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
}

/// Returns the texts of the files of this crate with this extension.
fn texts(extension: &str) -> Vec<String> {
    let mut found = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), extension, &mut found);
    found.iter().map(|path| fs::read_to_string(path).unwrap()).collect()
}

/// Returns the sources without tests.
fn sources() -> Vec<String> {
    let texts = texts("rs").into_iter().map(|text| without_tests(&text).to_owned());
    let found: Vec<String> = texts.filter(|text| !text.contains("#[test]")).collect();
    assert!(found.len() > 100, "{} files", found.len());
    found
}

/// Whether `text` uses this variant as a value. Comparisons, patterns and method calls on a variant do not count.
fn gives(text: &str, variant: &str) -> bool {
    text.match_indices(variant).any(|(at, _)| {
        let before = text[..at].trim_end();
        let after = &text[at + variant.len()..];
        let other = after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let compared = before.ends_with("==") || before.ends_with("!=");
        let rest = after.trim_start_matches([')', ' ', '\n']);
        let matched = before.ends_with('|') || rest.starts_with('|') || rest.starts_with("=>");
        !other && !compared && !matched && !after.starts_with('.')
    })
}

#[test]
fn every_reason_is_given() {
    // The failure codes give the reasons of guests.
    let of_guests: Vec<Reason> = FailureCode::ALL.iter().map(|code| code.reason()).collect();
    let sources = sources();
    let given = |reason: &Reason| of_guests.contains(reason) || sources.iter().any(|text| gives(text, &format!("Reason::{reason}")));
    let unused: Vec<_> = Reason::ALL.iter().filter(|reason| !given(reason)).collect();
    assert!(unused.is_empty(), "nothing sets these reasons: remove them from src/api/condition/reason.rs: {unused:?}");
}

#[test]
fn every_failure_code_is_used() {
    let (sources, scripts) = (sources(), texts("ps1"));
    let used = |code: &FailureCode| {
        sources.iter().any(|text| text.contains(&format!("FailureCode::{}", code.as_str())))
            || scripts.iter().any(|text| text.contains(&format!("'failed' {} ", code.number())))
    };
    let unused: Vec<_> = FailureCode::ALL.iter().filter(|code| !used(code)).collect();
    assert!(unused.is_empty(), "no step has these codes: remove them from src/vm/failure_code.rs: {unused:?}");
}

#[test]
fn a_comparison_does_not_give_a_reason() {
    let gives = |text| gives(text, "Reason::Joined");
    assert!(gives("Desired::yes(ty, Reason::Joined).with_message(x)") && gives("_ => Reason::Joined,"));
    for text in [
        "c.reason == Reason::Joined",
        "Reason::Joined | Reason::Joining => 1",
        "Reason::Joined.is_problem()",
        "Some(Reason::Joined) => 1",
        "Reason::JoinedLate",
    ] {
        assert!(!gives(text), "{text}");
    }
}
