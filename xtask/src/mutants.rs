//! Removes guards of the product, one at a time, in a copy of the tree: a unit test has to notice each. The copy is compiled once.

mod list;
mod switch;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use self::list::{Guarded, files};
use self::switch::{FUNCTION, VARIABLE, between, with_switches};

/// The page with the guards whose loss no test notices.
const PAGE: &str = "docs/reliability.md";
/// The first line of the page's table of these guards.
const TABLE: &str = "| Guard whose loss no test notices | Why |";
/// The time limit. The tests of one guard take seconds; without the guard, a test may wait forever.
const LIMIT: Duration = Duration::from_secs(60);

/// The result of the tests.
enum End {
    /// All tests passed; their number.
    Passed(usize),
    /// The test or the error that noticed.
    Noticed(String),
}

/// Removes the guards with `focus` in their text or their file, and reports which test notices. `true` if tests notice all except the listed ones.
pub fn mutants(output: &Path, target: &Path, focus: Option<&str>) -> Result<bool> {
    let page = fs::read_to_string(PAGE).context(PAGE)?;
    let known = known(&page);
    let tree = output.join("mutants");
    copy(&tree)?;
    let program = compile(&tree, target)?;
    let all: Vec<&str> = files().flat_map(|of| of.tests).copied().collect();
    if let End::Noticed(what) = run(&program, &tree, None, &all)? {
        bail!("with all guards, this happens: {what}");
    }
    let (mut count, mut noticed, mut is_right) = (0, 0, true);
    for (of, guard) in files().flat_map(|of| of.guards.iter().map(move |guard| (of, guard))) {
        if focus.is_some_and(|focus| !guard.keeps.contains(focus) && !of.file.contains(focus)) {
            continue;
        }
        let (is_noticed, what) = match run(&program, &tree, Some(guard.keeps), of.tests)? {
            End::Passed(0) => bail!("guard {:?}: no test has a name with one of {:?}", guard.keeps, of.tests),
            End::Passed(tests) => (false, format!("{tests} tests passed")),
            End::Noticed(what) => (true, what),
        };
        let is_known = known.contains(&guard.keeps);
        let verdict = match (is_noticed, is_known) {
            (true, false) => String::new(),
            (false, true) => format!("no test notices, as {PAGE} says: "),
            (false, false) => "NO TEST NOTICES: ".to_owned(),
            (true, true) => format!("{PAGE} SAYS THAT NO TEST NOTICES: "),
        };
        println!("{}: {}: {verdict}{what}", of.file, guard.keeps);
        count += 1;
        noticed += usize::from(is_noticed);
        is_right &= is_noticed != is_known;
    }
    println!("\n{count} guards were taken away: tests noticed the loss of {noticed}");
    Ok(is_right && count > 0)
}

/// Returns the guards that the page lists, with the page's names.
fn known(page: &str) -> Vec<&str> {
    let rows = page.lines().skip_while(|line| *line != TABLE).skip(2).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.split('|').nth(1)).map(str::trim).collect()
}

/// Copies the files of the checkout, with a switch for each guard.
fn copy(tree: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(tree);
    let listed = Command::new("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).output().context("git ls-files")?;
    let paths = String::from_utf8(listed.stdout).context("git ls-files")?;
    // The list of paths also contains removed files.
    for path in paths.split_terminator('\0').map(Path::new).filter(|path| path.is_file()) {
        let to = tree.join(path);
        fs::create_dir_all(to.parent().unwrap_or(tree))?;
        fs::copy(path, &to).with_context(|| path.display().to_string())?;
    }
    for of in files() {
        let source = fs::read_to_string(of.file).context(of.file)?;
        fs::write(tree.join(of.file), with_switches(&source, of.guards).context(of.file)?)?;
    }
    let library = tree.join("src/lib.rs");
    fs::write(&library, fs::read_to_string(&library).context("src/lib.rs")? + FUNCTION)?;
    // With the same version, Cargo would confuse the builds of the copy and of the checkout, because both use the same directory.
    let manifest = tree.join("Cargo.toml");
    let other = |line: &str| if line.starts_with("version = ") { "version = \"0.0.0-mutants\"\n".to_owned() } else { format!("{line}\n") };
    let text: String = fs::read_to_string(&manifest).context("Cargo.toml")?.lines().map(other).collect();
    fs::write(&manifest, text)?;
    Ok(())
}

/// Returns the program with the library's unit tests. An error names the guards that it lies in.
fn compile(tree: &Path, target: &Path) -> Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--package", "cluster-api-provider-windows", "--lib", "--no-run", "--message-format", "json"]);
    // The dependencies are those of the checkout, which are compiled already.
    cargo.env("CARGO_TARGET_DIR", std::path::absolute(target)?);
    let output = cargo.current_dir(tree).stderr(Stdio::inherit()).output().context("cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for error in messages.iter().filter(|message| message.pointer("/message/level").is_some_and(|level| level == "error")) {
        let spans = error.pointer("/message/spans").and_then(Value::as_array).into_iter().flatten();
        let guards: Vec<&str> = spans.flat_map(|span| guards_of(tree, span)).collect();
        let rendered = error.pointer("/message/rendered").and_then(Value::as_str).unwrap_or_default();
        println!("{rendered}This is in the guards {guards:?}.\n");
    }
    let program = messages.iter().rev().find_map(|message| message.get("executable").and_then(Value::as_str));
    program.filter(|_| output.status.success()).map(PathBuf::from).context("the tree with switches was not compiled")
}

