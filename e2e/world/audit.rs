//! The requests to an API server, by client: its audit log. It must not judge.

use std::io::{Read, Seek, SeekFrom};

use serde_json::Value;

use super::client::text;
use super::control_plane::ControlPlane;

/// A position in the audit log.
#[derive(Debug, Clone, Copy, Default)]
pub struct AuditMark(u64);

/// One answered request; a watch counts when it begins.
#[derive(Debug, Clone)]
pub struct AuditEvent {
    /// In the form `system:serviceaccount:NAMESPACE:NAME`.
    pub user: String,
    /// The program, by its own name.
    pub user_agent: String,
    /// `get list watch create update patch delete deletecollection`, or the HTTP method in lower case for other addresses.
    pub verb: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Plural; empty for addresses that are no resources.
    pub resource: String,
    /// `status`, `scale`, `token`, ... or empty.
    pub subresource: String,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    /// Empty for lists, watches and generated names.
    pub name: String,
    /// HTTP status of the answer.
    pub code: u16,
    /// Address with query.
    pub uri: String,
    /// Version of the object in the response; empty where the audit policy omits responses, as it does by default, and for an object
    /// that this write deleted: the response to the removal of its last finalizer has the previous version.
    pub resource_version: String,
    /// When the request was received.
    pub time: jiff::Timestamp,
}

impl AuditEvent {
    /// Whether the request could change something.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    fn parse(line: &str) -> Option<Self> {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("audit log: {e}: {line}"));
        let own = |pointer: &str| text(&event, pointer).to_owned();
        let verb = own("/verb");
        let code = event.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default();
        // The event at the start of this watch was counted already.
        if verb == "watch" && text(&event, "/stage") == "ResponseComplete" && code == 200 {
            return None;
        }
        Some(Self {
            user: own("/user/username"),
            user_agent: own("/userAgent"),
            verb,
            group: own("/objectRef/apiGroup"),
            resource: own("/objectRef/resource"),
            subresource: own("/objectRef/subresource"),
            namespace: own("/objectRef/namespace"),
            name: own("/objectRef/name"),
            code: u16::try_from(code).unwrap_or_default(),
            uri: own("/requestURI"),
            resource_version: if has_gone(&event) { String::new() } else { own("/responseObject/metadata/resourceVersion") },
            time: text(&event, "/requestReceivedTimestamp").parse().expect("an audit event has a time"),
        })
    }
}

/// Whether the object in the response was deleted, with no finalizer left.
fn has_gone(event: &Value) -> bool {
    let finalizers = event.pointer("/responseObject/metadata/finalizers").and_then(Value::as_array);
    !text(event, "/responseObject/metadata/deletionTimestamp").is_empty() && finalizers.is_none_or(Vec::is_empty)
}

/// Length of the complete lines: the last line may still be incomplete.
fn whole_lines(bytes: &[u8]) -> u64 {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end as u64 + 1)
}

impl ControlPlane {
    /// The current position, for [`ControlPlane::audit_since`].
    pub fn audit_mark(&self) -> AuditMark {
        // At a line break: the last line may be incomplete.
        AuditMark(whole_lines(&std::fs::read(self.directory().join("audit.jsonl")).unwrap_or_default()))
    }

    /// The requests that were answered since a mark, oldest response first.
    pub fn audit_since(&self, mut mark: AuditMark) -> Vec<AuditEvent> {
        self.audit_next(&mut mark)
    }

    /// As [`ControlPlane::audit_since`], and advances the mark: repeated calls return every request once.
    pub fn audit_next(&self, mark: &mut AuditMark) -> Vec<AuditEvent> {
        let path = self.directory().join("audit.jsonl");
        let mut file = std::fs::File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(mark.0)).and_then(|_| file.read_to_end(&mut bytes)).expect("the audit log can be read");
        let whole = whole_lines(&bytes);
        mark.0 += whole;
        let whole = usize::try_from(whole).expect("a length");
        String::from_utf8_lossy(&bytes[..whole]).lines().filter_map(AuditEvent::parse).collect()
    }

    /// All requests since the start.
    pub fn audit(&self) -> Vec<AuditEvent> {
        self.audit_since(AuditMark::default())
    }
}
