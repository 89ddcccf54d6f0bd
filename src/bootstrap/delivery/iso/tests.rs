//! Tests that the reader, which shares no code with the writer, returns the written files.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::image;
use crate::bootstrap::delivery::read::iso::Image;

/// Tests directories of several sectors: 300 names of 40 characters.
#[test]
fn large_directories_come_back() {
    let files: BTreeMap<String, Vec<u8>> = (0..300u32).map(|n| (format!("dir/{n:03}{}", "x".repeat(37)), n.to_le_bytes().to_vec())).collect();
    let bytes = image("config-2", &files);
    let image = Image::open(&bytes).unwrap();
    for (path, content) in &files {
        assert_eq!(image.read(path).unwrap(), content.as_slice());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_image_comes_back(
        files in prop::collection::btree_map("[a-zA-Z0-9_.-]{0,3}[a-zA-Z0-9_-]{1,30}(/[a-z]{1,40}[.][a-z]{1,10}){0,3}", (0usize..6000, any::<u8>()), 0..60),
        large in prop::option::weighted(0.2, 0usize..4 << 20),
    ) {
        // A name is a file or a directory, not both.
        let mut contents: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for (path, (length, byte)) in files {
            let prefix = |other: &String| other.starts_with(&format!("{path}/")) || path.starts_with(&format!("{other}/"));
            if !contents.keys().any(prefix) {
                contents.insert(path, vec![byte; length]);
            }
        }
        if let Some(length) = large {
            contents.insert("large".into(), vec![1; length]);
        }
        let bytes = image("config-2", &contents);
        prop_assert!(bytes == image("config-2", &contents));
        let image = Image::open(&bytes).unwrap();
        let mut found = image.files().unwrap();
        found.sort();
        prop_assert_eq!(found, contents.keys().cloned().collect::<Vec<_>>());
        for (path, content) in &contents {
            prop_assert!(image.read(path).unwrap() == content.as_slice(), "{}", path);
        }
    }

    #[test]
    fn a_damaged_image_never_panics(at in 32_768usize..60_000, byte in any::<u8>(), length in 0usize..70_000) {
        let mut bytes = image("config-2", &BTreeMap::from([("a/b/c".to_owned(), vec![1; 5000]), ("d".to_owned(), vec![])]));
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        bytes.truncate(length.max(at));
        if let Ok(image) = Image::open(&bytes) {
            let _ = image.files();
            let _ = image.read("a/b/c");
        }
    }
}
