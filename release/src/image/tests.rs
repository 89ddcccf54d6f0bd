//! Tests that another implementation can read the image.

use std::io::Read;

use flate2::read::GzDecoder;
use oci_spec::image::{Arch, Descriptor, ImageConfiguration, ImageIndex, ImageManifest, OciLayout, Os};

use super::*;
use crate::program::tests::{ARCHITECTURES, stand_in, windows_stand_in};

fn image(program: &Path) -> Image {
    let program = Program { architecture: ARCHITECTURES.0.into(), path: program.into() };
    Image { programs: vec![program], windows: None, revision: "abc".into(), created: 1_790_000_000 }
}

/// The same image with a program for Windows, which is written next to the Linux program.
fn with_windows(program: &Path) -> Image {
    let path = program.with_file_name("capw-node.exe");
    fs::write(&path, windows_stand_in(0x8664)).unwrap();
    Image { windows: Some(path.into()), ..image(program) }
}

fn at(layout: &Path, descriptor: &Descriptor) -> PathBuf {
    layout.join(blob(descriptor.digest().as_ref()))
}

/// Checks that the outer index names this digest, and returns the entries of the image.
fn index(layout: &Path, digest: &str) -> Vec<Descriptor> {
    OciLayout::from_file(layout.join("oci-layout")).unwrap();
    let outer = ImageIndex::from_file(layout.join("index.json")).unwrap();
    assert_eq!(outer.manifests()[0].digest().as_ref(), digest);
    ImageIndex::from_file(at(layout, &outer.manifests()[0])).unwrap().manifests().clone()
}

/// The configuration of an entry and the files of its two layers, after their digests were compared with the configuration.
fn contents(layout: &Path, entry: &Descriptor) -> (ImageConfiguration, [PathBuf; 2]) {
    let manifest = ImageManifest::from_file(at(layout, entry)).unwrap();
    let config = ImageConfiguration::from_file(at(layout, manifest.config())).unwrap();
    for (layer, id) in manifest.layers().iter().zip(config.rootfs().diff_ids()) {
        assert_eq!(&super::digest(&plain(&at(layout, layer))), id);
        assert_eq!(layer.size(), fs::metadata(at(layout, layer)).unwrap().len());
    }
    let [base, program] = manifest.layers().as_slice() else { panic!("two layers") };
    (config, [at(layout, base), at(layout, program)])
}

fn plain(layer: &Path) -> Vec<u8> {
    let mut plain = Vec::new();
    GzDecoder::new(fs::File::open(layer).unwrap()).read_to_end(&mut plain).unwrap();
    plain
}

/// The entries of a layer: path, mode, owner, size and time of each.
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
    let index = index(&layout, &digest);
    let [descriptor] = index.as_slice() else { panic!("one architecture") };
    assert_eq!(*descriptor.platform().as_ref().unwrap().architecture(), Arch::from(ARCHITECTURES.0));
    let (config, [base, layer]) = contents(&layout, descriptor);
    let run = config.config().as_ref().unwrap();
    assert_eq!(run.user().as_deref(), Some("65532:65532"));
    assert_eq!((run.entrypoint().clone().unwrap(), run.cmd().clone().unwrap()), (vec!["/capw".to_owned()], vec!["run".to_owned()]));
    assert_eq!(config.created().as_deref(), Some("2026-09-21T14:13:20Z"));

    let mut all = entries(&base);
    assert_eq!(all["var/lib/capw/"], (0o700, 65_532, 0, 1_790_000_000));
    all.extend(entries(&layer));
    assert_eq!(all["capw"], (0o755, 0, fs::metadata(&program).unwrap().len(), 1_790_000_000));
    let files: Vec<&String> = all.keys().filter(|path| !path.ends_with('/')).collect();
    assert_eq!(files, ["capw", "etc/group", "etc/passwd", "etc/ssl/certs/ca-certificates.crt"]);
}

#[test]
fn another_reader_finds_an_entry_for_every_build_of_windows() {
    let folder = tempfile::tempdir().unwrap();
    let layout = folder.path().join("image");
    let digest = with_windows(&stand_in(folder.path())).write(&layout).unwrap();
    let index = index(&layout, &digest);
    let [_, descriptor] = index.as_slice() else { panic!("an entry for Linux, then one for Windows") };
    let platform = descriptor.platform().as_ref().unwrap();
    assert_eq!((platform.os(), platform.architecture(), platform.os_version()), (&Os::Windows, &Arch::Amd64, &None));
    let (config, [base, program]) = contents(&layout, descriptor);
    assert_eq!((config.os(), config.architecture(), config.os_version()), (&Os::Windows, &Arch::Amd64, &None));
    let run = config.config().as_ref().unwrap();
    assert_eq!(run.entrypoint().clone().unwrap(), [r"%CONTAINER_SANDBOX_MOUNT_POINT%\capw-node.exe"]);
    assert_eq!((run.cmd(), run.user(), run.env()), (&None, &None, &None));

    let files: Vec<String> = entries(&base).into_keys().filter(|path| !path.ends_with('/')).collect();
    assert_eq!(files, ["DEFAULT", "SAM", "SECURITY", "SOFTWARE", "SYSTEM"].map(|name| format!("Files/Windows/System32/config/{name}")));
    let mut archive = tar::Archive::new(fs::File::open(&program).map(GzDecoder::new).unwrap());
    let found = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let headers = entry.pax_extensions().unwrap().into_iter().flatten().map(|header| header.unwrap().key().unwrap().to_owned());
        let (headers, mut bytes) = (headers.collect::<Vec<_>>().join(" "), Vec::new());
        entry.read_to_end(&mut bytes).unwrap();
        (entry.path().unwrap().display().to_string(), headers, bytes)
    });
    let folder = |path: &str| (path.to_owned(), "MSWINDOWS.fileattr".to_owned(), Vec::new());
    let program = ("Files/capw-node.exe".to_owned(), "MSWINDOWS.fileattr MSWINDOWS.rawsd".to_owned(), windows_stand_in(0x8664));
    assert_eq!(found.collect::<Vec<_>>(), [folder("Hives/"), folder("Files/"), program]);
}

#[test]
fn an_entry_for_windows_leaves_that_for_linux_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (program, without, with) = (stand_in(folder.path()), folder.path().join("without"), folder.path().join("with"));
    let alone = index(&without, &image(&program).write(&without).unwrap());
    let both = index(&with, &with_windows(&program).write(&with).unwrap());
    assert_eq!((alone.len(), both.len()), (1, 2));
    assert_eq!(alone[0], both[0]);
    let manifest = ImageManifest::from_file(at(&without, &alone[0])).unwrap();
    for stored in manifest.layers().iter().chain([manifest.config(), &alone[0]]) {
        assert!(fs::read(at(&without, stored)).unwrap() == fs::read(at(&with, stored)).unwrap(), "{}", stored.digest());
    }
}

#[test]
fn the_same_programs_give_the_same_digest_and_another_one_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let image = with_windows(&stand_in(folder.path()));
    let write = |name: &str| image.write(&folder.path().join(name)).unwrap();
    let first = write("first");
    for program in ["capw", "capw-node.exe"].map(|name| folder.path().join(name)) {
        // File times and the location do not affect the result.
        fs::File::options().append(true).open(&program).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(write("second"), first);
        let bytes = fs::read(&program).unwrap();
        fs::write(&program, [bytes.as_slice(), &[0]].concat()).unwrap();
        assert_ne!(write("third"), first, "{}", program.display());
        fs::write(&program, bytes).unwrap();
    }
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
