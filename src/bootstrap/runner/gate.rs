//! The gate for PowerShell: every script is parsed with the grammar of tree-sitter, and what it calls is held against the commands
//! and parameters of Windows PowerShell 5.1. Not proof that Windows accepts it; proof that a slip of a name or brace is found.

use std::collections::{BTreeMap, BTreeSet};

use tree_sitter::{Node, Parser, Tree};

use super::SCRIPTS;
use crate::bootstrap::delivery::unattend::{FIRST_BOOT, FIRST_BOOT_NAME};

const LOADER: &str = include_str!("loader.ps1");
/// Extract of PSScriptAnalyzer's list: the commands that the scripts use, with their parameters.
const COMMANDS: &str = include_str!("commands-5.1.json");
/// Common parameters of every cmdlet that we use.
const COMMON: [&str; 1] = ["ErrorAction"];
/// Commands of Pester, which the tests beside the scripts use.
const PESTER: [&str; 7] = ["Describe", "Context", "It", "Mock", "Should", "BeforeAll", "BeforeEach"];
/// Operators and statements that Windows PowerShell 5.1 does not know.
const NEWER: [&str; 8] = ["&&", "||", "??", "??=", "?.", "?[", "?", "clean"];

pub(super) fn scripts() -> Vec<(&'static str, &'static str)> {
    SCRIPTS.into_iter().chain([("loader.ps1", LOADER), (FIRST_BOOT_NAME, FIRST_BOOT)]).collect()
}

fn parse(text: &str) -> Tree {
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_powershell::LANGUAGE.into()).unwrap();
    parser.parse(text, None).unwrap()
}

/// All nodes, parents before children.
fn nodes<'t>(tree: &'t Tree) -> Vec<Node<'t>> {
    let mut found = vec![tree.root_node()];
    let mut at = 0;
    while at < found.len() {
        let node = found[at];
        found.extend((0..node.child_count()).filter_map(|index| node.child(index)));
        at += 1;
    }
    found
}

fn children<'t>(node: Node<'t>, kind: &str) -> Vec<Node<'t>> {
    (0..node.child_count()).filter_map(|index| node.child(index)).filter(|child| child.kind() == kind).collect()
}

/// What is wrong with the form of a script, with line and column.
fn faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if !text.is_ascii() {
        faults.push("not ASCII: Windows PowerShell reads other characters as ANSI".to_owned());
    }
    if text.contains("{{") {
        faults.push("a template that was not filled in".to_owned());
    }
    let tree = parse(text);
    for node in nodes(&tree) {
        let place = node.start_position();
        let mut fault = |what: &str| {
            let shown: String = text[node.byte_range()].chars().take(60).collect();
            faults.push(format!("{}:{}: {what}: {shown:?}", place.row + 1, place.column + 1));
        };
        let word = &text[node.byte_range()];
        match node.kind() {
            _ if node.is_error() => fault("not PowerShell"),
            _ if node.is_missing() => fault("something is missing here"),
            "try_statement" if children(node, "catch_clauses").is_empty() && children(node, "finally_clause").is_empty() => {
                fault("try without catch and finally");
            }
            "catch_clause" if word.trim_end().ends_with("{}") || word.trim_end().ends_with("{ }") => fault("an error is swallowed"),
            "variable" if word.ends_with('?') => fault("not in 5.1"),
            // Without the dollar it is a command of that name.
            "command_name" if ["using", "clean", "workflow", "configuration"].contains(&word.to_lowercase().as_str()) => fault("not in 5.1"),
            _ if node.child_count() == 0 && (NEWER.contains(&word) || word.eq_ignore_ascii_case("-parallel")) => fault("not in 5.1"),
            _ => {}
        }
    }
    faults
}

/// A command with the names of the parameters that are given to it, those of a hash table that is splatted included.
#[derive(Debug, PartialEq)]
struct Call {
    command: String,
    parameters: Vec<String>,
}

fn calls(text: &str) -> Vec<Call> {
    let tree = parse(text);
    let all = nodes(&tree);
    let word = |node: &Node<'_>| text[node.byte_range()].to_owned();
    // Keys of hash tables by the name of the variable that they are assigned to.
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for node in all.iter().filter(|node| node.kind() == "assignment_expression") {
        let (Some(left), Some(right)) = (node.child(0), node.child_by_field_name("value")) else { continue };
        if let Some(rest) = word(&right).strip_prefix("@{") {
            let own = right.byte_range();
            let entries = all.iter().filter(|entry| entry.kind() == "hash_entry" && own.contains(&entry.start_byte()));
            let outer = entries.filter(|entry| text[own.start + 2..entry.start_byte()].matches("@{").count() == 0 && !rest.is_empty());
            tables.insert(word(&left), outer.filter_map(|entry| entry.child(0)).map(|key| word(&key)).collect());
        }
    }
    let mut calls = Vec::new();
    for node in all.iter().filter(|node| node.kind() == "command") {
        let Some(name) = children(*node, "command_name").first().copied() else { continue };
        let elements = children(*node, "command_elements");
        let mut parameters = Vec::new();
        for element in elements.iter().flat_map(|elements| (0..elements.child_count()).filter_map(|at| elements.child(at))) {
            let said = word(&element);
            if element.kind() == "command_parameter" {
                parameters.push(said.trim_start_matches('-').trim_end_matches(':').to_owned());
            } else if let Some(table) = said.strip_prefix('@').and_then(|name| tables.get(&format!("${name}"))) {
                parameters.extend(table.iter().cloned());
            }
        }
        calls.push(Call { command: word(&name), parameters });
    }
    calls
}

