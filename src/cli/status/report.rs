//! The report of `capw status`: a tree of objects, and what it amounts to.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::Serialize;

use super::entry::{Entry, State};
use super::objects::Objects;
use super::tree;

/// The output.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// A summary in one sentence.
    pub verdict: String,
    /// The number of objects that hang. An object that belongs to several others counts once.
    pub hangs: usize,
    pub under_way: usize,
    /// Clusters, standalone pools, and objects that belong to neither.
    pub objects: Vec<Entry>,
    /// The kinds that could not be read, and why.
    pub not_looked_at: Vec<String>,
}

/// Reports all objects, or the Cluster or standalone pool of this name.
pub(super) fn report(objects: &Objects, name: Option<&str>, now: Timestamp) -> Result<Report, String> {
    let entries = tree::tree(objects, name, now);
    if let (Some(name), []) = (name, entries.as_slice()) {
        let unread: String = objects.not_looked_at.iter().map(|what| format!("; not looked at: {what}")).collect();
        return Err(format!(
            "there is no Cluster {name} with objects of CAPW, and no standalone WindowsNodePool {name} (another namespace? -n NAME){unread}"
        ));
    }
    let count = |state| {
        let mut found = BTreeSet::new();
        entries.iter().for_each(|entry| entry.in_state(state, &mut found));
        found.len()
    };
    let (hangs, under_way) = (count(State::Hangs), count(State::UnderWay));
    let verdict = verdict(hangs, under_way, entries.is_empty(), objects.not_looked_at.is_empty());
    Ok(Report { verdict, hangs, under_way, objects: entries, not_looked_at: objects.not_looked_at.clone() })
}

fn verdict(hangs: usize, under_way: usize, is_empty: bool, is_complete: bool) -> String {
    let count = |count, one: &str, more: &str| if count == 1 { format!("1 object {one}") } else { format!("{count} objects {more}") };
    let is_on_its_way = count(under_way, "is under way", "are under way");
    let verdict = match (hangs, under_way) {
        (0, 0) if is_empty => "There is nothing of CAPW here".to_owned(),
        (0, 0) => "All is well".to_owned(),
        (0, _) => format!("Nothing hangs, {is_on_its_way}"),
        (_, 0) => count(hangs, "hangs", "hang"),
        _ => format!("{}, {is_on_its_way}", count(hangs, "hangs", "hang")),
    };
    let rest = match (is_complete, is_empty) {
        (false, _) => ", as far as it could be looked at",
        (true, true) => " (another namespace? -n NAME, or -A for all)",
        (true, false) => "",
    };
    format!("{verdict}{rest}.")
}
