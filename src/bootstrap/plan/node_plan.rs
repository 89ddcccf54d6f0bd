//! The plan as a whole, which is the content of `node.json`.

use serde::{Deserialize, Serialize};

use super::item::Item;
use super::kind::Kind;

/// The version of the plan format; a runner rejects a newer one.
pub const PLAN_VERSION: u32 = 1;

/// The content of `node.json`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    pub plan_version: u32,
    pub machine: PlanMachine,
    /// The Kubernetes version of the node, e.g. `v1.36.3`: the version of the programs in its image.
    #[serde(default)]
    pub kubernetes: String,
    pub limits: Limits,
    /// The outputs for the guest's reports: `serial:COM1`, `file`.
    pub report: Vec<String>,
    /// Regular expressions of texts that must never be logged: the form of the join token.
    pub redact: Vec<String>,
    pub items: Vec<Item>,
}

/// The machine that the plan is for.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct PlanMachine {
    pub uid: String,
    pub name: String,
    pub generation: i64,
}

/// Limits of the whole plan.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct Limits {
    /// The restarts of the machine that the plan may request.
    pub reboots: u32,
    /// The minutes since the first start, after which no item is started.
    pub minutes: u32,
}

impl Plan {
    /// Returns `node.json`: pretty, ASCII only, because Windows PowerShell 5.1 reads files without byte order mark as ANSI.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        let text = serde_json::to_string_pretty(self)?;
        let mut out = String::with_capacity(text.len() + 1);
        for c in text.chars() {
            if c.is_ascii() {
                out.push(c);
            } else {
                let mut units = [0u16; 2];
                for unit in c.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
        out.push('\n');
        Ok(out)
    }

    /// Returns the payload file that the plan writes to `path`. Windows ignores case.
    pub fn source_of(&self, path: &str) -> Option<&str> {
        self.items.iter().find_map(|item| match &item.kind {
            Kind::File { path: target, source, .. } if target.eq_ignore_ascii_case(path) => Some(source.as_str()),
            _ => None,
        })
    }
}
