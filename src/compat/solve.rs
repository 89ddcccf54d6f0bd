//! Finds the answer to a question: yes, or the failing edge and the nearest set that is known to work.

use serde::{Serialize, Serializer};

use super::data::{Basis, Choice, Data, Edge, Row, Verdict};
use super::part::{Component, Part, Question};
use super::version::Truth;

/// The verdict of one edge.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct Finding {
    pub between: Vec<Component>,
    #[serde(serialize_with = "texts")]
    pub parts: Vec<Part>,
    pub verdict: Verdict,
    /// The reason in one or two sentences; if nothing is known, the missing information.
    pub why: String,
    /// The row that decided, if any.
    pub row: Option<String>,
    pub source: Option<String>,
    /// The day on which the source was last read.
    pub checked: Option<String>,
    pub basis: Option<Basis>,
}

/// One part and its replacement.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct Change {
    pub component: Component,
    #[serde(serialize_with = "text")]
    pub from: Part,
    #[serde(serialize_with = "text")]
    pub to: Part,
}

/// A set that is known to work, with the fewest and cheapest changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nearest {
    pub set: Question,
    pub changes: Vec<Change>,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub question: Question,
    /// The worst verdict of all findings; `Works` if there are no findings.
    pub verdict: Verdict,
    /// The findings, in the order of the data file.
    pub findings: Vec<Finding>,
    /// The nearest set that works, if the answer is not yes and such a set exists.
    pub nearest: Option<Nearest>,
}

impl Answer {
    /// Whether the set is known to work, possibly with a warning.
    pub fn accepted(&self) -> bool {
        accepted(self.verdict)
    }
}

fn accepted(verdict: Verdict) -> bool {
    verdict <= Verdict::Warns
}

fn text<S: Serializer>(part: &Part, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&part.written())
}

fn texts<S: Serializer>(parts: &[Part], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(parts.iter().map(Part::written))
}

/// Answers a question; deterministic for the same data.
pub fn answer(data: &Data, question: &Question) -> Answer {
    let findings = findings(data, question);
    let verdict = worst(&findings);
    let nearest = if accepted(verdict) { None } else { nearest(data, question) };
    Answer { question: question.clone(), verdict, findings, nearest }
}

/// Returns the finding of each edge, without searching for a set that works.
pub fn findings(data: &Data, question: &Question) -> Vec<Finding> {
    data.edges.iter().filter_map(|edge| look(edge, question)).collect()
}

fn worst(findings: &[Finding]) -> Verdict {
    findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Works)
}

/// Returns the finding of an edge, if the question names all its components.
fn look(edge: &Edge, question: &Question) -> Option<Finding> {
    let parts: Vec<Part> = edge.between.iter().map(|component| question.get(*component).cloned()).collect::<Option<_>>()?;
    let (rows, decided) = decide(edge, question);
    let verdict = together(&rows, decided);
    let named: Vec<String> = parts.iter().map(Part::to_string).collect();
    // A partial version may match several rows: the row with the worst verdict counts.
    let row = rows.iter().max_by_key(|row| row.verdict).filter(|row| decided || row.verdict >= Verdict::Unknown);
    let why = match (verdict, row) {
        (Verdict::Depends, Some(row)) => format!("it depends on the exact version: {}", row.why),
        (Verdict::Warns, Some(row)) if rows.len() > 1 => format!("for some versions: {}", row.why),
        (_, Some(row)) => row.why.clone(),
        (Verdict::Depends, None) => format!("it depends on the exact version: for some of {} nothing is known", named.join(" with ")),
        (_, None) => format!("nothing is known about {}", named.join(" with ")),
    };
    Some(Finding {
        between: edge.between.clone(),
        parts,
        verdict,
        why,
        row: row.map(|row| row.id.clone()),
        source: row.map(|row| row.source.clone()),
        checked: row.map(|row| row.checked.clone()),
        basis: row.map(|row| row.basis),
    })
}

/// Returns the rows that may match, and whether the last of them matches for certain: the first certain match decides.
fn decide<'a>(edge: &'a Edge, question: &Question) -> (Vec<&'a Row>, bool) {
    let mut rows = Vec::new();
    for row in &edge.rows {
        match row.matches(question) {
            Truth::No => {}
            Truth::Some => rows.push(row),
            Truth::Yes => {
                rows.push(row);
                return (rows, true);
            }
        }
    }
    (rows, false)
}

