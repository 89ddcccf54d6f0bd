//! Files that the user adds.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// A file on the node, readable by administrators only.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// Absolute Windows path, e.g. `C:\k\audit.json`.
    #[schemars(length(min = 4, max = 240))]
    #[x_kube(validation = Rule::new(r#"self.matches('^[A-Za-z]:(\\\\[^<>:"/|?*\\\\[:cntrl:]]*[^<>:"/|?*\\\\[:cntrl:]. ])+$')"#).message("must be an absolute Windows path of a file, without .. and without names that end in a dot or blank, e.g. C:\\k\\audit.json"))]
    #[x_kube(validation = Rule::new(r#"!self.matches('(?i)\\\\(con|prn|aux|nul|com[0-9]|lpt[0-9])([.][^\\\\]*)?(\\\\|$)')"#).message("CON, PRN, AUX, NUL, COM0-9 and LPT0-9 are devices to Windows, not files: use another name"))]
    pub path: String,
    /// The text; written as UTF-8 without a byte order mark, line ends as given.
    #[schemars(length(max = 1_048_576))]
    pub content: String,
}
