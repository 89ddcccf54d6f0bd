//! The kinds of items, each with the state that it establishes.

use serde::{Deserialize, Serialize};

use super::check::Check;
use super::firewall::{Action, Direction, Protocol};
use super::script::Script;

/// The state that an item establishes.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Kind {
    /// The directories exist with that access.
    Directory { paths: Vec<String>, access: Access },
    /// The file has these bytes, taken from `source` in the payload.
    File { path: String, source: String, sha256: String, access: Access },
    /// The file has that digest, `sha256:…` or `sha512:…`.
    Download {
        url: String,
        path: String,
        digest: String,
        /// The proxy for the download. None: no proxy, regardless of the machine's variables.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proxy: Option<ProxyAddress>,
    },
    /// The archive with that digest was unpacked into the directory, without the first `strip` parts of its paths; afterwards these
    /// files exist, relative to the directory.
    Archive { path: String, digest: String, directory: String, strip: u32, files: Vec<String> },
    /// The value has that type and data. An empty `name` is the key's default value.
    Registry {
        key: String,
        name: String,
        data: RegistryData,
        /// Whether a change requests a restart, because Windows reads the value when it starts.
        #[serde(default, skip_serializing_if = "is_false")]
        restart: bool,
    },
    /// The service has these variables in addition to the machine's.
    ServiceEnvironment { service: String, variables: Variables },
    /// The machine-wide variable has that value.
    Environment { name: String, value: String },
    /// The optional features of Windows are in that state.
    Feature { names: Vec<String>, state: FeatureState },
    /// A rule of our group exists, for every profile: virtual adapters are often in the public one.
    Firewall {
        name: String,
        direction: Direction,
        action: Action,
        protocol: Protocol,
        /// The ports, as `10250` or `30000-32767`: local ports of an inbound rule, remote ports of an outbound one. None: all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ports: Vec<String>,
        /// The addresses or networks at the other end. None: all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        remote: Vec<String>,
    },
    /// The service manager knows the service with that configuration.
    Service {
        name: String,
        command_line: String,
        start: Start,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        depends_on: Vec<String>,
        /// The seconds without a failure after which the failure count is reset.
        reset_seconds: u32,
        /// The milliseconds before each restart; the last value repeats.
        restart_delays: Vec<u32>,
        /// A flag at the end of the command line, on a machine with several networks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<AddressFlag>,
    },
    /// The service runs, and was started after the last change by the items in `after`.
    Running {
        name: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        after: Vec<String>,
    },
    /// A scheduled task runs the program as SYSTEM: at every start of the machine, or periodically.
    Task {
        name: String,
        argv: Vec<String>,
        /// The minutes from one run to the next. None: at every start.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        every_minutes: Option<u32>,
    },
    /// The check holds; if not, the program is run in that directory. Without a check the program is run once.
    Command {
        argv: Vec<String>,
        /// Text that follows the arguments on the command line unchanged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raw: Option<String>,
        directory: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        check: Option<Check>,
        #[serde(default, skip_serializing_if = "ExitCodes::is_usual")]
        exit_codes: ExitCodes,
        /// The command that is run before another attempt.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        undo: Vec<String>,
    },
    /// The state that a built-in script of the runner tests.
    Script(Script),
    /// The check holds within `seconds`.
    Wait { check: Check },
    /// The machine has restarted, if an item or Windows requested it.
    Reboot { when: When },
    /// None of the paths and tasks exists.
    Absent {
        paths: Vec<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tasks: Vec<String>,
    },
}

/// A flag whose value only the machine knows: its own address.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct AddressFlag {
    /// The flag up to its value, e.g. `--node-ip=`.
    pub flag: String,
    /// The `host:port` that selects the address: the flag gets the address from which the machine reaches it.
    pub to: String,
}

/// The access rights to a file or directory.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum Access {
    /// Only SYSTEM and Administrators; nothing is inherited.
    Admins,
    /// The access of `Admins`, and Users may read and execute.
    Readable,
    /// For directories: the access of `Readable`; and in the directories below, but not in the directory itself, Users may create files and
    /// directories, which they own. Windows gives the same access below `C:\`; containers that run as ordinary users need it to write volumes
    /// (<https://github.com/kubernetes/kubernetes/issues/75049>, <https://stigaview.com/products/winserv2022/v1r5/WN22-00-000140>).
    Shared,
    /// The access is inherited from the parent directory.
    Inherited,
}

/// A registry value's type and data.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum RegistryData {
    String(String),
    /// A text that contains variables, e.g. `%SystemRoot%`.
    ExpandString(String),
    Dword(u32),
    MultiString(Vec<String>),
}

/// The variables `NAME=value`, in order.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum Variables {
    Plain(Vec<String>),
    /// The variables contain a secret: they are lines of a payload file, with the digest of the lines joined by `\n`. Only administrators
    /// may read them in the service's configuration.
    Secret {
        source: String,
        sha256: String,
    },
}

/// The address of a proxy, `http://host:port`.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum ProxyAddress {
    Plain(String),
    /// The address with user and password: a file in the payload, and its digest.
    Secret {
        source: String,
        sha256: String,
    },
}

/// The meaning of a program's exit codes. Every other code is a failure.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ExitCodes {
    /// The codes that mean success.
    pub success: Vec<i32>,
    /// The codes that mean success and require a restart of Windows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restart: Vec<i32>,
}

impl Default for ExitCodes {
    fn default() -> Self {
        Self { success: vec![0], restart: Vec::new() }
    }
}

impl ExitCodes {
    fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum FeatureState {
    Enabled,
    Disabled,
}

/// The way in which the service manager starts a service.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum Start {
    Auto,
    Demand,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum When {
    /// The machine restarts only if Windows or an earlier item reports that a restart is pending.
    Pending,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
pub(super) fn is_false(value: &bool) -> bool {
    !value
}
