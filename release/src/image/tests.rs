//! Another implementation reads what is written here.

use std::io::Read;

use flate2::read::GzDecoder;
use oci_spec::image::{Arch, ImageConfiguration, ImageIndex, ImageManifest, OciLayout};

use super::*;
use crate::program::tests::{ARCHITECTURES, stand_in};

fn image(program: &Path) -> Image {
    Image { programs: vec![Program { architecture: ARCHITECTURES.0.into(), path: program.into() }], revision: "abc".into(), created: 1_790_000_000 }
}

fn at(layout: &Path, descriptor: &oci_spec::image::Descriptor) -> PathBuf {
    layout.join(blob(descriptor.digest().as_ref()))
}

/// What is in a layer: path, mode, owner, size and time of each entry.
fn entries(path: &Path) -> BTreeMap<String, (u32, u64, u64, u64)> {
    let mut archive = tar::Archive::new(GzDecoder::new(fs::File::open(path).unwrap()));
    let entries = archive.entries().unwrap().map(|entry| {
        let entry = entry.unwrap();
        let header = entry.header();
        let facts = (header.mode().unwrap(), header.uid().unwrap(), header.size().unwrap(), header.mtime().unwrap());
        (entry.path().unwrap().display().to_string(), facts)
    });
    entries.collect()
}

#[test]
fn another_reader_finds_four_files_and_a_user_without_rights() {
    let folder = tempfile::tempdir().unwrap();
    let (program, layout) = (stand_in(folder.path()), folder.path().join("image"));
    let digest = image(&program).write(&layout).unwrap();
    OciLayout::from_file(layout.join("oci-layout")).unwrap();
    let outer = ImageIndex::from_file(layout.join("index.json")).unwrap();
    assert_eq!(outer.manifests()[0].digest().as_ref(), digest);
    let index = ImageIndex::from_file(at(&layout, &outer.manifests()[0])).unwrap();
    let [descriptor] = index.manifests().as_slice() else { panic!("one architecture") };
    assert_eq!(*descriptor.platform().as_ref().unwrap().architecture(), Arch::from(ARCHITECTURES.0));
    let manifest = ImageManifest::from_file(at(&layout, descriptor)).unwrap();
    let config = ImageConfiguration::from_file(at(&layout, manifest.config())).unwrap();
    let run = config.config().as_ref().unwrap();
    assert_eq!(run.user().as_deref(), Some("65532:65532"));
    assert_eq!((run.entrypoint().clone().unwrap(), run.cmd().clone().unwrap()), (vec!["/capw".to_owned()], vec!["run".to_owned()]));
    assert_eq!(config.created().as_deref(), Some("2026-09-21T14:13:20Z"));

    let [base, layer] = manifest.layers().as_slice() else { panic!("two layers") };
    for (layer, id) in manifest.layers().iter().zip(config.rootfs().diff_ids()) {
        let mut plain = Vec::new();
        GzDecoder::new(fs::File::open(at(&layout, layer)).unwrap()).read_to_end(&mut plain).unwrap();
        assert_eq!(&super::digest(&plain), id);
        assert_eq!(layer.size(), fs::metadata(at(&layout, layer)).unwrap().len());
    }
    let mut all = entries(&at(&layout, base));
    assert_eq!(all["var/lib/capw/"], (0o700, 65_532, 0, 1_790_000_000));
    all.extend(entries(&at(&layout, layer)));
    assert_eq!(all["capw"], (0o755, 0, fs::metadata(&program).unwrap().len(), 1_790_000_000));
    let files: Vec<&String> = all.keys().filter(|path| !path.ends_with('/')).collect();
    assert_eq!(files, ["capw", "etc/group", "etc/passwd", "etc/ssl/certs/ca-certificates.crt"]);
}

#[test]
fn the_same_program_gives_the_same_digest_and_another_one_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let program = stand_in(folder.path());
    let write = |name: &str| image(&program).write(&folder.path().join(name)).unwrap();
    let first = write("first");
    // Other times of files and another place do not matter.
    fs::File::options().append(true).open(&program).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(write("second"), first);
    let mut bytes = fs::read(&program).unwrap();
    bytes.push(0);
    fs::write(&program, bytes).unwrap();
    assert_ne!(write("third"), first);
}

#[test]
fn the_authorities_are_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    crate::layer::write_root(&root).unwrap();
    let text = fs::read_to_string(root.join(CERTIFICATES)).unwrap();
    assert!(pem::parse_many(&text).unwrap().len() > 100);
    assert!(!text.contains('\r') && text.starts_with("-----BEGIN CERTIFICATE-----\n"));
}

#[test]
fn one_architecture_is_given_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut twice = image(&stand_in(folder.path()));
    twice.programs.push(twice.programs[0].clone());
    assert!(twice.write(&folder.path().join("image")).unwrap_err().to_string().contains("two programs for"));
}
