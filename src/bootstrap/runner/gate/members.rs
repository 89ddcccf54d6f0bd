//! Checks types and members of .NET, and fields of plans: an unknown name is null, or ends the script under strict mode.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::plan::Fields;
use super::world::World;
use powershell_reader::{Access, Fault, Kind, Node, is_in_drive, unqualified};

/// The documented names that the scripts use.
#[derive(Deserialize)]
pub(super) struct Names {
    /// The types with their static members.
    pub types: BTreeMap<String, BTreeSet<String>>,
    /// The members of objects of any type.
    pub members: BTreeSet<String>,
    /// The fields that `Get-Field` reads, or that are read in other fields.
    pub fields: BTreeSet<String>,
    /// The environment variables.
    pub environment: BTreeSet<String>,
}

impl Names {
    pub fn read() -> Self {
        serde_json::from_str(include_str!("../names-5.1.json")).unwrap()
    }

    pub fn all(&self) -> Vec<Name> {
        let mut found: Vec<Name> = self.types.keys().cloned().map(Name::Type).collect();
        for (name, members) in &self.types {
            found.extend(members.iter().map(|member| Name::Static(name.clone(), member.clone())));
        }
        found.extend(self.members.iter().cloned().map(Name::Member));
        found.extend(self.fields.iter().cloned().map(Name::Field));
        found.extend(self.environment.iter().cloned().map(Name::Environment));
        found
    }
}

/// A name, by how it is used.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone)]
pub(super) enum Name {
    Type(String),
    Static(String, String),
    Member(String),
    Field(String),
    Environment(String),
}

impl Name {
    /// Returns a field as a member: scripts can also read it as `$object.name`.
    pub fn as_member(&self) -> Self {
        match self {
            Name::Field(name) => Name::Member(name.clone()),
            name => name.clone(),
        }
    }
}

/// Returns all names that a script uses, with their lines.
pub(super) fn names(tree: &Node) -> Vec<(Name, usize)> {
    let mut found = Vec::new();
    for node in tree.all() {
        let mut name = |name: Name| found.push((name, node.line));
        match &node.kind {
            Kind::Type(text) | Kind::Convert(text) | Kind::Attribute(text) => name(Name::Type(plain_type(text))),
            Kind::Member(access) | Kind::Invoke(access) => {
                let Some(member) = node.child(1).and_then(Node::constant) else { continue };
                match (access, node.child(0).map(|target| &target.kind)) {
                    (Access::Static, Some(Kind::Type(text))) => name(Name::Static(plain_type(text), member.to_owned())),
                    _ => name(Name::Member(member.to_owned())),
                }
            }
            Kind::Variable(text) if is_in_drive(text) => name(Name::Environment(unqualified(text).to_owned())),
            Kind::Command(false) => {
                let argument = |at: usize| node.child(at).and_then(Node::constant);
                match (argument(0), argument(1), argument(2)) {
                    (Some("New-Object"), Some(text), _) => name(Name::Type(plain_type(text))),
                    (Some("Get-Field"), _, Some(text)) => name(Name::Field(text.to_owned())),
                    _ => {}
                }
            }
            _ => {}
        }
    }
    found
}

/// Returns a type without the brackets of an array.
fn plain_type(text: &str) -> String {
    text.trim_end_matches("[]").to_owned()
}

/// Returns the keys of the tables that the scripts create.
pub(super) fn keys(world: &World<'_>) -> BTreeSet<String> {
    let keys = world.nodes().filter(|(_, node)| node.kind == Kind::Entry).filter_map(|(_, entry)| entry.child(0)?.constant().map(str::to_owned));
    keys.collect()
}

/// Finds names that are not in the list.
pub(super) fn unknown(everywhere: &World<'_>, list: &Names, fields: &Fields) -> Vec<(String, Fault)> {
    let keys = keys(everywhere);
    let mut faults = Vec::new();
    for source in &everywhere.sources {
        for (name, line) in names(&source.tree) {
            let what = match &name {
                Name::Type(text) if !list.types.contains_key(text) => format!("[{text}]"),
                Name::Static(text, member) if !list.types.get(text).is_some_and(|known| known.contains(member)) => format!("[{text}]::{member}"),
                Name::Member(member)
                    if !(list.members.contains(member) || list.fields.contains(member) || keys.contains(member) || fields.has(member)) =>
                {
                    format!(".{member}")
                }
                Name::Field(field) if !(list.fields.contains(field) || fields.has(field)) => format!("the field {field}"),
                Name::Environment(name) if !list.environment.contains(name) => format!("$env:{name}"),
                _ => continue,
            };
            faults.push((source.name.clone(), Fault { line, what: format!("{what} is not in names-5.1.json") }));
        }
    }
    faults
}

