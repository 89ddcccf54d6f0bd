//! PowerShell's own parser reads every script that we ship: the runner's files, those inside user data and the answer file, samples and pages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::payload::{self, ALL};
use super::{Scratch, machine::Machine, shell};
use crate::world::step;

/// Prints `file:line message` for each error in the files of a directory.
const PARSE: &str = include_str!("windows/parse.ps1");

fn files_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files_below(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Writes all scripts, one file each, into `directory`.
fn collect(directory: &Path) -> usize {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "docs", "config", "e2e"] {
        files_below(&checkout.join(folder), &mut files);
    }
    files.push(checkout.join("README.md"));
    let mut count = 0;
    let mut put = |name: String, text: &[u8]| {
        count += 1;
        fs::write(directory.join(format!("{name}.ps1")), text).expect("a file");
    };
    for file in files {
        let name = file.strip_prefix(checkout).expect("below the checkout").display().to_string().replace('/', "-");
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("ps1" | "psm1" | "psd1") => put(name, &fs::read(&file).expect("a file")),
            Some("md") => {
                let text = fs::read_to_string(&file).expect("a page");
                for (number, block) in text.split("```powershell\n").skip(1).enumerate() {
                    put(format!("{name}-{number}"), block.split("```").next().unwrap_or_default().as_bytes());
                }
            }
            _ => {}
        }
    }
    for kind in ALL {
        let bootstrap = payload::bootstrap(kind);
        put(format!("user-data-{}", kind.name.replace(' ', "-")), bootstrap.user_data.as_bytes());
        if let Some(answer) = bootstrap.answer {
            let text = String::from_utf8(answer.as_bytes().to_vec()).expect("UTF-8");
            let document = roxmltree::Document::parse(&text).expect("XML");
            let commands = document.descendants().filter(|node| ["Path", "CommandLine"].contains(&node.tag_name().name()));
            for (number, command) in commands.filter_map(|node| node.text()).enumerate() {
                let (_, script) = command.split_once("-Command ").unwrap_or(("", ""));
                put(format!("answer-{}-{number}", kind.name.replace(' ', "-")), script.trim().trim_matches('"').as_bytes());
            }
        }
    }
    count
}

#[test]
#[ignore = "needs a PowerShell 7, which CAPW_PWSH names: make test-powershell"]
fn powershell_parses_everything_that_we_ship() {
    let scratch = Scratch::new("parse");
    let (said, count) = if let Some(shell) = shell::host() {
        let directory = scratch.path().join("scripts");
        fs::create_dir_all(&directory).expect("a directory");
        let count = collect(&directory);
        let program = scratch.path().join("parse.ps1");
        fs::write(&program, PARSE).expect("a file");
        let output = Command::new(shell)
            .args(["-NoLogo", "-NoProfile", "-NonInteractive", "-File"])
            .arg(program)
            .arg(&directory)
            .stdin(Stdio::null())
            .output();
        (String::from_utf8_lossy(&output.expect("PowerShell").stdout).into_owned(), count)
    } else if let Some(lacks) = shell::lacks_windows() {
        return shell::skip("powershell_parses_everything_that_we_ship", &lacks);
    } else {
        let mut machine = Machine::new(scratch.path());
        let directory = machine.path(r"C:\stand-in\scripts");
        fs::create_dir_all(&directory).expect("a directory");
        let count = collect(&directory);
        machine.write(r"C:\stand-in\parse.ps1", PARSE);
        machine.boot();
        machine.powershell(&[r"C:\stand-in\parse.ps1".into(), "-Directory".into(), r"C:\stand-in\scripts".into()], None);
        (machine.console(), count)
    };
    assert!(said.contains(&format!("parsed {count} files")), "the parser did not come to its end:\n{said}");
    let wrong: Vec<&str> = said.lines().filter(|line| line.contains("error: ")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    step(format!("{count} scripts"));
}
