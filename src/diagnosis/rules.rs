//! The rules and failure codes, read from the data files beside this one.

use std::sync::LazyLock;

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use super::symptom::Source;

/// How sure a finding is, surest first.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// Nothing else looks like this.
    Certain,
    /// The usual cause of these symptoms.
    Likely,
    /// One cause among several, or a consequence of something else.
    Possible,
}

/// A failure mode: how it shows, why it happens, what to do.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// `F01` to `F73`, as in `docs/troubleshooting.md`.
    pub id: String,
    pub title: String,
    pub certainty: Certainty,
    /// The rule applies when one of these matches.
    pub patterns: Vec<Pattern>,
    pub cause: String,
    pub remedy: String,
    pub links: Vec<String>,
    /// Lines from real machines that the rule must recognize.
    #[serde(default)]
    pub fixture: Vec<Fixture>,
}

/// A regular expression and the sources it applies to.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// Empty: every source.
    #[serde(default, rename = "in")]
    pub sources: Vec<Source>,
    pub regex: String,
    /// How many symptoms must match; more than one for lines that a healthy machine logs now and then.
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

/// One failure code of the node plan, or a group of ten.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Code {
    /// First and last code.
    pub codes: (u32, u32),
    /// Condition reason, a constant of [`crate::api::condition::reason`]. Only groups have one.
    #[serde(default)]
    pub reason: String,
    pub cause: String,
    pub remedy: String,
}

/// All rules and codes.
#[derive(Debug)]
pub struct Rules {
    pub rules: Vec<Rule>,
    /// Single codes come before their group.
    pub codes: Vec<Code>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile {
    rule: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CodesFile {
    code: Vec<Code>,
}

impl Rules {
    fn read(rules: &str, codes: &str) -> Result<Self, String> {
        let RulesFile { mut rule } = toml::from_str(rules).map_err(|e| format!("rules.toml: {e}"))?;
        let CodesFile { mut code } = toml::from_str(codes).map_err(|e| format!("codes.toml: {e}"))?;
        for rule in &mut rule {
            for pattern in &mut rule.patterns {
                let compiled = RegexBuilder::new(&pattern.regex).case_insensitive(true).build();
                pattern.compiled = Some(compiled.map_err(|e| format!("rules.toml: {}: {e}", rule.id))?);
            }
        }
        code.sort_by_key(|code| (code.codes.1 - code.codes.0.min(code.codes.1), code.codes.0));
        Ok(Self { rules: rule, codes: code })
    }

    /// The entry of a code, else that of its group.
    pub fn code(&self, code: u32) -> Option<&Code> {
        self.codes.iter().find(|known| (known.codes.0..=known.codes.1).contains(&code))
    }

    /// The group of a code.
    pub fn group(&self, code: u32) -> Option<&Code> {
        self.codes.iter().find(|known| !known.reason.is_empty() && (known.codes.0..=known.codes.1).contains(&code))
    }
}

/// The built-in rules. A test proves that they can be read.
pub fn rules() -> Result<&'static Rules, &'static str> {
    static RULES: LazyLock<Result<Rules, String>> = LazyLock::new(|| Rules::read(include_str!("rules.toml"), include_str!("codes.toml")));
    RULES.as_ref().map_err(String::as_str)
}
