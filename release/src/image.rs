//! Writes the image as an OCI layout for skopeo, podman, buildah and registries, without a container engine, a base image or the network.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use data_encoding::HEXLOWER;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::layer::{CERTIFICATES, Layer, USER};
use crate::program::{Program, WindowsProgram};
use crate::windows;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// An image for one or several Linux architectures, and for Windows if a program for it is given.
#[derive(Debug)]
pub struct Image {
    pub programs: Vec<Program>,
    pub windows: Option<WindowsProgram>,
    pub revision: String,
    /// The creation time, in seconds since 1970.
    pub created: u32,
}

impl Image {
    /// Writes the layout and returns the digest of its index, by which users may pull it.
    pub fn write(&self, output: &Path) -> Result<String> {
        let programs = self.programs.iter().map(|program| Ok((program.architecture.as_str(), program.read()?))).collect::<Result<Vec<_>>>()?;
        let windows = self.windows.as_ref().map(WindowsProgram::read).transpose()?;
        clear(output)?;
        let blobs = Blobs { layout: output.to_owned() };
        let annotations = self.annotations()?;
        let base = Layer::base(self.created)?;
        // Sorted by platform, with Linux first: a client that ignores platforms and takes the first entry gets Linux.
        let mut manifests = BTreeMap::new();
        for (architecture, bytes) in programs {
            let layers = [("certificates", &base), ("capw", &Layer::program(bytes, self.created)?)];
            let manifest = self.manifest(&blobs, ("linux", architecture), &linux(&annotations), layers)?;
            ensure!(manifests.insert(("linux", architecture), manifest).is_none(), "two programs for {architecture}");
        }
        if let Some(bytes) = windows {
            let layers = [("registry", &windows::base(self.created)?), ("capw-node", &windows::program(bytes, self.created)?)];
            let platform = ("windows", "amd64");
            manifests.insert(platform, self.manifest(&blobs, platform, &windows::config(&annotations), layers)?);
        }
        let manifests: Vec<Value> = manifests.into_values().collect();
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests, "annotations": annotations});
        let index = blobs.add_json(INDEX, &index)?;
        let named = index.descriptor("annotations", json!({"org.opencontainers.image.ref.name": version()}));
        write_json(&output.join("index.json"), &json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]}))?;
        write_json(&output.join("oci-layout"), &json!({"imageLayoutVersion": "1.0.0"}))?;
        Ok(index.digest)
    }

    /// Writes the manifest of one platform and returns its descriptor for the index. Each layer comes with a description of its content.
    fn manifest(&self, blobs: &Blobs, platform: (&str, &str), config: &Value, layers: [(&str, &Layer); 2]) -> Result<Value> {
        let (annotations, created, (os, architecture)) = (self.annotations()?, self.time()?, platform);
        let config = json!({
            "architecture": architecture,
            "os": os,
            "created": created,
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": layers.map(|(_, layer)| digest(&layer.plain))},
            "history": layers.map(|(holds, _)| json!({"created": created, "created_by": holds})),
        });
        let config = blobs.add_json(CONFIG, &config)?;
        let layers = layers.iter().map(|(_, layer)| blobs.add(LAYER, &layer.compressed)).collect::<Result<Vec<_>>>()?;
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers, "annotations": annotations});
        Ok(blobs.add_json(MANIFEST, &manifest)?.descriptor("platform", json!({"architecture": architecture, "os": os})))
    }

    fn annotations(&self) -> Result<Value> {
        Ok(json!({
            "org.opencontainers.image.created": self.time()?,
            "org.opencontainers.image.description": "Cluster API provider for Windows Server worker nodes",
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.revision": self.revision,
            "org.opencontainers.image.title": "capw",
            "org.opencontainers.image.version": version(),
        }))
    }

    fn time(&self) -> Result<String> {
        Ok(Timestamp::from_second(self.created.into())?.to_string())
    }
}

/// The configuration of the image on Linux.
fn linux(labels: &Value) -> Value {
    json!({
        "User": format!("{USER}:{USER}"),
        "Entrypoint": ["/capw"],
        "Cmd": ["run"],
        "Env": ["PATH=/", format!("SSL_CERT_FILE=/{CERTIFICATES}")],
        // Health, metrics, and the service for cluster-autoscaler.
        "ExposedPorts": {"9440/tcp": {}, "8443/tcp": {}, "8086/tcp": {}},
        "Labels": labels,
    })
}

/// The version of this release, as a tag.
pub fn version() -> String {
    format!("v{}", env!("CARGO_PKG_VERSION"))
}

/// A stored blob of a layout; its JSON form is its descriptor.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Blob {
    media_type: &'static str,
    digest: String,
    size: usize,
}

impl Blob {
    /// The blob's descriptor with one more field.
    fn descriptor(&self, field: &str, value: Value) -> Value {
        let Self { media_type, digest, size } = self;
        json!({"mediaType": media_type, "digest": digest, "size": size, field: value})
    }
}

/// The blobs of a layout, each named by its digest.
struct Blobs {
    layout: PathBuf,
}

impl Blobs {
    fn add(&self, media_type: &'static str, bytes: &[u8]) -> Result<Blob> {
        let digest = digest(bytes);
        let path = self.layout.join(blob(&digest));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, bytes).with_context(|| path.display().to_string())?;
        Ok(Blob { media_type, digest, size: bytes.len() })
    }

    fn add_json(&self, media_type: &'static str, value: &Value) -> Result<Blob> {
        self.add(media_type, &sorted(value)?)
    }
}

/// The path of the blob with this digest in a layout.
pub fn blob(digest: &str) -> PathBuf {
    Path::new("blobs").join(digest.replace(':', "/"))
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(bytes)))
}

/// Serializes with sorted keys, whatever features serde_json has: the keys' order affects the digest.
fn sorted(value: &Value) -> Result<Vec<u8>> {
    let mut value = value.clone();
    value.sort_all_objects();
    Ok(serde_json::to_vec(&value)?)
}

fn write_json(path: &Path, value: &Value) -> Result<()> {
    fs::write(path, sorted(value)?).with_context(|| path.display().to_string())
}

/// Creates an empty folder, or empties an existing one.
pub fn clear(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())
}

#[cfg(test)]
mod tests;
