//! Tests that the page about pod networks matches the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{all_reasons, recording};
use crate::api::condition::Reason;
use crate::components::{judge, read, text};

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pod-network.md")).unwrap()
}

fn printed(name: &str) -> String {
    let side = read(&recording(name));
    text(&side, &judge(&side))
}

#[test]
fn the_page_about_pod_networks_has_every_reason() {
    let page = page();
    let table = page.split_once("<!-- findings -->").unwrap().1.split_once("<!-- end of findings -->").unwrap().0;
    let rows: Vec<&str> = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(rows, all_reasons().map(Reason::as_str).collect::<Vec<_>>(), "in the order of findings");
}

#[test]
fn the_page_about_pod_networks_shows_what_is_printed() {
    let page = page();
    let shown = page.split_once("```text\n").unwrap().1.split_once("```").unwrap().0;
    let printed = printed("flannel-manifest");
    assert!(shown == printed, "docs/pod-network.md: between ```text and ``` write:\n{printed}");
}

#[test]
fn what_is_printed_has_every_finding_and_each_patch_once() {
    for known in &super::KNOWN {
        let printed = printed(known.name);
        let lines: BTreeSet<&str> = printed.lines().collect();
        for reason in known.reasons {
            assert!(lines.iter().any(|line| line.starts_with(&format!("{reason}: "))), "{}: {printed}", known.name);
        }
        let commands: Vec<&str> = printed.lines().filter(|line| line.contains("kubectl patch ")).collect();
        assert_eq!(commands.len(), commands.iter().collect::<BTreeSet<_>>().len(), "{}: {printed}", known.name);
        assert_eq!(printed.contains("Nothing stands in the way"), known.reasons.is_empty(), "{}", known.name);
        assert!(printed.contains(&format!("On Windows nodes: {}. ", known.role)), "{}", known.name);
    }
}
