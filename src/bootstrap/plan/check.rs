//! Tests of the state of a machine.

use serde::{Deserialize, Serialize};

/// A test without side effects.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum Check {
    /// The file exists.
    File(String),
    /// The named pipe exists; without `\\.\pipe\`.
    Pipe(String),
    /// A GET request returns 200.
    Url(String),
    /// The registry value is this text or number, ignoring case; several texts are joined by spaces.
    Registry {
        key: String,
        name: String,
        equals: String,
    },
    /// The registry value exists, with any content.
    RegistryValue {
        key: String,
        name: String,
    },
    /// The registry key exists.
    RegistryKey(String),
    /// A program listens on this TCP port of the machine.
    Port(u16),
    /// The service runs.
    Service(String),
    /// The program exits with 0 within a minute. It must have no side effects.
    Succeeds(Vec<String>),
    Not(Box<Check>),
    /// All of the checks hold.
    All(Vec<Check>),
}
