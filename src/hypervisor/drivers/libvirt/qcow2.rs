//! Reads the start of the disk in a qcow2 file, by [the format](https://www.qemu.org/docs/master/interop/qcow2.html).

use std::io::Read;

use async_trait::async_trait;
use flate2::read::DeflateDecoder;

use super::refusal::Error;

const MAGIC: &[u8] = b"QFI\xfb";
const HEADER: u64 = 112;
/// The bits of an entry that hold the place of its cluster or table.
const PLACE: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;
const ZERO: u64 = 1;
/// The supported features: the file was not closed, and the kind of compression is named.
const KNOWN: u64 = 1 | COMPRESSION;
const COMPRESSION: u64 = 1 << 3;
/// The most compressed bytes that are needed for the start of a cluster; Deflate never takes more.
const MOST_COMPRESSED: u64 = 64 << 10;

/// A file that is read in parts.
#[async_trait]
pub trait File: Sync {
    /// Reads at most `length` bytes from `offset` on; fewer at the end of the file.
    async fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, Error>;
}

/// Why the start of a disk is not known.
#[derive(Debug)]
pub enum Unread {
    File(Error),
    /// The unsupported part of the file.
    Form(&'static str),
}

impl From<Error> for Unread {
    fn from(error: Error) -> Self {
        Self::File(error)
    }
}

struct Header {
    cluster_bits: u32,
    /// The place of the first table, which lists the second tables.
    first_table: u64,
    has_backing: bool,
    is_deflated: bool,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self, Unread> {
        let torn = || Unread::Form("its header is torn");
        let word = |at: usize| number(bytes, at, 4).ok_or_else(torn);
        let long = |at: usize| number(bytes, at, 8).ok_or_else(torn);
        if !bytes.starts_with(MAGIC) {
            return Err(Unread::Form("it is no qcow2 file"));
        }
        let version = word(4)?;
        let features = if version >= 3 { long(72)? } else { 0 };
        if !(2..=3).contains(&version) || features & !KNOWN != 0 {
            return Err(Unread::Form("it has features that are not read"));
        }
        if word(32)? != 0 {
            return Err(Unread::Form("it is encrypted"));
        }
        let cluster_bits = u32::try_from(word(20)?).ok().filter(|bits| (9..=21).contains(bits)).ok_or_else(torn)?;
        let is_deflated = features & COMPRESSION == 0 || bytes.get(104) == Some(&0);
        Ok(Self { cluster_bits, first_table: long(40)?, has_backing: long(8)? != 0, is_deflated })
    }

    /// Returns the place and the length of a compressed cluster.
    fn compressed(&self, entry: u64) -> (u64, u64) {
        let bits = 62 - (self.cluster_bits - 8);
        let (place, sectors) = (entry & ((1 << bits) - 1), (entry & (COMPRESSED - 1)) >> bits);
        (place, (sectors + 1) * 512 - place % 512)
    }
}

/// Reads the first bytes of the disk in a qcow2 file, at most 32 KiB.
pub async fn start(file: &dyn File, length: usize) -> Result<Vec<u8>, Unread> {
    let header = Header::read(&file.read(0, HEADER).await?)?;
    let cluster = 1_usize << header.cluster_bits;
    // The first second-level table covers more than is read: at least 64 clusters of 512 bytes.
    let second_table = number(&file.read(header.first_table, 8).await?, 0, 8).ok_or(Unread::Form("its first table is torn"))? & PLACE;
    let count = length.div_ceil(cluster);
    let entries = if second_table == 0 { Vec::new() } else { file.read(second_table, 8 * wide(count)).await? };
    let mut disk = Vec::with_capacity(length);
    for index in 0..count {
        let entry = number(&entries, 8 * index, 8).unwrap_or_default();
        let wanted = cluster.min(length - disk.len());
        let mut content = if entry & COMPRESSED != 0 {
            if !header.is_deflated {
                return Err(Unread::Form("it is compressed by zstd"));
            }
            let (place, length) = header.compressed(entry);
            inflated(&file.read(place, length.min(MOST_COMPRESSED)).await?, wanted)?
        } else if entry & ZERO != 0 {
            Vec::new()
        } else if entry & PLACE != 0 {
            file.read(entry & PLACE, wide(wanted)).await?
        } else if header.has_backing {
            return Err(Unread::Form("its start is in a file under it"));
        } else {
            Vec::new()
        };
        content.resize(wanted, 0);
        disk.append(&mut content);
    }
    Ok(disk)
}

fn inflated(bytes: &[u8], wanted: usize) -> Result<Vec<u8>, Unread> {
    let mut content = vec![0; wanted];
    DeflateDecoder::new(bytes).read_exact(&mut content).map_err(|_| Unread::Form("a compressed part of it cannot be read"))?;
    Ok(content)
}

/// Decodes a number of `length` bytes, the most significant first.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(bytes.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
}

