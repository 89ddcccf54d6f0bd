//! Checks for scripts that PowerShell rejects although its grammar allows them.

use std::collections::BTreeSet;

use super::tree::{Access, Kind, Node};
use super::{Fault, Parsed};

fn refuse<T>(line: usize, what: impl Into<String>) -> Parsed<T> {
    Err(Fault { line, what: what.into() })
}

fn is_type(name: &str, wanted: &str) -> bool {
    let plain = |name: &str| name.to_lowercase().trim_start_matches("system.").to_owned();
    plain(name) == plain(wanted)
}

fn is_reference(name: &str) -> bool {
    is_type(name, "ref") || is_type(name, "System.Management.Automation.PSReference")
}

/// Checks the target of an assignment: only variables, members and elements can be assigned to; `=` also takes a list of them.
pub(super) fn assignment(target: &Node, simple: bool) -> Parsed<()> {
    match &target.kind {
        Kind::List if simple => target.children.iter().try_for_each(|element| assignment(element, true)),
        Kind::Paren => target.children.iter().try_for_each(|inner| assignment(inner, simple)),
        Kind::Variable(_) | Kind::Splat(_) => Ok(()),
        Kind::Member(access) | Kind::Invoke(access) | Kind::Index(access) if *access != Access::Conditional => Ok(()),
        Kind::Convert(_) | Kind::Attributed => typed_assignment(target, simple),
        _ => refuse(target.line, "what stands before the assignment is no variable, member or element"),
    }
}

fn typed_assignment(target: &Node, simple: bool) -> Parsed<()> {
    let mut types = Vec::new();
    let mut inner = target;
    while let (Kind::Convert(_) | Kind::Attributed, Some(child)) = (&inner.kind, inner.children.last()) {
        if let Kind::Convert(name) = &inner.kind {
            types.push(name.as_str());
        }
        inner = child;
    }
    if types.iter().any(|name| is_type(name, "void")) {
        return refuse(target.line, "no variable is of the type void");
    }
    if types.len() > 1 && types.iter().any(|name| is_reference(name)) {
        return refuse(target.line, "[ref] stands alone");
    }
    if let (Kind::Variable(name), last) = (&inner.kind, types.last())
        && let Some(own) = automatic_type(name)
        && last.is_none_or(|last| !is_type(last, own))
    {
        return refuse(target.line, format!("${name} has a type of its own"));
    }
    assignment(inner, simple)
}

/// Returns the type of a variable that PowerShell itself sets in functions.
fn automatic_type(name: &str) -> Option<&'static str> {
    Some(match name.to_lowercase().trim_start_matches("local:").trim_start_matches("private:") {
        "_" | "this" | "input" => "object",
        "args" => "object[]",
        "psscriptroot" | "pscommandpath" => "string",
        "myinvocation" => "System.Management.Automation.InvocationInfo",
        "pscmdlet" => "System.Management.Automation.PSScriptCmdlet",
        "psboundparameters" => "System.Management.Automation.PSBoundParametersDictionary",
        _ => return None,
    })
}

/// Checks the operand of `++` or `--`.
pub(super) fn step(operand: &Node) -> Parsed<()> {
    match assignment(operand, false) {
        Ok(()) => Ok(()),
        Err(fault) => refuse(fault.line, "++ and -- take a variable, a member or an element"),
    }
}

/// Checks a conversion, `[name] value`, and returns its node.
pub(super) fn converted(name: &str, line: usize, value: Node) -> Parsed<Node> {
    if name.eq_ignore_ascii_case("ordered") && value.kind != Kind::Table {
        return refuse(line, "[ordered] is only for a table");
    }
    let mut inner = Some(&value);
    let mut first = true;
    while let Some(node) = inner.filter(|node| matches!(node.kind, Kind::Convert(_) | Kind::Attributed)) {
        if let Kind::Convert(below) = &node.kind
            && is_reference(below)
            && (first || is_reference(name))
        {
            return refuse(line, "[ref] is the last of several types");
        }
        first = false;
        inner = node.children.last();
    }
    Ok(Node::new(Kind::Convert(name.to_owned()), line, vec![value]))
}

