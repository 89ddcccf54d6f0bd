//! The settings of Windows itself.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::secret::ValueSource;

/// Label that kubelets give their Nodes: the version of Windows without its revision, e.g. `10.0.20348`.
pub const BUILD_LABEL: &str = "node.kubernetes.io/windows-build";
/// Label of Nodes with `hyperVIsolation`, with the value `true`.
pub const HYPER_V_LABEL: &str = "infrastructure.cluster.x-k8s.io/hyper-v-isolation";

/// A release of Windows Server.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq, PartialOrd, Ord)]
pub enum WindowsRelease {
    #[serde(rename = "2019")]
    Server2019,
    #[default]
    #[serde(rename = "2022")]
    Server2022,
    #[serde(rename = "2025")]
    Server2025,
}

impl WindowsRelease {
    pub const ALL: [Self; 3] = [Self::Server2019, Self::Server2022, Self::Server2025];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Server2019 => "2019",
            Self::Server2022 => "2022",
            Self::Server2025 => "2025",
        }
    }

    /// The version of Windows without its revision, as in [`BUILD_LABEL`].
    pub fn version(self) -> String {
        format!("10.0.{}", self.build())
    }

    /// The build of Windows, as in its version `10.0.<build>`.
    pub fn build(self) -> u32 {
        match self {
            Self::Server2019 => 17_763,
            Self::Server2022 => 20_348,
            Self::Server2025 => 26_100,
        }
    }
}

/// How Windows itself is set up.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Windows {
    /// Size of the fixed page file on C:, in MiB. Default: a quarter of the memory, from 4096 to 16384, at most 15% of the system disk.
    #[serde(default, rename = "pageFileMiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 1_048_576))]
    pub page_file_mib: Option<i32>,
    /// GiB that must be free on C: before anything is installed, 1 to 1024; its partition is extended first. Default: 20.
    #[serde(default = "default_free_space", rename = "freeSpaceGiB")]
    #[schemars(range(min = 1, max = 1024))]
    pub free_space_gib: i32,
    /// Name of a time zone as `tzutil /l` lists it, e.g. `W. Europe Standard Time`. Default: the image's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z0-9][-A-Za-z0-9 .+()]*$')").message("must be a name that tzutil /l lists, e.g. UTC or W. Europe Standard Time"))]
    pub time_zone: Option<String>,
    /// Power plan of the machine. Default: `HighPerformance`, without hibernation.
    #[serde(default)]
    pub power_plan: PowerPlan,
    /// Automatic updates. Default: `Disabled`, because they restart nodes without draining them.
    #[serde(default)]
    pub windows_update: WindowsUpdate,
    /// Prepare for pods with Hyper-V isolation: the feature Hyper-V and its hypervisor. Needs nested virtualization. The Node gets the label `infrastructure.cluster.x-k8s.io/hyper-v-isolation: "true"`. Default: false.
    #[serde(default, rename = "hyperVIsolation")]
    pub hyper_v_isolation: bool,
    /// Exclude the node's directories and programs from Microsoft Defender's real-time scan. A failure is only a warning. Default: true.
    #[serde(default = "yes")]
    pub defender_exclusions: bool,
    /// Set the registry values that are known to repair the networking of this Windows release. Default: true.
    #[serde(default = "yes")]
    pub registry_overrides: bool,
    /// At each start of Windows, remove the leftovers of deleted containers from the container network: after a crash they make new pods fail. Default: true.
    #[serde(default = "yes")]
    pub network_clean_up: bool,
    /// Memory dump that Windows writes to C:\Windows when it crashes. A kernel dump can take as much space as the page file. Default: `AsInImage`.
    #[serde(default)]
    pub crash_dump: CrashDump,
    /// Hardening: small measures that do not affect the work of nodes.
    #[serde(default)]
    pub hardening: Hardening,
    /// Settings of the node for pods that use group managed service accounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gmsa: Option<Gmsa>,
}

fn default_free_space() -> i32 {
    20
}

fn yes() -> bool {
    true
}

impl Default for Windows {
    fn default() -> Self {
        Self {
            page_file_mib: None,
            free_space_gib: default_free_space(),
            time_zone: None,
            power_plan: PowerPlan::default(),
            windows_update: WindowsUpdate::default(),
            hyper_v_isolation: false,
            defender_exclusions: true,
            registry_overrides: true,
            network_clean_up: true,
            crash_dump: CrashDump::default(),
            hardening: Hardening::default(),
            gmsa: None,
        }
    }
}

