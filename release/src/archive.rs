//! Writes one Linux architecture of a layout as a file for `docker load` and `podman load`: a separate layout with Docker's manifest list.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use oci_spec::image::{Arch, Descriptor, ImageIndex, ImageManifest, Os};
use serde_json::json;
use tar::{Builder, Header};

use crate::image::blob;

pub fn write(layout: &Path, architecture: &str, image: &str, output: &Path) -> Result<()> {
    let failed = || format!("{}: write the layout with `make image`", layout.display());
    let stored = |descriptor: &Descriptor| blob(descriptor.digest().as_ref());
    let mut outer = ImageIndex::from_file(layout.join("index.json")).with_context(failed)?;
    let named = outer.manifests().first().with_context(failed)?;
    let index = ImageIndex::from_file(layout.join(stored(named))).with_context(failed)?;
    let wanted = (Os::Linux, Arch::from(architecture));
    let is_wanted = |manifest: &&Descriptor| manifest.platform().as_ref().is_some_and(|p| (p.os(), p.architecture()) == (&wanted.0, &wanted.1));
    let found = index.manifests().iter().find(is_wanted);
    let mut descriptor = found.with_context(|| format!("{}: the image has no architecture {architecture} for Linux", layout.display()))?.clone();
    let manifest = ImageManifest::from_file(layout.join(stored(&descriptor))).with_context(failed)?;
    let layers: Vec<_> = manifest.layers().iter().map(stored).collect();
    let docker = json!([{"Config": stored(manifest.config()), "RepoTags": [image], "Layers": layers}]);
    let blobs = [stored(&descriptor), stored(manifest.config())].into_iter().chain(layers);
    let names = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];
    descriptor.set_annotations(Some(names.map(|name| (name.to_owned(), image.to_owned())).into()));
    outer.set_manifests(vec![descriptor]);

    let mut archive = Builder::new(Vec::new());
    for path in blobs {
        add(&mut archive, &path, &fs::read(layout.join(&path))?)?;
    }
    add(&mut archive, Path::new("index.json"), &serde_json::to_vec(&serde_json::to_value(&outer)?)?)?;
    add(&mut archive, Path::new("manifest.json"), docker.to_string().as_bytes())?;
    add(&mut archive, Path::new("oci-layout"), &fs::read(layout.join("oci-layout"))?)?;
    fs::write(output, archive.into_inner()?).with_context(|| output.display().to_string())
}

fn add(archive: &mut Builder<Vec<u8>>, path: &Path, bytes: &[u8]) -> Result<()> {
    let mut header = Header::new_ustar();
    header.set_mode(0o644);
    header.set_size(bytes.len().try_into()?);
    Ok(archive.append_data(&mut header, path, bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;
    use crate::program::Program;
    use crate::program::tests::{ARCHITECTURES, stand_in, windows_stand_in};

    #[test]
    fn every_file_that_the_list_of_docker_names_is_in_the_archive() {
        let folder = tempfile::tempdir().unwrap();
        let (layout, file) = (folder.path().join("image"), folder.path().join("image.tar"));
        let (ours, other) = ARCHITECTURES;
        let program = Program { architecture: ours.into(), path: stand_in(folder.path()) };
        Image { programs: vec![program], windows: None, revision: "abc".into(), created: 0 }.write(&layout).unwrap();
        write(&layout, ours, "registry.example/capw:v1", &file).unwrap();
        let to = folder.path().join("unpacked");
        tar::Archive::new(fs::File::open(&file).unwrap()).unpack(&to).unwrap();
        let list: serde_json::Value = serde_json::from_slice(&fs::read(to.join("manifest.json")).unwrap()).unwrap();
        assert_eq!(list[0]["RepoTags"], json!(["registry.example/capw:v1"]));
        for path in list[0]["Layers"].as_array().unwrap().iter().chain([&list[0]["Config"]]) {
            assert!(to.join(path.as_str().unwrap()).is_file(), "{path}");
        }
        let index = ImageIndex::from_file(to.join("index.json")).unwrap();
        assert!(to.join(blob(index.manifests()[0].digest().as_ref())).is_file());
        let error = write(&layout, other, "x", &file).unwrap_err();
        assert!(error.to_string().contains("no architecture"), "{error}");
    }

    #[test]
    fn the_program_for_windows_is_not_taken_for_one_of_linux() {
        let folder = tempfile::tempdir().unwrap();
        let (layout, file, windows) = (folder.path().join("image"), folder.path().join("image.tar"), folder.path().join("capw-node.exe"));
        fs::write(&windows, windows_stand_in(0x8664)).unwrap();
        let path = stand_in(folder.path());
        let mut bytes = fs::read(&path).unwrap();
        bytes[18..20].copy_from_slice(&183_u16.to_le_bytes()); // the processor, as ELF numbers it
        fs::write(&path, bytes).unwrap();
        let program = Program { architecture: "arm64".into(), path };
        Image { programs: vec![program], windows: Some(windows.into()), revision: "abc".into(), created: 0 }.write(&layout).unwrap();
        write(&layout, "arm64", "x", &file).unwrap();
        let error = write(&layout, "amd64", "x", &file).unwrap_err();
        assert!(error.to_string().contains("no architecture amd64 for Linux"), "{error}");
    }
}