/// Checks that the value of an attribute is a variable, and returns the node.
pub(super) fn attributed(attribute: Node, value: Node) -> Parsed<Node> {
    let mut inner = &value;
    while let (Kind::Convert(_) | Kind::Attributed, Some(child)) = (&inner.kind, inner.children.last()) {
        inner = child;
    }
    let line = attribute.line;
    if !matches!(inner.kind, Kind::Variable(_)) {
        return refuse(line, "an attribute is put on what is no variable");
    }
    Ok(Node::new(Kind::Attributed, line, vec![attribute, value]))
}

pub(super) fn parameters(parameters: &[Node]) -> Parsed<()> {
    let mut names = BTreeSet::new();
    for parameter in parameters {
        let Kind::Parameter(name) = &parameter.kind else { continue };
        if !names.insert(name.to_lowercase()) {
            return refuse(parameter.line, format!("the parameter {name} is there twice"));
        }
        for child in &parameter.children {
            if let Kind::Type(name) = &child.kind
                && (is_type(name, "void") || name.eq_ignore_ascii_case("ordered"))
            {
                return refuse(parameter.line, format!("no parameter is of the type {name}"));
            }
        }
    }
    Ok(())
}

/// Checks the arguments of an attribute, which PowerShell reads before anything runs.
pub(super) fn attribute_arguments(arguments: &[Node]) -> Parsed<()> {
    let mut names = BTreeSet::new();
    for argument in arguments {
        if let Kind::Argument(name) = &argument.kind {
            if !names.insert(name.to_lowercase()) {
                return refuse(argument.line, format!("the argument {name} is there twice"));
            }
            if argument.children.iter().all(is_constant) {
                continue;
            }
        } else if is_constant(argument) {
            continue;
        }
        return refuse(argument.line, "an argument of an attribute is constant");
    }
    Ok(())
}

fn is_constant(value: &Node) -> bool {
    let all = || value.children.iter().all(is_constant);
    match &value.kind {
        _ if value.constant().is_some() => true,
        Kind::Number(_) | Kind::Type(_) | Kind::Block => true,
        Kind::Variable(name) => ["true", "false", "null"].contains(&name.to_lowercase().as_str()),
        Kind::List | Kind::Paren | Kind::Ternary => all(),
        Kind::Sub => value.children.len() == 1 && all(),
        Kind::Unary(operator) => matches!(operator.as_str(), "!" | "not" | "bnot" | "+" | "-") && all(),
        Kind::Binary(operators) => {
            let folded = ["*", "/", "%", "+", "-", "and", "or", "xor", "band", "bor", "bxor", "shl", "shr"];
            operators.iter().all(|operator| folded.contains(&operator.as_str())) && all()
        }
        Kind::Convert(name) => {
            const PRIMITIVE: &[&str] = &[
                "string", "char", "bool", "byte", "sbyte", "int", "int16", "int32", "int64", "long", "short", "uint", "uint16", "uint32", "uint64",
                "ulong", "ushort", "float", "single", "double", "decimal",
            ];
            PRIMITIVE.iter().any(|known| is_type(name, known)) && all()
        }
        // The node is the value of an enumeration, or a constant of a type.
        Kind::Member(Access::Static) => matches!(value.children.as_slice(), [Node { kind: Kind::Type(_), .. }, name] if name.constant().is_some()),
        _ => false,
    }
}

/// Checks the keys of a table.
pub(super) fn keys(entries: &[Node]) -> Parsed<()> {
    let mut keys = BTreeSet::new();
    for entry in entries {
        let key = entry.child(0).and_then(|key| if let Kind::Number(number) = &key.kind { Some(number.as_str()) } else { key.constant() });
        if let Some(key) = key
            && !keys.insert(key.to_lowercase())
        {
            return refuse(entry.line, format!("the key {key} is there twice"));
        }
    }
    Ok(())
}

