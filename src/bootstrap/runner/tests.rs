//! What can be known of the scripts without Windows: form, size, the commands and parameters that 5.1 has.

use std::collections::{BTreeMap, BTreeSet};

use super::SCRIPTS;
use crate::bootstrap::plan::{Access, Check, Kind, Protocol, RegistryData, Start, When};

const LOADER: &str = include_str!("loader.ps1");
/// Extract of PSScriptAnalyzer's list: the commands that the scripts use, with their parameters.
const COMMANDS: &str = include_str!("commands-5.1.json");
const COMMON: [&str; 1] = ["ErrorAction"];
const OPERATORS: [&str; 24] = [
    "and",
    "or",
    "not",
    "eq",
    "ne",
    "ceq",
    "cne",
    "ieq",
    "gt",
    "ge",
    "lt",
    "le",
    "match",
    "notmatch",
    "replace",
    "creplace",
    "contains",
    "notcontains",
    "like",
    "split",
    "join",
    "is",
    "in",
    "f",
];

fn scripts() -> Vec<(&'static str, &'static str)> {
    SCRIPTS.into_iter().chain([("loader.ps1", LOADER)]).collect()
}

/// The script without comments and texts.
fn code(script: &str) -> String {
    let mut out = String::new();
    for line in script.lines() {
        let mut quote = None;
        let mut before = ' ';
        let mut chars = line.chars();
        while let Some(c) = chars.next() {
            match quote {
                Some(_) if c == '`' => {
                    chars.next();
                }
                Some(q) if c == q => quote = None,
                Some(_) => {}
                None if c == '"' || c == '\'' => quote = Some(c),
                None if c == '#' && before.is_whitespace() => break,
                None => out.push(c),
            }
            before = c;
        }
        out.push('\n');
    }
    out
}

/// Each command with the parameters that are written after it.
fn calls(script: &str) -> Vec<(String, Vec<String>)> {
    let text = code(script);
    let mut calls: Vec<(String, Vec<String>)> = Vec::new();
    let mut open: Vec<Option<usize>> = vec![None];
    let mut rest = text.as_str();
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        let word: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        let mut length = c.len_utf8();
        match c {
            '(' | '{' => open.push(None),
            ')' | '}' => {
                open.pop();
            }
            '|' | ';' | '\n' => *open.last_mut().unwrap() = None,
            '-' if before.is_whitespace() && word.len() > 1 => {
                if let (Some(call), false) = (*open.last().unwrap(), OPERATORS.contains(&word[1..].to_lowercase().as_str())) {
                    calls[call].1.push(word[1..].to_owned());
                }
                length = word.len();
            }
            _ if word.len() > 1 && !"$.[-:".contains(before) => {
                if word.contains('-') && word.starts_with(|c: char| c.is_ascii_uppercase()) {
                    *open.last_mut().unwrap() = Some(calls.len());
                    calls.push((word.clone(), Vec::new()));
                }
                length = word.len();
            }
            _ if !word.is_empty() => length = word.len(),
            _ => {}
        }
        before = rest[..length].chars().last().unwrap();
        rest = &rest[length..];
    }
    calls
}

fn defined() -> BTreeSet<String> {
    let functions = |text: &'static str| text.lines().filter_map(|line| line.strip_prefix("function "));
    scripts().into_iter().flat_map(|(_, text)| functions(text)).map(|rest| rest.split(['(', ' ']).next().unwrap().to_owned()).collect()
}

#[test]
fn scripts_are_small_and_plain_ascii() {
    for (name, text) in scripts() {
        assert!(text.is_ascii(), "{name}: Windows PowerShell reads other characters as ANSI");
        assert!(!text.contains(['\r', '\t']) && text.ends_with('\n'), "{name}");
        assert!(text.lines().all(|line| line.len() <= 200 && line == line.trim_end()), "{name}: long line or blanks at its end");
    }
    let lines: usize = scripts().iter().map(|(_, text)| text.lines().count()).sum();
    assert!(lines < 1500, "{lines} lines");
    assert!(LOADER.len() < 4096, "the loader has {} bytes", LOADER.len());
    assert!(LOADER.starts_with("#ps1_sysnative\n"));
    for text in [LOADER, SCRIPTS[0].1] {
        assert!(text.contains("Set-StrictMode -Version 2.0") && text.contains("$ErrorActionPreference = 'Stop'"));
    }
}

#[test]
fn nothing_in_the_runner_knows_kubernetes() {
    for (name, text) in scripts() {
        for word in ["kube", "containerd", "pod", "cluster"] {
            assert!(!text.to_lowercase().contains(word), "{name} mentions {word}");
        }
    }
}

