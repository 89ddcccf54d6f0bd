//! The components of a node and the choice for each.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::version::{Range, Truth, Version};

/// The components of a node, in the order of tables and messages.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
pub enum Component {
    /// The version of the kubelet.
    Kubernetes,
    /// Windows Server: release and revision (the last number of the build).
    Windows,
    /// The container runtime.
    Runtime,
    /// The sandbox image.
    Pause,
    /// The base image of a workload.
    Image,
    /// The isolation of containers: `process` (the default) or `hyperv`.
    Isolation,
    /// The kind of pod network: `overlay` or `l2bridge`.
    Network,
    /// The network plug-in.
    Cni,
    CloudbaseInit,
    /// The hypervisor of the machines, by the name of its driver.
    Hypervisor,
}

impl Component {
    pub const ALL: [Self; 10] = [
        Self::Kubernetes,
        Self::Windows,
        Self::Runtime,
        Self::Pause,
        Self::Image,
        Self::Isolation,
        Self::Network,
        Self::Cni,
        Self::CloudbaseInit,
        Self::Hypervisor,
    ];

    /// Returns the name in `compat.toml`, in JSON and in the flags of `capw compat`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes",
            Self::Windows => "windows",
            Self::Runtime => "runtime",
            Self::Pause => "pause",
            Self::Image => "image",
            Self::Isolation => "isolation",
            Self::Network => "network",
            Self::Cni => "cni",
            Self::CloudbaseInit => "cloudbase-init",
            Self::Hypervisor => "hypervisor",
        }
    }

    /// Returns the only product of a component; its name is not written.
    fn only_product(self) -> Option<&'static str> {
        matches!(self, Self::Kubernetes | Self::CloudbaseInit).then(|| self.name())
    }

    /// Returns the count of numbers in a complete version; 0 if any count is complete.
    fn places(self) -> usize {
        match self {
            Self::Pause => 0,
            Self::Windows => 1,
            _ => 3,
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A choice for a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub component: Component,
    pub product: String,
    /// The version. `None`: any.
    pub version: Option<Version>,
}

/// A choice that cannot be parsed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{component}: {value:?} is not understood: expected {expected}")]
pub struct PartError {
    pub component: Component,
    pub value: String,
    pub expected: &'static str,
}

impl Part {
    /// Parses user input: `v1.36.3`, `2025`, `10.0.26100.6899`, `containerd@2.3.7`, `registry.k8s.io/pause:3.10.2`, `calico@3.32`.
    pub fn parse(component: Component, value: &str) -> Result<Self, PartError> {
        let wrong = |expected| PartError { component, value: value.to_owned(), expected };
        let clean = !value.is_empty() && value.len() <= 512 && value.chars().all(|c| c.is_ascii_graphic());
        match component {
            _ if !clean => Err(wrong("a name or version without blanks")),
            Component::Kubernetes | Component::CloudbaseInit => {
                let version = Version::parse(value, component.places()).ok_or_else(|| wrong("a version, e.g. v1.36.3"))?;
                Ok(Self { component, product: component.name().into(), version: Some(version) })
            }
            Component::Windows => windows(value).ok_or_else(|| wrong("2019, 2022, 2025 or a build, e.g. 10.0.26100.6899")),
            Component::Pause => {
                let image = value.split_once('@').map_or(value, |(image, _)| image);
                let (product, tag) = match image.rsplit_once(':') {
                    Some((product, tag)) if !tag.contains('/') => (product, Some(tag)),
                    _ => (image, None),
                };
                if product.is_empty() {
                    return Err(wrong("an image, e.g. registry.k8s.io/pause:3.10.2"));
                }
                // A tag such as `latest` gives no version.
                Ok(Self { component, product: product.into(), version: tag.and_then(|tag| Version::parse(tag, component.places())) })
            }
            _ => {
                let (product, version) = value.split_once('@').map_or((value, None), |(product, version)| (product, Some(version)));
                let read = |text| Version::parse(text, component.places()).ok_or_else(|| wrong("NAME or NAME@VERSION, e.g. containerd@2.3.7"));
                Ok(Self { component, product: product.to_ascii_lowercase(), version: version.map(read).transpose()? })
            }
        }
    }

    /// Returns the part in the form that [`Part::parse`] reads.
    pub fn written(&self) -> String {
        match (self.component, &self.version) {
            (Component::Kubernetes | Component::CloudbaseInit, Some(version)) => version.to_string(),
            (Component::Windows, Some(revision)) => match build(&self.product) {
                Some(build) => format!("10.0.{build}.{revision}"),
                None => self.product.clone(),
            },
            (Component::Pause, Some(tag)) => format!("{}:{tag}", self.product),
            (_, Some(version)) => format!("{}@{version}", self.product),
            (_, None) => self.product.clone(),
        }
    }

    /// Whether this part is a more precise form of `other`.
    pub fn refines(&self, other: &Self) -> bool {
        self.product == other.product
            && match (&self.version, &other.version) {
                (Some(_), None) => true,
                (Some(one), Some(all)) => all.covers(one),
                _ => false,
            }
    }

    /// Whether both are of the same release line of one product.
    pub fn same_line(&self, other: &Self) -> bool {
        let line = match (&self.version, &other.version) {
            (Some(a), Some(b)) => a.same_line(b),
            _ => true,
        };
        self.product == other.product && (line || self.component == Component::Windows)
    }
}

/// Shows the part in messages: `Windows Server 2025 (10.0.26100.6899)`.
impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.component, &self.version) {
            (Component::Kubernetes, Some(version)) => write!(f, "Kubernetes v{}", version.to_string().trim_start_matches('v')),
            (Component::Windows, None) => write!(f, "Windows Server {}", self.product),
            (Component::Windows, Some(_)) => write!(f, "Windows Server {} ({})", self.product, self.written()),
            (Component::Pause, _) => f.write_str(&self.written()),
            (Component::Isolation | Component::Network, _) => write!(f, "{} {}", self.component, self.product),
            (Component::Image, _) => write!(f, "base image {}", self.product),
            (_, Some(version)) => write!(f, "{} {version}", self.product),
            (_, None) => f.write_str(&self.product),
        }
    }
}

