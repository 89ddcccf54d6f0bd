//! Reads ISO 9660 images, and prefers Joliet names. Independent of the writer; every offset is checked, and damaged images are errors.

use crate::bootstrap::delivery::error::ReadError;

const SECTOR: usize = 2048;
/// The most directory levels; ISO 9660 allows fewer.
const DEPTH: usize = 16;
/// The most entries, more than any config drive has. The limit stops at directories that contain themselves.
const ENTRIES: usize = 4096;

/// An image with valid descriptors.
pub struct Image<'a> {
    bytes: &'a [u8],
    label: String,
    joliet: bool,
    root: Extent,
}

#[derive(Clone, Copy)]
struct Extent {
    first: usize,
    length: usize,
    directory: bool,
}

fn wrong(text: impl Into<String>) -> ReadError {
    ReadError::Image(text.into())
}

fn little32(bytes: &[u8], at: usize) -> Option<usize> {
    let field: [u8; 4] = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(field)).ok()
}

/// Decodes big-endian UTF-16; an odd byte at the end is ignored.
fn utf16(bytes: &[u8]) -> String {
    let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| pair.iter().fold(0, |unit, byte| unit << 8 | u16::from(*byte))).collect();
    String::from_utf16_lossy(&units)
}

impl<'a> Image<'a> {
    /// Finds the volume descriptors.
    pub fn open(bytes: &'a [u8]) -> Result<Self, ReadError> {
        let mut found: Option<Self> = None;
        for sector in 16..64 {
            let descriptor = bytes.get(sector * SECTOR..(sector + 1) * SECTOR).ok_or_else(|| wrong("it ends within the volume descriptors"))?;
            if descriptor.get(1..6) != Some(b"CD001".as_slice()) {
                return Err(wrong(format!("sector {sector} is not an ISO 9660 volume descriptor")));
            }
            let kind = descriptor.first().copied().unwrap_or_default();
            let escape = descriptor.get(88..91).unwrap_or_default();
            let joliet = kind == 2 && [b"%/@".as_slice(), b"%/C", b"%/E"].contains(&escape);
            if kind == 255 {
                return found.ok_or_else(|| wrong("it has no volume"));
            }
            if joliet || (kind == 1 && found.is_none()) {
                let name = descriptor.get(40..72).unwrap_or_default();
                let label = if joliet { utf16(name) } else { String::from_utf8_lossy(name).into_owned() };
                let root = record(descriptor.get(156..190).unwrap_or_default()).ok_or_else(|| wrong("its root directory is damaged"))?.0;
                found = Some(Self { bytes, label: label.trim_end_matches(['\0', ' ']).to_owned(), joliet, root });
            }
        }
        Err(wrong("its volume descriptors do not end"))
    }

    /// Returns the volume label, preferably the Joliet one.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the bytes of a file; the path has `/`. Case is ignored if the image has no Joliet names.
    pub fn read(&self, path: &str) -> Result<&'a [u8], ReadError> {
        let mut at = self.root;
        for part in path.split('/') {
            at = self.find(at, part)?.ok_or_else(|| wrong(format!("it has no {path}")))?;
        }
        if at.directory {
            return Err(wrong(format!("{path} is a directory")));
        }
        self.slice(at)
    }

    /// Returns the paths of all files.
    pub fn files(&self) -> Result<Vec<String>, ReadError> {
        let mut paths = Vec::new();
        let mut open = vec![(self.root, String::new(), 0)];
        let mut seen = 0;
        while let Some((directory, prefix, depth)) = open.pop() {
            for (name, extent) in self.entries(directory)? {
                seen += 1;
                if seen > ENTRIES || depth > DEPTH {
                    return Err(wrong("its directories have no end"));
                }
                let path = format!("{prefix}{name}");
                if extent.directory {
                    open.push((extent, format!("{path}/"), depth + 1));
                } else {
                    paths.push(path);
                }
            }
        }
        Ok(paths)
    }

    fn find(&self, directory: Extent, name: &str) -> Result<Option<Extent>, ReadError> {
        if !directory.directory {
            return Ok(None);
        }
        let same = |found: &str| if self.joliet { found == name } else { found.eq_ignore_ascii_case(name) };
        Ok(self.entries(directory)?.into_iter().find(|(found, _)| same(found)).map(|(_, extent)| extent))
    }

    /// Returns the names and extents in a directory, without itself and its parent.
    fn entries(&self, directory: Extent) -> Result<Vec<(String, Extent)>, ReadError> {
        let mut entries = Vec::new();
        for sector in self.slice(directory)?.chunks(SECTOR) {
            let mut at = 0;
            // A length of zero means that the rest of the sector is empty.
            while let Some(length) = sector.get(at).map(|l| usize::from(*l)).filter(|l| *l > 0) {
                let bytes = sector.get(at..at + length).ok_or_else(|| wrong("a directory record crosses a sector's end"))?;
                let (extent, name) = record(bytes).ok_or_else(|| wrong("a directory record is damaged"))?;
                if name != [0] && name != [1] {
                    let text = if self.joliet { utf16(name) } else { String::from_utf8_lossy(name).into_owned() };
                    let text = text.split(';').next().unwrap_or_default();
                    entries.push((text.strip_suffix('.').unwrap_or(text).to_owned(), extent));
                }
                at += length;
            }
        }
        Ok(entries)
    }

    fn slice(&self, extent: Extent) -> Result<&'a [u8], ReadError> {
        let start = extent.first.checked_mul(SECTOR);
        let end = start.and_then(|start| start.checked_add(extent.length));
        start.zip(end).and_then(|(start, end)| self.bytes.get(start..end)).ok_or_else(|| wrong("a file lies beyond its end"))
    }
}

/// Returns the extent and name of a directory record.
fn record(bytes: &[u8]) -> Option<(Extent, &[u8])> {
    let flags = *bytes.get(25)?;
    let name = usize::from(*bytes.get(32)?);
    let extent = Extent { first: little32(bytes, 2)?, length: little32(bytes, 10)?, directory: flags & 2 != 0 };
    Some((extent, bytes.get(33..33 + name)?))
}
