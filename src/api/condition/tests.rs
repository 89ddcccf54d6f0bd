use std::fs;
use std::path::Path;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn the_transition_time_moves_only_with_the_status() {
    let first = apply(&[], &[Desired::no(ConditionType::Ready, Reason::Provisioning, "a")], Some(1), at(10));
    let reworded = apply(&first, &[Desired::no(ConditionType::Ready, Reason::ImageMissing, "b")], Some(2), at(20));
    assert_eq!(reworded[0].last_transition_time.0, at(10));
    assert!(reworded[0].reason == Reason::ImageMissing && reworded[0].observed_generation == Some(2), "{reworded:?}");
    let flipped = apply(&reworded, &[Desired::yes(ConditionType::Ready, Reason::Ready)], Some(2), at(30));
    assert_eq!(flipped[0].last_transition_time.0, at(30));
}

#[test]
fn other_conditions_stay_and_the_order_is_stable() {
    let ready = [Desired::yes(ConditionType::Ready, Reason::Ready)];
    let one = apply(&[], &[ready[0].clone(), Desired::no(ConditionType::Paused, Reason::NotPaused, "")], None, at(1));
    let two = apply(&one, &[Desired::yes(ConditionType::Deleting, Reason::Deleting)], None, at(2));
    assert_eq!(two.iter().map(|c| c.type_.as_str()).collect::<Vec<_>>(), ["Deleting", "Paused", "Ready"]);
    assert_eq!(apply(&two, &ready, None, at(3)), two);
}

#[test]
fn a_reason_is_found_by_its_name() {
    for reason in Reason::ALL {
        assert_eq!(Reason::from_name(reason.as_str()), Some(*reason));
    }
    assert_eq!(Reason::from_name("NodeDeleted"), None);
}

#[test]
fn every_reason_says_what_it_means_and_what_to_do() {
    for reason in Reason::ALL {
        for text in [reason.meaning(), reason.remedy()] {
            assert!(text.len() >= "Wait.".len() && text.ends_with('.') && !text.contains('|') && !text.contains('\n'), "{reason}: {text:?}");
        }
        assert!(!reason.is_problem() || reason.remedy().len() > 20, "{reason}: say what to do");
    }
}

/// Source without tests, by path.
fn sources(directory: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            if !text.contains("#[test]") {
                found.push(text.to_owned());
            }
        }
    }
}

/// Whether `text` gives a condition or an event this reason. Comparisons, patterns and questions to a reason do not.
fn emits(text: &str, reason: &str) -> bool {
    let path = format!("Reason::{reason}");
    text.match_indices(&path).any(|(at, _)| {
        let before = text[..at].trim_end();
        let after = &text[at + path.len()..];
        let other = after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let compared = before.ends_with("==") || before.ends_with("!=");
        let rest = after.trim_start_matches([')', ' ', '\n']);
        let matched = before.ends_with('|') || rest.starts_with('|') || rest.starts_with("=>");
        !other && !compared && !matched && !after.starts_with('.')
    })
}

#[test]
fn every_reason_is_emitted() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    assert!(files.len() > 100, "{} files", files.len());
    let unused: Vec<_> = Reason::ALL.iter().filter(|reason| !files.iter().any(|text| emits(text, reason.as_str()))).collect();
    assert!(unused.is_empty(), "nothing sets these reasons: remove them from src/api/condition/reason.rs: {unused:?}");
}

#[test]
fn a_comparison_does_not_emit() {
    assert!(emits("Desired::yes(ty, Reason::Joined).with_message(x)", "Joined") && emits("_ => Reason::Joined,", "Joined"));
    for text in [
        "c.reason == Reason::Joined",
        "Reason::Joined | Reason::Joining => 1",
        "Reason::Joined.is_problem()",
        "Some(Reason::Joined) => 1",
        "Reason::JoinedLate",
    ] {
        assert!(!emits(text, "Joined"), "{text}");
    }
}