/// Some of the types that `System.SystemException` includes. PowerShell checks the types that it can load.
const EXCEPTIONS: &[&str] = &[
    "System.ArgumentException",
    "System.IO.FileNotFoundException",
    "System.IO.IOException",
    "System.IO.InvalidDataException",
    "System.InvalidOperationException",
    "System.Management.Automation.RuntimeException",
    "System.Net.WebException",
    "System.Threading.AbandonedMutexException",
    "System.UnauthorizedAccessException",
];

/// Checks the clauses of a `try`: the clauses after a more general one are useless.
pub(super) fn catches(clauses: &[Node]) -> Parsed<()> {
    let mut caught: Vec<&str> = Vec::new();
    let mut all = false;
    for clause in clauses.iter().filter(|clause| clause.kind == Kind::Catch) {
        if all {
            return refuse(clause.line, "a `catch` stands behind one that takes everything");
        }
        let types = clause.children.iter().filter_map(|child| if let Kind::Type(name) = &child.kind { Some(name.as_str()) } else { None });
        let types: Vec<&str> = types.collect();
        for name in &types {
            let every = EXCEPTIONS.iter().any(|known| is_type(known, name));
            if caught.iter().any(|before| {
                is_type(before, name) || (every && ["System.Exception", "System.SystemException"].iter().any(|all| is_type(before, all)))
            }) {
                return refuse(clause.line, format!("{name} is caught already"));
            }
        }
        all = types.is_empty();
        caught.extend(types);
    }
    Ok(())
}

/// Checks the expression after `$using:`.
pub(super) fn used(value: &Node) -> Parsed<()> {
    match &value.kind {
        Kind::Variable(_) | Kind::Splat(_) => Ok(()),
        Kind::Member(_) if value.child(1).is_some_and(|name| name.constant().is_some()) => value.child(0).map_or(Ok(()), used),
        Kind::Index(_) if value.child(1).is_some_and(is_constant) => value.child(0).map_or(Ok(()), used),
        _ => refuse(value.line, "behind $using: come only names of members and constant indexes"),
    }
}

/// Checks that need the whole script: where a splatted variable stands, and which statements leave a `finally`.
pub(super) fn whole(script: &Node) -> Parsed<()> {
    splats(script)?;
    leaves(script, &Around::default())
}

fn splats(node: &Node) -> Parsed<()> {
    for child in &node.children {
        if let Kind::Splat(name) = &child.kind
            && !matches!(node.kind, Kind::Command(_) | Kind::Using)
        {
            return refuse(child.line, format!("@{name} stands where only commands take it"));
        }
        splats(child)?;
    }
    Ok(())
}

/// The loops and the `finally` around a statement, within the block that the statement can leave.
#[derive(Clone, Default)]
struct Around {
    finally: bool,
    loops: Vec<String>,
}

fn leaves(node: &Node, around: &Around) -> Parsed<()> {
    let mut within = around.clone();
    match &node.kind {
        Kind::Block | Kind::Function(_) | Kind::Trap => within = Around::default(),
        Kind::Finally => within = Around { finally: true, loops: Vec::new() },
        Kind::Loop(label) | Kind::Foreach(label) | Kind::Switch(label) => within.loops.push(label.clone().unwrap_or_default().to_lowercase()),
        Kind::Jump(word) if around.finally => {
            let inside = match node.child(0).map(|label| label.constant()) {
                None => !around.loops.is_empty(),
                Some(Some(label)) => around.loops.contains(&label.to_lowercase()),
                Some(None) => false,
            };
            if !inside {
                return refuse(node.line, format!("`{word}` leaves a `finally`"));
            }
        }
        Kind::Leave(word) if word == "return" && around.finally => return refuse(node.line, "`return` leaves a `finally`"),
        _ => {}
    }
    node.children.iter().try_for_each(|child| leaves(child, &within))
}