/// Finds missing fields of objects with a known form: `$Plan`, `$Item` in the functions of a kind, and objects that the scripts create.
pub(super) fn missing_fields(world: &World<'_>, fields: &Fields) -> Vec<(String, Fault)> {
    let made = made(world);
    let mut faults = Vec::new();
    for source in &world.sources {
        let mut fault = |line: usize, what: String| faults.push((source.name.clone(), Fault { line, what }));
        for node in source.tree.all() {
            let [target, name, ..] = node.children.as_slice() else { continue };
            let (Kind::Member(Access::Instance), Kind::Variable(variable), Some(field)) = (&node.kind, &target.kind, name.constant()) else {
                continue;
            };
            let variable = unqualified(variable).to_lowercase();
            let known = made.get(&variable);
            if known.is_some_and(|known| !known.contains(field) && field != "PSObject") {
                fault(node.line, format!("${variable} has no field {field}"));
            }
            if variable == "plan" && !fields.plan.contains(field) && field != "PSObject" {
                fault(node.line, format!("the plan has no field {field}"));
            }
        }
        for function in source.tree.all() {
            let Kind::Function(name) = &function.kind else { continue };
            for (line, what) in items(function, name, fields) {
                fault(line, what);
            }
        }
    }
    faults
}

/// Finds fields of `$Item` that items of the function's kind lack, or do not always have.
fn items(function: &Node, name: &str, fields: &Fields) -> Vec<(usize, String)> {
    let untyped = |child: &Node| child.kind == Kind::Parameter("Item".to_owned()) && child.children.is_empty();
    if !function.children.iter().any(untyped) {
        return Vec::new();
    }
    let item = fields.of_function(name);
    let is_item = |node: Option<&Node>| node.is_some_and(|node| matches!(&node.kind, Kind::Variable(name) if name.eq_ignore_ascii_case("item")));
    let mut wrong = Vec::new();
    for node in function.all() {
        match &node.kind {
            Kind::Member(Access::Instance) | Kind::Invoke(Access::Instance) if is_item(node.child(0)) => {
                let Some(field) = node.child(1).and_then(Node::constant) else { continue };
                if !item.always.contains(field) && field != "PSObject" {
                    let what = if item.optional.contains(field) { "is not always there: Get-Field" } else { "is none of its fields" };
                    wrong.push((node.line, format!("$Item.{field} {what}")));
                }
            }
            Kind::Command(false) if node.child(0).and_then(Node::constant) == Some("Get-Field") && is_item(node.child(1)) => {
                let Some(field) = node.child(2).and_then(Node::constant) else { continue };
                if !item.always.contains(field) && !item.optional.contains(field) {
                    wrong.push((node.line, format!("{field} is none of its fields")));
                }
            }
            _ => {}
        }
    }
    wrong
}

/// Returns the variables of the scripts that hold only objects created by `New-Object PSObject -Property @{ … }`, with their fields.
fn made(world: &World<'_>) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, Option<BTreeSet<String>>> = BTreeMap::new();
    let globals = world.globals();
    for (_, node) in world.nodes() {
        let (Kind::Assign(_), [target, value]) = (&node.kind, node.children.as_slice()) else { continue };
        let Kind::Variable(name) = &target.kind else { continue };
        let name = unqualified(name).to_lowercase();
        if !globals.contains(&name) || value.kind == Kind::Variable("null".to_owned()) {
            continue;
        }
        let table = value.children.iter().find(|child| child.kind == Kind::Table);
        let is_object = value.kind == Kind::Command(false) && value.child(1).and_then(Node::constant) == Some("PSObject");
        let keys =
            table.filter(|_| is_object).map(|table| table.children.iter().filter_map(|entry| Some(entry.child(0)?.constant()?.to_owned())).collect());
        let known = found.entry(name).or_insert_with(|| Some(BTreeSet::new()));
        *known = match (known.take(), keys) {
            (Some(known), Some(keys)) => Some(known.union(&keys).cloned().collect()),
            _ => None,
        };
    }
    found.into_iter().filter_map(|(name, keys)| Some((name, keys?))).collect()
}
