//! Searches files for a secret, in every form in which programs write a text. It must not judge.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use regex::bytes::Regex;

/// Files below a directory that contain a text: as it is, in UTF-16 as Windows writes it, or in base64. Files with a second hard link are
/// skipped: they belong to the programs and the prepared prefix, which all guests share and no guest writes.
pub fn files_with(directory: &Path, text: &str) -> Vec<PathBuf> {
    let forms: Vec<String> = forms(text).iter().map(|form| form.iter().map(|byte| format!("\\x{byte:02x}")).collect()).collect();
    let any = Regex::new(&format!("(?-u){}", forms.join("|"))).expect("bytes are a pattern");
    // A file that was deleted meanwhile contains nothing.
    let holds = |file: &PathBuf| fs::read(file).is_ok_and(|bytes| any.is_match(&bytes));
    files(directory).into_iter().filter(|file| is_own(file)).filter(holds).collect()
}

/// Whether the path is a regular file without a second hard link.
pub fn is_own(file: &Path) -> bool {
    fs::symlink_metadata(file).is_ok_and(|about| about.is_file() && about.nlink() == 1)
}

/// All files below a directory. Links are not followed.
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let below = |entry: fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files(&entry.path()),
        _ => vec![entry.path()],
    };
    entries.flat_map(below).collect()
}

fn forms(text: &str) -> Vec<Vec<u8>> {
    let mut forms = vec![text.as_bytes().to_vec(), text.encode_utf16().flat_map(u16::to_le_bytes).collect()];
    // A text within a longer text begins at any of the three bytes of a group; its first and last characters may contain bits of other bytes.
    for before in 0..3 {
        let encoded = STANDARD_NO_PAD.encode([vec![0; before], text.as_bytes().to_vec()].concat());
        let (start, end) = ((before * 8).div_ceil(6), (before + text.len()) * 8 / 6);
        forms.push(encoded.as_bytes()[start..end].to_vec());
    }
    forms
}

#[test]
fn a_text_is_found_in_each_of_its_forms() {
    const SECRET: &str = "canary-5e9c1f0d7b2a";
    let home = tempfile::tempdir().expect("a directory");
    let write = |name: &str, bytes: &[u8]| {
        let path = home.path().join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("it is made");
        fs::write(path, bytes).expect("it is written");
    };
    write("plain", format!("a {SECRET} b").as_bytes());
    write("deep/down/wide", &SECRET.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>());
    for before in 0..4 {
        write(&format!("base64-{before}"), STANDARD_NO_PAD.encode(format!("{}{SECRET} and more", "x".repeat(before))).as_bytes());
    }
    write("other", b"canary-5e9c1f0d7b2");
    write("shared", SECRET.as_bytes());
    fs::hard_link(home.path().join("shared"), home.path().join("shared-too")).expect("a second name");
    let mut found: Vec<String> =
        files_with(home.path(), SECRET).iter().map(|file| file.strip_prefix(home.path()).expect("it is below").display().to_string()).collect();
    found.sort();
    assert_eq!(found, ["base64-0", "base64-1", "base64-2", "base64-3", "deep/down/wide", "plain"]);
}
