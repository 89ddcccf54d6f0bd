//! The pages in `docs/` show the program's real output: every `console` block that calls capw is run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::world::step;

/// The pages whose blocks are run; each has at least one.
const PAGES: [&str; 5] =
    ["docs/compatibility.md", "docs/kubelet-and-containerd.md", "docs/reserves.md", "docs/way-in-cloudbase-init.md", "docs/way-in-unattend.md"];

/// A command and the lines that the page shows below it; `...` stands for any lines.
struct Example {
    place: String,
    arguments: Vec<String>,
    shown: Vec<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the commands of one page that start with `$ capw`. A following `echo $?` shows the exit code.
fn examples(page: &str) -> Vec<Example> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let mut found: Vec<Example> = Vec::new();
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if !inside => {}
            _ => match line.strip_prefix("$ ") {
                Some(command) => {
                    let mut words = command.split_whitespace().map(str::to_owned);
                    assert_eq!(words.next().as_deref(), Some("capw"), "{page}:{}: only capw is run", number + 1);
                    found.push(Example { place: format!("{page}:{}", number + 1), arguments: words.collect(), shown: Vec::new() });
                }
                None => found.last_mut().unwrap_or_else(|| panic!("{page}:{}: no command above", number + 1)).shown.push(line.to_owned()),
            },
        }
    }
    assert!(!found.is_empty(), "{page} shows no command");
    found
}

/// Whether an output matches the lines that a page shows, where `...` stands for any number of lines.
fn matches(shown: &[String], said: &[&str]) -> bool {
    match shown.split_first() {
        None => said.is_empty(),
        Some((first, rest)) if first == "..." => (0..=said.len()).any(|skip| matches(rest, &said[skip..])),
        Some((first, rest)) => said.split_first().is_some_and(|(line, left)| line.trim_end() == first.trim_end() && matches(rest, left)),
    }
}

#[test]
fn commands_of_the_pages_say_what_the_pages_show() {
    for page in PAGES {
        for example in examples(page) {
            let output = Command::new(PathBuf::from(env!("CARGO_BIN_EXE_capw"))).args(&example.arguments).current_dir(root()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            let lines: Vec<&str> = said.lines().collect();
            let code = output.status.code().unwrap();
            // After a command that fails, the page shows the exit code as the last line.
            let wanted = example.shown.last().and_then(|line| line.strip_prefix("exit code ")).map_or(0, |code| code.parse().unwrap());
            let shown = if wanted == 0 { &example.shown[..] } else { &example.shown[..example.shown.len() - 1] };
            assert_eq!(code, wanted, "{}: {said}", example.place);
            assert!(matches(shown, &lines), "{}: capw {} says\n{said}\nnot\n{}", example.place, example.arguments.join(" "), shown.join("\n"));
        }
        step(format!("{page}: every command says what is shown"));
    }
}
