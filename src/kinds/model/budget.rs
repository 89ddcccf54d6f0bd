//! The cost of a life. An additional request or driver call of a pass exceeds the budget, and each change of the budget is reviewed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::life::in_paused_time;
use super::mutations::POST_MACHINE;
use super::plan::Plan;
use super::world::{Cost, World};
use crate::request_info::RequestInfo;

/// Cluster, verb and resource of a request, without the name of the object.
fn kind(request: &str) -> String {
    let [method, path, cluster] = request.split(' ').collect::<Vec<_>>()[..] else { panic!("{request}") };
    let method = method.parse().unwrap();
    let Some(info) = RequestInfo::parse(&method, path, "") else { return format!("{cluster:10} get    {path}") };
    let separator = if info.subresource.is_some() { "/" } else { "" };
    format!("{cluster:10} {:6} {}{separator}{}", info.verb, info.resource, info.subresource.unwrap_or_default())
}

/// The count of each kind, below the total count.
fn table(what: &str, all: impl Iterator<Item = String>) -> String {
    let mut counts = BTreeMap::<String, usize>::new();
    for one in all {
        *counts.entry(one).or_default() += 1;
    }
    let total: usize = counts.values().sum();
    let rows = counts.iter().map(|(one, count)| format!("{count:4}  {one}\n"));
    format!("{total} {what}\n{}", rows.collect::<String>())
}

fn tables(cost: &Cost) -> String {
    let requests = table("requests", cost.requests.iter().map(|request| kind(request)));
    let calls = table("calls of the driver", cost.calls.iter().map(|call| (*call).to_owned()));
    format!("{requests}\n{calls}")
}

/// Triggers that coincide are one pass: a life may stay this far below the budget.
const SLACK: usize = 2;
/// One pass less saves several requests. Which triggers coincide depends on threads, so a budget covers this many lives: each life is within
/// the budget, and the most expensive one is near it.
const LIVES: usize = 3;

/// The count of each row.
fn rows(table: &str) -> BTreeMap<&str, usize> {
    table.lines().filter_map(|line| line.trim_start().split_once(' ')).map(|(count, what)| (what.trim_start(), count.parse().unwrap())).collect()
}

/// The highest count of each row in these tables.
fn most<'a>(tables: &[&'a str]) -> BTreeMap<&'a str, usize> {
    let mut most = BTreeMap::new();
    for (what, count) in tables.iter().flat_map(|table| rows(table)) {
        let before = most.entry(what).or_insert(count);
        *before = count.max(*before);
    }
    most
}

/// The differences between tables and their budget.
fn differences(found: &[&str], budget: &str) -> Vec<String> {
    let (found, budget) = (most(found), rows(budget));
    let over = found.iter().filter_map(|(what, count)| {
        let most = budget.get(what).copied().unwrap_or_default();
        (*count > most).then(|| format!("{count} {what}: the budget has {most}"))
    });
    let under = budget.iter().filter_map(|(what, most)| {
        let count = found.get(what).copied().unwrap_or_default();
        (count + SLACK < *most).then(|| format!("{count} {what}: lower the budget of {most}"))
    });
    over.chain(under).collect()
}

/// Compares lives with a budget. `live` runs one life and returns its cost as a table.
fn assert_within(name: &str, budget: &str, live: impl Fn() -> String) {
    let found: Vec<String> = (0..LIVES).map(|_| live()).collect();
    let differences = differences(&found.iter().map(String::as_str).collect::<Vec<_>>(), budget);
    let all = found.join("\n");
    assert!(differences.is_empty(), "{}\n\nWas that wanted? Then {name} should have the most of these:\n\n{all}", differences.join("\n"));
}

#[test]
fn a_life_takes_no_more_requests_than_its_budget_says() {
    assert_within("budgets/life.txt", include_str!("budgets/life.txt"), || {
        let cost = in_paused_time(async { World::new(&Plan::default()).live().await });
        assert_eq!(cost.without_effect, Vec::<String>::new(), "these wrote what was there already");
        let machines = cost.requests.iter().filter(|request| request.starts_with(POST_MACHINE)).count();
        format!("{machines} machines\n\n{}", tables(&cost))
    });
}

#[test]
fn machines_that_run_for_ten_minutes_are_never_written() {
    assert_within("budgets/rest.txt", include_str!("budgets/rest.txt"), || {
        let cost = in_paused_time(async { World::new(&Plan::default()).rest(Duration::from_secs(600)).await });
        let writes: Vec<&String> = cost.requests.iter().filter(|request| !request.starts_with("GET ")).collect();
        assert_eq!(writes, Vec::<&String>::new());
        format!("2 machines for 10 minutes\n\n{}", tables(&cost))
    });
}

#[test]
fn a_budget_is_kept_if_nothing_is_over_it_or_far_below() {
    let budget = "9 requests\n   4  workload   get    nodes\n   5  workload   list   pods\n";
    for (found, said) in [
        (budget, vec![]),
        ("8 requests\n   3  workload   get    nodes\n   5  workload   list   pods\n", vec![]),
        (
            "10 requests\n   5  workload   get    nodes\n   5  workload   list   pods\n",
            vec!["10 requests: the budget has 9", "5 workload   get    nodes: the budget has 4"],
        ),
        ("7 requests\n   4  workload   get    nodes\n   2  workload   list   pods\n", vec!["2 workload   list   pods: lower the budget of 5"]),
        (
            "9 requests\n   4  workload   get    nodes\n   4  workload   list   pods\n   1  workload   get    pods\n",
            vec!["1 workload   get    pods: the budget has 0"],
        ),
    ] {
        assert_eq!(differences(&[found], budget), said, "{found}");
    }
    let (less, more) = ("6 requests\n   1  workload   get    nodes\n   5  workload   list   pods\n", "10 requests\n   5  workload   get    nodes\n");
    assert_eq!(differences(&[less, budget], budget), Vec::<String>::new(), "one of the lives was near it");
    assert_eq!(differences(&[less], budget).len(), 2, "none was");
    assert_eq!(differences(&[budget, more], budget).len(), 2, "one was over it");
}
