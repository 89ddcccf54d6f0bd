//! The data of `compat.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::part::{Component, Part, Pattern, Question};
use super::version::{Range, Truth, Version};

/// The verdict on a combination, from best to worst.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The maintainers state or show that the combination works.
    Works,
    /// The combination can work, but there is a reason to avoid it.
    Warns,
    /// The verdict depends on the exact versions, which the question does not give.
    Depends,
    /// The maintainers have not stated anything.
    Unknown,
    /// The combination cannot work, or this provider does not support it.
    Fails,
}

/// The basis of a statement.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// The source code of that version.
    Source,
    /// Documentation, or a list of shipped versions, of a project or vendor.
    Documentation,
    /// A maintainer's statement in an issue or pull request.
    Issue,
    /// An announcement for a version whose programs were not tested.
    Announced,
    /// A conclusion from other facts.
    Derived,
}

/// A statement about a combination.
#[derive(Clone, Debug)]
pub struct Row {
    pub id: String,
    /// The original texts of the conditions, for tables.
    pub when: BTreeMap<Component, Vec<String>>,
    patterns: BTreeMap<Component, Vec<Pattern>>,
    pub verdict: Verdict,
    pub why: String,
    /// The link to the source.
    pub source: String,
    /// The day on which the source was last read, `2026-11-21`.
    pub checked: String,
    pub basis: Basis,
}

/// Components that depend on each other, and the rows about them.
#[derive(Clone, Debug)]
pub struct Edge {
    pub between: Vec<Component>,
    /// The subject of the dependency.
    pub about: String,
    pub rows: Vec<Row>,
}

/// The cost of changing a part, and its possible replacements.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The cost of a change within a release line; another line costs twice as much.
    pub version: u32,
    /// The cost of another product.
    pub product: u32,
    /// The candidates, best first.
    pub candidates: Vec<Part>,
}

/// The content of the whole file.
#[derive(Clone, Debug)]
pub struct Data {
    pub edges: Vec<Edge>,
    pub choices: BTreeMap<Component, Choice>,
    pause_defaults: Vec<(Range, String)>,
    /// The repository of known sandbox images.
    pub pause_repository: String,
}

/// The text of the file, embedded.
pub const TEXT: &str = include_str!("compat.toml");

static DATA: LazyLock<Data> = LazyLock::new(|| {
    #[allow(clippy::expect_used, reason = "the file is part of the program, and a unit test reads it")]
    parse(TEXT).expect("compat.toml")
});

/// The data of this release.
pub fn data() -> &'static Data {
    &DATA
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    edge: Vec<FileEdge>,
    component: BTreeMap<Component, FileChoice>,
    pause: FilePause,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileEdge {
    between: Vec<Component>,
    about: String,
    row: Vec<FileRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRow {
    id: String,
    when: BTreeMap<Component, Vec<String>>,
    verdict: Verdict,
    why: String,
    source: String,
    checked: String,
    basis: Basis,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileChoice {
    version: u32,
    product: u32,
    candidates: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FilePause {
    repository: String,
    default: Vec<FilePauseDefault>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FilePauseDefault {
    kubernetes: String,
    tag: String,
    /// For readers of the file; the code does not use it.
    #[allow(dead_code, reason = "deny_unknown_fields wants every field named")]
    source: String,
}

/// Reads the file; the error names the entry.
pub fn parse(text: &str) -> Result<Data, String> {
    let file: File = toml::from_str(text).map_err(|e| e.to_string())?;
    let mut edges = Vec::new();
    for edge in file.edge {
        let rows = edge.row.into_iter().map(|row| read(row, &edge.between)).collect::<Result<Vec<Row>, String>>()?;
        edges.push(Edge { between: edge.between, about: edge.about, rows });
    }
    let mut choices = BTreeMap::new();
    for (component, choice) in file.component {
        let candidates = choice.candidates.iter().map(|text| Part::parse(component, text).map_err(|e| e.to_string()));
        let candidates = candidates.collect::<Result<Vec<Part>, String>>()?;
        choices.insert(component, Choice { version: choice.version, product: choice.product, candidates });
    }
    let mut pause_defaults = Vec::new();
    for default in file.pause.default {
        let range = Range::parse(&default.kubernetes).ok_or_else(|| format!("pause.default: {:?} is no range", default.kubernetes))?;
        pause_defaults.push((range, default.tag));
    }
    Ok(Data { edges, choices, pause_defaults, pause_repository: file.pause.repository })
}

fn read(row: FileRow, between: &[Component]) -> Result<Row, String> {
    let mut patterns = BTreeMap::new();
    for component in between {
        if !row.when.contains_key(component) {
            return Err(format!("{}: when.{component} is missing", row.id));
        }
    }
    for (component, texts) in &row.when {
        let read = |text: &String| Pattern::parse(*component, text).ok_or_else(|| format!("{}: {text:?} is no pattern", row.id));
        patterns.insert(*component, texts.iter().map(read).collect::<Result<Vec<Pattern>, String>>()?);
    }
    let FileRow { id, when, verdict, why, source, checked, basis } = row;
    Ok(Row { id, when, patterns, verdict, why, source, checked, basis })
}

impl Row {
    /// Whether the row applies to these parts. Containers use process isolation by default.
    pub fn matches(&self, question: &Question) -> Truth {
        let process = Part { component: Component::Isolation, product: "process".into(), version: None };
        let each = self.patterns.iter().map(|(component, patterns)| {
            let part = question.get(*component).or_else(|| (*component == Component::Isolation).then_some(&process));
            part.map_or(Truth::Some, |part| patterns.iter().map(|pattern| pattern.matches(part)).fold(Truth::No, Truth::or))
        });
        each.fold(Truth::Yes, Truth::and)
    }

    /// Returns the products that the row names for a component.
    pub fn products(&self, component: Component) -> impl Iterator<Item = &str> {
        self.patterns.get(&component).into_iter().flatten().filter_map(Pattern::product)
    }
}

impl Data {
    /// Returns the tag of the sandbox image that this version of kubeadm uses.
    pub fn pause_default(&self, kubernetes: &Version) -> Option<&str> {
        self.pause_defaults.iter().find(|(range, _)| range.holds(Some(kubernetes)) == Truth::Yes).map(|(_, tag)| tag.as_str())
    }
}
