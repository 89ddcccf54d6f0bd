//! Reads from a disk's first sectors which firmware boots it: from its partition table, and the code of its first sector.

use uuid::Uuid;

const SECTOR: usize = 512;
/// The bytes that are read from the start of a disk: 34 sectors, the size of a GPT with its entries.
pub const LENGTH: usize = 34 * SECTOR;
/// The length of the code in a first sector; its partitions follow.
const CODE: usize = 440;
const MBR_ENTRIES: usize = 446;
const SIGNATURE: &[u8] = &[0x55, 0xaa];

/// The types of partitions in an MBR.
const PROTECTIVE: u8 = 0xee;
const ESP: u8 = 0xef;
const FAT: [u8; 6] = [0x01, 0x04, 0x06, 0x0b, 0x0c, 0x0e];
/// The types of partitions in a GPT.
const GPT_ESP: Uuid = Uuid::from_u128(0xc12a7328_f81f_11d2_ba4b_00a0c93ec93b);
const GPT_BIOS_BOOT: Uuid = Uuid::from_u128(0x21686148_6449_6e6f_744e_656564454649);
/// The attribute of a partition in a GPT that BIOS should boot.
const LEGACY_BOOT: u64 = 1 << 2;

/// Whether a firmware boots a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts {
    Yes,
    No,
    /// The first sectors do not show it.
    Perhaps,
}

/// The findings from the first sectors of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    pub uefi: Starts,
    pub bios: Starts,
    /// The finding for messages, e.g. `a GPT with an EFI system partition`.
    pub shows: &'static str,
}

impl Disk {
    /// Reads the first [`LENGTH`] bytes; missing bytes count as empty.
    pub fn read(sectors: &[u8]) -> Self {
        let disk = |uefi, bios, shows| Self { uefi, bios, shows };
        let Some(types) = mbr(sectors) else { return disk(Starts::No, Starts::No, "neither partitions nor a boot sector") };
        let has_code = part(sectors, 0, CODE).is_some_and(|code| code.iter().any(|byte| *byte != 0));
        let bios = if has_code { Starts::Yes } else { Starts::No };
        if types.contains(&PROTECTIVE) {
            return match gpt(sectors) {
                None => disk(Starts::Perhaps, Starts::Perhaps, "a GPT that cannot be read"),
                Some(Gpt { has_esp, starts_by_bios }) => {
                    let bios = if starts_by_bios { bios } else { Starts::No };
                    if has_esp {
                        disk(Starts::Yes, bios, "a GPT with an EFI system partition")
                    } else {
                        disk(Starts::No, bios, "a GPT without an EFI system partition")
                    }
                }
            };
        }
        match types.as_slice() {
            [] => disk(Starts::Perhaps, bios, "a boot sector without a partition table"),
            types if types.contains(&ESP) => disk(Starts::Yes, bios, "an MBR with an EFI system partition"),
            // UEFI may search any FAT for a loader.
            types if types.iter().any(|of| FAT.contains(of)) => disk(Starts::Perhaps, bios, "an MBR with a FAT partition"),
            _ => disk(Starts::No, bios, "an MBR without an EFI system partition"),
        }
    }
}

/// Returns the partition types in an MBR; empty for a first sector without a table. `None`: no firmware treats it as a boot sector.
fn mbr(sectors: &[u8]) -> Option<Vec<u8>> {
    part(sectors, SECTOR - SIGNATURE.len(), SIGNATURE.len()).filter(|signature| *signature == SIGNATURE)?;
    let entries: Vec<&[u8]> = part(sectors, MBR_ENTRIES, 64)?.chunks(16).collect();
    // Boot sectors without a table have code or text there.
    let is_table = entries.iter().all(|entry| matches!(entry, [0x00 | 0x80, ..]));
    let types = entries.iter().filter_map(|entry| entry.get(4).copied().filter(|of| *of != 0));
    Some(if is_table { types.collect() } else { Vec::new() })
}

struct Gpt {
    has_esp: bool,
    /// Whether a partition has a loader for BIOS.
    starts_by_bios: bool,
}

/// Reads a GPT; `None`: its header is missing, or its entries are not in the usual place.
fn gpt(sectors: &[u8]) -> Option<Gpt> {
    part(sectors, SECTOR, 8).filter(|header| *header == b"EFI PART")?;
    let number = |at| Some(u32::from_le_bytes(part(sectors, SECTOR + at, 4)?.try_into().ok()?));
    // `first` and `high` are the 64 bits of the entries' first sector.
    let (first, high, count, size) = (number(72)?, number(76)?, number(80)?, number(84)?);
    if (first, high) != (2, 0) || !(128..=4096).contains(&size) {
        return None;
    }
    let entries = sectors.get(2 * SECTOR..)?.chunks_exact(usize::try_from(size).ok()?).take(usize::try_from(count).ok()?);
    let entries: Vec<(Uuid, u64)> = entries
        .filter_map(|entry| {
            Some((Uuid::from_bytes_le(part(entry, 0, 16)?.try_into().ok()?), u64::from_le_bytes(part(entry, 48, 8)?.try_into().ok()?)))
        })
        .filter(|(of, _)| !of.is_nil())
        .collect();
    Some(Gpt {
        has_esp: entries.iter().any(|(of, _)| *of == GPT_ESP),
        starts_by_bios: entries.iter().any(|(of, attributes)| *of == GPT_BIOS_BOOT || attributes & LEGACY_BOOT != 0),
    })
}

