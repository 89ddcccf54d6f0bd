//! Security descriptors in the format in which Windows stores them with a file or a key: the owner and the permissions.
//! The format: <https://learn.microsoft.com/openspecs/windows_protocols/ms-dtyp/7d4dac05-9cef-4563-a058-f108abecce1d>.

/// All permissions for a file.
pub const FILE_ALL: u32 = 0x001f_01ff;
pub const FILE_READ_AND_EXECUTE: u32 = 0x0012_00a9;
/// All permissions for a registry key.
pub const KEY_ALL: u32 = 0x000f_003f;

/// A built-in account or group of Windows: the numbers after S-1-5.
pub type Account = &'static [u32];
pub const SYSTEM: Account = &[18];
pub const ADMINISTRATORS: Account = &[32, 544];
pub const USERS: Account = &[32, 545];

/// The size of the part before the owner.
const HEADER: usize = 20;
/// The descriptor is in one piece, and contains a list of rules.
const CONTROL: u16 = 0x8000 | 0x0004;

/// Creates a descriptor: the owner is the administrators' group, and these accounts have these permissions.
pub fn descriptor(rights: &[(u32, Account)]) -> Vec<u8> {
    let rules: Vec<u8> = rights.iter().flat_map(|(mask, account)| rule(*mask, account)).collect();
    let (owner, group) = (identifier(ADMINISTRATORS), identifier(SYSTEM));
    let group_at = HEADER + owner.len();
    let rules_at = group_at + group.len();
    let mut bytes = vec![1, 0];
    bytes.extend(CONTROL.to_le_bytes());
    // The descriptor has no audit list.
    bytes.extend([HEADER, group_at, 0, rules_at].iter().flat_map(|at| (*at as u32).to_le_bytes()));
    bytes.extend(owner);
    bytes.extend(group);
    bytes.extend([2, 0]);
    bytes.extend((8 + rules.len() as u16).to_le_bytes());
    bytes.extend((rights.len() as u32).to_le_bytes());
    bytes.extend(rules);
    bytes
}

/// Allows an account the access in the mask.
fn rule(mask: u32, account: Account) -> Vec<u8> {
    let account = identifier(account);
    let mut bytes = vec![0, 0];
    bytes.extend((8 + account.len() as u16).to_le_bytes());
    bytes.extend(mask.to_le_bytes());
    bytes.extend(account);
    bytes
}

fn identifier(account: Account) -> Vec<u8> {
    let mut bytes = vec![1, account.len() as u8, 0, 0, 0, 0, 0, 5];
    bytes.extend(account.iter().flat_map(|number| number.to_le_bytes()));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Converts a descriptor's bytes to the text form of Windows.
    fn text(bytes: &[u8]) -> String {
        let half = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let word = |at: usize| half(at) | half(at + 2) << 16;
        let account = |at: usize| {
            assert_eq!((bytes[at], &bytes[at + 2..at + 8]), (1, [0, 0, 0, 0, 0, 5].as_slice()));
            let numbers: Vec<usize> = (0..usize::from(bytes[at + 1])).map(|index| word(at + 8 + 4 * index)).collect();
            match numbers[..] {
                [18] => "SY",
                [32, 544] => "BA",
                [32, 545] => "BU",
                _ => panic!("S-1-5-{numbers:?}"),
            }
        };
        assert_eq!((half(0), half(2), word(12)), (1, 0x8004, 0));
        let list = word(16);
        let (mut at, mut rules) = (list + 8, String::new());
        for _ in 0..word(list + 4) {
            assert_eq!(half(at), 0, "allows, and is not inherited");
            rules += &format!("(A;;{:#x};;;{})", word(at + 4), account(at + 8));
            at += half(at + 2);
        }
        assert_eq!((half(list), at, at), (2, list + half(list + 2), bytes.len()));
        format!("O:{}G:{}D:{rules}", account(word(4)), account(word(8)))
    }

    #[test]
    fn only_administrators_and_the_system_may_write() {
        let file = descriptor(&[(FILE_ALL, ADMINISTRATORS), (FILE_ALL, SYSTEM), (FILE_READ_AND_EXECUTE, USERS)]);
        assert_eq!(text(&file), "O:BAG:SYD:(A;;0x1f01ff;;;BA)(A;;0x1f01ff;;;SY)(A;;0x1200a9;;;BU)");
        assert_eq!(text(&descriptor(&[(KEY_ALL, SYSTEM)])), "O:BAG:SYD:(A;;0xf003f;;;SY)");
    }
}
