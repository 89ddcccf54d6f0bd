//! Files that users add.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::secret::ValueSource;

/// Paths of files that CAPW writes itself, in lower case. Other fields add more such files.
pub const RENDERED: [&str; 9] = [
    r"c:\etc\ca-bundle.pem",
    r"c:\etc\kubernetes\credential-providers.yaml",
    r"c:\etc\kubernetes\kube-proxy.yaml",
    r"c:\etc\kubernetes\kubelet.conf.d\50-user.conf",
    r"c:\etc\kubernetes\patches\kubeletconfiguration+strategic.yaml",
    r"c:\k\crictl.yaml",
    r"c:\program files\containerd\config.toml",
    r"c:\run\cluster-api\bootstrap-success.complete",
    r"c:\var\lib\kubelet\config.yaml",
];

fn is_not_rendered() -> String {
    let paths: Vec<String> = RENDERED.iter().map(|path| format!("r'{path}'")).collect();
    format!("!(self.lowerAscii() in [{}])", paths.join(", "))
}

/// A file on the node, readable by administrators only.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.content) != has(self.contentFrom)").message("give exactly one of content and contentFrom"))]
#[x_kube(validation = Rule::new("!has(self.encoding) || has(self.content)").message("encoding is about content; the value of a Secret is written as it is"))]
pub struct File {
    /// Absolute Windows path, e.g. `C:\k\audit.json`.
    #[schemars(length(min = 4, max = 240))]
    #[x_kube(validation = Rule::new(r#"self.matches('^[A-Za-z]:(\\\\[^<>:"/|?*\\\\[:cntrl:]]*[^<>:"/|?*\\\\[:cntrl:]. ])+$')"#).message("must be an absolute Windows path of a file, without .. and without names that end in a dot or blank, e.g. C:\\k\\audit.json"))]
    #[x_kube(validation = Rule::new(r#"!self.matches('(?i)\\\\(con|prn|aux|nul|com[0-9]|lpt[0-9])([.][^\\\\]*)?(\\\\|$)')"#).message("CON, PRN, AUX, NUL, COM0-9 and LPT0-9 are devices to Windows, not files: use another name"))]
    #[x_kube(validation = Rule::new(r#"!self.lowerAscii().matches('^c:\\\\programdata\\\\capw(\\\\|$)')"#).message("C:\\ProgramData\\capw belongs to the bootstrap itself: choose another directory"))]
    #[x_kube(validation = Rule::new(is_not_rendered()).message("CAPW writes this file itself: use the fields of kubelet, containerd, kubeProxy and network, or another path"))]
    pub path: String,
    /// The text; written as UTF-8 without a byte order mark, line ends as given. Not for secrets: users who may read this object can read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_048_576))]
    pub content: Option<String>,
    /// The content comes from a Secret. The bytes are written as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_from: Option<ValueSource>,
    /// Encoding of `content`. Default: plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
}

/// Encoding of a file's content in the object.
#[derive(JsonSchema, Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub enum Encoding {
    /// RFC 4648 with padding; spaces and line ends are ignored. For binary files.
    #[serde(rename = "base64")]
    Base64,
}