const BUILDS: [(&str, &str); 4] = [("2019", "17763"), ("2022", "20348"), ("23h2", "25398"), ("2025", "26100")];

fn build(release: &str) -> Option<&'static str> {
    BUILDS.iter().find(|(name, _)| *name == release).map(|(_, build)| *build)
}

/// Parses a release, a semi-annual release, or a build with or without revision.
fn windows(value: &str) -> Option<Part> {
    let component = Component::Windows;
    let value = value.to_ascii_lowercase();
    let part = |product: &str, revision: Option<&str>| {
        let version = revision.map(|text| Version::parse(text, component.places())).unwrap_or_default();
        Some(Part { component, product: product.to_owned(), version }).filter(|part| part.version.is_some() == revision.is_some())
    };
    let name = value.strip_prefix("ltsc").unwrap_or(&value);
    if build(name).is_some() || ["1709", "1803", "1809", "1903", "1909", "2004", "20h2", "2016"].contains(&name) {
        return part(if name == "1809" { "2019" } else { name }, None);
    }
    let rest = value.strip_prefix("10.0.").unwrap_or(&value);
    let (number, revision) = rest.split_once('.').map_or((rest, None), |(number, revision)| (number, Some(revision)));
    let release = BUILDS.iter().find(|(_, build)| *build == number).map(|(name, _)| *name)?;
    part(release, revision)
}

/// A question: at most one part per component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question(BTreeMap<Component, Part>);

impl Question {
    pub fn with(mut self, part: Part) -> Self {
        self.0.insert(part.component, part);
        self
    }

    pub fn get(&self, component: Component) -> Option<&Part> {
        self.0.get(&component)
    }

    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.0.values()
    }
}

/// The parts that a row applies to: a product or `*`, and possibly a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    product: Option<String>,
    range: Option<Range>,
}

impl Pattern {
    pub fn parse(component: Component, text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some(product) = component.only_product() {
            let range = if text == "*" { None } else { Some(Range::parse(text)?) };
            return Some(Self { product: Some(product.into()), range });
        }
        let (product, range) = text.split_once(' ').map_or((text, None), |(product, range)| (product, Some(range)));
        let range = match range {
            Some(range) => Some(Range::parse(range)?),
            None => None,
        };
        Some(Self { product: (product != "*").then(|| product.to_owned()), range })
    }

    pub fn matches(&self, part: &Part) -> Truth {
        if self.product.as_ref().is_some_and(|product| *product != part.product) {
            return Truth::No;
        }
        match &self.range {
            None => Truth::Yes,
            // A release without a revision counts as a release with current updates.
            Some(range) if part.component == Component::Windows && part.version.is_none() => range.holds_newest(),
            Some(range) => range.holds(part.version.as_ref()),
        }
    }

    /// Returns the product, if it is not `*`.
    pub fn product(&self) -> Option<&str> {
        self.product.as_deref()
    }
}
