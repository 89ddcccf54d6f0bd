//! Checks the texts around the scripts: user data, the commands that start the scripts, documentation pages, and tests.

use std::collections::{BTreeMap, BTreeSet};

use super::calls::{calls, strangers};
use super::slips::show;
use super::sources::scripts;
use super::world::{Parameter, Source, World, parameters, world};
use super::{form, variables};
use crate::api::bootstrap_config::Channel;
use crate::bootstrap::plan::Kind;
use crate::bootstrap::{facts::BootstrapFacts, render, sample};

/// The commands of Pester, and the commands that only the tests beside the scripts use.
const PESTER: [&str; 10] = ["Describe", "Context", "It", "Mock", "Should", "BeforeAll", "BeforeEach", "AfterAll", "AfterEach", "Trace-Command"];
/// Commands that only pages show.
pub(super) const ON_PAGES: [&str; 1] = ["Get-Volume"];

/// Returns the Pester tests beside the scripts and their helper scripts. Only people with PowerShell run them.
fn pester() -> Vec<(String, String)> {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bootstrap/runner");
    let shipped: BTreeSet<&str> = scripts().into_iter().map(|(name, _)| name).collect();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".ps1") && !shipped.contains(name.as_str()) {
            found.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

#[test]
fn the_tests_for_pester_are_windows_powershell() {
    let tests = pester();
    for (name, text) in &tests {
        assert_eq!(show(form::faults(text).into_iter().map(|fault| (name.clone(), fault))), "");
    }
    let own = tests.iter().map(|(name, text)| Source::new(name, text));
    let sources: Vec<Source> = scripts().into_iter().map(|(name, text)| Source::new(name, text)).chain(own).collect();
    let everywhere = World { sources: sources.iter().collect() };
    let roots: Vec<&Source> = sources.iter().filter(|source| source.name.ends_with(".Tests.ps1")).collect();
    assert!(!roots.is_empty(), "no *.Tests.ps1 beside the scripts");
    for root in roots {
        let world = world(root, &sources);
        let mut found = strangers(&world, &everywhere, &PESTER);
        found.extend(variables::never_set(&world));
        found.retain(|(source, _)| tests.iter().any(|(name, _)| name == source));
        assert_eq!(show(found), "");
    }
}

/// Checks the commands that pages tell people to type: the checklist for images, and blocks of PowerShell.
#[test]
fn pages_show_windows_powershell() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = std::fs::read_dir(directory.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages =
        pages.chain([directory.join("README.md"), directory.join("CONTRIBUTING.md")]).filter(|path| path.extension().is_some_and(|ext| ext == "md"));
    let mut typed: Vec<(String, String)> = Vec::new();
    for path in pages {
        let (page, name) = (std::fs::read_to_string(&path).unwrap(), path.file_name().unwrap().to_string_lossy().into_owned());
        let blocks = page.split("```powershell").skip(1).filter_map(|rest| rest.split_once('\n')?.1.split("```").next());
        typed.extend(blocks.map(|text| (name.clone(), text.to_owned())));
        let checklist = page.split("\n## Checklist\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap_or_default();
        let rows = checklist.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| What"));
        let commands = rows.filter_map(|row| row.split(" | ").nth(1)?.strip_prefix('`')?.strip_suffix('`'));
        typed.extend(commands.map(|text| (name.clone(), text.to_owned())));
    }
    assert!(typed.len() > 6, "the pages are not written as this test reads them");
    let mut called = BTreeSet::new();
    for (name, text) in typed {
        assert_eq!(show(form::faults(&text).into_iter().map(|fault| (name.clone(), fault))), "", "{text}");
        let source = Source::new(&name, &text);
        let world = World { sources: vec![&source] };
        assert_eq!(show(strangers(&world, &world, &["powershell.exe"])), "");
        called.extend(calls(&source.tree).into_iter().map(|call| call.name.to_owned()));
    }
    assert!(ON_PAGES.iter().all(|command| called.contains(*command)), "ON_PAGES names what no page shows");
}

/// Returns an ordinary machine and a machine with every setting, each for two channels.
fn machines() -> Vec<BootstrapFacts> {
    let mut found = Vec::new();
    for facts in [sample::facts(), sample::full()] {
        for channel in [Channel::ConfigDrive, Channel::Unattend] {
            let mut facts = facts.clone();
            facts.spec.channel = channel;
            found.push(facts);
        }
    }
    found
}

#[test]
fn user_data_is_windows_powershell() {
    for facts in machines() {
        let data = render(&facts).unwrap().user_data;
        let text = std::str::from_utf8(data.as_bytes()).unwrap();
        assert_eq!(show(form::faults(text).into_iter().map(|fault| ("user data".to_owned(), fault))), "");
    }
}

/// Plans and Windows Setup start programs in this form: `powershell.exe … -File SCRIPT -Parameter value`.
#[test]
fn scripts_are_started_with_parameters_that_they_have() {
    let signatures: BTreeMap<String, Vec<Parameter>> =
        scripts().into_iter().map(|(name, text)| (name.to_owned(), parameters(&Source::new(name, text).tree))).collect();
    let mut started = BTreeSet::new();
    for facts in machines() {
        let bootstrap = render(&facts).unwrap();
        let mut lines: Vec<Vec<String>> = Vec::new();
        for item in &bootstrap.plan.items {
            if let Kind::Task { argv, .. } | Kind::Command { argv, .. } = &item.kind {
                lines.push(argv.clone());
            }
        }
        if let Some(answer) = &bootstrap.answer {
            let answer = std::str::from_utf8(answer.as_bytes()).unwrap();
            let paths = answer.split("<Path>").skip(1).filter_map(|rest| rest.split("</Path>").next());
            lines.extend(paths.map(|line| line.split(' ').map(str::to_owned).collect()));
        }
        for line in lines.iter().filter(|line| line.iter().any(|word| word.ends_with("powershell.exe"))) {
            let file = line.iter().position(|word| word == "-File").expect("only files are run");
            let name = line[file + 1].rsplit(['\\', '/']).next().unwrap();
            let known = signatures.get(name).unwrap_or_else(|| panic!("{name} is not shipped"));
            for option in line[file + 2..].iter().filter_map(|word| word.strip_prefix('-')) {
                assert!(known.iter().any(|parameter| parameter.name.eq_ignore_ascii_case(option)), "{name} has no -{option}");
            }
            started.insert(name.to_owned());
        }
    }
    assert!(started.len() > 2, "{started:?}");
}
