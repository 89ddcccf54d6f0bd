//! The data is held against lines that real machines wrote, and against logs of machines that are well.

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;

use super::*;

fn rules() -> &'static [Rule] {
    &book().unwrap().rules
}

/// The signs of a fixture: as many as its rule wants to see.
fn signs(rule: &Rule, fixture: &book::Fixture) -> Vec<Sign> {
    let often = rule.seen.iter().map(|seen| seen.at_least).max().unwrap_or(1);
    vec![Sign::new(fixture.source, "fixture:1", &fixture.line); often]
}

#[test]
fn there_is_a_rule_for_each_of_the_49_failure_modes() {
    let wanted: BTreeSet<String> = (1..=10).chain(20..=30).chain(40..=53).chain(60..=73).map(|n| format!("F{n:02}")).collect();
    assert_eq!(wanted.len(), 49);
    let known: BTreeSet<String> = rules().iter().map(|rule| rule.id.clone()).collect();
    assert_eq!(known, wanted);
    assert_eq!(rules().len(), 49, "an id is used twice");
}

#[test]
fn every_rule_has_a_recorded_line_that_yields_it_first() {
    for rule in rules() {
        assert!(!rule.fixture.is_empty(), "{}: no fixture", rule.id);
        for fixture in &rule.fixture {
            let found = diagnose(&signs(rule, fixture));
            let ids: Vec<_> = found.iter().map(|finding| finding.id.as_str()).collect();
            assert_eq!(ids.first(), Some(&rule.id.as_str()), "{}: {}\n{ids:?}", rule.id, fixture.line);
            let surest = found.iter().filter(|finding| finding.certainty == rule.certainty).count();
            assert_eq!(surest, 1, "as sure as {} are others: {ids:?}\n{}", rule.id, fixture.line);
            assert!(!fixture.from.is_empty(), "{}: where was it recorded?", rule.id);
        }
    }
}

#[test]
fn every_pattern_is_reached_by_a_fixture() {
    for rule in rules() {
        for seen in &rule.seen {
            let pattern = seen.pattern.as_ref().unwrap();
            let reaches = |f: &book::Fixture| f.source.is_one_of(&seen.sources) && pattern.is_match(&Sign::new(f.source, "x", &f.line).text);
            assert!(rule.fixture.iter().any(reaches), "{}: no recorded line is like {}", rule.id, seen.like);
        }
    }
}

#[test]
fn the_words_are_whole_sentences_and_the_links_are_links() {
    for rule in rules() {
        assert!(!rule.cause.ends_with('.') && rule.remedy.ends_with('.'), "{}: the cause ends without a full stop, the remedy with one", rule.id);
        assert!(rule.title.len() < 100 && rule.cause.len() + rule.remedy.len() < 700, "{}: too long for a condition", rule.id);
        assert!(!rule.links.is_empty() && rule.links.iter().all(|link| link.starts_with("https://")), "{}", rule.id);
    }
}

/// Files of machines that are well: `fixtures/<kind>.log`.
#[test]
fn a_healthy_machine_has_no_findings() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/diagnosis/fixtures");
    let mut files = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let kind = logs::kind_of(name).unwrap_or_else(|| panic!("{name}: of what kind is it?"));
        let text = std::fs::read_to_string(&path).unwrap();
        for kind in [kind, Source::Unknown] {
            let signs: Vec<Sign> = text.lines().enumerate().filter_map(|(n, line)| logs::sign(kind, name, n + 1, line)).collect();
            assert!(signs.len() > 10, "{name}: no log");
            let found = diagnose(&signs);
            assert!(found.is_empty(), "{name} as {kind:?}: {found:#?}");
        }
        files += 1;
    }
    assert!(files >= 6, "only {files} files");
}

#[test]
fn what_no_rule_knows_is_found_by_its_code() {
    let found = diagnose(&[Sign::step("host-name", "failed", Some(24), "it never came")]);
    assert_eq!((found[0].id.as_str(), found.len()), ("code 24", 1));
    assert!(found[0].sentence().contains("SetHostNamePlugin"), "{}", found[0].sentence());
    let found = diagnose(&[Sign::step("x", "failed", Some(7), "what is this")]);
    assert!(found[0].remedy.contains("bootstrap.log"));
    assert!(diagnose(&[Sign::step("x", "done", None, "")]).is_empty());
    let known = Sign::step("join", "failed", Some(71), "could not find a JWS signature in the cluster-info ConfigMap for token ID \"abcdef\"");
    assert_eq!(diagnose(&[known]).iter().map(|f| f.id.as_str()).collect::<Vec<_>>(), ["F45"]);
}

#[test]
fn files_are_known_by_their_names() {
    for (name, kind) in [
        ("kubelet.log", Some(Source::Kubelet)),
        ("kubelet.err.log.1", Some(Source::Kubelet)),
        ("containerd.log", Some(Source::Containerd)),
        ("panic.log", Some(Source::Containerd)),
        ("cloudbase-init-unattend.log", Some(Source::CloudbaseInit)),
        ("bootstrap.log", Some(Source::Bootstrap)),
        ("report.log", Some(Source::Report)),
        ("kube-proxy.log", Some(Source::KubeProxy)),
        ("calico-node.log", Some(Source::Cni)),
        ("setupact.log", Some(Source::Windows)),
        ("System.csv", Some(Source::Windows)),
        ("join.log", None),
    ] {
        assert_eq!(logs::kind_of(name), kind, "{name}");
    }
}

#[test]
fn a_report_line_is_read_from_any_file_and_a_damaged_one_is_only_text() {
    let report = crate::vm::GuestReport { sequence: 9, boot: 1, item: "join".into(), state: "failed".into(), code: 71, message: "no answer".into() };
    let line = format!("2026-11-21T15:14:01.1220590Z {}\r", report.line());
    let sign = logs::sign(Source::Bootstrap, "bootstrap.log", 3, &line).unwrap();
    assert_eq!((sign.code, sign.source, sign.at.as_str()), (Some(71), Source::Report, "bootstrap.log:3"));
    let damaged = logs::sign(Source::Bootstrap, "bootstrap.log", 3, &line.replace("answer", "reply")).unwrap();
    assert_eq!((damaged.code, damaged.source), (None, Source::Bootstrap));
    assert_eq!(logs::sign(Source::Kubelet, "x", 1, "  \r"), None);
}

fn source() -> impl Strategy<Value = Source> {
    use Source::*;
    prop::sample::select(vec![
        Report,
        Bootstrap,
        CloudbaseInit,
        Containerd,
        Kubelet,
        Kubeadm,
        KubeProxy,
        Cni,
        Windows,
        Unknown,
        Event,
        Node,
        Pod,
        Request,
        Machine,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_text_is_judged_without_panic_and_within_bounds(lines in prop::collection::vec((source(), ".{0,2000}"), 0..20)) {
        let signs: Vec<Sign> = lines.iter().filter_map(|(kind, line)| logs::sign(*kind, "f", 1, line)).collect();
        for finding in diagnose(&signs) {
            prop_assert!(finding.evidence.len() <= 3 && finding.evidence.iter().all(|e| e.text.chars().count() <= 400));
            prop_assert!(finding.seen <= lines.len());
        }
    }
}
