//! Steps that need more than one of the plain kinds of items: static scripts of the runner, by name, with parameters as data.

use serde::{Deserialize, Serialize};

use super::Protocol;

/// A static script of the runner and its parameters. Each has a test and an act, like a kind of item.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(tag = "script", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Script {
    /// Windows Server of exactly that build runs here.
    Identity { build: u32 },
    /// So many GiB are free on the drive; the act lets its partition grow into the space behind it.
    FreeSpace { drive: char, gibibytes: u32 },
    /// The clock differs by less than so many seconds from what the server at `url` says in its `Date` header.
    Clock { url: String, within: u32 },
    /// The programs of Windows that use WinHTTP go through that proxy, but not to the names in `bypass` (with `*`).
    WinHttpProxy { server: String, bypass: String },
    /// The hypervisor of Windows starts with it.
    Hypervisor,
    /// Microsoft Defender leaves these alone. True where there is no Defender.
    DefenderExclusions { paths: Vec<String>, processes: Vec<String> },
    /// The firewall is on for every profile.
    FirewallOn,
    /// Ports for outgoing connections come from this range.
    DynamicPorts { protocol: Protocol, start: u16, count: u16 },
    /// Windows gives these ports to nobody who does not ask for them by number.
    ReservedPorts { protocol: Protocol, start: u16, count: u16 },
    /// The machine is in that domain, by the file that `djoin /provision` made.
    DomainJoin { domain: String, blob: String },
    /// Windows lets the plug-in with that class identifier fetch credentials of group managed service accounts.
    CredentialPlugin { clsid: String },
}