pub fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hypervisor::drivers::libvirt::partitions::tests::{windows_by_bios, windows_by_uefi};
    use crate::judges;
    use proptest::prelude::*;
    use std::path::Path;
    use std::process::Command;

    #[async_trait]
    impl File for Vec<u8> {
        async fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, Error> {
            let end = self.len().min(usize::try_from(offset.saturating_add(length)).unwrap());
            Ok(self.get(usize::try_from(offset).unwrap()..end).unwrap_or_default().to_vec())
        }
    }

    /// Runs qemu-img; `false`, with a message, if the program is missing.
    fn qemu_img(directory: &Path, arguments: &[&str]) -> bool {
        let Some(output) = judges::output(Command::new("qemu-img").current_dir(directory).args(arguments)) else { return false };
        assert!(output.status.success(), "qemu-img {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        true
    }

    async fn start_of(path: &Path, length: usize) -> Result<Vec<u8>, &'static str> {
        start(&std::fs::read(path).unwrap(), length).await.map_err(|error| match error {
            Unread::Form(what) => what,
            Unread::File(error) => panic!("{error:?}"),
        })
    }

    /// Reads disks of both firmwares, in every form that QEMU's own program creates.
    #[tokio::test]
    async fn what_qemu_img_writes_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for disk in [windows_by_uefi(), windows_by_bios()] {
            let mut raw = disk.clone();
            raw.resize(3 << 20, 0);
            // The compressed data is longer than the part that is read.
            raw[disk.len()..].chunks_mut(7).zip((0..=250).cycle()).for_each(|(chunk, byte)| chunk.fill(byte));
            std::fs::write(at("raw"), &raw).unwrap();
            for options in [
                &[][..],
                &["-o", "compat=0.10"],
                &["-o", "cluster_size=512"],
                &["-o", "cluster_size=2M"],
                &["-o", "preallocation=full"],
                &["-o", "lazy_refcounts=on"],
                &["-c"],
                &["-c", "-o", "cluster_size=4096"],
                &["-c", "-o", "cluster_size=2M"],
            ] {
                if !qemu_img(directory.path(), &[&["convert", "-O", "qcow2"], options, &["raw", "qcow2"]].concat()) {
                    return;
                }
                for length in [disk.len(), 1, 513, 32 << 10] {
                    assert_eq!(start_of(&at("qcow2"), length).await.unwrap(), raw[..length], "{options:?} {length}");
                }
            }
            qemu_img(directory.path(), &["create", "-f", "qcow2", "-b", "qcow2", "-F", "qcow2", "over"]);
            assert_eq!(start_of(&at("over"), 512).await, Err("its start is in a file under it"));
            for (options, words) in [
                (&["-c", "-o", "compression_type=zstd"][..], "it is compressed by zstd"),
                (&["-o", "extended_l2=on"], "it has features that are not read"),
                (&["-o", "data_file=data"], "it has features that are not read"),
            ] {
                qemu_img(directory.path(), &[&["convert", "-O", "qcow2"], options, &["raw", "qcow2"]].concat());
                assert_eq!(start_of(&at("qcow2"), 512).await, Err(words));
            }
        }
        qemu_img(directory.path(), &["create", "-f", "qcow2", "empty", "1G"]);
        assert_eq!(start_of(&at("empty"), 600).await.unwrap(), [0; 600]);
    }

    proptest! {
        /// The places in the file come from the author of the image, so they can be any numbers.
        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..4096), header in any::<bool>(), bits in 0_u8..24) {
            if let Some(start) = bytes.get_mut(..112).filter(|_| header) {
                start[..8].copy_from_slice(b"QFI\xfb\0\0\0\x02");
                start[8..16].fill(0);
                start[20..36].fill(0);
                start[23] = bits;
                start[40..46].fill(0);
            }
            let read = futures::executor::block_on(start(&bytes, 17_408));
            prop_assert!(read.is_err() || read.is_ok_and(|disk| disk.len() == 17_408));
        }
    }
}
