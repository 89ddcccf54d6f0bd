//! Layers of the image. Linux has two: one with files that seldom change, and one with the program.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use pem::{EncodeConfig, LineEnding, Pem};
use tar::{Builder, EntryType, Header};
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

/// The user of the image: the ID of `nonroot` in distroless images.
pub const USER: u32 = 65_532;
/// The path of the public certificate authorities, for endpoints and kubeconfigs with certificates that these issued.
pub const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";

const PASSWD: &str = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/var/lib/capw:/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nnonroot:x:65532:\n";

/// A file or, without bytes, a folder.
pub struct Entry {
    path: &'static str,
    mode: u32,
    owner: u32,
    /// The extended headers of the entry in the archive.
    pub headers: Vec<(&'static str, String)>,
    bytes: Option<Vec<u8>>,
}

impl Entry {
    pub fn folder(path: &'static str) -> Self {
        Self { path, mode: 0o755, owner: 0, headers: Vec::new(), bytes: None }
    }

    pub fn file(path: &'static str, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path, mode: 0o644, owner: 0, headers: Vec::new(), bytes: Some(bytes.into()) }
    }
}

/// The files of the image other than the program.
fn root() -> Vec<Entry> {
    vec![
        Entry::folder("etc"),
        Entry::file("etc/group", GROUP),
        Entry::file("etc/passwd", PASSWD),
        Entry::folder("etc/ssl"),
        Entry::folder("etc/ssl/certs"),
        Entry::file(CERTIFICATES, certificates()),
        Entry::folder("var"),
        Entry::folder("var/lib"),
        Entry { mode: 0o700, owner: USER, ..Entry::folder("var/lib/capw") },
    ]
}

/// The certificate authorities that Mozilla trusts. The lock file pins them, so the build machine does not affect the image.
fn certificates() -> String {
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    TLS_SERVER_ROOT_CERTS.iter().map(|der| pem::encode_config(&Pem::new("CERTIFICATE", der.to_vec()), config)).collect()
}

/// A layer before and after compression.
pub struct Layer {
    pub plain: Vec<u8>,
    pub compressed: Vec<u8>,
}

impl Layer {
    /// The layer with `/etc`, certificates and the folder for simulated VMs.
    pub fn base(created: u32) -> Result<Self> {
        Self::of(root(), created)
    }

    /// The layer with `/capw`.
    pub fn program(bytes: Vec<u8>, created: u32) -> Result<Self> {
        Self::of(vec![Entry { mode: 0o755, ..Entry::file("capw", bytes) }], created)
    }

    /// Creates a layer with fixed times, owners and order, so that equal files result in equal bytes.
    pub fn of(entries: Vec<Entry>, created: u32) -> Result<Self> {
        let mut archive = Builder::new(Vec::new());
        for entry in entries {
            let bytes = entry.bytes.as_deref().unwrap_or_default();
            let mut header = Header::new_ustar();
            header.set_entry_type(if entry.bytes.is_some() { EntryType::Regular } else { EntryType::Directory });
            header.set_mode(entry.mode);
            header.set_uid(entry.owner.into());
            header.set_gid(entry.owner.into());
            header.set_mtime(created.into());
            header.set_size(bytes.len().try_into()?);
            archive.append_pax_extensions(entry.headers.iter().map(|(name, value)| (*name, value.as_bytes())))?;
            let path = if entry.bytes.is_some() { entry.path.to_owned() } else { format!("{}/", entry.path) };
            archive.append_data(&mut header, path, bytes)?;
        }
        let plain = archive.into_inner()?;
        let mut compressor = GzBuilder::new().write(Vec::new(), Compression::best());
        compressor.write_all(&plain)?;
        Ok(Self { compressed: compressor.finish()?, plain })
    }
}

/// Writes the files of the first layer into a folder.
pub fn write_root(output: &Path) -> Result<()> {
    crate::image::clear(output)?;
    for entry in root() {
        let path = output.join(entry.path);
        let written = match &entry.bytes {
            Some(bytes) => fs::write(&path, bytes),
            None => fs::create_dir(&path),
        };
        written.and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(entry.mode))).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
