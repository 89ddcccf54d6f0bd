//! The rules and failure codes, read from the data files beside this one.

use std::sync::LazyLock;

use regex::bytes::{RegexSet, RegexSetBuilder};
use serde::{Deserialize, Serialize};

use super::symptom::{Source, Symptom};

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
    /// The patterns of all rules as one: 94 expressions would take ten times as much memory, and as much time for each symptom.
    patterns: RegexSet,
    /// The place of each pattern of the set.
    places: Vec<Place>,
}

/// The position of a rule, and of a pattern in it.
pub type Place = (usize, usize);

/// The most memory, in bytes, for what matching has learned about the patterns.
const LEARNED: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile {
    rule: Vec<Rule>,
}

impl Rules {
    fn read(rules: &str) -> Result<Self, String> {
        let RulesFile { rule: rules } = toml::from_str(rules).map_err(|e| format!("rules.toml: {e}"))?;
        let all =
            || rules.iter().enumerate().flat_map(|(rule, known)| known.patterns.iter().enumerate().map(move |(at, pattern)| ((rule, at), pattern)));
        // Logs are in English: tables of Unicode would take most of the memory.
        let patterns =
            RegexSetBuilder::new(all().map(|(_, pattern)| &pattern.regex)).unicode(false).case_insensitive(true).dfa_size_limit(LEARNED).build();
        let patterns = patterns.map_err(|e| format!("rules.toml: {e}"))?;
        Ok(Self { places: all().map(|(place, _)| place).collect(), patterns, rules })
    }

    pub fn pattern(&self, (rule, at): Place) -> Option<&Pattern> {
        self.rules.get(rule)?.patterns.get(at)
    }

    /// Returns the places of the patterns that a symptom matches.
    pub fn matching(&self, symptom: &Symptom) -> Vec<Place> {
        let matching = self.patterns.matches(symptom.text.as_bytes()).into_iter().filter_map(|at| self.places.get(at).copied());
        matching.filter(|place| self.pattern(*place).is_some_and(|pattern| symptom.source.is_one_of(&pattern.sources))).collect()
    }
}

/// The built-in rules. A test proves that they can be read.
pub fn rules() -> Result<&'static Rules, &'static str> {
    static RULES: LazyLock<Result<Rules, String>> = LazyLock::new(|| Rules::read(include_str!("rules.toml")));
    RULES.as_ref().map_err(String::as_str)
}