fn part(bytes: &[u8], at: usize, length: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(length)?)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Builds a first sector with partitions of these types.
    pub fn with_mbr(has_code: bool, types: &[u8]) -> Vec<u8> {
        let mut disk = vec![0; LENGTH];
        if has_code {
            disk[..3].copy_from_slice(b"\xfa\x31\xc0");
        }
        for (number, of) in types.iter().enumerate() {
            disk[MBR_ENTRIES + 16 * number + 4] = *of;
        }
        disk[510..512].copy_from_slice(SIGNATURE);
        disk
    }

    /// Builds a GPT with partitions of these types and attributes.
    pub fn with_gpt(has_code: bool, partitions: &[(Uuid, u64)]) -> Vec<u8> {
        let mut disk = with_mbr(has_code, &[PROTECTIVE]);
        disk[512..520].copy_from_slice(b"EFI PART");
        for (at, number) in [(72_usize, 2_u32), (80, 128), (84, 128)] {
            disk[512 + at..512 + at + 4].copy_from_slice(&number.to_le_bytes());
        }
        for (number, (of, attributes)) in partitions.iter().enumerate() {
            let entry = &mut disk[1024 + 128 * number..][..128];
            entry[..16].copy_from_slice(&of.to_bytes_le());
            entry[48..56].copy_from_slice(&attributes.to_le_bytes());
        }
        disk
    }

    /// The data partition of Windows.
    const DATA: Uuid = Uuid::from_u128(0xebd0a0a2_b9e5_4433_87c0_68b6b72699c7);

    /// The disk of a Windows that was installed with UEFI.
    pub fn windows_by_uefi() -> Vec<u8> {
        with_gpt(true, &[(GPT_ESP, 0), (DATA, 0)])
    }

    pub fn windows_by_bios() -> Vec<u8> {
        with_mbr(true, &[0x07, 0x07])
    }

    #[test]
    fn a_disk_shows_by_which_firmware_it_starts() {
        use Starts::{No, Perhaps, Yes};
        let mut torn = windows_by_uefi();
        torn[512] = 0;
        let mut fat = with_mbr(true, &[]);
        fat[MBR_ENTRIES..MBR_ENTRIES + 4].copy_from_slice(b"NTLD");
        for (what, disk, uefi, bios) in [
            ("Windows by UEFI", windows_by_uefi(), Yes, No),
            ("Windows by BIOS", windows_by_bios(), No, Yes),
            ("Linux by both", with_gpt(true, &[(GPT_BIOS_BOOT, 0), (GPT_ESP, 0)]), Yes, Yes),
            ("a loader for BIOS in a GPT", with_gpt(true, &[(DATA, LEGACY_BOOT)]), No, Yes),
            ("no loader for BIOS", with_gpt(false, &[(GPT_BIOS_BOOT, 0)]), No, No),
            ("the last entry", with_gpt(false, &[&[(DATA, 0); 127][..], &[(GPT_ESP, 0)]].concat()), Yes, No),
            ("a GPT that is torn", torn, Perhaps, Perhaps),
            ("an MBR for UEFI", with_mbr(false, &[ESP]), Yes, No),
            ("an MBR with FAT", with_mbr(true, &[0x0c]), Perhaps, Yes),
            ("data only", with_mbr(false, &[0x07]), No, No),
            ("a boot sector", with_mbr(true, &[]), Perhaps, Yes),
            ("a file system's boot sector", fat, Perhaps, Yes),
            ("nothing", vec![0; LENGTH], No, No),
            ("an empty file", Vec::new(), No, No),
        ] {
            let seen = Disk::read(&disk);
            assert_eq!((seen.uefi, seen.bios), (uefi, bios), "{what}: {seen:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_disk(mut bytes in prop::collection::vec(any::<u8>(), 0..2048), is_gpt in any::<bool>()) {
            if let Some(signature) = bytes.get_mut(510..512) {
                signature.copy_from_slice(SIGNATURE);
            }
            if let Some(header) = bytes.get_mut(512..520).filter(|_| is_gpt) {
                header.copy_from_slice(b"EFI PART");
            }
            Disk::read(&bytes);
        }
    }
}
