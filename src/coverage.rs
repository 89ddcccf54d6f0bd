//! Checks the page about coverage against the tree: each requirement has one row, and the code, tests and pages that a row names exist.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use regex::{Captures, Regex};

use crate::references::{missing, root, texts};

const PAGE: &str = "docs/coverage.md";
/// The number of requirements. Each number names one requirement and is never reused.
const REQUIREMENTS: usize = 136;

/// The cells of a row of the page that are checked against the tree.
struct Row<'a> {
    number: &'a str,
    state: &'a str,
    code: &'a str,
    tests: &'a str,
    pages: &'a str,
}

impl<'a> Row<'a> {
    /// Parses a line that begins with a number. `None` for other lines.
    fn read(line: &'a str) -> Option<Result<Self, String>> {
        let cells = line.strip_prefix("| ").filter(|cells| cells.starts_with(|c: char| c.is_ascii_digit()))?;
        let cells: Vec<&str> = cells.trim_end_matches('|').split('|').map(str::trim).collect();
        Some(match cells[..] {
            [number, need, state, code, tests, pages] if !need.is_empty() => Ok(Self { number, state, code, tests, pages }),
            _ => Err(format!("row {}: write number, need, state, code, tests and pages, each in a cell of its own", cells[0])),
        })
    }

    /// Returns the faults of the row, each with its fix. `texts` has the pages.
    fn wrong(&self, texts: &BTreeMap<PathBuf, String>) -> Vec<String> {
        let mut wrong = entries(self.code, "`PATH`", "`([^`:]+)`", |found| no_file(&found[1]));
        wrong.extend(entries(self.tests, "`PATH::NAME`", "`([^`:]+)::([a-z0-9_]+)`", |found| no_test(&found[1], &found[2])));
        wrong.extend(entries(self.pages, "[NAME](PAGE#HEADING)", r"\[[^\]]+\]\(([^)#]+)#([^)]+)\)", |found| {
            let gone = missing(&Path::new("docs").join(&found[1]), &found[2], texts)?;
            Some(format!("{gone}: name the page and heading that tell it now"))
        }));
        wrong.extend(self.unfounded().map(str::to_owned));
        wrong.into_iter().map(|what| format!("row {}: {what}", self.number)).collect()
    }

    /// Returns the part that the state requires and the row lacks.
    fn unfounded(&self) -> Option<&'static str> {
        let (code, tests, pages) = (!self.code.is_empty(), !self.tests.is_empty(), !self.pages.is_empty());
        match self.state {
            "Done" if code && tests => None,
            "Done" => Some("it is Done without code or without a test: name them, or say `Told` or `Not yet: …`"),
            "Told" if pages || (code && tests) => None,
            "Told" => Some("it is Told by nothing: name a page, or code with a test, or say `Not yet: …`"),
            state if !state.starts_with("Not yet: ") => Some("its state must be `Done`, `Told`, or `Not yet: ` and what is missing"),
            _ if tests => Some("it is Not yet and has a test: take the test away, or say `Done` or `Told`"),
            _ => None,
        }
    }
}

/// Returns the faults of a cell with comma-separated entries: the entries of another form, and the entries that `judge` rejects.
fn entries(cell: &str, form: &str, pattern: &str, judge: impl Fn(&Captures) -> Option<String>) -> Vec<String> {
    let pattern = Regex::new(&format!("^{pattern}$")).unwrap();
    let wrong = cell.split(", ").filter(|entry| !entry.is_empty()).filter_map(|entry| match pattern.captures(entry) {
        Some(found) => judge(&found),
        None => Some(format!("{entry} must have the form {form}")),
    });
    wrong.collect()
}

fn no_file(path: &str) -> Option<String> {
    (!root().join(path).is_file()).then(|| format!("there is no {path}: name the file that does it now, or say `Not yet: …`"))
}

fn no_test(path: &str, name: &str) -> Option<String> {
    let Ok(text) = fs::read_to_string(root().join(path)) else { return no_file(path) };
    let other_attributes = r"\s*(?:#\[[^\n]*\]\s*)*";
    let test = Regex::new(&format!(r"#\[(?:tokio::)?test(?:\([^\n]*\))?\]{other_attributes}(?:async )?fn {name}\(")).unwrap();
    (!test.is_match(&text)).then(|| format!("{path} has no test {name}: name the one that shows it now, or say `Not yet: …`"))
}

/// Returns the faults in the numbers of all rows.
fn misnumbered(numbers: &[&str]) -> Vec<String> {
    let requirements: Vec<String> = (1..=REQUIREMENTS).map(|number| number.to_string()).collect();
    let times = |requirement: &str| numbers.iter().filter(|number| **number == requirement).count();
    let other_than_once = requirements.iter().filter(|requirement| times(requirement) != 1);
    let unknown = numbers.iter().filter(|number| !requirements.iter().any(|requirement| requirement == *number));
    let counted = other_than_once.map(|requirement| format!("row {requirement}: it is there {} times: give it one row", times(requirement)));
    counted.chain(unknown.map(|number| format!("row {number}: there is no such requirement: numbers go from 1 to {REQUIREMENTS}"))).collect()
}

