//! What a life costs. A request or a call of the driver that a pass makes in addition shows as a change of a snapshot, and is reviewed there.

use std::collections::BTreeMap;
use std::time::Duration;

use super::api::read;
use super::in_paused_time;
use super::mutations::POST_MACHINE;
use super::plan::Plan;
use super::world::{Cost, World};

/// Cluster, verb and resource of a request, without the name of the object.
fn kind(request: &str) -> String {
    let [method, path, cluster] = request.split(' ').collect::<Vec<_>>()[..] else { panic!("{request}") };
    if path == "/version" {
        return format!("{cluster:10} get    {path}");
    }
    let (resource, _, name, subresource) = read(path);
    let is_discovery = resource.starts_with("apis/") && resource.split('/').count() == 3;
    let verb = match method {
        "GET" if name.is_empty() && !is_discovery => "list",
        "GET" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => panic!("{request}"),
    };
    let resource = if is_discovery { path } else { resource.rsplit('/').next().unwrap() };
    let separator = if subresource.is_empty() { "" } else { "/" };
    format!("{cluster:10} {verb:6} {resource}{separator}{subresource}")
}

/// How many there are of each, below how many there are of all.
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

#[test]
fn a_life_takes_no_more_requests_than_its_budget_says() {
    let cost = in_paused_time(async { World::new(&Plan::default()).live().await });
    assert_eq!(cost.without_effect, Vec::<String>::new(), "these wrote what was there already");
    let machines = cost.requests.iter().filter(|request| request.starts_with(POST_MACHINE)).count();
    insta::assert_snapshot!(format!("{machines} machines\n\n{}", tables(&cost)));
}

#[test]
fn machines_that_run_for_ten_minutes_are_never_written() {
    let cost = in_paused_time(async { World::new(&Plan::default()).rest(Duration::from_secs(600)).await });
    let writes: Vec<&String> = cost.requests.iter().filter(|request| !request.starts_with("GET ")).collect();
    assert_eq!(writes, Vec::<&String>::new());
    insta::assert_snapshot!(format!("2 machines for 10 minutes\n\n{}", tables(&cost)));
}
