//! Checks calls: of commands and parameters that Windows PowerShell 5.1 has, and of our own functions.

use std::collections::{BTreeMap, BTreeSet};

use super::world::{Parameter, World, assigned, parameters, script_name};
use powershell_reader::{Fault, Kind, Node};

/// The common parameters of every cmdlet that we use.
const COMMON: [&str; 1] = ["ErrorAction"];

/// Returns an extract of PSScriptAnalyzer's list: the commands that the scripts use, with their parameters.
pub(super) fn commands() -> BTreeMap<String, BTreeSet<String>> {
    let data: serde_json::Value = serde_json::from_str(include_str!("../commands-5.1.json")).unwrap();
    serde_json::from_value(data["commands"].clone()).unwrap()
}

/// A call of a command by name.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub name: &'a str,
    pub line: usize,
    /// The names of the parameters, including the keys of a splatted table, and whether a value was joined to each.
    pub options: Vec<(String, bool)>,
    pub arguments: Vec<&'a Node>,
    splatted: bool,
    /// The variables that are set in the enclosing function, in lower case.
    variables: BTreeSet<String>,
    /// Whether the call stands in the body of an `if`.
    conditional: bool,
}

/// Returns all calls in a script.
pub(super) fn calls(tree: &Node) -> Vec<Call<'_>> {
    let mut found = Vec::new();
    collect(tree, tree, false, &mut found);
    found
}

/// Collects the calls below a node. `scope` is the function, or the script, that contains the node.
fn collect<'a>(node: &'a Node, scope: &'a Node, conditional: bool, found: &mut Vec<Call<'a>>) {
    let scope = if matches!(node.kind, Kind::Function(_)) { node } else { scope };
    if node.kind == Kind::Command(false) {
        found.extend(call(node, scope, conditional));
    }
    for child in &node.children {
        let body = node.kind == Kind::If && child.kind == Kind::Body;
        collect(child, scope, conditional || body, found);
    }
}

fn call<'a>(command: &'a Node, scope: &Node, conditional: bool) -> Option<Call<'a>> {
    let Kind::Word(name) = &command.child(0)?.kind else { return None };
    let mut call =
        Call { name, line: command.line, options: Vec::new(), arguments: Vec::new(), splatted: false, variables: variables(scope), conditional };
    for element in command.children.iter().skip(1) {
        match &element.kind {
            Kind::Option(name) => call.options.push((name.clone(), !element.children.is_empty())),
            Kind::Splat(name) => {
                call.splatted = true;
                call.options.extend(keys(scope, name).into_iter().map(|key| (key, true)));
            }
            Kind::Redirection => {}
            _ => call.arguments.push(element),
        }
    }
    Some(call)
}

fn variables(scope: &Node) -> BTreeSet<String> {
    let own = parameters(scope).into_iter().map(|parameter| parameter.name.to_lowercase());
    let automatic = ["psscriptroot", "pscommandpath"].map(str::to_owned);
    own.chain(assigned(scope, false).into_iter().map(|(name, _)| name)).chain(automatic).collect()
}

/// Returns the keys of the table with that name.
fn keys(scope: &Node, table: &str) -> Vec<String> {
    let is_table = |node: &Node| matches!(&node.kind, Kind::Variable(name) if name.eq_ignore_ascii_case(table));
    let mut found = Vec::new();
    for node in scope.all().into_iter().filter(|node| matches!(node.kind, Kind::Assign(_))) {
        match node.children.as_slice() {
            [target, value] if is_table(target) && value.kind == Kind::Table => {
                found.extend(value.children.iter().filter_map(|entry| Some(entry.child(0)?.constant()?.to_owned())));
            }
            [Node { kind: Kind::Member(_), children, .. }, _] if children.first().is_some_and(is_table) => {
                found.extend(children.get(1).and_then(Node::constant).map(str::to_owned));
            }
            _ => {}
        }
    }
    found
}

