//! Checks the names in pages, code, CRDs and configuration against the tree: every path, every page and every heading must exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

/// The top-level folders whose texts are read. Paths in a text begin with one of them.
const FOLDERS: [&str; 10] = [".ci/", ".github/", "config/", "crds/", "docs/", "e2e/", "proto/", "release/", "src/", "tools/"];
/// Tests whose examples name paths that do not exist.
const EXAMPLES: [&str; 3] = ["src/coverage.rs", "src/references.rs", "src/tables.rs"];
/// The extensions of files that contain our own text.
const TEXTS: [&str; 12] = ["md", "rs", "yaml", "yml", "toml", "proto", "ps1", "py", "sh", "go", "conf", ""];

/// Returns the top of the tree.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let ending = path.extension().unwrap_or_default().to_str().unwrap();
        if path.is_dir() {
            collect(&path, found);
        } else if TEXTS.contains(&ending) {
            found.push(path);
        }
    }
}

/// Returns the tree's texts by their path from the top. Files at the top are read too, but not the folders of builds.
pub fn texts() -> BTreeMap<PathBuf, String> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        collect(&root().join(folder), &mut found);
    }
    let top = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    found.extend(top.filter(|path| path.is_file() && path.extension().is_none_or(|e| e == "md" || e == "toml")));
    found.into_iter().filter_map(|path| Some((path.strip_prefix(root()).unwrap().to_owned(), fs::read_to_string(&path).ok()?))).collect()
}

/// Returns the text of a Rust file without its inline tests, in which `super` means another module.
pub fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap()
}

/// Normalizes a path: `docs/../src/lib.rs` is `src/lib.rs`.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, part| {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
        plain
    })
}

/// Returns a page without its blocks of code.
fn prose(page: &str) -> String {
    let mut code = false;
    let lines = page.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the anchors of a page's headings, as GitHub and mdBook create them.
fn anchors(page: &str) -> BTreeSet<String> {
    let link = Regex::new(r"\[([^\]]*)\]\([^)]*\)").unwrap();
    let text = prose(page);
    let headings = text.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    let anchor = |heading: &str| {
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_' || *c == ' ');
        kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
    };
    headings.map(|heading| anchor(&link.replace_all(heading, "$1"))).collect()
}

/// Returns why the path is wrong, or the heading in it if it is a page.
pub fn missing(path: &Path, heading: &str, texts: &BTreeMap<PathBuf, String>) -> Option<String> {
    if !root().join(path).exists() {
        return Some(format!("there is no {}", path.display()));
    }
    let page = texts.get(path).filter(|_| !heading.is_empty() && path.extension().is_some_and(|e| e == "md"))?;
    (!anchors(page).contains(heading)).then(|| format!("{} has no heading #{heading}", path.display()))
}

/// Returns the broken links of a page.
fn broken_links(page: &Path, text: &str, texts: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let link = Regex::new(r"\]\(([^)#\s]*)#?([^)\s]*)\)").unwrap();
    let text = prose(text);
    let inside = link.captures_iter(&text).filter(|found| !found[1].contains(':'));
    inside
        .filter_map(|found| {
            let target = if found[1].is_empty() { page.to_owned() } else { plain(&page.parent().unwrap().join(&found[1])) };
            missing(&target, &found[2], texts)
        })
        .collect()
}

/// Returns the paths from the top that a text names and that do not exist. `…/docs/x` is a part of another path, and `docs/*` is no path.
fn stale_paths(text: &str, texts: &BTreeMap<PathBuf, String>) -> Vec<String> {
    static PATH: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?:^|[^\w./-])((?:docs|src|e2e|config|crds|proto|\.ci|\.github)/[\w./-]*\w)(?:#([a-z0-9-]+))?").unwrap());
    let lines = text.lines().filter(|line| FOLDERS.iter().any(|folder| line.contains(folder)));
    let named = lines.flat_map(|line| PATH.captures_iter(line).map(move |found| (line, found)));
    let whole = named.filter(|(line, found)| !line[found.get(0).unwrap().end()..].starts_with(['*', '{', '<', '$', '@']));
    whole.filter_map(|(_, found)| missing(Path::new(&found[1]), found.get(2).map_or("", |heading| heading.as_str()), texts)).collect()
}

/// Returns the pages that a text names without their folder and that do not exist.
fn stale_pages(text: &str, texts: &BTreeMap<PathBuf, String>) -> Vec<String> {
    static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?:^|[^\w/.-])([\w-]+\.md)\b").unwrap());
    let exists = |name: &str| texts.keys().any(|path| path.ends_with(name));
    let named = text.lines().filter(|line| line.contains(".md")).flat_map(|line| NAME.captures_iter(line));
    named.filter(|found| !exists(&found[1])).map(|found| format!("there is no page {}", &found[1])).collect()
}

