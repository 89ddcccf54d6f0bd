//! The archive of the payload: for each file a line `<sha256> <length> <path>` and then its bytes; the whole is gzipped.
//!
//! The format is neither zip nor JSON: PowerShell 5.1 reads this with GZipStream in ten lines, without loading another assembly and without
//! the length limit of ConvertFrom-Json, and each file carries its digest.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{Read, Write};

use flate2::read::GzDecoder;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc, GzBuilder};

use super::error::ReadError;
use crate::bootstrap::digest::sha256;

/// The most bytes that a reader unpacks.
pub const UNPACKED_LIMIT: u64 = 64 << 20;
/// The magic number of gzip.
pub(super) const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Whether a path of the payload is relative and has only plain characters.
fn path_ok(path: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._+-".contains(c);
    path.len() <= 200 && path.split('/').all(|part| !part.is_empty() && part != "." && part != ".." && part.chars().all(plain))
}

/// The compression level. It takes half the time of the best level for 4 % more bytes, which matters with thousands of machines.
const LEVEL: u32 = 4;

/// Compresses with gzip, without time stamp and file name: the same content gives the same bytes.
pub(in crate::bootstrap) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::new(LEVEL));
    // Writing to memory does not fail; if it did, the digests would not match.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// Unzips at most [`UNPACKED_LIMIT`] bytes.
pub(super) fn gunzip(bytes: &[u8]) -> Result<Vec<u8>, ReadError> {
    let mut out = Vec::new();
    GzDecoder::new(bytes).take(UNPACKED_LIMIT + 1).read_to_end(&mut out).map_err(|e| ReadError::Archive(format!("it is not gzip: {e}")))?;
    if out.len() as u64 > UNPACKED_LIMIT {
        return Err(ReadError::Archive(format!("it unpacks to more than {UNPACKED_LIMIT} bytes")));
    }
    Ok(out)
}

/// The start of gzip without time stamp and file name ([RFC 1952](https://www.rfc-editor.org/rfc/rfc1952), section 2.3).
const GZIP_HEADER: [u8; 10] = [GZIP[0], GZIP[1], 8, 0, 0, 0, 0, 0, 0, 255];

/// The files that many archives begin with. They are compressed once, to blocks of deflate that end at a byte, so that others can follow.
pub(super) struct Prefix {
    deflated: Vec<u8>,
    sum: Crc,
}

impl Prefix {
    pub(super) fn new<'a>(files: impl IntoIterator<Item = (impl Display, &'a [u8])>) -> Self {
        let plain = plain(files);
        let mut sum = Crc::new();
        sum.update(&plain);
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        // Writing to memory does not fail; if it did, the sums would not match.
        let _ = encoder.write_all(&plain).and_then(|()| encoder.flush());
        Self { deflated: encoder.get_ref().clone(), sum }
    }
}

/// Packs these files into an archive, behind those of `prefix`.
pub(super) fn pack(prefix: &Prefix, files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let plain = plain(files.iter().map(|(path, bytes)| (path, bytes.as_slice())));
    let mut sum = Crc::new();
    sum.combine(&prefix.sum);
    sum.update(&plain);
    let mut encoder = DeflateEncoder::new([&GZIP_HEADER, prefix.deflated.as_slice()].concat(), Compression::new(LEVEL));
    let _ = encoder.write_all(&plain);
    let mut packed = encoder.finish().unwrap_or_default();
    packed.extend(sum.sum().to_le_bytes());
    packed.extend(sum.amount().to_le_bytes());
    packed
}

/// Returns the text of an archive before its compression.
fn plain<'a>(files: impl IntoIterator<Item = (impl Display, &'a [u8])>) -> Vec<u8> {
    let mut plain = Vec::new();
    for (path, bytes) in files {
        plain.extend(format!("{} {} {path}\n", sha256(bytes), bytes.len()).bytes());
        plain.extend(bytes);
    }
    plain
}

/// Returns the files of an archive, after checking their digests.
pub(super) fn unpack(archive: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, ReadError> {
    let wrong = |text: String| ReadError::Archive(text);
    let plain = gunzip(archive)?;
    let mut rest = plain.as_slice();
    let mut files = BTreeMap::new();
    while !rest.is_empty() {
        let end = rest.iter().position(|b| *b == b'\n').ok_or_else(|| wrong("it ends within a line".into()))?;
        let (line, body) = rest.split_at(end);
        let line = std::str::from_utf8(line).ok().filter(|l| l.is_ascii()).ok_or_else(|| wrong("a line is not ASCII".into()))?;
        let mut fields = line.splitn(3, ' ');
        let (Some(digest), Some(length), Some(path)) = (fields.next(), fields.next().and_then(|l| l.parse::<usize>().ok()), fields.next()) else {
            return Err(wrong("a line is not `<sha256> <length> <path>`".into()));
        };
        if !path_ok(path) {
            return Err(wrong(format!("{path:?} is not a path of a payload")));
        }
        let body = body.get(1..).unwrap_or_default();
        let bytes = body.get(..length).ok_or_else(|| wrong(format!("it ends within {path}")))?;
        if sha256(bytes) != digest {
            return Err(wrong(format!("{path} is damaged: its digest does not match")));
        }
        if files.insert(path.to_owned(), bytes.to_vec()).is_some() {
            return Err(wrong(format!("it contains {path} twice")));
        }
        rest = body.get(length..).unwrap_or_default();
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn damage_is_detected() {
        let plain = |text: &str| unpack(&gzip(text.as_bytes())).unwrap_err().to_string();
        let digest = sha256(b"ab");
        assert!(plain(&format!("{digest} 2 a.ps1\nax")).contains("damaged"));
        assert!(plain(&format!("{digest} 3 a.ps1\nab")).contains("ends within a.ps1"));
        assert!(plain(&format!("{digest} 2 ../a\nab")).contains("not a path"));
        assert!(plain(&format!("{digest} 2 a\nab{digest} 2 a\nab")).contains("twice"));
        assert!(plain("x").contains("ends within a line"));
        assert!(unpack(b"zip").unwrap_err().to_string().contains("not gzip"));
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_back(
            mut files in proptest::collection::btree_map("[a-z]{1,8}(/[a-z0-9.]{1,3}[a-z]){0,2}", proptest::collection::vec(any::<u8>(), 0..300), 0..8),
            first in proptest::collection::btree_map("[A-Z]{1,8}", proptest::collection::vec(any::<u8>(), 0..300), 0..8),
        ) {
            let first: BTreeMap<String, Vec<u8>> = first.into_iter().map(|(path, bytes)| (format!("first/{}", path.to_lowercase()), bytes)).collect();
            let prefix = Prefix::new(first.iter().map(|(path, bytes)| (path, bytes.as_slice())));
            let packed = pack(&prefix, &files);
            prop_assert_eq!(&pack(&prefix, &files), &packed);
            files.extend(first);
            prop_assert_eq!(unpack(&packed).unwrap(), files);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = unpack(&bytes);
            let _ = unpack(&gzip(&bytes));
        }
    }
}
