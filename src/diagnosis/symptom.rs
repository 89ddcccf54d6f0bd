//! Symptoms: observed lines, each with its origin. They come from outside: bounded, printable, without secrets.

use std::sync::LazyLock;

use regex::Regex;
use serde::Deserialize;

use crate::vm::GuestReport;

/// The longest text of a symptom, in characters.
const LONGEST: usize = 4_096;

/// The origin of a symptom.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A report of the guest: `status.bootstrap`, the serial port, report.log.
    Report,
    /// The runner's bootstrap.log.
    Bootstrap,
    CloudbaseInit,
    Containerd,
    Kubelet,
    Kubeadm,
    KubeProxy,
    /// The log of a network plug-in.
    Cni,
    /// The event logs of Windows, as text: `<log> <id> <message>`.
    Windows,
    /// A file of unknown kind.
    Unknown,
    /// An event of the cluster: `<reason>: <message>`.
    Event,
    /// A fact of a Node.
    Node,
    /// A fact of a Pod.
    Pod,
    /// A fact of a CertificateSigningRequest.
    Request,
    /// A fact of a WindowsMachine.
    Machine,
}

impl Source {
    /// Whether this is a log: lines of one log may appear in another.
    pub fn is_log(self) -> bool {
        use Source::*;
        matches!(self, Report | Bootstrap | CloudbaseInit | Containerd | Kubelet | Kubeadm | KubeProxy | Cni | Windows | Unknown)
    }

    /// Whether a pattern for these sources applies to this source; no sources means all. The runner repeats the output of the programs that it
    /// calls, and a file of unknown kind may hold any log.
    pub fn is_one_of(self, sources: &[Source]) -> bool {
        let holds_others = matches!(self, Self::Report | Self::Bootstrap | Self::Unknown);
        sources.is_empty() || sources.contains(&self) || (holds_others && sources.iter().any(|source| source.is_log()))
    }
}

/// One observed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symptom {
    pub source: Source,
    /// The origin of the line for a reader: `kubelet.log:17`, `Node win-1`.
    pub at: String,
    pub text: String,
    /// The failure code, if the guest gave up.
    pub code: Option<u32>,
}

impl Symptom {
    pub fn new(source: Source, at: impl Into<String>, text: &str) -> Self {
        Self { source, at: at.into(), text: without_secrets(&bounded(text)), code: None }
    }

    /// Returns a guest's report as a symptom.
    pub fn report(said: &GuestReport) -> Self {
        let (item, message) = said.subject();
        Self::step(item, &said.state, said.is_final_failure().then_some(said.code), message)
    }

    /// Returns a report as a symptom, from its parts; `code` if the guest gave up.
    pub fn step(item: &str, state: &str, code: Option<u32>, message: &str) -> Self {
        Self { code, ..Self::new(Source::Report, "the guest's report", &format!("{item} {state}: {message}")) }
    }
}

/// Returns one line without control characters. A line that is cut also loses its last word, because half a secret would not be recognized.
fn bounded(text: &str) -> String {
    // These characters change the direction of text and could disguise it.
    let turns = |c: char| ('\u{202a}'..='\u{202e}').contains(&c) || ('\u{2066}'..='\u{2069}').contains(&c);
    let printable = |c: char| if c.is_control() || turns(c) { ' ' } else { c };
    let mut line: String = text.trim().chars().take(LONGEST).map(printable).collect();
    if text.trim().chars().nth(LONGEST).is_some() {
        let end = line.rfind(' ').unwrap_or(0);
        line.truncate(end);
        line.push_str(" ...");
    }
    line
}

/// A pattern of possible secrets: bootstrap tokens, JSON web tokens, credentials in headers, addresses and settings, private keys. Its words
/// are ASCII: with Unicode, the pattern would take a megabyte.
const SECRETS: &str = r#"(?xi)
    (?-u:\b)[a-z0-9]{6}\.[a-z0-9]{16}(?-u:\b)
    | (?-u:\b)eyJ(?-u:[\w-]){8,}\.(?-u:[\w-])+(\.(?-u:[\w-])*)?
    | (?-u:\b)(?:bearer|basic)\s+(?-u:[\w.~+/=-]){8,}
    | (?P<before>://[^\s:/@]+:)[^\s@/]+@
    | (?P<name>(?-u:\b)(?:client-key-data|client_secret|password|passwd|pwd|adminpass|admin_pass|token|secret|apikey)["']?\s*[=:]\s*)["']?[^\s"',;]{6,}
    | -----BEGIN[\ A-Z]*PRIVATE\ KEY-----.*
    | (?-u:\b)M[IH][A-Za-z0-9+/]{60,}=*
"#;

fn without_secrets(text: &str) -> String {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(SECRETS).ok());
    match &*PATTERN {
        Some(pattern) => pattern.replace_all(text, "${before}${name}[hidden]").into_owned(),
        // A test proves that the pattern is valid.
        None => "[hidden]".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn secrets_are_hidden() {
        for (text, shown) in [
            ("kubeadm join --token abcdef.0123456789abcdef 10.0.0.1:6443", "kubeadm join --token [hidden] 10.0.0.1:6443"),
            ("Authorization: Bearer abcdefghijk.lmnop", "Authorization: [hidden]"),
            ("HTTPS_PROXY=http://bob:hunter22@proxy:3128", "HTTPS_PROXY=http://bob:[hidden]proxy:3128"),
            (r#"{"admin_pass": "Passw0rd!", "name": "win-1"}"#, r#"{"admin_pass": [hidden]", "name": "win-1"}"#),
            ("    client-key-data: LS0tLS1CRUdJTiBSU0E=", "client-key-data: [hidden]"),
            ("eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2ln", "[hidden]"),
            ("-----BEGIN RSA PRIVATE KEY----- MIIE", "[hidden]"),
            (
                "could not find a JWS signature in the cluster-info ConfigMap for token ID \"abcdef\"",
                "could not find a JWS signature in the cluster-info ConfigMap for token ID \"abcdef\"",
            ),
        ] {
            assert_eq!(Symptom::new(Source::Unknown, "x", text).text, shown);
        }
    }

    #[test]
    fn half_a_token_at_the_end_of_a_long_line_is_left_out() {
        let text = format!("{} abcdef.0123456789abcdef", "x".repeat(LONGEST - 12));
        let symptom = Symptom::new(Source::Unknown, "x", &text);
        assert!(symptom.text.ends_with("x ...") && symptom.text.chars().count() <= LONGEST + 4, "{}", &symptom.text[LONGEST - 20..]);
    }

    proptest! {
        #[test]
        fn any_text_is_one_bounded_line_without_the_token(before in ".{0,5000}", after in ".{0,50}") {
            let symptom = Symptom::new(Source::Unknown, "x", &format!("{before} abcdef.0123456789abcdef {after}"));
            prop_assert!(symptom.text.chars().count() <= LONGEST + 64 && !symptom.text.contains('\n'));
            prop_assert!(!symptom.text.contains("0123456789abcdef"));
        }
    }
}
