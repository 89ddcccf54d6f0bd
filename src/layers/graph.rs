//! The uses of files by other files, as their `use` lines and the paths in their code show.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::references::without_tests;

/// Path of a module, e.g. `["kinds", "machine"]`.
pub type Module = Vec<String>;

/// The file below `src` and the text of each module.
pub type Files = BTreeMap<Module, (String, String)>;

pub fn files() -> Files {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    super::sources(&root, &mut paths);
    let entry = |path: &Path| {
        let file = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        let mut module: Module = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if ["mod", "lib"].contains(&module.last().unwrap().as_str()) {
            module.pop();
        }
        let text = fs::read_to_string(path).unwrap();
        (module, (file, text))
    };
    paths.iter().map(|path| entry(path)).collect()
}

/// The paths that a text uses, groups spread out.
pub fn used_paths(text: &str) -> Vec<String> {
    let code: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap()).collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    for statement in code.split(';') {
        let line_start = statement.rfind("\nuse ").map(|at| at + 1).or_else(|| statement.starts_with("use ").then_some(0));
        let exported = statement.rfind("\npub use ").or_else(|| statement.rfind("\npub(crate) use ")).map(|at| at + 1);
        let start = line_start.or(exported);
        found.extend(paths_in_code(&statement[..start.unwrap_or(statement.len())]));
        if let Some(start) = start {
            let path = statement[start..].split_once("use ").unwrap().1;
            found.extend(spread(&path.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
    }
    found
}

/// `crate::a::B` and `super::C` outside of `use` lines. What `pub(in crate::a)` names is no use.
fn paths_in_code(code: &str) -> Vec<String> {
    let belongs = |c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '$';
    let code = code.replace("(in crate::", "(");
    let words = code.split(|c: char| !belongs(c));
    words.filter(|word| word.starts_with("crate::") || word.starts_with("super::")).map(|word| word.trim_end_matches(':').to_owned()).collect()
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d`, `a::c::e`.
fn spread(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.split(" as ").next().unwrap().trim().to_owned()] };
    let (mut depth, mut parts, mut part) = (0, Vec::new(), String::new());
    for c in rest.chars() {
        match c {
            ',' if depth == 0 => parts.push(std::mem::take(&mut part)),
            '}' if depth == 0 => break,
            c => {
                depth += i32::from(c == '{') - i32::from(c == '}');
                part.push(c);
            }
        }
    }
    parts.push(part);
    parts.iter().filter(|part| !part.trim().is_empty()).flat_map(|part| spread(&format!("{}{}", before.trim(), part.trim()))).collect()
}

/// The module whose file a path leads to.
pub fn target(files: &Files, from: &Module, path: &str) -> Option<Module> {
    let mut segments: Vec<&str> = path.split("::").collect();
    let mut module = from.clone();
    match *segments.first()? {
        "crate" => module.clear(),
        "self" => {}
        "super" => {
            module.pop();
        }
        child => {
            let child: Module = from.iter().cloned().chain([child.to_owned()]).collect();
            return files.contains_key(&child).then_some(child);
        }
    }
    segments.remove(0);
    while segments.first() == Some(&"super") {
        module.pop();
        segments.remove(0);
    }
    module.extend(segments.into_iter().map(str::to_owned));
    while !files.contains_key(&module) {
        module.pop()?;
    }
    Some(module).filter(|found| found != from)
}

/// Sets of files that use each other, directly or not.
pub fn circles(files: &Files) -> Vec<BTreeSet<String>> {
    let uses: BTreeMap<&Module, BTreeSet<Module>> = files
        .iter()
        .map(|(module, (_, text))| (module, used_paths(without_tests(text)).iter().filter_map(|path| target(files, module, path)).collect()))
        .collect();
    let reached = |from: &Module| {
        let (mut found, mut left) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(module) = left.pop() {
            left.extend(uses[&module].iter().filter(|next| found.insert((*next).clone())).cloned());
        }
        found
    };
    let reach: BTreeMap<&Module, BTreeSet<Module>> = files.keys().map(|module| (module, reached(module))).collect();
    let circle = |module: &&Module| -> BTreeSet<String> {
        reach[*module].iter().filter(|other| reach[*other].contains(*module)).map(|other| files[other].0.clone()).collect()
    };
    let all: BTreeSet<BTreeSet<String>> = files.keys().collect::<Vec<_>>().iter().map(circle).collect();
    all.into_iter().filter(|circle| circle.len() > 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_of(files: &[(&str, &str)]) -> Files {
        let module = |file: &str| file.trim_end_matches(".rs").trim_end_matches("/mod").split('/').map(str::to_owned).collect();
        files.iter().map(|(file, text)| (module(file), ((*file).to_owned(), (*text).to_owned()))).collect()
    }

    #[test]
    fn groups_and_re_exports_are_read() {
        let text = "use a::{b, c::{self, d as e}};\npub use self::f::*;\nfn g() {}\n// use h;\n";
        assert_eq!(used_paths(text), ["a::b", "a::c::self", "a::c::d", "self::f::*"]);
    }

    #[test]
    fn groups_at_the_root_are_read() {
        assert_eq!(used_paths("use crate::{api::name, vm};\nlet x = crate::cluster::Y;"), ["crate::api::name", "crate::vm", "crate::cluster::Y"]);
    }

    #[test]
    fn paths_in_the_code_are_read() {
        let text = "fn g(h: &crate::a::B<super::C>) { let i = super::super::d::<u8>() ; $crate::e::F }\npub(in crate::k) struct L;\n// crate::j\nfn m() { super::n() }\nuse o::p;\n";
        assert_eq!(used_paths(text), ["crate::a::B", "super::C", "super::super::d", "super::n", "o::p"]);
    }

    #[test]
    fn a_circle_is_found_within_a_folder_and_across_folders() {
        let across = [("a/mod.rs", "use crate::b::x::Y;\n"), ("b/x.rs", "use super::super::a::Z;\n")];
        assert_eq!(circles(&made_of(&across)).len(), 1);
        let within = [("a/mod.rs", "use self::x::Y;\n"), ("a/x.rs", "use super::Z;\n")];
        assert_eq!(circles(&made_of(&within)).len(), 1);
        let one_way = [("a/mod.rs", "use crate::b::x::Y;\n"), ("b/x.rs", "use crate::c::Z;\n")];
        assert_eq!(circles(&made_of(&one_way)).len(), 0);
    }
}
