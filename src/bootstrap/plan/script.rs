//! Items that the plain kinds cannot express: built-in scripts of the runner, selected by name, with parameters as data.

use serde::{Deserialize, Serialize};

use super::firewall::Protocol;

/// A built-in script of the runner and its parameters. Like every kind of item, it tests and acts.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(tag = "script", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Script {
    /// Windows Server has exactly that build.
    Identity { build: u32 },
    /// The drive has this many GiB free; to achieve it, its partition is extended into unallocated space.
    FreeSpace { drive: char, gibibytes: u32 },
    /// The clock differs by less than `within` seconds from the `Date` header of the server at `url`.
    Clock { url: String, within: u32 },
    /// WinHTTP uses that proxy, except for the names in `bypass` (with `*`).
    WinHttpProxy { server: String, bypass: String },
    /// The hypervisor of Windows starts with it.
    Hypervisor,
    /// Microsoft Defender does not scan these paths and processes. Also holds where Defender is missing.
    DefenderExclusions { paths: Vec<String>, processes: Vec<String> },
    /// The firewall is on for every profile.
    FirewallOn,
    /// The ports for outgoing connections come from this range.
    DynamicPorts { protocol: Protocol, start: u16, count: u16 },
    /// Windows reserves these ports: only programs that request them by number get them.
    ReservedPorts { protocol: Protocol, start: u16, count: u16 },
    /// The machine has joined that domain with the output of `djoin /provision`.
    DomainJoin { domain: String, blob: String },
    /// The plug-in with that class identifier is registered for the credentials of group managed service accounts.
    CredentialPlugin { clsid: String },
}
