//! What is known: rules, read from the data beside this file.

use std::sync::LazyLock;

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use super::sign::Source;

/// How sure a finding is, surest first.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// Nothing else looks like this.
    Certain,
    /// The usual cause of what was seen.
    Likely,
    /// One cause among several; also what follows from something else.
    Possible,
}

/// A failure mode: how it is seen, why it happens, what to do.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// `F01` to `F73`, as in `windows-bootstrap.md` §5.
    pub id: String,
    pub title: String,
    pub certainty: Certainty,
    /// It is seen when one of these matches.
    pub seen: Vec<Seen>,
    pub cause: String,
    pub remedy: String,
    pub links: Vec<String>,
    /// Lines from real machines that it must recognize.
    #[serde(default)]
    pub fixture: Vec<Fixture>,
}

/// A pattern and where it counts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// Empty: everywhere.
    #[serde(default, rename = "in")]
    pub sources: Vec<Source>,
    pub like: String,
    /// How many signs must match, for what a healthy machine says now and then too.
    #[serde(default = "one")]
    pub at_least: usize,
    #[serde(skip)]
    pub pattern: Option<Regex>,
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

/// Everything that is known.
#[derive(Debug)]
pub struct Book {
    pub rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    rule: Vec<Rule>,
}

impl Book {
    fn read(rules: &str) -> Result<Self, String> {
        let Rules { mut rule } = toml::from_str(rules).map_err(|e| format!("rules.toml: {e}"))?;
        for rule in &mut rule {
            for seen in &mut rule.seen {
                let pattern = RegexBuilder::new(&seen.like).case_insensitive(true).build();
                seen.pattern = Some(pattern.map_err(|e| format!("rules.toml: {}: {e}", rule.id))?);
            }
        }
        Ok(Self { rules: rule })
    }
}

/// The book that is built in. The error, which a test keeps away, says what is wrong in it.
pub fn book() -> Result<&'static Book, &'static str> {
    static BOOK: LazyLock<Result<Book, String>> = LazyLock::new(|| Book::read(include_str!("rules.toml")));
    BOOK.as_ref().map_err(String::as_str)
}
