//! Checks variables: under strict mode, reading a variable that was never set ends the script.

use std::collections::BTreeSet;

use super::calls::commands;
use super::world::{World, assigned, parameters, targets};
use powershell_reader::{Fault, Kind, Node, is_in_drive, unqualified};

/// The variables that PowerShell sets automatically, in lower case.
const AUTOMATIC: [&str; 16] = [
    "true",
    "false",
    "null",
    "args",
    "error",
    "input",
    "lastexitcode",
    "matches",
    "myinvocation",
    "psboundparameters",
    "pid",
    "pscommandpath",
    "psscriptroot",
    "psversiontable",
    "erroractionpreference",
    "progresspreference",
];

/// Finds variables that are used before they are set, and variables of functions that are set and never used.
pub(super) fn faults(world: &World<'_>) -> Vec<(String, Fault)> {
    let globals = world.globals();
    let mut faults = Vec::new();
    for source in &world.sources {
        let others = World { sources: world.sources.iter().filter(|other| other.name != source.name).copied().collect() };
        let mut known = others.globals();
        known.extend(parameters(&source.tree).into_iter().map(|parameter| parameter.name.to_lowercase()));
        let mut scope = Scope { known, globals: &globals, in_function: false, current: false, faults: Vec::new() };
        scope.read(&source.tree);
        let functions = source.tree.all().into_iter().filter(|node| matches!(node.kind, Kind::Function(_)));
        faults.extend(scope.faults.into_iter().chain(functions.flat_map(unused)).map(|fault| (source.name.clone(), fault)));
    }
    faults
}

/// Finds variables of scripts that no script reads.
pub(super) fn idle(everywhere: &World<'_>) -> Vec<(String, Fault)> {
    let used: BTreeSet<String> = everywhere.sources.iter().flat_map(|source| read(&source.tree)).collect();
    let mut faults = Vec::new();
    for source in &everywhere.sources {
        let idle = assigned(&source.tree, false).into_iter().filter(|(name, _)| {
            let name = unqualified(name);
            !used.contains(name) && !AUTOMATIC.contains(&name)
        });
        faults.extend(idle.map(|(name, node)| (source.name.clone(), fault(node, format!("${name} is never used")))));
    }
    faults
}

/// Finds variables that are set nowhere, in the tests beside the scripts, whose blocks see each other's variables. A test gets the
/// entries of a table as variables, and a filter of a mock gets the parameters of its command.
pub(super) fn never_set(world: &World<'_>) -> Vec<(String, Fault)> {
    let mut known = world.globals();
    known.extend(AUTOMATIC.iter().chain(&["_", "this", "testdrive"]).map(|name| (*name).to_owned()));
    known.extend(commands().into_values().flatten().map(|name| name.to_lowercase()));
    for source in &world.sources {
        known.extend(assigned(&source.tree, true).into_iter().map(|(name, _)| unqualified(&name).to_owned()));
    }
    for (_, node) in world.nodes() {
        match &node.kind {
            Kind::Parameter(name) => known.insert(name.to_lowercase()),
            Kind::Entry => known.insert(node.child(0).and_then(Node::constant).unwrap_or_default().to_lowercase()),
            _ => false,
        };
    }
    let unknown = world.nodes().filter_map(|(source, node)| match &node.kind {
        Kind::Variable(name) | Kind::Splat(name) => {
            let good = is_in_drive(name) || known.contains(&unqualified(name).to_lowercase());
            (!good).then(|| (source.to_owned(), fault(node, format!("${name} is never set"))))
        }
        _ => None,
    });
    unknown.collect()
}

fn fault(node: &Node, what: String) -> Fault {
    Fault { line: node.line, what }
}

/// The variables that are set at a place in a script.
struct Scope<'a> {
    known: BTreeSet<String>,
    globals: &'a BTreeSet<String>,
    /// Whether the code is in a function, which runs when everything outside of functions is set.
    in_function: bool,
    /// Whether `$_` is set.
    current: bool,
    faults: Vec<Fault>,
}

impl Scope<'_> {
    /// Reads the nodes in the order in which they run.
    fn read(&mut self, node: &Node) {
        match &node.kind {
            Kind::Function(_) => {
                let known = parameters(node).into_iter().map(|parameter| parameter.name.to_lowercase()).collect();
                let mut inner = Scope { known, globals: self.globals, in_function: true, current: false, faults: Vec::new() };
                node.children.iter().for_each(|child| inner.read_children(child));
                self.faults.append(&mut inner.faults);
            }
            Kind::Parameter(_) => {
                self.read_children(node);
            }
            Kind::Block | Kind::Catch => {
                let before = std::mem::replace(&mut self.current, true);
                for child in &node.children {
                    if let Kind::Parameter(name) = &child.kind {
                        self.known.insert(name.to_lowercase());
                    }
                }
                self.read_children(node);
                self.current = before;
            }
            Kind::Assign(operator) => {
                if let [target, value] = node.children.as_slice() {
                    self.read(value);
                    if operator == "=" { self.set(target) } else { self.read(target) }
                }
            }
            Kind::Foreach(_) => {
                if let [variable, over, body] = node.children.as_slice() {
                    self.read(over);
                    self.set(variable);
                    self.read(body);
                }
            }
            Kind::Variable(name) | Kind::Splat(name) => self.check(name, node),
            _ => self.read_children(node),
        }
    }

    fn read_children(&mut self, node: &Node) {
        node.children.iter().for_each(|child| self.read(child));
    }

    fn set(&mut self, target: &Node) {
        self.known.extend(targets(target).into_iter().map(|name| unqualified(name).to_lowercase()));
        for node in target.all() {
            if matches!(node.kind, Kind::Member(_) | Kind::Index(_) | Kind::Invoke(_)) {
                self.read_children(node);
            }
        }
    }

    fn check(&mut self, name: &str, node: &Node) {
        let plain = unqualified(name).to_lowercase();
        let good = is_in_drive(name)
            || AUTOMATIC.contains(&plain.as_str())
            || (plain == "_" && self.current)
            || self.known.contains(&plain)
            || (self.in_function && self.globals.contains(&plain));
        if !good {
            self.faults.push(fault(node, format!("${name} is not set before")));
        }
    }
}

/// Finds parameters and variables of a function that nothing in the function reads. Every item's function receives `$Item`.
fn unused(function: &Node) -> Vec<Fault> {
    let read = read(function);
    let parameters = parameters(function).into_iter().map(|parameter| (parameter.name.to_lowercase(), function));
    let own = parameters.filter(|(name, _)| name != "item").chain(assigned(function, true).into_iter().filter(|(name, _)| !name.contains(':')));
    let idle = own.filter(|(name, _)| !read.contains(name) && !AUTOMATIC.contains(&name.as_str()));
    idle.map(|(name, node)| fault(node, format!("${name} is never used"))).collect()
}

/// Returns the names, without scope and in lower case, of the variables that the node reads.
fn read(node: &Node) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let (target, rest) = match (&node.kind, node.children.as_slice()) {
        (Kind::Assign(_) | Kind::Foreach(_), [target, rest @ ..]) => (Some(target), rest),
        (Kind::Variable(name) | Kind::Splat(name), _) => {
            found.insert(unqualified(name).to_lowercase());
            (None, &[][..])
        }
        (_, children) => (None, children),
    };
    if let Some(target) = target {
        let members = target.all().into_iter().filter(|node| matches!(node.kind, Kind::Member(_) | Kind::Index(_) | Kind::Invoke(_)));
        found.extend(members.flat_map(|node| node.children.iter().flat_map(read)));
    }
    found.extend(rest.iter().flat_map(read));
    found
}
