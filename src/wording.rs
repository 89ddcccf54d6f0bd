//! Keeps terms that the project has replaced out of its texts.

use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use crate::references::texts;

/// A replaced term, as a regular expression, and its replacement.
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

/// Returns the replaced terms of a text, also in names, each with its line.
fn found(text: &str) -> Vec<String> {
    static WORDS: LazyLock<[(Regex, &str); 7]> =
        LazyLock::new(|| REPLACED.map(|(word, instead)| (Regex::new(&format!("(?i)(^|[^a-z])({word})([^a-z]|$)")).unwrap(), instead)));
    let lines = text.lines().enumerate().flat_map(|(number, line)| WORDS.iter().map(move |word| (number + 1, line, word)));
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

/// Phrases that stop a reader, as regular expressions, and how many of them the comments of Rust files may have. Lower a number, never raise it.
const RARE: [(&str, usize, &str); 8] = [
    (r"^//[/!] What\b", 26, "name the thing"),
    (
        r"(?i)\b(say|says|said|saying|tell|tells|told|ask|asks|asked|asking|words?|news|believe[sd]?)\b",
        81,
        "report, state, notify, request, message, change",
    ),
    (r"(?i)\b(look|looks|looked|looking)\b", 15, "check, read, poll"),
    (r"(?i)\b(that of|those of|those that)\b", 32, "repeat the noun, or use 's"),
    (r"(?i)\b(is there|are there|is gone|are gone|goes|gone)\b", 20, "exists, is missing, is deleted"),
    (r"(?i)\b(make|makes|made)\b", 38, "create, build, render"),
    (
        r"(?i)\b(so long|so many|so much|taken for|is good|cannot be had|of ours|by itself|by themselves)\b",
        12,
        "for that time, treated as, valid, our",
    ),
    (r"^/// (Of|By|Its|Their|Told|Those|That|The same|Such)\b", 25, "a comment is understood alone, or deleted"),
];

#[test]
fn phrases_that_stop_a_reader_stay_rare() {
    let texts = texts();
    // Cluster-autoscaler's protocol has the comments of its authors.
    let is_ours = |path: &Path| !path.starts_with("proto") && !LEFT_OUT.iter().any(|left_out| path.ends_with(left_out));
    let rust = texts.iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "rs") && is_ours(path));
    let comments: Vec<&str> = rust.flat_map(|(_, text)| text.lines().map(str::trim_start).filter(|line| line.starts_with("//"))).collect();
    assert!(comments.len() > 5_000, "{}", comments.len());
    for (phrase, most, instead) in RARE {
        let phrase = Regex::new(phrase).unwrap();
        let found: usize = comments.iter().map(|comment| phrase.find_iter(comment).count()).sum();
        assert!(found <= most, "{found} of {phrase} in comments, {most} at most; write: {instead}");
    }
}
