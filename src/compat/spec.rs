//! Compatibility of the versions in a WindowsBootstrapConfig.

use std::fmt;

use super::data::{Data, Verdict, data};
use super::part::{Component, Part, PartError, Question};
use super::solve::{Answer, Finding, answer, findings};
use super::version::Version;
use crate::api::bootstrap_config::{Channel, ContainerdLine, ProxyNetwork, WindowsBootstrapConfigSpec, WindowsRelease};

/// A combination that cannot work: the failing edge, the field to change and the nearest set that works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incompatible {
    /// The path of the field that is cheapest to change.
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

/// Returns the field of a component in the users' objects.
fn field(component: Component) -> &'static str {
    match component {
        Component::Kubernetes => "spec.version of the Machine",
        Component::Windows => "spec.windowsRelease",
        Component::Runtime => "spec.containerd.line",
        Component::Pause => "spec.containerd.sandboxImage",
        Component::Isolation => "spec.windows.hyperVIsolation",
        Component::Network => "spec.kubeProxy.networkType or spec.knownVersions.podNetwork",
        Component::Cni => "spec.knownVersions.networkPlugin",
        Component::CloudbaseInit => "spec.knownVersions.cloudbaseInit",
        Component::Hypervisor => "spec.hypervisorRef of the WindowsMachine",
        _ => "spec",
    }
}

/// Returns the versions of a node that are known before it exists. The validation of each field reports an unparsable version or image.
fn question(spec: &WindowsBootstrapConfigSpec, kubernetes: &str) -> Result<Question, PartError> {
    let line = match spec.containerd.line {
        ContainerdLine::V1 => "containerd@1.7",
        ContainerdLine::V2 => "containerd@2",
    };
    let mut question =
        Question::default().with(Part::parse(Component::Kubernetes, kubernetes)?).with(windows(spec)?).with(Part::parse(Component::Runtime, line)?);
    if let Some(image) = &spec.containerd.sandbox_image {
        question = question.with(Part::parse(Component::Pause, image)?);
    }
    // Some pods will use Hyper-V isolation; process isolation needs less.
    if spec.containerd.hyper_v.is_some() || spec.windows.hyper_v_isolation {
        question = question.with(Part::parse(Component::Isolation, "hyperv")?);
    }
    let known = spec.known_versions.clone().unwrap_or_default();
    if let Some(network) = spec.kube_proxy.as_ref().map(|proxy| proxy.network_type).or(known.pod_network) {
        let network = match network {
            ProxyNetwork::Overlay => "overlay",
            ProxyNetwork::L2Bridge => "l2bridge",
        };
        question = question.with(Part::parse(Component::Network, network)?);
    }
    if let Some(plugin) = &known.network_plugin {
        question = question.with(Part::parse(Component::Cni, plugin)?);
    }
    if let Some(version) = known.cloudbase_init.as_ref().filter(|_| spec.channel != Channel::Unattend) {
        question = question.with(Part::parse(Component::CloudbaseInit, version)?);
    }
    Ok(question)
}

/// Returns the release, with its revision if it is known.
fn windows(spec: &WindowsBootstrapConfigSpec) -> Result<Part, PartError> {
    match spec.known_versions.as_ref().and_then(|known| known.windows_revision) {
        Some(revision) => Part::parse(Component::Windows, &format!("10.0.{}.{revision}", spec.windows_release.build())),
        None => Part::parse(Component::Windows, spec.windows_release.as_str()),
    }
}

/// Returns the error for a kubelet of that version with an API server of an older minor.
pub fn newer_than_server(kubernetes: &str, server_minor: u32) -> Incompatible {
    Incompatible {
        field: field(Component::Kubernetes),
        value: kubernetes.to_owned(),
        message: format!(
            "the API server is 1.{server_minor}, and a kubelet must not be newer (https://kubernetes.io/releases/version-skew-policy/): upgrade the control plane first, or use 1.{server_minor} or older here"
        ),
    }
}

/// Checks whether this node can work with that version of Kubernetes. Unknown and inadvisable combinations pass: the user chooses them,
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

/// Returns the value in the form of the field.
fn value(part: &Part) -> String {
    match (part.component, &part.version) {
        (Component::Runtime, Some(version)) => version.to_string(),
        _ => part.written(),
    }
}

