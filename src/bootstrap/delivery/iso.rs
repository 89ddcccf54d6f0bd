//! Writes an ISO 9660 image with Joliet names, with only the structures that a config drive needs. The same files give the same bytes.
//!
//! Layout: 16 empty sectors, primary descriptor, Joliet descriptor, terminator, path tables (primary LE, BE, Joliet LE, BE),
//! directories (primary, Joliet), files. ECMA-119 and the Joliet specification, level 3.

use std::collections::BTreeMap;

/// The bytes in a logical block.
const SECTOR: usize = 2048;
/// The time stamp of every entry in the image: 1 January 2020, 00:00 UTC.
const RECORDED: [u8; 7] = [120, 1, 1, 0, 0, 0, 0];
const RECORDED_TEXT: &[u8] = b"2020010100000000\0";
const NEVER_TEXT: &[u8] = b"0000000000000000\0";
/// The empty sectors at the end. Some readers read a little past the end.
const TAIL_SECTORS: u32 = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Primary,
    Joliet,
}

#[derive(Default)]
struct Directory {
    name: String,
    parent: usize,
    directories: Vec<usize>,
    /// The name of each file, and its index in the list of files.
    files: Vec<(String, usize)>,
}

/// An entry, and its name in the form of one of the two trees.
struct Entry {
    name: Vec<u8>,
    directory: bool,
    index: usize,
}

/// The positions of the directories of one tree.
struct Tree {
    names: Names,
    /// The first sectors of the little endian and the big endian path table.
    tables: [u32; 2],
    table_size: usize,
    /// The first sector and the length in bytes of each directory.
    extents: Vec<(u32, usize)>,
}

/// Returns an image with that volume label (at most 16 characters) and these files; paths with `/`, parts of at most 60 characters.
pub(in crate::bootstrap) fn image(label: &str, files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let directories = directories(files);
    let mut next = 19;
    let mut take = |bytes: usize| {
        let first = next;
        next += sectors(bytes);
        first
    };
    let order = level_order(&directories);
    let mut trees: Vec<Tree> = [Names::Primary, Names::Joliet]
        .into_iter()
        .map(|names| {
            let table_size = order.iter().map(|d| 8 + even(directory_name(&directories, *d, names).len())).sum();
            Tree { names, tables: [take(table_size), take(table_size)], table_size, extents: vec![(0, 0); directories.len()] }
        })
        .collect();
    for tree in &mut trees {
        for index in &order {
            let size = directory_size(&directories, *index, tree.names);
            if let Some(extent) = tree.extents.get_mut(*index) {
                *extent = (take(size), size);
            }
        }
    }
    let contents: Vec<(u32, &Vec<u8>)> = files.values().map(|data| (take(data.len().max(1)), data)).collect();
    let total = next + TAIL_SECTORS;

    let mut out = vec![0u8; total as usize * SECTOR];
    for (number, tree) in trees.iter().enumerate() {
        put(&mut out, (16 + number) * SECTOR, &descriptor(label, tree, total));
        for (table, big_endian) in tree.tables.iter().zip([false, true]) {
            put(&mut out, *table as usize * SECTOR, &path_table(&directories, &order, tree, big_endian));
        }
        for index in &order {
            put(&mut out, extent(tree, *index).0 as usize * SECTOR, &directory_bytes(&directories, *index, tree, &contents));
        }
    }
    put(&mut out, 18 * SECTOR, &[255, b'C', b'D', b'0', b'0', b'1', 1]);
    for (first, data) in &contents {
        put(&mut out, *first as usize * SECTOR, data);
    }
    out
}

fn sectors(bytes: usize) -> u32 {
    bytes.div_ceil(SECTOR) as u32
}

fn even(length: usize) -> usize {
    length + length % 2
}

/// Copies bytes into `out`; bytes beyond its end are dropped.
fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(target) = out.get_mut(at..at + bytes.len()) {
        target.copy_from_slice(bytes);
    }
}

fn both32(value: u32) -> [u8; 8] {
    let mut out = [0; 8];
    put(&mut out, 0, &value.to_le_bytes());
    put(&mut out, 4, &value.to_be_bytes());
    out
}