#[test]
fn every_requirement_has_a_row_that_leads_somewhere() {
    let texts = texts();
    let (rows, malformed): (Vec<_>, Vec<_>) = texts[Path::new(PAGE)].lines().filter_map(Row::read).partition(Result::is_ok);
    let rows: Vec<Row> = rows.into_iter().flatten().collect();
    let mut wrong: Vec<String> = malformed.into_iter().filter_map(Result::err).collect();
    wrong.extend(rows.iter().flat_map(|row| row.wrong(&texts)));
    wrong.extend(misnumbered(&rows.iter().map(|row| row.number).collect::<Vec<_>>()));
    assert!(wrong.is_empty(), "{PAGE}:\n{}", wrong.join("\n"));
}

#[test]
fn a_row_that_leads_nowhere_is_named_with_the_remedy() {
    const CODE: &str = "`src/coverage.rs`";
    const TEST: &str = "`src/coverage.rs::a_row_that_leads_nowhere_is_named_with_the_remedy`";
    const LINK: &str = "[limits](limits.md#limits)";
    let texts = texts();
    let judge = |cells: [&str; 4]| {
        let line = format!("| 7 | Something. | {} |", cells.join(" | "));
        Row::read(&line).unwrap().map_or_else(|error| vec![error], |row| row.wrong(&texts))
    };
    let good = [["Done", CODE, TEST, ""], ["Told", "", "", LINK], ["Told", CODE, TEST, LINK], ["Not yet: all of it", CODE, "", LINK]];
    for cells in good {
        assert_eq!(judge(cells), Vec::<String>::new(), "{cells:?}");
    }
    let two = format!("{CODE}, `src/no_such.rs`");
    for (cells, expected) in [
        (["Done", two.as_str(), TEST, ""], "there is no src/no_such.rs: name the file that does it now"),
        (["Done", "src/coverage.rs", TEST, ""], "src/coverage.rs must have the form `PATH`"),
        (["Done", CODE, "`src/no_such.rs::a_test`", ""], "there is no src/no_such.rs: name the file"),
        (["Done", CODE, "`src/coverage.rs::no_test`", ""], "src/coverage.rs has no test no_test: name the one that shows it now"),
        (["Done", CODE, "`src/coverage.rs`", ""], "`src/coverage.rs` must have the form `PATH::NAME`"),
        (["Told", "", "", "[x](no-such.md#x)"], "there is no docs/no-such.md: name the page"),
        (["Told", "", "", "[x](limits.md#no-such)"], "docs/limits.md has no heading #no-such: name the page and heading"),
        (["Told", "", "", "[x](limits.md)"], "[x](limits.md) must have the form [NAME](PAGE#HEADING)"),
        (["Done", CODE, "", LINK], "it is Done without code or without a test"),
        (["Done", "", TEST, LINK], "it is Done without code or without a test"),
        (["Told", CODE, "", ""], "it is Told by nothing"),
        (["Not yet", "", "", ""], "its state must be"),
        (["Not yet: ", "", "", ""], "its state must be"),
        (["Perhaps", CODE, TEST, LINK], "its state must be"),
        (["Not yet: all of it", "", TEST, ""], "it is Not yet and has a test"),
    ] {
        let wrong = judge(cells);
        assert!(wrong.len() == 1 && wrong[0].starts_with(&format!("row 7: {expected}")), "{cells:?}: {wrong:?}");
    }
    for line in ["| 7 | Something. | Done |", "| 7 | | Done | `src/coverage.rs` | | |"] {
        assert!(Row::read(line).unwrap().is_err_and(|error| error.starts_with("row 7: write number")), "{line}");
    }
    assert!(Row::read("| # | Requirement or limit | State | Code | Tests | Page |").is_none());
}

#[test]
fn a_number_that_is_missing_doubled_or_unknown_is_named() {
    let mut numbers: Vec<String> = (1..=REQUIREMENTS).map(|number| number.to_string()).collect();
    let misnumbered = |numbers: &[String]| misnumbered(&numbers.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(misnumbered(&numbers), Vec::<String>::new());
    numbers.extend(["7".to_owned(), "137".to_owned()]);
    numbers.remove(0);
    let expected = [
        "row 1: it is there 0 times: give it one row",
        "row 7: it is there 2 times: give it one row",
        "row 137: there is no such requirement: numbers go from 1 to 136",
    ];
    assert_eq!(misnumbered(&numbers), expected);
}
