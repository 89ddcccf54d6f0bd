//! Tests the reasons, and how conditions change.

use jiff::Timestamp;

use crate::api::condition::{ConditionType, Desired, Reason, apply};

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
