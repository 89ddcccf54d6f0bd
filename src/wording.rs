//! Keeps words that the project has replaced out of its texts.

use std::path::Path;

use regex::Regex;

use crate::references::texts;

/// A word, as a regular expression, and its replacement.
const REPLACED: [(&str, &str); 7] = [
    (r"anew", "again, or recreated"),
    (r"befall(s|en)?|befell", "hit"),
    (r"for ever", "forever"),
    (r"in vain", "for nothing"),
    (r"look(s|ed at)?[ _]again", "check again, poll or requeue"),
    (r"mend(s|ed|ing)?", "fix"),
    (r"strays?", "leftover"),
];
/// This list, and the file that lists former names.
const LEFT_OUT: [&str; 2] = ["src/wording.rs", "CHANGELOG.md"];

/// Returns the replaced words of a text, also in names, each with its line.
fn found(text: &str) -> Vec<String> {
    let words = REPLACED.map(|(word, instead)| (Regex::new(&format!("(?i)(^|[^a-z])({word})([^a-z]|$)")).unwrap(), instead));
    let lines = text.lines().enumerate().flat_map(|(number, line)| words.iter().map(move |word| (number + 1, line, word)));
    lines.filter_map(|(number, line, (word, instead))| Some(format!("{number}: {:?}: write {instead}", &word.captures(line)?[2]))).collect()
}

#[test]
fn replaced_words_are_in_no_text() {
    let texts = texts();
    // The bytes of the runner's scripts are part of each machine's data.
    let is_script = |path: &Path| path.extension().is_some_and(|e| e == "ps1");
    let read = texts.iter().filter(|(path, _)| !is_script(path) && !LEFT_OUT.iter().any(|left_out| path.ends_with(left_out)));
    let all: Vec<String> = read.flat_map(|(path, text)| found(text).into_iter().map(move |what| format!("{}:{what}", path.display()))).collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn a_replaced_word_is_found_in_prose_and_in_names() {
    for (text, number) in
        [("Mend it.", 1), ("is_mended(anew)", 2), ("it looks again", 1), ("Recommend and amend it.", 0), ("commended, dimension", 0)]
    {
        assert_eq!(found(text).len(), number, "{text}");
    }
}
