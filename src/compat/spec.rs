//! Compatibility of the versions in a WindowsBootstrapConfig.

use std::fmt;

use super::data::{Data, Verdict, data};
use super::part::{Component, Part, PartError, Question};
use super::solve::{Answer, Finding, answer, findings};
use super::version::Version;
use crate::api::bootstrap_config::{ContainerdLine, WindowsBootstrapConfigSpec, WindowsRelease};

/// A combination that cannot work: the failing edge, the field to change and the nearest set that works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incompatible {
    /// Path of the field that is cheapest to change.
    pub field: &'static str,
    pub value: String,
    /// The failing edges, each with its source, and the nearest set that works.
    pub message: String,
}

impl fmt::Display for Incompatible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}: {}", self.field, self.value, self.message)
    }
}

/// The field of a component in the users' objects.
fn field(component: Component) -> &'static str {
    match component {
        Component::Kubernetes => "spec.version of the Machine",
        Component::Windows => "spec.windowsRelease",
        Component::Runtime => "spec.containerd.line",
        Component::Pause => "spec.containerd.sandboxImage",
        _ => "spec",
    }
}

fn release(windows: WindowsRelease) -> &'static str {
    match windows {
        WindowsRelease::Server2019 => "2019",
        WindowsRelease::Server2022 => "2022",
        WindowsRelease::Server2025 => "2025",
    }
}

/// The versions of a node that are known before it exists. An unparsable version or image is reported where that field is validated.
fn question(spec: &WindowsBootstrapConfigSpec, kubernetes: &str) -> Result<Question, PartError> {
    let line = match spec.containerd.line {
        ContainerdLine::V1 => "containerd@1.7",
        ContainerdLine::V2 => "containerd@2",
    };
    let mut question = Question::default()
        .with(Part::parse(Component::Kubernetes, kubernetes)?)
        .with(Part::parse(Component::Windows, release(spec.windows_release))?)
        .with(Part::parse(Component::Runtime, line)?);
    if let Some(image) = &spec.containerd.sandbox_image {
        question = question.with(Part::parse(Component::Pause, image)?);
    }
    // Some pods will use it; process isolation needs less.
    if spec.containerd.hyper_v.is_some() {
        question = question.with(Part::parse(Component::Isolation, "hyperv")?);
    }
    Ok(question)
}

/// Whether this node can work with that version of Kubernetes. Unknown and inadvisable combinations pass: they are the user's choice,
/// and `capw compat` reports them.
pub fn check(spec: &WindowsBootstrapConfigSpec, kubernetes: &str) -> Result<(), Incompatible> {
    let Ok(question) = question(spec, kubernetes) else { return Ok(()) };
    if findings(data(), &question).iter().all(|finding| finding.verdict != Verdict::Fails) {
        return Ok(());
    }
    let answer = answer(data(), &question);
    let failing: Vec<&Finding> = answer.findings.iter().filter(|finding| finding.verdict == Verdict::Fails).collect();
    Err(refusal(&answer, &failing))
}

fn refusal(answer: &Answer, failing: &[&Finding]) -> Incompatible {
    let changes = answer.nearest.as_ref().map(|nearest| nearest.changes.as_slice()).unwrap_or_default();
    let said: Vec<String> = failing.iter().map(|finding| said(finding)).collect();
    // A version that is only more precise does not count as a change.
    let concerned: Vec<_> = changes.iter().filter(|change| !change.to.refines(&change.from)).collect();
    let way = match concerned.as_slice() {
        [] => "no set that is known to work is near".to_owned(),
        some => {
            some.iter().map(|change| format!("{} instead of {} ({})", change.to, change.from, field(change.component))).collect::<Vec<_>>().join(", ")
        }
    };
    let first = concerned.first().map(|change| &change.from).or_else(|| failing.first().and_then(|finding| finding.parts.first()));
    Incompatible {
        field: first.map_or("spec", |part| field(part.component)),
        value: first.map(value).unwrap_or_default(),
        message: format!("{}. Nearest set that works: {way}", said.join("; ")),
    }
}

/// The value as the field has it.
fn value(part: &Part) -> String {
    match (part.component, &part.version) {
        (Component::Runtime, Some(version)) => version.to_string(),
        _ => part.written(),
    }
}

/// A finding in a sentence.
fn said(finding: &Finding) -> String {
    let parts: Vec<String> = finding.parts.iter().map(ToString::to_string).collect();
    let source = finding.source.as_ref().map(|source| format!(" ({source})")).unwrap_or_default();
    format!("{}: {}{source}", parts.join(" with "), finding.why)
}

/// The sandbox image for a node: kubeadm's own for the version, or the next newer one that has the Windows release.
pub fn pause_image(windows: WindowsRelease, kubernetes: &str) -> Option<String> {
    let data = data();
    let default = data.pause_default(&Version::parse(kubernetes, 3)?)?;
    let from = Part::parse(Component::Pause, &format!("{}:{default}", data.pause_repository)).ok()?;
    let windows = Part::parse(Component::Windows, release(windows)).ok()?;
    newer(data, &from).into_iter().find(|image| holds(data, &windows, image)).map(|image| image.written())
}

/// The image itself, then the known newer ones, oldest first.
fn newer(data: &Data, from: &Part) -> Vec<Part> {
    let known = data.choices.get(&Component::Pause).map(|choice| choice.candidates.as_slice()).unwrap_or_default();
    let order = |a: &Part, b: &Part| match (&a.version, &b.version) {
        (Some(a), Some(b)) => a.compare(b),
        _ => std::cmp::Ordering::Equal,
    };
    let mut all: Vec<Part> = known.iter().filter(|image| image.product == from.product && order(image, from).is_ge()).cloned().collect();
    all.sort_by(order);
    all
}

fn holds(data: &Data, windows: &Part, image: &Part) -> bool {
    findings(data, &Question::default().with(windows.clone()).with(image.clone())).iter().all(|finding| {
        // Warnings about Windows itself do not depend on the image.
        !finding.between.contains(&Component::Pause) || finding.verdict == Verdict::Works
    })
}
