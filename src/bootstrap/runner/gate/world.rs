//! Scripts that run together: a script that is started, and the scripts that it reads.

use std::collections::{BTreeMap, BTreeSet};

use powershell_reader::{Dialect, Kind, Node, PART, parse, unqualified};

pub(super) struct Source {
    pub name: String,
    pub tree: Node,
}

impl Source {
    /// Parses a script, whose syntax must be valid.
    pub fn new(name: &str, text: &str) -> Self {
        let tree = parse(text, Dialect::Windows).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        Self { name: name.to_owned(), tree }
    }
}

/// A parameter of a function or a script.
#[derive(Debug)]
pub(super) struct Parameter {
    pub name: String,
    /// Whether the parameter takes no value.
    pub switch: bool,
    /// Whether the parameter has a default.
    pub optional: bool,
}

/// The scripts that run together. The script that is started comes first.
pub(super) struct World<'a> {
    pub sources: Vec<&'a Source>,
}

/// Returns one world for each script that no other script reads.
pub(super) fn worlds(sources: &[Source]) -> Vec<World<'_>> {
    let read: BTreeSet<String> = sources.iter().flat_map(|source| parts(&source.tree)).collect();
    let roots = sources.iter().filter(|source| !read.contains(&source.name));
    roots.map(|root| world(root, sources)).collect()
}

pub(super) fn world<'a>(root: &'a Source, sources: &'a [Source]) -> World<'a> {
    let mut found = vec![root];
    let mut at = 0;
    while let Some(source) = found.get(at) {
        for part in parts(&source.tree) {
            let source =
                sources.iter().find(|source| source.name == part).unwrap_or_else(|| panic!("{part} is read by {} and is not shipped", root.name));
            if !found.iter().any(|known| known.name == part) {
                found.push(source);
            }
        }
        at += 1;
    }
    World { sources: found }
}

/// Returns the names of the scripts that are read by `. "$PSScriptRoot\name.ps1"`.
fn parts(tree: &Node) -> Vec<String> {
    let sourced = tree.all().into_iter().filter(|node| node.kind == Kind::Command(true) && node.children.len() == 1);
    sourced.filter_map(|command| script_name(command.child(0)?)).collect()
}

/// Returns the name of the script with this path.
pub(super) fn script_name(path: &Node) -> Option<String> {
    let texts = path.all().into_iter().filter_map(|node| match &node.kind {
        Kind::Expandable(text) | Kind::Constant(text) | Kind::Word(text) => Some(text.clone()),
        _ => None,
    });
    let name = |text: String| text.rsplit(['/', '\\', PART]).next().unwrap_or_default().to_owned();
    texts.map(name).find(|name| name.ends_with(".ps1"))
}

impl World<'_> {
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.sources.iter().flat_map(|source| source.tree.all().into_iter().map(|node| (source.name.as_str(), node)))
    }

    /// Returns the parameters of each function, by name.
    pub fn functions(&self) -> BTreeMap<String, Vec<Parameter>> {
        let function = |node: &Node| match &node.kind {
            Kind::Function(name) => Some((name.clone(), parameters(node))),
            _ => None,
        };
        self.nodes().filter_map(|(_, node)| function(node)).collect()
    }

    /// Returns the variables that every function sees, in lower case: the scripts' own, and variables that functions put into their scope.
    pub fn globals(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for source in &self.sources {
            found.extend(parameters(&source.tree).into_iter().map(|parameter| parameter.name.to_lowercase()));
            found.extend(assigned(&source.tree, false).into_iter().map(|(name, _)| name));
            let everywhere = assigned(&source.tree, true).into_iter().map(|(name, _)| name);
            found.extend(everywhere.filter(|name| name.contains(':')).map(|name| unqualified(&name).to_owned()));
        }
        found
    }
}

/// Returns the parameters of a function, or of a whole script.
pub(super) fn parameters(node: &Node) -> Vec<Parameter> {
    let block = node.children.last().filter(|_| matches!(node.kind, Kind::Function(_))).map_or(&[][..], |block| block.children.as_slice());
    let parameter = |node: &Node| {
        let Kind::Parameter(name) = &node.kind else { return None };
        let about = |node: &Node| matches!(node.kind, Kind::Type(_) | Kind::Attribute(_));
        let switch = node.children.iter().any(|child| child.kind == Kind::Type("switch".to_owned()));
        Some(Parameter { name: name.clone(), switch, optional: switch || node.children.iter().any(|child| !about(child)) })
    };
    node.children.iter().chain(block).filter_map(parameter).collect()
}

/// Returns the assigned names in lower case, with their scope, and the nodes that assign to them; `functions` includes those in functions.
pub(super) fn assigned(node: &Node, functions: bool) -> Vec<(String, &Node)> {
    let mut found = Vec::new();
    let target = match &node.kind {
        Kind::Assign(_) | Kind::Foreach(_) => node.child(0),
        _ => None,
    };
    found.extend(target.into_iter().flat_map(targets).map(|name| (name.to_lowercase(), node)));
    for child in &node.children {
        if functions || !matches!(child.kind, Kind::Function(_)) {
            found.extend(assigned(child, functions));
        }
    }
    found
}

/// Returns the variables among the targets of an assignment.
pub(super) fn targets(target: &Node) -> Vec<&str> {
    match &target.kind {
        Kind::Variable(name) => vec![name],
        Kind::List | Kind::Paren | Kind::Convert(_) | Kind::Attributed => target.children.iter().flat_map(targets).collect(),
        _ => Vec::new(),
    }
}