/// Finds calls of names that are neither a command of 5.1 nor a function here, and parameters that the called command does not have.
/// A conditional call may name a function of another world.
pub(super) fn strangers(world: &World<'_>, everywhere: &World<'_>, more: &[&str]) -> Vec<(String, Fault)> {
    let (commands, functions, elsewhere) = (commands(), world.functions(), everywhere.functions());
    let globals = world.globals();
    let mut found = Vec::new();
    for source in &world.sources {
        let mut fault = |line: usize, what: String| found.push((source.name.clone(), Fault { line, what }));
        for call in calls(&source.tree) {
            if more.contains(&call.name) {
                continue;
            }
            if let Some(parameters) = functions.get(call.name).or_else(|| elsewhere.get(call.name).filter(|_| call.conditional)) {
                own(&call, parameters).into_iter().for_each(|what| fault(call.line, what));
            } else if let Some(allowed) = commands.get(call.name) {
                words(&call, allowed, &globals).into_iter().for_each(|what| fault(call.line, what));
                let unknown = asked(&call).into_iter().filter(|name| !commands.contains_key(*name) && !elsewhere.contains_key(*name));
                unknown.for_each(|name| fault(call.line, format!("{name} is asked for and not in commands-5.1.json")));
                let bad = call.options.iter().filter(|(name, _)| !allowed.contains(name) && !COMMON.contains(&name.as_str()));
                bad.for_each(|(name, _)| fault(call.line, format!("{} has no -{name}", call.name)));
            } else {
                let what = "is neither in commands-5.1.json nor defined here; aliases and programs are not called by name";
                fault(call.line, format!("{} {what}", call.name));
            }
        }
    }
    found
}

/// Finds bare arguments that equal the name of one of the command's parameters, or of a variable: a dash or a dollar is missing.
fn words(call: &Call<'_>, parameters: &BTreeSet<String>, globals: &BTreeSet<String>) -> Vec<String> {
    let words = call.arguments.iter().filter(|argument| matches!(argument.kind, Kind::Word(_))).filter_map(|word| word.constant());
    let missing = words.filter_map(|word| {
        if parameters.iter().any(|name| name.eq_ignore_ascii_case(word)) {
            return Some(format!("{} is given the word {word}: a dash is missing", call.name));
        }
        let variable = word.split('.').next().unwrap_or_default().to_lowercase();
        let known = globals.contains(&variable) || call.variables.contains(&variable);
        known.then(|| format!("{} is given the word {word}: a dollar is missing", call.name))
    });
    missing.collect()
}

/// Returns the names of the commands that a `Get-Command` call queries.
fn asked<'a>(call: &Call<'a>) -> Vec<&'a str> {
    let arguments = call.arguments.iter().filter(|argument| call.name == "Get-Command" && matches!(argument.kind, Kind::Constant(_)));
    arguments.filter_map(|argument| argument.constant()).collect()
}

/// Finds faults in the call of one of our own functions, which take no common parameters.
fn own(call: &Call<'_>, parameters: &[Parameter]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut free: Vec<&Parameter> = parameters.iter().filter(|parameter| !parameter.switch).collect();
    let mut arguments = call.arguments.len();
    for (option, joined) in &call.options {
        match parameters.iter().find(|parameter| parameter.name.eq_ignore_ascii_case(option)) {
            None => wrong.push(format!("{} has no -{option}", call.name)),
            Some(parameter) if !parameter.switch => {
                free.retain(|other| other.name != parameter.name);
                arguments = arguments.saturating_sub(usize::from(!joined));
            }
            Some(_) => {}
        }
    }
    let needed = free.iter().filter(|parameter| !parameter.optional).count();
    if !call.splatted && !(needed..=free.len()).contains(&arguments) {
        wrong.push(format!("{} takes {needed} to {} arguments, and gets {arguments}", call.name, free.len()));
    }
    let words = call.arguments.iter().filter(|argument| matches!(argument.kind, Kind::Word(_))).filter_map(|word| word.constant());
    // A number needs no quotes.
    let words = words.filter(|word| word.parse::<f64>().is_err());
    wrong.extend(words.map(|word| format!("{} is given the word {word}: a dollar or quotes are missing", call.name)));
    wrong
}

/// Checks calls of the form `& path -Option`: our scripts must have the parameters that the caller passes.
pub(super) fn started(tree: &Node, scripts: &BTreeMap<String, Vec<Parameter>>) -> Vec<Fault> {
    let mut wrong = Vec::new();
    for command in tree.all().into_iter().filter(|node| node.kind == Kind::Command(true)) {
        let Some(name) = command.child(0).and_then(script_name) else { continue };
        let Some(parameters) = scripts.get(&name) else { continue };
        for option in &command.children {
            if let Kind::Option(given) = &option.kind
                && !parameters.iter().any(|parameter| parameter.name.eq_ignore_ascii_case(given))
            {
                wrong.push(Fault { line: option.line, what: format!("{name} has no -{given}") });
            }
        }
    }
    wrong
}