pub(super) fn defined() -> BTreeSet<String> {
    let functions = |text: &str| {
        let tree = parse(text);
        let names = nodes(&tree).into_iter().filter(|node| node.kind() == "function_name").map(|node| text[node.byte_range()].to_owned());
        names.collect::<Vec<_>>()
    };
    scripts().into_iter().flat_map(|(_, text)| functions(text)).collect()
}

fn known() -> BTreeMap<String, BTreeSet<String>> {
    let data: serde_json::Value = serde_json::from_str(COMMANDS).unwrap();
    serde_json::from_value(data["commands"].clone()).unwrap()
}

/// Calls of commands that 5.1 does not have, and of parameters that they do not have there.
fn strangers(text: &str, own: &BTreeSet<String>, known: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut strangers = Vec::new();
    for Call { command, parameters } in calls(text) {
        if own.contains(&command) {
            continue;
        }
        match known.get(&command) {
            None => {
                strangers.push(format!("{command} is neither in commands-5.1.json nor defined here; aliases and programs are not called by name"))
            }
            Some(allowed) => {
                let bad = parameters.iter().filter(|name| !allowed.contains(*name) && !COMMON.contains(&name.as_str()));
                strangers.extend(bad.map(|name| format!("{command} has no -{name}")));
            }
        }
    }
    strangers
}

/// The tests beside the scripts, for those who have PowerShell.
fn pester() -> Vec<(String, String)> {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bootstrap/runner");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".Tests.ps1") {
            found.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

#[test]
fn every_script_is_windows_powershell() {
    let known = known();
    let own = defined();
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for (name, text) in scripts() {
        wrong.extend(faults(text).into_iter().chain(strangers(text, &own, &known)).map(|fault| format!("{name}: {fault}")));
        seen.extend(calls(text).into_iter().map(|call| call.command).filter(|command| !own.contains(command)));
        assert!(!text.contains("Invoke-Expression") && !text.contains("-EncodedCommand"), "{name}: no text becomes a script");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(seen, known.into_keys().collect(), "commands-5.1.json lists what the scripts call, no more");
}

#[test]
fn the_tests_for_pester_are_windows_powershell() {
    let mut own = defined();
    own.extend(PESTER.map(str::to_owned));
    let tests = pester();
    assert!(!tests.is_empty(), "no *.Tests.ps1 beside the scripts");
    for (name, text) in tests {
        let wrong: Vec<String> = faults(&text).into_iter().chain(strangers(&text, &own, &known())).collect();
        assert!(wrong.is_empty(), "{name}: {}", wrong.join("\n"));
    }
}

/// What the pages tell builders of images to type. Its commands are not in our list, so only its form is judged.
#[test]
fn the_pages_for_builders_of_images_show_powershell() {
    let page = include_str!("../../../docs/windows-image.md");
    let (_, checklist) = page.split_once("\n## Checklist\n").unwrap();
    let rows = checklist.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| ") && !line.starts_with("| What"));
    let mut typed: Vec<&str> = rows.filter_map(|row| row.split(" | ").nth(1)?.strip_prefix('`')?.strip_suffix('`')).collect();
    assert!(typed.len() > 5, "the checklist is not where this test reads it");
    let way = include_str!("../../../docs/way-in-unattend.md");
    typed.extend(way.split("```powershell\n").skip(1).filter_map(|rest| rest.split("```").next()));
    for text in typed {
        assert_eq!(faults(text), [""; 0], "{text}");
    }
}

#[test]
fn the_gate_is_shut() {
    for bad in [
        "if ($a) { 1",
        "$a = 'abc\n",
        "$a = @'\nabc\n",
        "try { 1 }\n$x",
        "try { 1 } catch { }",
        "$a = $b ?? 1",
        "$a = $b ? 1 : 2",
        "$a?.b",
        "Get-Item a && Get-Item b",
        "Get-Item a || Get-Item b",
        "$a = {{ value }}",
        "using namespace System.Net\n",
        "function A { process { 1 } clean { 2 } }",
        "$a = '\u{e9}'",
        "$a | ForEach-Object -Parallel { 1 }",
        "ForEach-Object -Parallel { 1 }",
    ] {
        assert!(!faults(bad).is_empty(), "{bad}");
    }
    let known = known();
    for bad in ["gci C:\\k", "Get-Item -Paht x", "Get-Thing", "$p = @{ Paht = 'x'; Force = $true }\nGet-Item @p", "curl.exe x"] {
        assert!(!strangers(bad, &BTreeSet::new(), &known).is_empty(), "{bad}");
    }
    let good = "$p = @{ Path = 'x' }\n$null = New-Item @p -Force\nif (-not (Test-Path -LiteralPath 'Get-Text')) { 1 -eq 2 } # Get-Comment\n";
    assert!(faults(good).is_empty() && strangers(good, &BTreeSet::new(), &known).is_empty());
    let shown: Vec<String> = calls(good).iter().map(|call| format!("{} {}", call.command, call.parameters.join(" "))).collect();
    assert_eq!(shown, ["New-Item Path Force", "Test-Path LiteralPath"]);
}