fn guards_of(tree: &Path, span: &Value) -> Vec<&'static str> {
    let file = span.get("file_name").and_then(Value::as_str).unwrap_or_default();
    let Some(Guarded { guards, .. }) = files().find(|of| of.file == file) else { return Vec::new() };
    let byte = |field| span.get(field).and_then(Value::as_u64).and_then(|at| usize::try_from(at).ok()).unwrap_or_default();
    between(&fs::read_to_string(tree.join(file)).unwrap_or_default(), guards, byte("byte_start"), byte("byte_end"))
}

/// Runs these tests without that guard.
fn run(program: &Path, tree: &Path, away: Option<&str>, tests: &[&str]) -> Result<End> {
    let path = tree.join("tests.log");
    let log = File::create(&path).context("tests.log")?;
    let mut command = Command::new(program);
    command.args(tests).current_dir(tree).stdout(log).stderr(Stdio::null());
    command.env_remove(VARIABLE).envs(away.map(|guard| (VARIABLE, guard)));
    let (mut child, begun) = (command.spawn().with_context(|| program.display().to_string())?, Instant::now());
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if begun.elapsed() > LIMIT && away.is_some() => {
                child.kill()?;
                child.wait()?;
                return Ok(End::Noticed(format!("tests do not end within {} s", LIMIT.as_secs())));
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    let said = String::from_utf8_lossy(&fs::read(&path).context("tests.log")?).into_owned();
    let ended = |how: &str| said.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(how)).collect::<Vec<_>>();
    if status.success() {
        return Ok(End::Passed(ended(" ... ok").len()));
    }
    Ok(End::Noticed(match ended(" ... FAILED")[..] {
        [] => format!("the tests ended with {status}"),
        [one] => one.to_owned(),
        [first, ref more @ ..] => format!("{first} and {} more", more.len()),
    }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    fn read(path: &str) -> String {
        fs::read_to_string(root().join(path)).unwrap()
    }

    #[test]
    fn each_guard_is_in_its_file_once() {
        let mut names = BTreeSet::new();
        for of in files() {
            with_switches(&read(of.file), of.guards).unwrap_or_else(|error| panic!("{}: {error:#}; fix xtask/src/mutants/list", of.file));
            assert!(of.guards.iter().all(|guard| names.insert(guard.keeps)), "{}: two guards keep the same", of.file);
        }
    }

    #[test]
    fn the_tests_of_each_guard_exist() {
        for name in files().flat_map(|of| of.tests) {
            let (module, _) = name.rsplit_once("::").unwrap_or_else(|| panic!("{name} names no module"));
            let path = root().join("src").join(module.replace("::", "/"));
            assert!(path.is_dir() || path.with_extension("rs").is_file(), "no module {module} is in src; fix xtask/src/mutants/list");
        }
    }

    #[test]
    fn the_page_lists_one_guard_in_twenty_at_most() {
        let page = read(PAGE);
        let all: Vec<&str> = files().flat_map(|of| of.guards).map(|guard| guard.keeps).collect();
        let known = known(&page);
        assert!(known.iter().all(|guard| all.contains(guard)), "{PAGE} lists {known:?}");
        assert!(known.len() * 20 <= all.len(), "tests notice too few of {}: {known:?}", all.len());
        assert!(page.contains(&format!("{} guards", all.len())), "{PAGE} does not say that there are {} guards", all.len());
    }
}
