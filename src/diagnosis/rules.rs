//! The rules and failure codes, read from the data files beside this one.

use std::sync::LazyLock;

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use super::symptom::Source;

/// The certainty of a finding, surest first.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// No other problem has these symptoms.
    Certain,
    /// This is the usual cause of these symptoms.
    Likely,
    /// This is one cause among several, or a consequence of another problem.
    Possible,
}

/// A failure mode: its symptoms, its cause, and its remedy.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The id, `F01` to `F94`, as in `docs/troubleshooting.md`.
    pub id: String,
    pub title: String,
    pub certainty: Certainty,
    /// The patterns. The rule applies when one of them matches.
    pub patterns: Vec<Pattern>,
    pub cause: String,
    pub remedy: String,
    pub links: Vec<String>,
    /// Lines from real machines that the rule must recognize.
    #[serde(default)]
    pub fixture: Vec<Fixture>,
}

/// A regular expression and the sources that it applies to.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// The sources. Empty: every source.
    #[serde(default, rename = "in")]
    pub sources: Vec<Source>,
    pub regex: String,
    /// The number of symptoms that must match; more than one for lines that a healthy machine logs now and then.
    #[serde(default = "one")]
    pub at_least: usize,
    #[serde(skip)]
    compiled: Option<Regex>,
}

impl Pattern {
    /// Whether this text from that source matches.
    pub fn matches(&self, source: Source, text: &str) -> bool {
        source.is_one_of(&self.sources) && self.compiled.as_ref().is_some_and(|regex| regex.is_match(text))
    }
}

fn one() -> usize {
    1
}

/// A line for the tests, and where it was recorded.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixture {
    #[serde(rename = "in")]
    pub source: Source,
    pub line: String,
    pub from: String,
}

/// All rules.
#[derive(Debug)]
pub struct Rules {
    pub rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile {
    rule: Vec<Rule>,
}

impl Rules {
    fn read(rules: &str) -> Result<Self, String> {
        let RulesFile { mut rule } = toml::from_str(rules).map_err(|e| format!("rules.toml: {e}"))?;
        for rule in &mut rule {
            for pattern in &mut rule.patterns {
                let compiled = RegexBuilder::new(&pattern.regex).case_insensitive(true).build();
                pattern.compiled = Some(compiled.map_err(|e| format!("rules.toml: {}: {e}", rule.id))?);
            }
        }
        Ok(Self { rules: rule })
    }
}

/// The built-in rules. A test proves that they can be read.
pub fn rules() -> Result<&'static Rules, &'static str> {
    static RULES: LazyLock<Result<Rules, String>> = LazyLock::new(|| Rules::read(include_str!("rules.toml")));
    RULES.as_ref().map_err(String::as_str)
}
