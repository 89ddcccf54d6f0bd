//! The runner's reports that no recorded run covers: optional items, wrong data, limits of the plan.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::time::Duration;

use tokio::time::{advance, sleep};

use super::journal::{Ended, Journal};
use super::runner::{Failure, Machine, carry_out, finding};
use crate::bootstrap;
use crate::bootstrap::plan::{Check, Item, Kind, Plan, When};
use crate::vm::{FailureCode, GuestReport};

/// A machine with scripted behaviour.
#[derive(Default)]
struct Puppet {
    journal: Journal,
    /// The duration of an act.
    takes: Duration,
    /// The items and files that exist.
    there: BTreeSet<String>,
    /// The results of the next acts; later acts succeed.
    acts: VecDeque<Result<(), Failure>>,
    said: String,
}

impl Machine for Puppet {
    fn journal(&mut self) -> &mut Journal {
        &mut self.journal
    }

    async fn is_true(&mut self, item: &Item) -> Result<bool, String> {
        Ok(self.there.contains(&item.id))
    }

    async fn act(&mut self, item: &Item) -> Result<(), Failure> {
        sleep(self.takes).await;
        match self.acts.pop_front() {
            Some(told) => told,
            None => {
                self.there.insert(item.id.clone());
                Ok(())
            }
        }
    }

    async fn undo(&mut self, item: &Item, _argv: &[String]) {
        self.said += &format!("undo {}\n", item.id);
    }

    async fn holds(&mut self, check: &Check) -> Result<bool, String> {
        match check {
            Check::File(path) => Ok(self.there.contains(path)),
            other => Err(format!("{other:?} cannot be seen")),
        }
    }

    async fn value(&mut self, _key: &str, _name: &str) -> Option<String> {
        Some("0".into())
    }

    async fn say(&mut self, line: String) {
        self.said += &line;
    }