/// Returns a finding as a sentence.
fn said(finding: &Finding) -> String {
    let parts: Vec<String> = finding.parts.iter().map(ToString::to_string).collect();
    let source = finding.source.as_ref().map(|source| format!(" ({source})")).unwrap_or_default();
    format!("{}: {}{source}", parts.join(" with "), finding.why)
}

/// Returns the finding about a hypervisor, from the product name that it reports, e.g. `VMware vCenter Server 8.0.3 build-24322831`; `None` if
/// the name has no number, or no row is about it.
pub fn hypervisor(product: &str, called: &str) -> Option<Finding> {
    let number = called.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let part = Part::parse(Component::Hypervisor, &format!("{product}@{number}")).ok()?;
    findings(data(), &Question::default().with(part)).into_iter().find(|finding| finding.row.is_some())
}

/// Returns the sandbox image for a node: kubeadm's own for the version, or the next newer one that has the Windows release.
pub fn pause_image(windows: WindowsRelease, kubernetes: &str) -> Option<String> {
    let data = data();
    let default = data.pause_default(&Version::parse(kubernetes, 3)?)?;
    let from = Part::parse(Component::Pause, &format!("{}:{default}", data.pause_repository)).ok()?;
    let windows = Part::parse(Component::Windows, windows.as_str()).ok()?;
    newer(data, &from).into_iter().find(|image| holds(data, &windows, image)).map(|image| image.written())
}

/// Returns the image itself, then the known newer ones, oldest first.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::bootstrap_config::KnownVersions;

    /// Checks that each version in the object is part of the question, with the field that contains it.
    #[test]
    fn every_version_that_an_object_names_counts() {
        let known = |known: KnownVersions| WindowsBootstrapConfigSpec { known_versions: Some(known), ..Default::default() };
        let mut hyper_v: WindowsBootstrapConfigSpec = serde_json::from_value(serde_json::json!({"windowsRelease": "2025"})).unwrap();
        hyper_v.containerd.sandbox_image = Some("mcr.microsoft.com/oss/kubernetes/pause:3.9".into());
        assert!(check(&hyper_v, "v1.36.3").is_ok(), "with process isolation it can work");
        hyper_v.windows.hyper_v_isolation = true;
        let mut overlay = known(KnownVersions { pod_network: Some(ProxyNetwork::Overlay), windows_revision: Some(4061), ..Default::default() });
        overlay.windows_release = WindowsRelease::Server2025;
        for (spec, field, words) in [
            (overlay, "spec.windowsRelease", "KB5066835"),
            (hyper_v, "spec.containerd.sandboxImage", "oss/v2"),
            (
                known(KnownVersions { network_plugin: Some("cilium@1.18".into()), ..Default::default() }),
                "spec.knownVersions.networkPlugin",
                "data path",
            ),
            (known(KnownVersions { windows_revision: Some(2582), ..Default::default() }), "spec.windowsRelease", "KB5040437"),
        ] {
            let error = check(&spec, "v1.36.3").unwrap_err();
            assert_eq!(error.field, field, "{error}");
            assert!(error.message.contains(words), "{error}");
        }
        let fine = KnownVersions {
            network_plugin: Some("calico@3.32".into()),
            windows_revision: Some(5499),
            cloudbase_init: Some("1.1.8".into()),
            pod_network: Some(ProxyNetwork::Overlay),
        };
        assert!(check(&known(fine), "v1.36.3").is_ok());
    }

    #[test]
    fn a_hypervisor_is_known_by_what_it_calls_itself() {
        let verdict = |product, called| hypervisor(product, called).map(|finding| finding.verdict);
        assert_eq!(verdict("vsphere", "VMware vCenter Server 7.0.3 build-24322831"), Some(Verdict::Warns));
        assert_eq!(verdict("vsphere", "VMware vCenter Server 6.5.0 build-5973321"), Some(Verdict::Fails));
        assert_eq!(verdict("proxmox", "Proxmox VE 9.0.3"), Some(Verdict::Works));
        assert_eq!(verdict("libvirt", "libvirt 8.0.0"), Some(Verdict::Unknown));
        assert_eq!((verdict("simulated", "simulated 1.0"), verdict("libvirt", "libvirt")), (None, None));
    }
}