#[test]
fn everything_that_is_named_exists() {
    let texts = texts();
    let mut wrong = Vec::new();
    for (path, text) in &texts {
        let links = if path.extension().is_some_and(|e| e == "md") { broken_links(path, text, &texts) } else { Vec::new() };
        let named = if EXAMPLES.iter().any(|examples| path.ends_with(examples)) {
            Vec::new()
        } else {
            [stale_paths(text, &texts), stale_pages(text, &texts)].concat()
        };
        wrong.extend(links.into_iter().chain(named).map(|what| format!("{}: {what}", path.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_book_has_every_page_once() {
    let texts = texts();
    let summary = &texts[Path::new("docs/SUMMARY.md")];
    let link = Regex::new(r"\]\(([^)]+)\)").unwrap();
    let mut listed: Vec<PathBuf> = link.captures_iter(summary).map(|found| Path::new("docs").join(&found[1])).collect();
    listed.sort();
    let is_page = |path: &&PathBuf| path.starts_with("docs") && path.extension().is_some_and(|e| e == "md") && !path.ends_with("SUMMARY.md");
    let pages: Vec<PathBuf> = texts.keys().filter(is_page).cloned().collect();
    assert_eq!(listed, pages, "docs/SUMMARY.md lists each page in docs/ once");
}

#[test]
fn what_does_not_exist_is_found() {
    let texts = texts();
    let page = Path::new("docs/pools.md");
    let links =
        "[a](no-such.md) [b](standalone.md#no-such) [c](../src/lib.rs) [d](https://example.com/x.md) [e](#no-such)\n```\n[f](in-code.md)\n```\n";
    assert_eq!(
        broken_links(page, links, &texts),
        ["there is no docs/no-such.md", "docs/standalone.md has no heading #no-such", "docs/pools.md has no heading #no-such"]
    );
    let named = "see `src/no_such.rs`, src/lib.rs, docs/pools.md#no-such, (docs/*.md), https://example.com/docs/no-such.md";
    assert_eq!(stale_paths(named, &texts), ["there is no src/no_such.rs", "docs/pools.md has no heading #no-such"]);
    assert_eq!(stale_pages("pools.md, no-such.md and https://example.com/other.md", &texts), ["there is no page no-such.md"]);
    assert_eq!(anchors("# A [link](x.md): of `two` → parts\n```\n# no heading\n```\n"), BTreeSet::from(["a-link-of-two--parts".to_owned()]));
}

/// Pages that name the tests for their promises.
const PROMISES: [&str; 2] = ["docs/reliability.md", "docs/hypervisors/proof.md"];

/// Returns the names of tests in the tables of a page, and of stories anywhere in it.
fn named_tests(page: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let all = |pattern: &str, text: &str| Regex::new(pattern).unwrap().captures_iter(text).map(|found| found[1].to_owned()).collect();
    let rows: String =
        page.lines().filter(|line| line.starts_with('|')).filter_map(|line| line.trim_end_matches([' ', '|']).rsplit('|').next()).collect();
    (all("`([a-z0-9]+(?:_[a-z0-9]+){2,})`", &rows), all(r"story \[?\*([a-z_]+)\*", page))
}

#[test]
fn tests_and_stories_that_pages_name_exist() {
    let texts = texts();
    let function = Regex::new(r"\bfn ([a-z0-9_]+)").unwrap();
    let sources = texts.iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "rs"));
    let known: BTreeSet<&str> = sources.flat_map(|(_, text)| function.captures_iter(text).map(|found| found.get(1).unwrap().as_str())).collect();
    for page in PROMISES {
        let (tests, stories) = named_tests(&texts[Path::new(page)]);
        assert!(tests.len() > 20, "{page} names {} tests", tests.len());
        let missing: Vec<_> = tests.iter().filter(|name| !known.contains(name.as_str())).collect();
        assert!(missing.is_empty(), "{page}: there is no test {missing:?}");
        let missing: Vec<_> = stories.iter().filter(|name| !texts[Path::new("e2e/stories/main.rs")].contains(&format!("mod {name};"))).collect();
        assert!(missing.is_empty(), "{page}: there is no story {missing:?}");
    }
}

#[test]
fn the_reader_of_promises_sees_tests_and_stories() {
    let page = "story *faults* and the story [*x*](y)\n| promise of `not_a_test` | story *drain*, `it_is_kept`, `it_is_kept_too` |\n";
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(named_tests(page), (names(&["it_is_kept", "it_is_kept_too"]), names(&["drain", "faults", "x"])));
}
