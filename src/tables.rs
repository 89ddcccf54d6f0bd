//! The tables in `docs/` that are generated from the code, between `<!-- NAME -->` and `<!-- end of NAME -->`. `make tables` writes them.

use std::fs;
use std::path::Path;

use crate::api::condition::{ConditionType, Reason};
use crate::components::{Effect, POD_RULES};
use crate::diagnosis;
use crate::telemetry::metrics::tests::described;
use crate::vm::FailureCode;

/// A table of a page: its name, its header and its rows.
type Table = (&'static str, Vec<&'static str>, Vec<Vec<String>>);

/// Checks the tables of a page against the code, or writes them if requested.
#[allow(clippy::disallowed_methods, reason = "a test that can write what it checks, when asked to")]
fn check(page: &str, tables: impl IntoIterator<Item = Table>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let stored = fs::read_to_string(&path).unwrap();
    let mut text = stored.clone();
    for (name, header, rows) in tables {
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
        let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{page}: no {begin}"));
        let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("{page}: no {end}"));
        let header: Vec<String> = header.into_iter().map(str::to_owned).collect();
        let rule = vec!["---".to_owned(); header.len()];
        let rows = rows.into_iter().map(|row| row.iter().map(|cell| linked(&cell.replace('|', "\\|"))).collect());
        let table: String = [header, rule].into_iter().chain(rows).map(|row| format!("| {} |\n", row.join(" | "))).collect();
        text = format!("{before}{begin}{table}{end}{after}");
    }
    if std::env::var_os("UPDATE_TABLES").is_some() {
        fs::write(&path, text).unwrap();
    } else {
        assert!(stored == text, "{page}: a table is stale: run make tables");
    }
}

/// Converts `docs/x.md` to a link from another page.
fn linked(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("docs/") {
        let (name, tail) = after.split_once(".md").unwrap_or_else(|| panic!("no page: {text}"));
        out.push_str(&format!("{before}[{name}.md]({name}.md)"));
        rest = tail;
    }
    out + rest
}

fn code(name: impl AsRef<str>) -> String {
    format!("`{}`", name.as_ref())
}

fn condition_of(reason: Reason) -> String {
    reason.condition().map_or_else(|| "an event only".to_owned(), code)
}

fn types() -> Table {
    let rows = ConditionType::ALL.iter().map(|t| vec![code(t), t.kinds().to_owned(), t.meaning().to_owned()]);
    ("types", vec!["Type", "Kinds", "`True` means"], rows.collect())
}

fn problems() -> Table {
    let row = |reason: &Reason| {
        let cells = [reason.blame()?.label(), reason.meaning(), reason.remedy()].map(str::to_owned);
        Some([code(reason), condition_of(*reason)].into_iter().chain(cells).collect())
    };
    ("problems", vec!["Reason", "Condition", "Where to look", "What it means", "What to do"], Reason::ALL.iter().filter_map(row).collect())
}

fn stages() -> Table {
    let stages = Reason::ALL.iter().filter(|reason| !reason.is_problem());
    let rows = stages.map(|reason| vec![code(reason), condition_of(*reason), reason.meaning().to_owned(), reason.remedy().to_owned()]);
    ("stages", vec!["Reason", "Condition", "What it means", "What to do"], rows.collect())
}

fn rules() -> Table {
    let mut rules: Vec<_> = diagnosis::rules().unwrap().rules.iter().collect();
    rules.sort_by(|a, b| a.id.cmp(&b.id));
    let rows = rules.iter().map(|rule| vec![rule.id.clone(), rule.title.clone(), format!("{}. {}", rule.cause, rule.remedy)]);
    ("rules", vec!["Rule", "What is wrong", "Cause and remedy"], rows.collect())
}

fn codes() -> Table {
    let row = |known: &FailureCode| vec![known.number().to_string(), code(known.reason()), known.meaning().to_owned(), known.remedy().to_owned()];
    ("codes", vec!["Code", "Reason", "What failed", "What to do"], FailureCode::ALL.iter().map(row).collect())
}

fn pods() -> Table {
    let row = |(fields, advice): (&str, &str), effect| {
        let said = match effect {
            Effect::Fails => "refused",
            Effect::Ignored => "warned",
        };
        vec![code(fields), advice.to_owned(), said.to_owned()]
    };
    let rows = POD_RULES.iter().map(|rule| row(rule.message.split_once(": ").unwrap(), rule.effect));
    ("pods", vec!["Fields", "Why, and what to do", "With `Deny`"], rows.collect())
}

fn metrics() -> Table {
    let labels = |names: &[String]| names.iter().map(code).collect::<Vec<_>>().join(", ");
    let rows = described().into_iter().map(|family| vec![code(&family.name), family.kind, labels(&family.labels), family.help]);
    ("metrics", vec!["Metric", "Kind", "Labels", "What it is"], rows.collect())
}

#[test]
fn the_page_about_pods_has_the_rules_of_the_code() {
    check("docs/pods.md", [pods()]);
}

#[test]
fn the_page_of_metrics_has_what_a_scrape_shows() {
    check("docs/metrics.md", [metrics()]);
}

#[test]
fn the_page_of_conditions_has_the_types_and_reasons_of_the_code() {
    check("docs/conditions.md", [types(), problems(), stages()]);
}

/// The story `doctor` runs the commands of this page.
#[test]
fn the_page_about_nodes_that_do_not_come_up_has_the_rules_and_codes_of_the_code() {
    check("docs/troubleshooting.md", [rules(), codes()]);
}
