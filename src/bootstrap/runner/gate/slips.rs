//! Finds all slips in scripts, and shows them.

use std::collections::{BTreeMap, BTreeSet};

use powershell_reader::Fault;

use super::calls::{self, strangers};
use super::members::{self, Names};
use super::plan::Fields;
use super::variables;
use super::world::{self, Source, World, worlds};
use crate::bootstrap::delivery::windows_setup::USER_DATA;

/// Finds all slips except in the syntax, which must be valid before.
pub(super) fn slips(sources: &[Source], names: &Names, fields: &Fields) -> Vec<(String, Fault)> {
    let everywhere = World { sources: sources.iter().collect() };
    let mut found = members::unknown(&everywhere, names, fields);
    found.extend(variables::idle(&everywhere));
    for world in worlds(sources) {
        found.extend(strangers(&world, &everywhere, &[]));
        found.extend(variables::faults(&world));
        found.extend(members::missing_fields(&world, fields));
    }
    let mut signatures: BTreeMap<_, _> = sources.iter().map(|source| (source.name.clone(), world::parameters(&source.tree))).collect();
    if let Some(parameters) = signatures.remove("loader.ps1") {
        signatures.insert(USER_DATA.to_owned(), parameters);
    }
    for source in sources {
        found.extend(calls::started(&source.tree, &signatures).into_iter().map(|fault| (source.name.clone(), fault)));
    }
    found
}

pub(super) fn show(faults: impl IntoIterator<Item = (String, Fault)>) -> String {
    let lines: BTreeSet<_> = faults.into_iter().map(|(name, fault)| (name, fault.line, fault.what)).collect();
    let lines = lines.into_iter().map(|(name, line, what)| format!("{name}:{line}: {what}"));
    lines.collect::<Vec<_>>().join("\n")
}
