//! Disk images whose guest is a boot sector.

/// A boot sector that writes `hello` to the serial port and waits forever.
const BOOT: &[u8] = b"\xfa\x31\xc0\x8e\xd8\xbe\x16\x7c\xac\x84\xc0\x74\x06\xba\xf8\x03\xee\xeb\xf5\xf4\xeb\xfdhello\r\n\0";

/// A boot sector that writes its disk from the first mebibyte on, 32 KiB at a time, and halts when that fails.
const WRITER: &[u8] = b"\x31\xc0\x8e\xd8\xbe\x40\x7c\xb4\x43\xb0\x00\xb2\x80\xcd\x13\x72\x08\x66\x83\x06\x48\x7c\x40\xeb\xee\xf4\xeb\xfd";
/// The firmware request of the writer, at byte 64: 64 sectors from there.
const REQUEST: &[u8] = b"\x10\x00\x40\x00\x00\x00\x00\x10\x00\x08\x00\x00\x00\x00\x00\x00";

/// A disk image whose guest prints `hello`.
pub fn greeter() -> Vec<u8> {
    disk(BOOT.to_vec(), 1 << 20)
}

/// A disk image of that many bytes whose guest writes to all of its disk except the first mebibyte.
pub fn writer(length: usize) -> Vec<u8> {
    let mut sector = WRITER.to_vec();
    sector.resize(64, 0);
    sector.extend(REQUEST);
    disk(sector, length)
}

fn disk(mut sector: Vec<u8>, length: usize) -> Vec<u8> {
    sector.resize(510, 0);
    sector.extend(b"\x55\xaa");
    sector.resize(length, 0);
    sector
}