fn both16(value: u16) -> [u8; 4] {
    let mut out = [0; 4];
    put(&mut out, 0, &value.to_le_bytes());
    put(&mut out, 2, &value.to_be_bytes());
    out
}

fn ucs2(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

/// Returns the tree of directories; the root comes first.
fn directories(files: &BTreeMap<String, Vec<u8>>) -> Vec<Directory> {
    let mut all = vec![Directory::default()];
    for (number, path) in files.keys().enumerate() {
        let mut current = 0;
        let mut parts = path.split('/').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                if let Some(directory) = all.get_mut(current) {
                    directory.files.push((part.to_owned(), number));
                }
                break;
            }
            let children = all.get(current).map(|d| d.directories.clone()).unwrap_or_default();
            let found = children.into_iter().find(|child| all.get(*child).is_some_and(|d| d.name == part));
            current = found.unwrap_or_else(|| {
                let index = all.len();
                all.push(Directory { name: part.to_owned(), parent: current, ..Directory::default() });
                if let Some(directory) = all.get_mut(current) {
                    directory.directories.push(index);
                }
                index
            });
        }
    }
    all
}

/// Returns parents before children, level by level, sorted: the order that path tables need.
fn level_order(all: &[Directory]) -> Vec<usize> {
    let mut order = vec![0];
    let mut at = 0;
    while let Some(index) = order.get(at).copied() {
        let mut children = all.get(index).map(|d| d.directories.clone()).unwrap_or_default();
        children.sort_by_key(|child| all.get(*child).map(|d| d.name.clone()));
        order.extend(children);
        at += 1;
    }
    order
}

/// Returns a name of at most eight characters, and three after the dot for files; `number` keeps shortened names apart.
fn primary_name(name: &str, file: bool, number: usize) -> Vec<u8> {
    let upper: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, _)) if file => (upper.get(..stem.chars().count()).unwrap_or(&upper), upper.get(stem.chars().count() + 1..).unwrap_or("")),
        _ => (upper.as_str(), ""),
    };
    let stem: String = if stem.len() > 8 || extension.len() > 3 {
        format!("{}{:04}", stem.chars().take(4).collect::<String>(), number % 10_000)
    } else {
        stem.to_owned()
    };
    let extension: String = extension.chars().take(3).collect();
    if file { format!("{stem}.{extension};1").into_bytes() } else { stem.into_bytes() }
}

fn encoded(names: Names, name: &str, file: bool, number: usize) -> Vec<u8> {
    match names {
        Names::Primary => primary_name(name, file, number),
        Names::Joliet => ucs2(&if file { format!("{name};1") } else { name.to_owned() }),
    }
}

/// Returns the name in the path table; the root's is one zero byte.
fn directory_name(all: &[Directory], index: usize, names: Names) -> Vec<u8> {
    match all.get(index) {
        Some(directory) if index != 0 => encoded(names, &directory.name, false, index),
        _ => vec![0],
    }
}

fn entries(all: &[Directory], index: usize, names: Names) -> Vec<Entry> {
    let Some(directory) = all.get(index) else { return Vec::new() };
    let directories = directory.directories.iter().map(|child| Entry { name: directory_name(all, *child, names), directory: true, index: *child });
    let files = directory.files.iter().map(|(name, file)| Entry { name: encoded(names, name, true, *file), directory: false, index: *file });
    let mut entries: Vec<Entry> = directories.chain(files).collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries
}

fn record_length(name: usize) -> usize {
    33 + name + (name + 1) % 2
}

/// Returns the start of the next record: records do not cross a sector's end.
fn record_start(at: usize, length: usize) -> usize {
    if at % SECTOR + length > SECTOR { at.next_multiple_of(SECTOR) } else { at }
}

fn directory_size(all: &[Directory], index: usize, names: Names) -> usize {
    let used = entries(all, index, names).iter().fold(2 * record_length(1), |at, entry| {
        let length = record_length(entry.name.len());
        record_start(at, length) + length
    });
    used.next_multiple_of(SECTOR)
}

