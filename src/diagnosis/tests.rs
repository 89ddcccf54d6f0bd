//! Tests the rules against lines that real machines wrote, and against logs of healthy machines.

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;

use crate::diagnosis::*;

fn all_rules() -> &'static [Rule] {
    &rules().unwrap().rules
}

/// Returns a fixture as symptoms, as many as its rule requires.
fn symptoms(rule: &Rule, fixture: &rules::Fixture) -> Vec<Symptom> {
    let count = rule.patterns.iter().map(|pattern| pattern.at_least).max().unwrap_or(1);
    vec![Symptom::new(fixture.source, "fixture:1", &fixture.line); count]
}

#[test]
fn there_is_a_rule_for_each_of_the_64_failure_modes() {
    let wanted: BTreeSet<String> = (1..=10).chain(20..=30).chain(40..=53).chain(60..=73).chain(80..=94).map(|n| format!("F{n:02}")).collect();
    assert_eq!(wanted.len(), 64);
    let known: BTreeSet<String> = all_rules().iter().map(|rule| rule.id.clone()).collect();
    assert_eq!(known, wanted);
    assert_eq!(all_rules().len(), 64, "an id is used twice");
}

#[test]
fn every_rule_has_a_recorded_line_that_yields_it_first() {
    for rule in all_rules() {
        assert!(!rule.fixture.is_empty(), "{}: no fixture", rule.id);
        for fixture in &rule.fixture {
            let found = diagnose(&symptoms(rule, fixture));
            let ids: Vec<_> = found.iter().map(|finding| finding.id.as_str()).collect();
            assert_eq!(ids.first(), Some(&rule.id.as_str()), "{}: {}\n{ids:?}", rule.id, fixture.line);
            let surest = found.iter().filter(|finding| finding.certainty == rule.certainty).count();
            assert_eq!(surest, 1, "other rules are as sure as {}: {ids:?}\n{}", rule.id, fixture.line);
            assert!(!fixture.from.is_empty(), "{}: where was it recorded?", rule.id);
        }
    }
}

#[test]
fn every_pattern_matches_a_fixture() {
    for (at, rule) in all_rules().iter().enumerate() {
        let matching: Vec<_> = rule.fixture.iter().flat_map(|f| rules().unwrap().matching(&Symptom::new(f.source, "x", &f.line))).collect();
        for (pattern, rules::Pattern { regex, .. }) in rule.patterns.iter().enumerate() {
            assert!(matching.contains(&(at, pattern)), "{}: no recorded line matches {regex}", rule.id);
        }
    }
}

#[test]
fn texts_are_sentences_that_fit_a_condition_and_links_are_https() {
    for rule in all_rules() {
        assert!(!rule.cause.ends_with('.') && rule.remedy.ends_with('.'), "{}: the cause ends without a full stop, the remedy with one", rule.id);
        assert!(rule.title.len() < 100 && rule.cause.len() + rule.remedy.len() < 700, "{}: too long for a condition", rule.id);
        assert!(!rule.links.is_empty() && rule.links.iter().all(|link| link.starts_with("https://")), "{}", rule.id);
    }
}

/// Reads logs of healthy machines: `fixtures/<kind>.log`.
#[test]
fn a_healthy_machine_has_no_findings() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/diagnosis/fixtures");
    let mut files = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let kind = logs::kind_of(name).unwrap_or_else(|| panic!("{name}: unknown kind of log"));
        let text = std::fs::read_to_string(&path).unwrap();
        for kind in [kind, Source::Unknown] {
            let symptoms: Vec<Symptom> = text.lines().enumerate().filter_map(|(n, line)| logs::symptom(kind, name, n + 1, line)).collect();
            assert!(symptoms.len() > 10, "{name}: no log");
            let found = diagnose(&symptoms);
            assert!(found.is_empty(), "{name} as {kind:?}: {found:#?}");
        }
        files += 1;
    }
    assert!(files >= 6, "only {files} files");
}

#[test]
fn a_report_that_no_rule_matches_is_explained_by_its_code() {
    let found = diagnose(&[Symptom::step("host-name", "failed", Some(24), "it never came")]);
    assert_eq!((found[0].id.as_str(), found.len()), ("code 24", 1));
    assert!(found[0].sentence().contains("SetHostNamePlugin"), "{}", found[0].sentence());
    let found = diagnose(&[Symptom::step("x", "failed", Some(7), "what is this")]);
    assert!(found[0].remedy.contains("bootstrap.log"));
    assert!(diagnose(&[Symptom::step("x", "done", None, "")]).is_empty());
    let known = Symptom::step("join", "failed", Some(71), "could not find a JWS signature in the cluster-info ConfigMap for token ID \"abcdef\"");
    assert_eq!(diagnose(&[known]).iter().map(|f| f.id.as_str()).collect::<Vec<_>>(), ["F45"]);
}

#[test]
fn the_kind_of_a_log_follows_from_its_name() {
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
fn a_report_line_is_recognized_in_any_file_unless_damaged() {
    let report = crate::vm::GuestReport { sequence: 9, boot: 1, item: "join".into(), state: "failed".into(), code: 71, message: "no answer".into() };
    let line = format!("2026-11-21T15:14:01.1220590Z {}\r", report.line());
    let symptom = logs::symptom(Source::Bootstrap, "bootstrap.log", 3, &line).unwrap();
    assert_eq!((symptom.code, symptom.source, symptom.at.as_str()), (Some(71), Source::Report, "bootstrap.log:3"));
    let damaged = logs::symptom(Source::Bootstrap, "bootstrap.log", 3, &line.replace("answer", "reply")).unwrap();
    assert_eq!((damaged.code, damaged.source), (None, Source::Bootstrap));
    assert_eq!(logs::symptom(Source::Kubelet, "x", 1, "  \r"), None);
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
    fn any_text_is_diagnosed_without_panic_and_within_bounds(lines in prop::collection::vec((source(), ".{0,2000}"), 0..20)) {
        let symptoms: Vec<Symptom> = lines.iter().filter_map(|(kind, line)| logs::symptom(*kind, "f", 1, line)).collect();
        for finding in diagnose(&symptoms) {
            prop_assert!(finding.evidence.len() <= 3 && finding.evidence.iter().all(|e| e.text.chars().count() <= 400));
            prop_assert!(finding.seen <= lines.len());
        }
    }
}