#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum PowerPlan {
    #[default]
    HighPerformance,
    AsInImage,
}

#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum WindowsUpdate {
    #[default]
    Disabled,
    AsInImage,
}

/// The memory dump that Windows writes when it crashes.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum CrashDump {
    #[default]
    AsInImage,
    /// No memory dump.
    Disabled,
    /// Small dumps in `C:\Windows\Minidump`, less than a MiB each.
    Small,
    /// The memory of the kernel, in `C:\Windows\MEMORY.DMP`.
    Kernel,
}

/// Hardening of Windows.
#[derive(JsonSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Hardening {
    /// The firewall is on for every profile. Default: true.
    pub firewall: bool,
    /// Disable SMB version 1, both server and client. Default: true.
    pub smb1_off: bool,
    /// Passwords are not kept in memory for WDigest. Default: true.
    pub wdigest_off: bool,
    /// Remote desktop requires network level authentication. Default: true.
    pub rdp_network_level_authentication: bool,
    /// Windows does not resolve names by multicast (LLMNR), which any machine may answer. Default: true.
    pub llmnr_off: bool,
    /// Other processes cannot read the memory of LSASS, which holds credentials. Plug-ins that are not signed by Microsoft no longer load into it. Default: false.
    pub lsa_protection: bool,
    /// Disable TLS 1.0 and 1.1. Default: false.
    pub legacy_tls_off: bool,
    /// SMB, as client and as server, requires signatures. Default: false.
    pub smb_signing: bool,
    /// Windows sends NTLMv2 only, and accepts nothing older. Default: false.
    pub ntlm_v1_off: bool,
    /// Disable the print spooler. Default: false.
    pub print_spooler_off: bool,
}

impl Default for Hardening {
    fn default() -> Self {
        Self {
            firewall: true,
            smb1_off: true,
            wdigest_off: true,
            rdp_network_level_authentication: true,
            llmnr_off: true,
            lsa_protection: false,
            legacy_tls_off: false,
            smb_signing: false,
            ntlm_v1_off: false,
            print_spooler_off: false,
        }
    }
}

/// Settings of a node for group managed service accounts: membership of a domain, or a plug-in that fetches credentials without a domain.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.domain) || has(self.credentialPlugin)").message("give domain, credentialPlugin or both"))]
pub struct Gmsa {
    /// The domain that the machine joins, with the same restart as the rest of the setup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<DomainJoin>,
    /// The plug-in of Container Credential Guard that fetches the credentials on machines without a domain. Its library is in the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_plugin: Option<CredentialPlugin>,
}

/// Joins a domain without a password, with the output of `djoin /provision` on a machine of the domain.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct DomainJoin {
    /// DNS name of the domain, e.g. `corp.example.com`.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)+$')").message("must be the DNS name of a domain in lower case, e.g. corp.example.com"))]
    pub name: String,
    /// The unchanged file that `djoin /provision /savefile` wrote. It is for one machine name and contains the password of its account: use it in a single WindowsBootstrapConfig, not in a template for many machines.
    pub blob_from: ValueSource,
}

/// A plug-in of Container Credential Guard (`ICcgDomainAuthCredentials`).
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CredentialPlugin {
    /// Class identifier of the plug-in, e.g. `{CCC2A336-D7F3-4818-A213-272B7924213E}`.
    #[schemars(length(min = 38, max = 38))]
    #[x_kube(validation = Rule::new("self.matches('^[{][0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}[}]$')").message("must be a class identifier in upper case and braces, e.g. {CCC2A336-D7F3-4818-A213-272B7924213E}"))]
    pub class_id: String,
    /// Path of the plug-in's library in the image, e.g. `C:\Program Files\plugin\plugin.dll`.
    #[schemars(length(min = 8, max = 240))]
    #[x_kube(validation = Rule::new(r#"self.matches('^[A-Za-z]:(\\\\[^<>:"/|?*\\\\[:cntrl:]]+)+[.]dll$')"#).message("must be the absolute Windows path of a .dll"))]
    pub library: String,
}