#[test]
fn every_command_and_parameter_exists_in_windows_powershell() {
    let data: serde_json::Value = serde_json::from_str(COMMANDS).unwrap();
    let known: BTreeMap<String, BTreeSet<String>> = serde_json::from_value(data["commands"].clone()).unwrap();
    let defined = defined();
    let mut seen = BTreeSet::new();
    for (name, text) in scripts() {
        for (command, parameters) in calls(text) {
            if defined.contains(&command) {
                continue;
            }
            let allowed = known.get(&command).unwrap_or_else(|| panic!("{name}: {command} is neither in commands-5.1.json nor defined"));
            for parameter in &parameters {
                assert!(allowed.contains(parameter) || COMMON.contains(&parameter.as_str()), "{name}: {command} has no -{parameter}");
            }
            seen.insert(command);
        }
        assert!(!text.contains("Invoke-Expression") && !text.contains("-EncodedCommand"), "{name}: no text becomes a script");
    }
    assert_eq!(seen, known.into_keys().collect(), "commands-5.1.json lists what the scripts use, no more");
}

#[test]
fn the_reader_of_commands_sees_parameters_and_nesting() {
    let found =
        calls("$a = Get-Item -Path (New-Item -Force x) -Bad | Get-Foo # Get-Comment\nif (-not (Test-Path -LiteralPath 'Get-Text')) { 1 -eq 2 }\n");
    let shown: Vec<String> = found.iter().map(|(command, parameters)| format!("{command} {}", parameters.join(" "))).collect();
    assert_eq!(shown, ["Get-Item Path Bad", "New-Item Force", "Get-Foo ", "Test-Path LiteralPath"]);
}

/// One of each kind, so that a new one cannot be forgotten: the match below does not compile without it.
fn kinds() -> Vec<Kind> {
    let check = Check::File("f".into());
    let text = || "x".to_owned();
    let all = vec![
        Kind::Directory { paths: vec![], access: Access::Admins },
        Kind::File { path: text(), source: text(), sha256: text(), access: Access::Admins },
        Kind::Registry { key: text(), name: text(), data: RegistryData::Dword(1) },
        Kind::Environment { name: text(), value: text() },
        Kind::Feature { names: vec![] },
        Kind::Firewall { name: text(), protocol: Protocol::Tcp, port: 1 },
        Kind::Service { name: text(), command_line: text(), start: Start::Auto, depends_on: vec![], reset_seconds: 1, restart_delays: vec![] },
        Kind::Running { name: text(), after: vec![] },
        Kind::Task { name: text(), argv: vec![] },
        Kind::Command { argv: vec![], directory: text(), check: check.clone(), undo: vec![] },
        Kind::Wait { check },
        Kind::Reboot { when: When::Pending },
        Kind::Absent { paths: vec![], tasks: vec![] },
    ];
    for kind in &all {
        match kind {
            Kind::Directory { .. } | Kind::File { .. } | Kind::Registry { .. } | Kind::Environment { .. } | Kind::Feature { .. } => {}
            Kind::Firewall { .. } | Kind::Service { .. } | Kind::Running { .. } | Kind::Task { .. } | Kind::Command { .. } => {}
            Kind::Wait { .. } | Kind::Reboot { .. } | Kind::Absent { .. } => {}
        }
    }
    all
}

#[test]
fn the_runner_has_a_test_and_an_act_for_every_kind() {
    let defined: BTreeSet<String> = defined().into_iter().map(|name| name.to_lowercase()).collect();
    let mut names = Vec::new();
    for kind in kinds() {
        let value = serde_json::to_value(&kind).unwrap();
        let name = value["kind"].as_str().unwrap().to_owned();
        assert!(defined.contains(&format!("test-{name}item")), "{name} has no test");
        // The runner itself asks for restarts.
        assert!(name == "reboot" || defined.contains(&format!("set-{name}item")), "{name} has no act");
        // Every property of the item is read by name somewhere.
        for field in value.as_object().unwrap().keys().filter(|field| !["kind", "when"].contains(&field.as_str())) {
            let read = |text: &str| text.contains(&format!(".{field}")) || text.contains(&format!("'{field}'"));
            assert!(SCRIPTS.iter().any(|(_, text)| read(text)), "{name}.{field} is read by nothing");
        }
        names.push(format!("'{name}'"));
    }
    assert!(SCRIPTS[0].1.contains(&format!("$Kinds = @({})", names.join(", "))), "the list of kinds in run.ps1 is another one");
}

#[test]
fn the_runner_sums_its_reports_as_the_reader_does() {
    // The text that both sum, in the same order.
    let journal = SCRIPTS.iter().find(|(name, _)| *name == "journal.ps1").unwrap().1;
    assert!(journal.contains(r#"Get-Adler32 "$Sequence $Boot $Item $What $Code $clean""#));
    assert!(journal.contains(r#""capw1 $Sequence $Boot $Item $What $Code $sum $clean""#));
    assert!(journal.contains("% 65521") && journal.contains("'{0:x8}' -f ($b * 65536 + $a)"));
}
