//! Steps that users add to the plan: data only, with the same checks and limits as every other item.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::network::FirewallRule;

/// Users' steps before and after the join. They must not contain secrets, because users who may read this object can read them; use
/// `files` with `contentFrom` instead.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.beforeJoin) || !has(self.afterJoin) || self.beforeJoin.all(b, !self.afterJoin.exists(a, a.name == b.name))").message("a step before and one after the join have the same name: rename one"))]
pub struct Steps {
    /// Steps that run after Windows, containerd and `files` are set up and before the node joins. At most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub before_join: Vec<Step>,
    /// Steps that run after the node has joined and its kubelet works. At most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub after_join: Vec<Step>,
}

impl Steps {
    pub fn is_empty(&self) -> bool {
        self.before_join.is_empty() && self.after_join.is_empty()
    }
}

/// One step.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.command), has(self.registry), has(self.firewall), has(self.feature), has(self.environment)].filter(given, given).size() == 1").message("give exactly one of command, registry, firewall, feature and environment"))]
pub struct Step {
    /// Name of the step, shown as `user-<name>`: lower case letters, digits and `-`, at most 24.
    #[schemars(length(min = 1, max = 24))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message("must be lower case letters, digits and -"))]
    pub name: String,
    /// Runs a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandStep>,
    /// Sets a registry value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<RegistryStep>,
    /// Creates a firewall rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firewall: Option<FirewallRule>,
    /// Installs or removes optional Windows features; Windows restarts if needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feature: Option<FeatureStep>,
    /// Sets a machine-wide environment variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<EnvironmentStep>,
    /// Time limit of one attempt in seconds, 1 to 3600. Default: 300.
    #[serde(default = "default_timeout")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: i32,
    /// Attempts before the step counts as failed, 1 to 10. Default: 3.
    #[serde(default = "default_attempts")]
    #[schemars(range(min = 1, max = 10))]
    pub attempts: i32,
    /// A failure is only a warning, and the plan continues. Default: false.
    #[serde(default)]
    pub continue_on_error: bool,
}

fn default_timeout() -> i32 {
    300
}

fn default_attempts() -> i32 {
    3
}

/// A program, and the check that shows whether its step is done.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CommandStep {
    /// The program and its arguments, one entry each; no shell is involved.
    #[schemars(length(min = 1, max = 64), inner(length(max = 2048)))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[x_kube(validation = Rule::new("self.all(t, !t.contains('\\u0000'))").message("must not contain the character NUL, which ends a text in Windows"))]
    #[x_kube(validation = Rule::new("self[0].size() > 0").message("the first entry is the program, e.g. C:\\k\\tool.exe"))]
    pub argv: Vec<String>,
    /// Additional arguments as one text, which the program gets unchanged: for programs with quoting rules of their own, e.g. msiexec with `NAME="a ""b"" c"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    #[x_kube(validation = Rule::new("!self.matches('[[:cntrl:]]')").message("must be one line without control characters"))]
    pub raw_arguments: Option<String>,
    /// Working directory. Default: `C:\`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 240))]
    #[x_kube(validation = Rule::new(r#"self.matches('^[A-Za-z]:(\\\\[^<>:"/|?*\\\\[:cntrl:]]*[^<>:"/|?*\\\\[:cntrl:]. ])*\\\\?$')"#).message("must be an absolute Windows path of a directory, without .. and without names that end in a dot or blank, e.g. C:\\k"))]
    pub directory: Option<String>,
    /// If this check holds, the step is done and the program is not run. Without a check the program is run once, and again if the machine is killed while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<StepCheck>,
    /// Meaning of the program's exit codes. Default: 0 is success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_codes: Option<StepExitCodes>,
}

/// A check without side effects.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.file), has(self.registry), has(self.service), has(self.port)].filter(given, given).size() == 1").message("give exactly one of file, registry, service and port"))]
pub struct StepCheck {
    /// The file exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 4, max = 240))]
    #[x_kube(validation = Rule::new(r#"self.matches('^[A-Za-z]:(\\\\[^<>:"/|?*\\\\[:cntrl:]]*[^<>:"/|?*\\\\[:cntrl:]. ])+$')"#).message("must be an absolute Windows path of a file, without .. and without names that end in a dot or blank, e.g. C:\\k\\done"))]
    pub file: Option<String>,
    /// The registry value equals the given text or number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<RegistryCheck>,
    /// The service runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 80))]
    #[x_kube(validation = Rule::new(r#"self.matches('^[^/\\\\*?\\[\\][:cntrl:]]+$') && self == self.trim()"#).message("must be the name of one service as Get-Service shows it, e.g. containerd"))]
    pub service: Option<String>,
    /// Something listens on this TCP port of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
}

