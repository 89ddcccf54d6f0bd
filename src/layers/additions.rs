//! Tests that a driver, a kind or a reason is added in one place: its own files, and the lists that `CONTRIBUTING.md` names. Any other file that
//! names several of them would be one more place to remember.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::Path;

use crate::api::KINDS;
use crate::api::condition::Reason;
use crate::api::hypervisor::DRIVERS;
use crate::references::{root, texts};

/// A file, or a folder with `/`, that names several things of one sort without being one of their lists; and why it does.
type Exception = (&'static str, &'static str);

/// A sort of things that are added from time to time.
struct Sort {
    /// One of them, e.g. `driver`.
    one: &'static str,
    /// The files that name each of them.
    lists: &'static [&'static str],
    /// The code that a file can use in place of a list of its own.
    instead: &'static str,
    exceptions: &'static [Exception],
}

const OF_DRIVERS: Sort = Sort {
    one: "driver",
    lists: &["src/api/hypervisor.rs", "src/hypervisor/drivers.rs"],
    instead: "use DRIVERS or WindowsHypervisorSpec::chosen of src/api/hypervisor.rs, ask the Driver itself, or move the list to src/hypervisor/drivers.rs",
    exceptions: &[
        ("src/cli/compat.rs", "the help of --hypervisor gives the names that compat.toml has rows for"),
        ("src/compat/", "rows about versions, and their tests"),
        ("src/diagnosis/rules.toml", "messages of certain hypervisors"),
    ],
};

const OF_KINDS: Sort = Sort {
    one: "kind",
    lists: &["src/api/kinds.rs", "src/kinds/mod.rs", "src/kinds/run.rs", "src/kinds/shared.rs"],
    instead: "use KINDS of src/api/kinds.rs, or move the list to src/kinds/run.rs",
    exceptions: &[
        ("src/api/condition/condition_type.rs", "the documentation of a condition says which kinds have it"),
        ("src/cli/status/", "objects of different kinds are shown in different ways"),
        ("src/domain/owner.rs", "each kind has other owners"),
        ("src/kinds/run/", "tests of the controllers"),
    ],
};

const OF_REASONS: Sort =
    Sort { one: "reason", lists: &["src/api/condition/reason.rs"], instead: "use Reason::ALL, or a method of Reason", exceptions: &[] };

impl Sort {
    /// Returns what is wrong with the files that name several of the sort: the lists and exceptions must be the only ones.
    fn wrong(&self, naming: &BTreeSet<String>) -> Vec<String> {
        let known: Vec<&str> = self.lists.iter().copied().chain(self.exceptions.iter().map(|(path, _)| *path)).collect();
        let covers = |known: &str, file: &str| file == known || (known.ends_with('/') && file.starts_with(known));
        let new = naming.iter().filter(|file| !known.iter().any(|known| covers(known, file)));
        let new = new.map(|file| {
            let Self { one, instead, .. } = self;
            format!(
                "{file} is one more list for those who add a {one}: {instead}. If it is data about some of them, say so in src/layers/additions.rs"
            )
        });
        let gone = known.iter().filter(|known| !naming.iter().any(|file| covers(known, file)));
        new.chain(gone.map(|known| format!("{known} is no list of each {}: remove it from src/layers/additions.rs", self.one))).collect()
    }

    fn check(&self, naming: &BTreeSet<String>) {
        let wrong = self.wrong(naming);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let page = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
        for list in self.lists {
            assert!(page.contains(&format!("`{list}`")), "CONTRIBUTING.md does not say that a {} is added in {list}", self.one);
        }
    }
}

/// Returns the files of `src` whose text is accepted.
fn files(accepted: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let texts = texts().into_iter().filter(|(path, text)| path.starts_with("src") && accepted(text));
    texts.map(|(path, _)| path.to_str().unwrap().to_owned()).collect()
}

/// Returns the names of the folders in a folder.
fn folders(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir());
    entries.map(|entry| entry.file_name().to_str().unwrap().to_owned())
}

/// Returns the drivers: the folders in `src/hypervisor/drivers`.
pub fn drivers() -> BTreeSet<String> {
    folders(&root().join("src/hypervisor/drivers")).collect()
}

/// Counts the drivers in a text, also in longer names.
fn drivers_in(text: &str) -> usize {
    let text = text.to_lowercase();
    DRIVERS.iter().filter(|driver| text.contains(&driver.to_lowercase())).count()
}

/// Whether a text has each of these terms.
fn has_all<W: AsRef<str>>(text: &str, words: &[W]) -> bool {
    let found = words_in(text);
    words.iter().all(|word| found.contains(word.as_ref()))
}

fn words_in(text: &str) -> HashSet<&str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').collect()
}

#[test]
fn a_driver_is_added_in_its_own_files_and_two_lists() {
    assert_eq!(
        drivers(),
        DRIVERS.iter().map(|name| (*name).to_owned()).collect(),
        "DRIVERS in src/api/hypervisor.rs, and the folders in src/hypervisor/drivers"
    );
    let places = DRIVERS.map(|driver| (format!("src/api/hypervisor/{driver}.rs"), format!("src/hypervisor/drivers/{driver}/")));
    let is_own = |file: &str| places.iter().any(|(settings, folder)| file == settings || file.starts_with(folder));
    let mut naming = files(|text| drivers_in(text) > 1);
    naming.retain(|file| !is_own(file));
    OF_DRIVERS.check(&naming);
    for list in OF_DRIVERS.lists {
        let text = fs::read_to_string(root().join(list)).unwrap();
        assert_eq!(drivers_in(&text), DRIVERS.len(), "{list} names each driver");
    }
}

#[test]
fn a_kind_is_added_in_its_own_files_and_four_lists() {
    let kinds: Vec<String> = KINDS.iter().map(|kind| (kind.resource)().kind).filter(|kind| !kind.ends_with("Template")).collect();
    let parent = root().join("src/kinds");
    let passes: Vec<String> = folders(&parent).filter(|name| parent.join(name).join("report.rs").exists()).collect();
    assert!(kinds.len() > 3 && kinds.len() == passes.len(), "each kind has a folder in src/kinds: {kinds:?}, {passes:?}");
    OF_KINDS.check(&files(|text| has_all(text, &kinds) || has_all(text, &passes)));
}

#[test]
fn a_reason_is_added_in_one_list() {
    OF_REASONS.check(&files(|text| {
        let words = words_in(text);
        Reason::ALL.iter().filter(|reason| words.contains(reason.as_str())).count() > Reason::ALL.len() / 3
    }));
}

#[test]
fn a_new_list_is_found_and_one_that_is_gone_too() {
    let [one, two, ..] = DRIVERS;
    assert_eq!(drivers_in(&format!("match chosen {{ {}(_) => 1, _ => {two}_port() }}", one.to_uppercase())), 2);
    assert!(has_all("use a::{Cat, Dog};", &["Cat", "Dog"]) && !has_all("CatTemplate Dog", &["Cat", "Dog"]));
    let sort = Sort { one: "cat", lists: &["cats.rs"], instead: "use CATS", exceptions: &[("zoo/", "dogs")] };
    let naming = |files: &[&str]| files.iter().map(|file| (*file).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(sort.wrong(&naming(&["cats.rs", "zoo/dogs.rs"])), [""; 0]);
    let wrong = sort.wrong(&naming(&["cats.rs", "zoo.rs"]));
    assert!(wrong[0].starts_with("zoo.rs is one more list for those who add a cat: use CATS."), "{wrong:?}");
    assert!(wrong[1].starts_with("zoo/ is no list of each cat"), "{wrong:?}");
}