/// Combines the verdicts of several rows; if no row matches for certain, part of the answer is unknown.
fn together(rows: &[&Row], decided: bool) -> Verdict {
    let mut verdicts = rows.iter().map(|row| row.verdict).chain((!decided).then_some(Verdict::Unknown));
    let Some(first) = verdicts.next() else { return Verdict::Unknown };
    let rest: Vec<Verdict> = verdicts.collect();
    if rest.iter().all(|verdict| *verdict == first) {
        return first;
    }
    if rest.iter().chain([&first]).all(|verdict| accepted(*verdict)) { Verdict::Warns } else { Verdict::Depends }
}

/// The rank of a set; less is better. The later fields decide between equal costs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    cost: u32,
    warnings: usize,
    /// The positions in the lists of candidates, best first.
    places: Vec<usize>,
}

struct Search<'a> {
    data: &'a Data,
    question: &'a Question,
    /// The options of each part: cost, position among the candidates, part.
    domains: Vec<Vec<(u32, usize, Part)>>,
    best: Option<(Rank, Question)>,
}

/// Returns the nearest set that works. The search tries every set that does not cost more than the best so far.
fn nearest(data: &Data, question: &Question) -> Option<Nearest> {
    let domains = question.parts().map(|part| domain(data.choices.get(&part.component), part)).collect();
    let mut search = Search { data, question, domains, best: None };
    search.descend(0, Question::default(), 0, Vec::new());
    let (_, set) = search.best?;
    let changes = question.parts().filter_map(|from| {
        let to = set.get(from.component).filter(|to| *to != from)?;
        Some(Change { component: from.component, from: from.clone(), to: to.clone() })
    });
    Some(Nearest { changes: changes.collect(), set })
}

/// Returns the part itself at no cost, then the candidates with their costs, cheapest first.
fn domain(choice: Option<&Choice>, part: &Part) -> Vec<(u32, usize, Part)> {
    let mut all = vec![(0, 0, part.clone())];
    for (place, candidate) in choice.into_iter().flat_map(|choice| choice.candidates.iter().enumerate()) {
        let Some(choice) = choice else { continue };
        let price = match candidate {
            same if same == part => continue,
            // This is a more precise version of the same part.
            one if one.refines(part) => 1,
            near if near.same_line(part) => choice.version,
            line if line.product == part.product => choice.version.saturating_mul(2),
            _ => choice.product,
        };
        all.push((price, place + 1, candidate.clone()));
    }
    all.sort_by_key(|(price, place, _)| (*price, *place));
    all
}

impl Search<'_> {
    fn descend(&mut self, depth: usize, set: Question, cost: u32, places: Vec<usize>) {
        if self.best.as_ref().is_some_and(|(best, _)| cost > best.cost) {
            return;
        }
        let Some(domain) = self.domains.get(depth).cloned() else {
            let findings = findings(self.data, &set);
            if !accepted(worst(&findings)) {
                return;
            }
            let warnings = findings.iter().filter(|finding| finding.verdict == Verdict::Warns).count();
            let rank = Rank { cost, warnings, places };
            if self.best.as_ref().is_none_or(|(best, _)| rank < *best) {
                self.best = Some((rank, set));
            }
            return;
        };
        for (price, place, part) in domain {
            let component = part.component;
            let next = set.clone().with(part);
            if self.fails(component, &next) {
                continue;
            }
            let mut places = places.clone();
            places.push(place);
            self.descend(depth + 1, next, cost.saturating_add(price), places);
        }
    }

    /// Whether an edge that the newest part completes fails; edges with a later part are checked when that part is added.
    fn fails(&self, newest: Component, set: &Question) -> bool {
        let open = |component: &Component| self.question.get(*component).is_some() && set.get(*component).is_none();
        let complete = self.data.edges.iter().filter(|edge| edge.between.contains(&newest) && !edge.rows.iter().any(|row| row.when.keys().any(open)));
        complete.filter_map(|edge| look(edge, set)).any(|finding| !accepted(finding.verdict))
    }
}