/// A registry value to compare with.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RegistryCheck {
    /// The key, e.g. `HKLM:\SOFTWARE\Example`.
    #[schemars(length(min = 7, max = 255))]
    #[x_kube(validation = Rule::new(r#"self.matches('^HKLM:(\\\\[^\\\\/*?[:cntrl:]]+)+$')"#).message("must be a key below HKLM:\\, e.g. HKLM:\\SOFTWARE\\Example"))]
    pub key: String,
    /// Name of the value; empty means the key's default value.
    #[schemars(length(max = 255))]
    #[x_kube(validation = Rule::new("!self.contains('\\u0000')").message("must not contain the character NUL, which ends a text in Windows"))]
    pub name: String,
    /// The expected text or number; case is ignored.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new("!self.contains('\\u0000')").message("must not contain the character NUL, which ends a text in Windows"))]
    pub equals: String,
}

/// The meaning of exit codes; every other code is a failure.
#[derive(JsonSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct StepExitCodes {
    /// Success. Default: 0.
    #[serde(default = "zero")]
    #[schemars(length(max = 32))]
    pub success: Vec<i32>,
    /// Success, and Windows must restart, e.g. 3010 and 1641 of installers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub restart: Vec<i32>,
}

fn zero() -> Vec<i32> {
    vec![0]
}

/// A registry value.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.string), has(self.expandString), has(self.dword), has(self.multiString)].filter(given, given).size() == 1").message("give exactly one of string, expandString, dword and multiString"))]
pub struct RegistryStep {
    /// The key, e.g. `HKLM:\SOFTWARE\Example`. It is created if it does not exist.
    #[schemars(length(min = 7, max = 255))]
    #[x_kube(validation = Rule::new(r#"self.matches('^HKLM:(\\\\[^\\\\/*?[:cntrl:]]+)+$')"#).message("must be a key below HKLM:\\, e.g. HKLM:\\SOFTWARE\\Example"))]
    pub key: String,
    /// Name of the value; empty means the key's default value.
    #[schemars(length(max = 255))]
    #[x_kube(validation = Rule::new("!self.contains('\\u0000')").message("must not contain the character NUL, which ends a text in Windows"))]
    pub name: String,
    /// Text (REG_SZ).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    #[x_kube(validation = Rule::new("!self.contains('\\u0000')").message("must not contain the character NUL, which ends a text in Windows"))]
    pub string: Option<String>,
    /// Text with variables (REG_EXPAND_SZ).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    #[x_kube(validation = Rule::new("!self.contains('\\u0000')").message("must not contain the character NUL, which ends a text in Windows"))]
    pub expand_string: Option<String>,
    /// A number from 0 to 4294967295 (REG_DWORD).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4_294_967_295_i64))]
    pub dword: Option<i64>,
    /// Several texts (REG_MULTI_SZ), at least one, none of them empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 1024)))]
    #[x_kube(validation = Rule::new("self.all(t, !t.contains('\\u0000'))").message("must not contain the character NUL, which ends a text in Windows"))]
    pub multi_string: Option<Vec<String>>,
    /// Windows restarts after the value has changed. Default: false.
    #[serde(default)]
    pub restart: bool,
}

/// Optional Windows features.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FeatureStep {
    /// Names as `Get-WindowsOptionalFeature -Online` lists them, e.g. `Containers`.
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 80)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[x_kube(validation = Rule::new("self.all(f, f.matches('^[A-Za-z0-9][-A-Za-z0-9._]*$'))").message("must be names that Get-WindowsOptionalFeature lists"))]
    pub names: Vec<String>,
    /// Wanted state. Default: `Enabled`.
    #[serde(default)]
    pub state: WantedState,
}

#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum WantedState {
    #[default]
    Enabled,
    Disabled,
}

/// A machine-wide environment variable.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentStep {
    /// Name of the variable.
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z_][A-Za-z0-9_]*$')").message("must be letters, digits and _"))]
    pub name: String,
    /// Value of the variable. Running services see it after the next restart.
    #[schemars(length(min = 1, max = 4096))]
    #[x_kube(validation = Rule::new("!self.contains('\\u0000')").message("must not contain the character NUL, which ends a text in Windows"))]
    pub value: String,
}