    async fn keep(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Puppet {
    /// The console output since the last call, without the numbers and checksums of the lines.
    fn heard(&mut self) -> Vec<String> {
        let said = std::mem::take(&mut self.said);
        let line = |line: &str| match GuestReport::parse(line) {
            Some(report) => format!("{} {} {} {}", report.item, report.state, report.code, report.message),
            None => line.to_owned(),
        };
        said.lines().map(line).collect()
    }
}

fn item(id: &str) -> Item {
    let kind = Kind::Environment { name: id.into(), value: String::new() };
    Item { id: id.into(), kind, code: FailureCode::UserStep, seconds: 5, attempts: 2, unless: None, optional: false, why: Default::default() }
}

fn command(id: &str) -> Item {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect();
    let kind = Kind::Command {
        argv: words("a.exe"),
        raw: None,
        directory: String::new(),
        check: None,
        exit_codes: Default::default(),
        undo: words("a.exe --undo"),
    };
    Item { kind, ..item(id) }
}

fn plan(items: Vec<Item>) -> Plan {
    let mut plan = Plan { items, ..bootstrap::sample_plan() };
    (plan.limits.reboots, plan.limits.minutes) = (1, 45);
    plan
}

fn fails(message: &str, last: bool) -> Result<(), Failure> {
    Err(Failure { message: message.into(), last })
}

async fn heard(mut puppet: Puppet, items: Vec<Item>) -> Vec<String> {
    assert_eq!(carry_out(&mut puppet, &plan(items)).await.unwrap(), Ended::ForGood);
    puppet.heard()
}

#[tokio::test(start_paused = true)]
async fn what_does_not_come_true() {
    let fix = Puppet { acts: [fails("no", false)].into(), ..Puppet::default() };
    assert_eq!(
        heard(fix, vec![command("a")]).await,
        [
            "a started 0 attempt 1 of 2",
            "a retry 18 no",
            "a started 0 attempt 2 of 2",
            "undo a",
            "a done 0 attempt 2",
            "plan finished 0 1 items are true",
        ]
    );
    let in_vain = Puppet { acts: [Ok(()), Ok(())].into(), ..Puppet::default() };
    assert_eq!(
        heard(in_vain, vec![item("a"), item("b")]).await[1..],
        [
            "a retry 18 it is still not true after it was done",
            "a started 0 attempt 2 of 2",
            "a failed 18 it is still not true after it was done",
            "plan failed 18 a: it is still not true after it was done",
        ]
    );
    let wrong = Puppet { acts: [fails("another digest", true)].into(), ..Puppet::default() };
    assert_eq!(
        heard(wrong, vec![item("a")]).await,
        ["a started 0 attempt 1 of 2", "a failed 18 another digest", "plan failed 18 a: another digest"],
        "data that are wrong stay wrong"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_optional_or_not_needed() {
    let broken = Puppet { acts: [fails("no", true)].into(), ..Puppet::default() };
    let optional = Item { optional: true, ..item("a") };
    assert_eq!(
        heard(broken, vec![optional, item("b")]).await,
        ["a started 0 attempt 1 of 2", "a warned 18 no", "b started 0 attempt 1 of 2", "b done 0 attempt 1", "plan finished 0 2 items are true"]
    );
    let unless = |check| vec![Item { unless: Some(check), ..item("a") }];
    let puppet = || Puppet { there: ["x".to_owned()].into(), ..Puppet::default() };
    assert_eq!(heard(puppet(), unless(Check::File("x".into()))).await, ["plan finished 0 1 items are true"]);
    assert_eq!(heard(puppet(), unless(Check::Port(1))).await[0], "a failed 18 Port(1) cannot be seen");
}

#[tokio::test(start_paused = true)]
async fn a_second_run_says_only_what_is_new() {
    let (mut puppet, plan) = (Puppet { there: ["a".to_owned()].into(), ..Puppet::default() }, plan(vec![item("a"), item("b")]));
    carry_out(&mut puppet, &plan).await.unwrap();
    assert_eq!(puppet.heard()[..2], ["a done 0 was true already", "b started 0 attempt 1 of 2"]);
    carry_out(&mut puppet, &plan).await.unwrap();
    assert!(puppet.heard().is_empty(), "the plan is finished");
    puppet.journal.end = None;
    carry_out(&mut puppet, &plan).await.unwrap();
    assert_eq!(puppet.heard(), ["plan finished 0 2 items are true"]);
    puppet.there.remove("b");
    puppet.journal.end = None;
    carry_out(&mut puppet, &plan).await.unwrap();
    assert_eq!(puppet.heard()[..2], ["b started 0 attempt 1 of 2", "b done 0 attempt 1"]);
}

#[tokio::test(start_paused = true)]
async fn restarts_and_minutes_are_limited() {
    let restart = || vec![Item { kind: Kind::Reboot { when: When::Pending }, ..item("settle") }];
    let mut puppet = Puppet::default();
    assert_eq!(carry_out(&mut puppet, &plan(restart())).await.unwrap(), Ended::ForRestart);
    assert_eq!(puppet.heard(), ["settle reboot 0 restart 1 of 1"]);
    // Another runner of the same start neither counts nor reports the restart again.
    assert_eq!(carry_out(&mut puppet, &plan(restart())).await.unwrap(), Ended::ForRestart);
    assert_eq!((puppet.heard().len(), puppet.journal.reboots), (0, 1));
    puppet.journal.start();
    assert_eq!(
        heard(puppet, restart()).await,
        [
            "settle failed 18 expected at most 1 restarts, and one more is asked for",
            "plan failed 18 settle: expected at most 1 restarts, and one more is asked for",
        ]
    );
    let slow = Puppet { takes: minutes(47), ..Puppet::default() };
    let words = "the plan has 45 minutes, 47 have passed";
    assert_eq!(heard(slow, vec![item("a"), item("b")]).await[2..], [format!("b failed 18 {words}"), format!("plan failed 18 b: {words}")]);
}

fn minutes(number: u64) -> Duration {
    Duration::from_secs(60 * number)
}

/// The plan's time must not run out at the item that corrects a wrong clock, and a machine that was off must not have used it up.
#[tokio::test(start_paused = true)]
async fn the_time_of_a_plan_is_that_of_its_runners() {
    let (settle, restart) = (item("settle"), plan(vec![item("a"), Item { kind: Kind::Reboot { when: When::Pending }, ..item("settle") }, item("b")]));
    let mut puppet = Puppet { takes: minutes(20), ..Puppet::default() };
    assert_eq!(carry_out(&mut puppet, &restart).await.unwrap(), Ended::ForRestart);
    advance(minutes(8 * 60)).await;
    puppet.journal = serde_json::from_value(serde_json::to_value(&puppet.journal).unwrap()).unwrap();
    puppet.journal.start();
    puppet.there.insert(settle.id);
    assert_eq!(carry_out(&mut puppet, &restart).await.unwrap(), Ended::ForGood);
    assert_eq!(puppet.heard().last().unwrap(), "plan finished 0 3 items are true");
    // The time of earlier runners counts.
    puppet.journal = serde_json::from_value(serde_json::to_value(&puppet.journal).unwrap()).unwrap();
    (puppet.journal.end, puppet.takes) = (None, minutes(6));
    let more = plan(vec![item("c"), item("d")]);
    carry_out(&mut puppet, &more).await.unwrap();
    assert_eq!(puppet.heard().last().unwrap(), "plan failed 18 d: the plan has 45 minutes, 46 have passed");
}

#[tokio::test(start_paused = true)]
async fn a_second_runner_of_a_start_tells_nothing() {
    let failing = || Puppet { acts: [fails("no", true)].into(), ..Puppet::default() };
    for (mut puppet, last) in [(failing(), "plan failed 18 a: no"), (Puppet::default(), "plan finished 0 1 items are true")] {
        carry_out(&mut puppet, &plan(vec![item("a")])).await.unwrap();
        assert_eq!(puppet.heard().last().unwrap(), last);
        assert_eq!(carry_out(&mut puppet, &plan(vec![item("a")])).await.unwrap(), Ended::ForGood);
        assert!(puppet.heard().is_empty(), "{last}");
    }
    // A failed plan is checked again at the next start of Windows.
    let mut puppet = failing();
    carry_out(&mut puppet, &plan(vec![item("a")])).await.unwrap();
    puppet.journal.start();
    puppet.heard();
    carry_out(&mut puppet, &plan(vec![item("a")])).await.unwrap();
    assert_eq!(puppet.heard().last().unwrap(), "plan finished 0 1 items are true");
}

#[tokio::test(start_paused = true)]
async fn what_a_killed_runner_has_begun_is_undone_first() {
    let mut puppet = Puppet::default();
    puppet.journal.begin_item("a");
    assert_eq!(heard(puppet, vec![command("a")]).await[..3], ["a started 0 attempt 1 of 2", "undo a", "a done 0 attempt 1"]);
    // The item was true at the kill: this counts as a change, for the services that must be restarted after it.
    let mut puppet = Puppet { there: ["a".to_owned()].into(), ..Puppet::default() };
    puppet.journal.begin_item("a");
    let before = puppet.journal.next_moment();
    carry_out(&mut puppet, &plan(vec![item("a")])).await.unwrap();
    assert!(puppet.journal.acted("a") > before);
}

#[tokio::test(start_paused = true)]
async fn once_secrets_are_being_removed_only_that_is_left_to_do() {
    let last = || Item { kind: Kind::Absent { paths: vec![], tasks: vec![] }, ..item("no-secrets") };
    let mut puppet = Puppet { acts: [Ok(()), fails("held", true)].into(), there: ["a".to_owned()].into(), ..Puppet::default() };
    carry_out(&mut puppet, &plan(vec![item("a"), last()])).await.unwrap();
    puppet.journal.start();
    puppet.there.remove("a");
    puppet.heard();
    puppet.acts.clear();
    carry_out(&mut puppet, &plan(vec![item("a"), last()])).await.unwrap();
    assert!(puppet.heard().iter().all(|line| !line.starts_with("a ")), "its secret is gone");
}

#[tokio::test(start_paused = true)]
async fn a_check_says_what_it_found() {
    let mut puppet = Puppet { there: ["x".to_owned()].into(), ..Puppet::default() };
    let (there, missing) = (Check::File("x".into()), Check::File("y".into()));
    for (check, words) in [
        (missing.clone(), "expected file y, found none"),
        (Check::All(vec![there, missing]), "expected file y, found none"),
        (Check::Registry { key: "k".into(), name: "n".into(), equals: "1".into() }, "expected n 1, found '0'"),
        (Check::Succeeds(vec!["a.exe".into(), "b".into()]), "expected that a.exe b succeeds, and it does not"),
        (Check::Port(80), "expected port 80, found none"),
        (Check::Not(Box::new(Check::Port(80))), "expected something else"),
    ] {
        assert_eq!(finding(&mut puppet, &check).await, words);
    }
}
