//! Unpacks the payload of user data, as the loader does.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::bootstrap::delivery::archive;
use crate::bootstrap::delivery::error::ReadError;
use crate::bootstrap::delivery::user_data::{ARCHIVE_END, ARCHIVE_START, DIGEST_START, FIRST_LINE};
use crate::bootstrap::digest::sha256;
use crate::bootstrap::plan::{Kind, PLAN_VERSION, Plan};

/// The unpacked payload.
#[derive(Clone)]
pub struct Payload {
    pub plan: Plan,
    /// The files by their path in the payload, e.g. `node.json`, `files/containerd.toml`, `secret/kubeadm-join.yaml`.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl std::fmt::Debug for Payload {
    /// Omits the contents: they include the join token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Payload").field("machine", &self.plan.machine).field("files", &self.files.keys()).finish()
    }
}

impl Payload {
    /// Unpacks user data as cloudbase-init and the loader do. cloudbase-init unzips user data that is gzipped as a whole.
    pub fn from_user_data(user_data: &[u8]) -> Result<Self, ReadError> {
        let wrong = |text: &str| ReadError::UserData(text.into());
        let unzipped;
        let bytes = if user_data.starts_with(&archive::GZIP) {
            unzipped = archive::gunzip(user_data)?;
            unzipped.as_slice()
        } else {
            user_data
        };
        let text = std::str::from_utf8(bytes).ok().filter(|t| t.is_ascii()).ok_or_else(|| wrong("it is not ASCII"))?;
        let body = text.strip_prefix(FIRST_LINE).and_then(|rest| rest.strip_prefix('\n'));
        let body = body.ok_or_else(|| wrong("it does not start with the line #ps1_sysnative"))?;
        let (_, rest) = body.split_once(ARCHIVE_START).ok_or_else(|| wrong("it has no archive"))?;
        let (encoded, _) = rest.split_once(ARCHIVE_END).ok_or_else(|| wrong("its archive does not end"))?;
        let packed: Vec<u8> = encoded.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        let packed = STANDARD.decode(packed).map_err(|e| ReadError::UserData(format!("its archive is not base64: {e}")))?;
        Self::from_files(archive::unpack(&packed)?)
    }

    /// Unpacks user data from a drive, where the archive is a file beside the loader unless another provider created the data.
    pub(super) fn from_drive(user_data: &[u8], archive: Option<&[u8]>) -> Result<Self, ReadError> {
        let digest =
            std::str::from_utf8(user_data).ok().and_then(|text| text.split_once(DIGEST_START)?.1.split_once("'\n")).map(|(digest, _)| digest);
        match (digest.filter(|digest| !digest.is_empty()), archive) {
            (None, _) => Self::from_user_data(user_data),
            (Some(_), None) => Err(ReadError::Archive("the drive has none beside the loader".into())),
            (Some(digest), Some(archive)) if sha256(archive) != digest => {
                Err(ReadError::Archive("it has another digest than the loader says".into()))
            }
            (Some(_), Some(archive)) => Self::from_files(archive::unpack(archive)?),
        }
    }

    fn from_files(files: BTreeMap<String, Vec<u8>>) -> Result<Self, ReadError> {
        let wrong = |text: String| ReadError::Plan(text);
        let json = files.get("node.json").ok_or_else(|| wrong("the payload has none".into()))?;
        let version: serde_json::Value = serde_json::from_slice(json).map_err(|e| wrong(e.to_string()))?;
        match version.get("planVersion").and_then(serde_json::Value::as_u64) {
            Some(found) if found <= u64::from(PLAN_VERSION) => {}
            Some(found) => return Err(wrong(format!("planVersion {found} is newer than {PLAN_VERSION}"))),
            None => return Err(wrong("it has no planVersion".into())),
        }
        let plan: Plan = serde_json::from_slice(json).map_err(|e| wrong(e.to_string()))?;
        for item in &plan.items {
            let Kind::File { source, sha256: expected, .. } = &item.kind else { continue };
            let bytes = files.get(source).ok_or_else(|| wrong(format!("item {}: the payload has no {source}", item.id)))?;
            if sha256(bytes) != *expected {
                return Err(wrong(format!("item {}: {source} has another digest than the plan says", item.id)));
            }
        }
        Ok(Self { plan, files })
    }

    /// Returns the bytes that the plan writes to a path on the node, e.g. [`crate::bootstrap::paths::JOIN_CONFIG`].
    pub fn file(&self, path: &str) -> Option<&[u8]> {
        self.files.get(self.plan.source_of(path)?).map(Vec::as_slice)
    }
}
