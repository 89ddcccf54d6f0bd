//! Signs → findings, surest first.

use std::collections::BTreeMap;

use serde::Serialize;

use super::book::{Book, Certainty, book};
use super::sign::Sign;
use crate::api::condition;

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
    let mut found: BTreeMap<usize, Vec<&Sign>> = BTreeMap::new();
    let mut unknown = Vec::new();
    for sign in signs {
        let rules = matching(book, sign);
        if rules.is_empty() && sign.code.is_some() {
            unknown.push(sign);
        }
        for rule in rules {
            found.entry(rule).or_default().push(sign);
        }
    }
    let by_rule = found.into_iter().filter_map(|(rule, signs)| {
        let rule = book.rules.get(rule)?;
        let finding = Finding {
            id: rule.id.clone(),
            title: rule.title.clone(),
            certainty: rule.certainty,
            cause: rule.cause.clone(),
            remedy: rule.remedy.clone(),
            links: rule.links.clone(),
            evidence: evidence(&signs),
            seen: signs.len(),
        };
        Some(finding)
    });
    let mut findings: Vec<Finding> = by_rule.collect();
    findings.extend(unknown.into_iter().filter_map(|sign| by_code(book, sign)));
    findings.sort_by_key(|finding| finding.certainty);
    findings
}

/// Indices of the rules that a sign speaks for.
fn matching(book: &Book, sign: &Sign) -> Vec<usize> {
    let speaks = |(index, rule): (usize, &super::Rule)| {
        let mut seen = rule.seen.iter().filter(|seen| sign.source.is_one_of(&seen.sources));
        seen.any(|seen| seen.pattern.as_ref().is_some_and(|pattern| pattern.is_match(&sign.text))).then_some(index)
    };
    book.rules.iter().enumerate().filter_map(speaks).collect()
}

fn by_code(book: &Book, sign: &Sign) -> Option<Finding> {
    let code = sign.code?;
    let known = book.code(code);
    let cause = known.map_or("The guest gave up for a reason that this version does not know", |known| &known.cause);
    let remedy = known.map_or("Read C:\\ProgramData\\capw\\bootstrap.log on the machine's console.", |known| &known.remedy);
    Some(Finding {
        id: format!("code {code}"),
        title: "The guest gave up".into(),
        certainty: Certainty::Likely,
        cause: cause.to_owned(),
        remedy: remedy.to_owned(),
        links: Vec::new(),
        evidence: evidence(&[sign]),
        seen: 1,
    })
}

fn evidence(signs: &[&Sign]) -> Vec<Evidence> {
    let shown = |sign: &&Sign| Evidence { at: sign.at.clone(), text: sign.text.chars().take(LINE).collect() };
    signs.iter().take(EVIDENCE).map(shown).collect()
}

/// Reason of the condition of a machine whose guest gave up with that code (`windows-bootstrap.md` §1.14).
pub fn reason(code: u32) -> &'static str {
    use condition::reason::*;
    let known = book().ok().and_then(|book| book.group(code)).map_or("", |group| group.reason.as_str());
    let reasons = [
        BOOTSTRAP_INPUT_INVALID,
        WINDOWS_SETUP_FAILED,
        NODE_NETWORK_FAILED,
        PROGRAMS_UNAVAILABLE,
        CONTAINER_RUNTIME_FAILED,
        POD_NETWORK_FAILED,
        JOIN_FAILED,
        SERVICE_NETWORK_FAILED,
        ADD_ON_FAILED,
    ];
    reasons.into_iter().find(|reason| *reason == known).unwrap_or(GUEST_FAILED)
}

impl Finding {
    /// Cause, remedy and id in one sentence each, for a condition.
    pub fn sentence(&self) -> String {
        format!("{}. {} ({})", self.cause.trim_end_matches('.'), self.remedy, self.id)
    }
}