fn record(name: &[u8], first: u32, bytes: usize, directory: bool) -> Vec<u8> {
    let mut out = vec![0; record_length(name.len())];
    let length = out.len() as u8;
    put(&mut out, 0, &[length]);
    put(&mut out, 2, &both32(first));
    put(&mut out, 10, &both32(bytes as u32));
    put(&mut out, 18, &RECORDED);
    put(&mut out, 25, &[if directory { 2 } else { 0 }]);
    put(&mut out, 28, &both16(1));
    put(&mut out, 32, &[name.len() as u8]);
    put(&mut out, 33, name);
    out
}

fn extent(tree: &Tree, index: usize) -> (u32, usize) {
    tree.extents.get(index).copied().unwrap_or_default()
}

fn directory_bytes(all: &[Directory], index: usize, tree: &Tree, contents: &[(u32, &Vec<u8>)]) -> Vec<u8> {
    let (first, size) = extent(tree, index);
    let (parent, parent_size) = extent(tree, all.get(index).map_or(0, |d| d.parent));
    let mut out = vec![0; size];
    let mut at = 0;
    let mut write = |record: &[u8]| {
        at = record_start(at, record.len());
        put(&mut out, at, record);
        at += record.len();
    };
    write(&record(&[0], first, size, true));
    write(&record(&[1], parent, parent_size, true));
    for entry in entries(all, index, tree.names) {
        let (first, bytes) =
            if entry.directory { extent(tree, entry.index) } else { contents.get(entry.index).map_or((0, 0), |(first, data)| (*first, data.len())) };
        write(&record(&entry.name, first, bytes, entry.directory));
    }
    out
}

fn path_table(all: &[Directory], order: &[usize], tree: &Tree, big_endian: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(tree.table_size);
    for index in order {
        let name = directory_name(all, *index, tree.names);
        let parent = all.get(*index).map_or(0, |d| d.parent);
        let number = order.iter().position(|d| *d == parent).map_or(1, |p| p as u16 + 1);
        let first = extent(tree, *index).0;
        out.extend([name.len() as u8, 0]);
        out.extend(if big_endian { first.to_be_bytes() } else { first.to_le_bytes() });
        out.extend(if big_endian { number.to_be_bytes() } else { number.to_le_bytes() });
        out.extend(&name);
        out.resize(even(out.len()), 0);
    }
    out
}

/// Returns a volume descriptor; unused texts are blank.
fn descriptor(label: &str, tree: &Tree, total: u32) -> Vec<u8> {
    let joliet = tree.names == Names::Joliet;
    let mut out = vec![0u8; SECTOR];
    let mut text = |at: usize, length: usize, value: &str| {
        let blank: &[u8] = if joliet { &[0, b' '] } else { b" " };
        let length = length / blank.len() * blank.len();
        put(&mut out, at, &blank.repeat(length / blank.len()));
        let value = if joliet { ucs2(value) } else { value.as_bytes().to_vec() };
        put(&mut out, at, value.get(..length).unwrap_or(&value));
    };
    text(8, 32, "");
    text(40, 32, label);
    for (at, length) in [(190, 128), (318, 128), (446, 128), (574, 128), (702, 37), (739, 37), (776, 37)] {
        text(at, length, "");
    }
    put(&mut out, 0, &[if joliet { 2 } else { 1 }, b'C', b'D', b'0', b'0', b'1', 1]);
    put(&mut out, 80, &both32(total));
    if joliet {
        put(&mut out, 88, b"%/E");
    }
    put(&mut out, 120, &both16(1));
    put(&mut out, 124, &both16(1));
    put(&mut out, 128, &both16(SECTOR as u16));
    put(&mut out, 132, &both32(tree.table_size as u32));
    put(&mut out, 140, &tree.tables[0].to_le_bytes());
    put(&mut out, 148, &tree.tables[1].to_be_bytes());
    let (root, root_size) = extent(tree, 0);
    put(&mut out, 156, &record(&[0], root, root_size, true));
    for (at, when) in [(813, RECORDED_TEXT), (830, RECORDED_TEXT), (847, NEVER_TEXT), (864, RECORDED_TEXT)] {
        put(&mut out, at, when);
    }
    put(&mut out, 881, &[1]);
    out
}

#[cfg(test)]
mod tests;
