//! Creates a Windows registry file with only a root key, in the oldest version that Windows accepts.
//! The format: <https://github.com/msuhanov/regf>.

use super::security::{self, ADMINISTRATORS, KEY_ALL, SYSTEM};

/// The size of the header, and of the single bin after it.
const BLOCK: u32 = 4096;
/// The offset of the first cell in a bin. Offsets are counted from the first bin.
const FIRST_CELL: u32 = 32;
/// The value for a missing offset.
const NONE: u32 = u32::MAX;

/// Creates two blocks: the header, and a bin with the root key, its permissions, and free space.
pub fn empty() -> Vec<u8> {
    let rights_at = FIRST_CELL + cell(&root(0)).len() as u32;
    let mut bin = fields(&[u32::from_le_bytes(*b"hbin"), 0, BLOCK, 0, 0, 0, 0, 0]);
    bin.extend(cell(&root(rights_at)));
    bin.extend(cell(&rights(rights_at)));
    // The size of a free cell is positive.
    bin.extend((BLOCK - bin.len() as u32).to_le_bytes());
    bin.resize(BLOCK as usize, 0);
    let mut bytes = header();
    bytes.extend(bin);
    bytes
}

/// The header: a complete write (the same number twice), the version (1.3), and the offset of the root key.
fn header() -> Vec<u8> {
    let words = [u32::from_le_bytes(*b"regf"), 1, 1, 0, 0, 1, 3, 0, 1, FIRST_CELL, BLOCK, 1];
    let mut bytes = fields(&words);
    bytes.resize(508, 0);
    bytes.extend(words.iter().fold(0, |sum, word| sum ^ word).to_le_bytes());
    bytes.resize(BLOCK as usize, 0);
    bytes
}

/// A key without a parent, a class, values or subkeys.
fn root(rights_at: u32) -> Vec<u8> {
    const NAME: &[u8; 4] = b"ROOT";
    // The root of a file, which cannot be removed, with a name of one byte per letter.
    const FLAGS: u32 = 0x0004 | 0x0008 | 0x0020;
    let kind = u32::from(u16::from_le_bytes(*b"nk")) | FLAGS << 16;
    let mut bytes = fields(&[kind, 0, 0, 0, NONE, 0, 0, NONE, NONE, 0, NONE, rights_at, NONE, 0, 0, 0, 0, 0, NAME.len() as u32]);
    bytes.extend(NAME);
    bytes
}

/// The permissions, which only one key has. They are the only element of their circular list, so both links refer to themselves.
fn rights(at: u32) -> Vec<u8> {
    let descriptor = security::descriptor(&[(KEY_ALL, ADMINISTRATORS), (KEY_ALL, SYSTEM)]);
    let mut bytes = fields(&[u32::from(u16::from_le_bytes(*b"sk")), at, at, 1, descriptor.len() as u32]);
    bytes.extend(descriptor);
    bytes
}

/// A cell that is in use: its size is negative.
fn cell(content: &[u8]) -> Vec<u8> {
    let size = (4 + content.len()).next_multiple_of(8);
    let mut bytes = (-(size as i32)).to_le_bytes().to_vec();
    bytes.extend(content);
    bytes.resize(size, 0);
    bytes
}

fn fields(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn what_windows_checks_when_it_loads_a_registry_file_holds() {
        let hive = empty();
        assert_eq!(hive.len(), 8192);
        assert_eq!(&hive[..4], b"regf");
        assert_eq!(word(&hive, 4), word(&hive, 8), "changes that were not written");
        assert_eq!((word(&hive, 20), word(&hive, 24), word(&hive, 28), word(&hive, 32)), (1, 3, 0, 1), "version, type and format");
        assert_eq!((0..512).step_by(4).fold(0, |sum, at| sum ^ word(&hive, at)), 0, "checksum");
        let bins = &hive[4096..];
        assert_eq!(word(&hive, 40) as usize, bins.len());
        assert_eq!((&bins[..4], word(bins, 4), word(bins, 8)), (b"hbin".as_slice(), 0, 4096));

        // Cells follow one another to the end of the bin.
        let (mut at, mut used) = (32, Vec::new());
        while at < bins.len() {
            let size = word(bins, at).cast_signed();
            assert!(size != 0 && size % 8 == 0, "{size} at {at}");
            if size < 0 {
                used.push(at);
            }
            at += size.unsigned_abs() as usize;
        }
        assert_eq!(at, bins.len());
        let [root, rights] = used[..] else { panic!("{used:?}") };

        assert_eq!(word(&hive, 36) as usize, root);
        assert_eq!(&bins[root + 4..root + 8], b"nk\x2c\0");
        assert_eq!((word(bins, root + 24), word(bins, root + 40)), (0, 0), "keys below, values");
        assert_eq!(&bins[root + 76..root + 84], b"\x04\0\0\0ROOT");
        assert_eq!(word(bins, root + 48) as usize, rights);
        assert_eq!(&bins[rights + 4..rights + 8], b"sk\0\0");
        assert_eq!((word(bins, rights + 8), word(bins, rights + 12)), (rights as u32, rights as u32));
        assert_eq!(word(bins, rights + 16), 1, "number of keys with these rights");
        let size = word(bins, rights + 20) as usize;
        assert_eq!(bins[rights + 24..rights + 24 + size], security::descriptor(&[(KEY_ALL, ADMINISTRATORS), (KEY_ALL, SYSTEM)]));
    }
}
