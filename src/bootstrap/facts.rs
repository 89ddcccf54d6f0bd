//! The input of rendering. Rendering reads nothing else: the same facts always give the same bytes.

use std::fmt;

use secrecy::SecretString;
use thiserror::Error;

use super::secrets::Secrets;
use crate::api::bootstrap_config::WindowsBootstrapConfigSpec;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::name::HostName;

/// The supported minors of Kubernetes 1.x (kubeadm v1beta4 starts with 1.31).
pub const MINORS: std::ops::RangeInclusive<u32> = 31..=37;

/// All facts that determine the bytes of one machine.
#[derive(Clone)]
pub struct BootstrapFacts {
    pub machine_uid: String,
    pub machine_name: String,
    /// A number that grows with every change of the data, so that the guest can distinguish an old plan from a new one.
    pub generation: i64,
    /// The host name. `None`: another infrastructure provider decides the name, and the node uses the name of Windows.
    pub host_name: Option<HostName>,
    /// The provider ID `windows://<hypervisor>/<uuid>`; `None` under another infrastructure provider.
    pub provider_id: Option<String>,
    pub kubernetes: KubernetesVersion,
    /// The minor of the API server's version. `None`: not known.
    pub api_server_minor: Option<u32>,
    /// The `host:port` of the API server, IPv6 in brackets.
    pub endpoint: String,
    /// The certificate of the cluster's CA, PEM.
    pub ca_pem: String,
    /// The digest `sha256:<hex>` of that certificate's public key: [`ca_hash`](super::digest::ca_hash).
    pub ca_hash: String,
    /// The bootstrap token, `id.secret`.
    pub token: SecretString,
    /// The number of CPUs. `None`: not known; the reserves are then as for a small machine.
    pub cpus: Option<u32>,
    pub memory_mib: Option<u64>,
    /// The size of the system disk. `None`: as in the image, or not known.
    pub system_disk_gib: Option<u64>,
    /// The addresses of the cluster's DNS. Empty: the kubelet uses the value of the cluster's `kubelet-config`.
    pub cluster_dns: Vec<String>,
    /// The DNS domain of the cluster. Empty: the kubelet uses the value of the cluster's `kubelet-config`.
    pub cluster_domain: String,
    /// The Pod and Service networks of the Cluster, which bypass the proxy.
    pub pod_networks: Vec<String>,
    pub service_networks: Vec<String>,
    /// The number of pods that can have an address on the node. `None`: not known.
    pub pods_per_node: Option<u64>,
    /// The values that `spec` takes from Secrets: one for each of [`WindowsBootstrapConfigSpec::secret_refs`].
    pub secrets: Secrets,
    pub spec: WindowsBootstrapConfigSpec,
}

impl fmt::Debug for BootstrapFacts {
    /// Omits the token, the values of Secrets and the users' files.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BootstrapFacts")
            .field("machine_name", &self.machine_name)
            .field("kubernetes", &self.kubernetes.to_string())
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// The reason why a text is not a supported version.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum VersionError {
    #[error("version: {value:?} is not a Kubernetes version: expected e.g. v1.36.3")]
    Form { value: String },
    #[error(
        "version: {value:?} is older than v1.31: nodes join with kubeadm v1beta4, which starts with v1.31, and 1.30 has had no fixes since June 2025; upgrade the cluster to v1.31 or newer, one minor at a time"
    )]
    TooOld { value: String },
    #[error("version: {value:?} is newer than v1.37, the newest version that this release supports: use an older version, or update CAPW")]
    TooNew { value: String },
}

impl KubernetesVersion {
    /// Parses the version of a node: it has all three numbers, and a minor that this release supports.
    pub fn supported(value: &str) -> Result<Self, VersionError> {
        let version = Self::parse(value).filter(Self::is_of_a_release).ok_or_else(|| VersionError::Form { value: value.into() })?;
        match (version.major, version.minor) {
            (1, minor) if MINORS.contains(&minor) => Ok(version),
            (0, _) => Err(VersionError::TooOld { value: value.into() }),
            (1, minor) if minor < *MINORS.start() => Err(VersionError::TooOld { value: value.into() }),
            _ => Err(VersionError::TooNew { value: value.into() }),
        }
    }

    /// Whether the version has a patch, and a suffix that a release can have.
    fn is_of_a_release(&self) -> bool {
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-+".contains(c);
        let is_suffix = self.suffix.starts_with(['-', '+']) && (2..=64).contains(&self.suffix.len()) && self.suffix.chars().all(plain);
        self.patch.is_some() && (self.suffix.is_empty() || is_suffix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn versions() {
        for (text, shown) in [("v1.36.3", "v1.36.3"), ("1.31.0", "v1.31.0"), ("v1.37.0-rc.1", "v1.37.0-rc.1"), ("v1.33.2+k3s1", "v1.33.2+k3s1")] {
            assert_eq!(KubernetesVersion::supported(text).unwrap().to_string(), shown);
        }
        for (text, why) in [
            ("", "expected e.g."),
            ("v1.36", "expected e.g."),
            ("v1.36.3.1", "expected e.g."),
            ("v1.36.x", "expected e.g."),
            ("v1.36.3-", "expected e.g."),
            ("v1.36.3 ", "expected e.g."),
            ("v1.+36.3", "expected e.g."),
            ("v1.30.9", "older than v1.31"),
            ("v0.9.0", "older than v1.31"),
            ("v1.38.0", "newer than v1.37"),
            ("v2.0.0", "newer than v1.37"),
        ] {
            let error = KubernetesVersion::supported(text).unwrap_err().to_string();
            assert!(error.contains(why) && error.starts_with("version: "), "{text}: {error}");
        }
    }

    #[test]
    fn the_data_about_versions_knows_the_same_minors() {
        for minor in 20..50 {
            let refused = crate::compat::check(&WindowsBootstrapConfigSpec::default(), &format!("v1.{minor}.4")).is_err();
            assert_eq!(refused, !MINORS.contains(&minor), "v1.{minor}");
        }
    }

    proptest! {
        #[test]
        fn no_version_text_panics(text in ".{0,40}") {
            let _ = KubernetesVersion::supported(&text);
        }
    }
}
