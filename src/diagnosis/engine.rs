//! Derives findings from symptoms, surest first.

use std::collections::BTreeMap;

use serde::Serialize;

use super::rules::{Certainty, Place, Rule, rules};
use super::symptom::Symptom;
use crate::api::condition::Reason;
use crate::vm::FailureCode;

/// The lines of evidence that a finding shows; more of the same would add nothing.
const EVIDENCE: usize = 3;
/// The longest line of evidence, in characters.
const LINE: usize = 400;

/// A problem, its cause, and its remedy.
#[derive(Clone, Debug, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The id of a rule, e.g. `F45`, or a failure code, e.g. `code 71`, if no rule matches.
    pub id: String,
    pub title: String,
    pub certainty: Certainty,
    pub cause: String,
    pub remedy: String,
    pub links: Vec<String>,
    /// The first matching symptoms.
    pub evidence: Vec<Evidence>,
    /// The number of symptoms that match.
    pub seen: usize,
}

/// A symptom that led to a finding.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    pub at: String,
    pub text: String,
}

/// Returns the findings for these symptoms, surest first; equally sure findings are in the order of the rules. If no rule matches the report of a
/// guest that gave up, its failure code gives the finding.
pub fn diagnose(symptoms: &[Symptom]) -> Vec<Finding> {
    let Ok(known) = rules() else { return Vec::new() };
    // The symptoms by rule and pattern: each pattern has its own minimum count.
    let mut found: BTreeMap<Place, Vec<&Symptom>> = BTreeMap::new();
    let mut unknown = Vec::new();
    for symptom in symptoms {
        let matching = known.matching(symptom);
        if matching.is_empty() && symptom.code.is_some() {
            unknown.push(symptom);
        }
        for place in matching {
            found.entry(place).or_default().push(symptom);
        }
    }
    let mut by_rule: BTreeMap<usize, Vec<&Symptom>> = BTreeMap::new();
    for ((rule, pattern), symptoms) in found {
        let at_least = known.pattern((rule, pattern)).map_or(1, |pattern| pattern.at_least);
        if symptoms.len() >= at_least {
            by_rule.entry(rule).or_default().extend(symptoms);
        }
    }
    let matched = by_rule.into_iter().filter_map(|(rule, symptoms)| Some(by_rule_of(known.rules.get(rule)?, &symptoms)));
    let mut findings: Vec<Finding> = matched.collect();
    findings.extend(unknown.into_iter().filter_map(by_code));
    findings.sort_by_key(|finding| finding.certainty);
    findings
}

fn by_rule_of(rule: &Rule, symptoms: &[&Symptom]) -> Finding {
    Finding {
        id: rule.id.clone(),
        title: rule.title.clone(),
        certainty: rule.certainty,
        cause: rule.cause.clone(),
        remedy: rule.remedy.clone(),
        links: rule.links.clone(),
        evidence: evidence(symptoms),
        seen: symptoms.len(),
    }
}

fn by_code(symptom: &Symptom) -> Option<Finding> {
    let code = symptom.code?;
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
        evidence: evidence(&[symptom]),
        seen: 1,
    })
}

fn evidence(symptoms: &[&Symptom]) -> Vec<Evidence> {
    let shown = |symptom: &&Symptom| Evidence { at: symptom.at.clone(), text: symptom.text.chars().take(LINE).collect() };
    symptoms.iter().take(EVIDENCE).map(shown).collect()
}

impl Finding {
    /// Returns cause, remedy and id as text for a condition.
    pub fn sentence(&self) -> String {
        format!("{}. {} ({})", self.cause.trim_end_matches('.'), self.remedy, self.id)
    }
}
