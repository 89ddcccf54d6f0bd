//! Signs → findings, surest first.

use std::collections::BTreeMap;

use serde::Serialize;

use super::book::{Book, Certainty, Rule, book};
use super::sign::Sign;
use crate::api::condition::Reason;
use crate::vm::FailureCode;

/// Lines of evidence that a finding shows; more of the same say nothing new.
const EVIDENCE: usize = 3;
/// Longest line of evidence, in characters.
const LINE: usize = 400;

/// What is wrong, why, and what to do.
#[derive(Clone, Debug, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Rule, e.g. `F45`; or failure code, e.g. `code 71`, when no rule knows what the guest said.
    pub id: String,
    pub title: String,
    pub certainty: Certainty,
    pub cause: String,
    pub remedy: String,
    pub links: Vec<String>,
    /// The first signs of it.
    pub evidence: Vec<Evidence>,
    /// How many signs there are.
    pub seen: usize,
}

/// A sign that led to a finding.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    pub at: String,
    pub text: String,
}

/// What the signs say, surest first; of equally sure ones in the order of the rules. A guest that has given up at something that no
/// rule knows is found by its code.
pub fn diagnose(signs: &[Sign]) -> Vec<Finding> {
    let Ok(book) = book() else { return Vec::new() };
    // By rule and pattern, so that what must be seen often is counted by itself.
    let mut found: BTreeMap<(usize, usize), Vec<&Sign>> = BTreeMap::new();
    let mut unknown = Vec::new();
    for sign in signs {
        let matching = matching(book, sign);
        if matching.is_empty() && sign.code.is_some() {
            unknown.push(sign);
        }
        for place in matching {
            found.entry(place).or_default().push(sign);
        }
    }
    let mut by_rule: BTreeMap<usize, Vec<&Sign>> = BTreeMap::new();
    for ((rule, seen), signs) in found {
        let at_least = book.rules.get(rule).and_then(|rule| rule.seen.get(seen)).map_or(1, |seen| seen.at_least);
        if signs.len() >= at_least {
            by_rule.entry(rule).or_default().extend(signs);
        }
    }
    let known = by_rule.into_iter().filter_map(|(rule, signs)| Some(by_rule_of(book.rules.get(rule)?, &signs)));
    let mut findings: Vec<Finding> = known.collect();
    findings.extend(unknown.into_iter().filter_map(by_code));
    findings.sort_by_key(|finding| finding.certainty);
    findings
}

/// Rules, and patterns of them, that a sign speaks for.
fn matching(book: &Book, sign: &Sign) -> Vec<(usize, usize)> {
    let patterns =
        book.rules.iter().enumerate().flat_map(|(rule, known)| known.seen.iter().enumerate().map(move |(seen, known)| ((rule, seen), known)));
    let speaks = patterns.filter(|(_, seen)| sign.source.is_one_of(&seen.sources) && seen.pattern.as_ref().is_some_and(|p| p.is_match(&sign.text)));
    speaks.map(|(place, _)| place).collect()
}

fn by_rule_of(rule: &Rule, signs: &[&Sign]) -> Finding {
    Finding {
        id: rule.id.clone(),
        title: rule.title.clone(),
        certainty: rule.certainty,
        cause: rule.cause.clone(),
        remedy: rule.remedy.clone(),
        links: rule.links.clone(),
        evidence: evidence(signs),
        seen: signs.len(),
    }
}

fn by_code(sign: &Sign) -> Option<Finding> {
    let code = sign.code?;
    let unknown = (Reason::GuestFailed.meaning(), Reason::GuestFailed.remedy());
    let (cause, remedy) = FailureCode::from_number(code).map_or(unknown, |known| (known.meaning(), known.remedy()));
    let plain = |markdown: &str| markdown.replace('`', "");
    Some(Finding {
        id: format!("code {code}"),
        title: "The guest gave up".into(),
        certainty: Certainty::Likely,
        cause: plain(cause.trim_end_matches('.')),
        remedy: plain(remedy),
        links: Vec::new(),
        evidence: evidence(&[sign]),
        seen: 1,
    })
}

fn evidence(signs: &[&Sign]) -> Vec<Evidence> {
    let shown = |sign: &&Sign| Evidence { at: sign.at.clone(), text: sign.text.chars().take(LINE).collect() };
    signs.iter().take(EVIDENCE).map(shown).collect()
}

impl Finding {
    /// Cause, remedy and id in one sentence each, for a condition.
    pub fn sentence(&self) -> String {
        format!("{}. {} ({})", self.cause.trim_end_matches('.'), self.remedy, self.id)
    }
}
