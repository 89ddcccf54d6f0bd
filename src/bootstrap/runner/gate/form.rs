//! Checks the syntax and style of a single text, without knowledge of other scripts.

use powershell_reader::{Dialect, Fault, Kind, Node, PART, parse};

pub(super) fn faults(text: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut fault = |line: usize, what: &str| faults.push(Fault { line, what: what.to_owned() });
    for (number, line) in (1..).zip(text.lines()) {
        if !line.is_ascii() {
            fault(number, "not ASCII: Windows PowerShell reads other characters as ANSI");
        }
        if line.contains("{{") {
            fault(number, "a template that was not filled in");
        }
    }
    let tree = match parse(text, Dialect::Windows) {
        Ok(tree) => tree,
        Err(error) => {
            faults.push(error);
            return faults;
        }
    };
    for node in tree.all() {
        let text = text_of(node);
        let what = match &node.kind {
            Kind::Catch if node.children.last().is_some_and(|body| body.children.is_empty()) => "an error is swallowed",
            Kind::Variable(name) if name.len() > 1 && name.ends_with('?') => "a ? belongs to the name of the variable before it",
            Kind::Option(name) if name.eq_ignore_ascii_case("parallel") => "Windows PowerShell has no -Parallel",
            Kind::Member(_) if counts_a_pipeline(node) => "one object has no Count, and none has none: @( ) is missing",
            Kind::If | Kind::Loop(_) if !counts(node) && node.children.iter().any(|child| matches!(child.kind, Kind::Assign(_))) => {
                "an assignment is the condition"
            }
            Kind::Expandable(_) if node.children.is_empty() && is_plain(text) => "a text in double quotes has nothing to expand: a dollar is missing",
            Kind::Expandable(_) if !is_balanced(text) => "brackets in the text do not match",
            Kind::Expandable(_) if names_a_member(text, node) => "only the variable is put into the text, without its member: $( ) is missing",
            Kind::Binary(operators) if !patterns(operators, node).into_iter().all(is_pattern) => "not a regular expression",
            Kind::Command(true) if node.child(0).is_some_and(|name| matches!(&name.kind, Kind::Word(name) if !name.ends_with(".exe"))) => {
                "what is started by a plain word is a program: .exe is missing"
            }
            _ if text.starts_with("HKLM\\") => "a path in the registry has a colon behind its drive",
            _ => continue,
        };
        fault(node.line, what);
    }
    faults
}

fn text_of(node: &Node) -> &str {
    match &node.kind {
        Kind::Expandable(text) | Kind::Constant(text) => text,
        _ => "",
    }
}

/// Returns the constants that PowerShell treats as regular expressions.
fn patterns<'a>(operators: &[String], node: &'a Node) -> Vec<&'a str> {
    let takes = |operator: &str| ["match", "notmatch", "replace", "split"].contains(&operator.trim_start_matches(['c', 'i']));
    let operands = operators.iter().zip(node.children.iter().skip(1)).filter(|(operator, _)| takes(operator)).map(|(_, operand)| operand);
    operands.filter_map(|operand| if operand.kind == Kind::List { operand.child(0)?.constant() } else { operand.constant() }).collect()
}

/// Whether our regex engine accepts the pattern. The scripts must not use patterns that only .NET supports.
fn is_pattern(text: &str) -> bool {
    regex::Regex::new(text).is_ok()
}

/// Whether the node has the form `(… | …).Count`.
fn counts_a_pipeline(node: &Node) -> bool {
    let count = node.child(1).and_then(|name| name.constant()) == Some("Count");
    let inner = node.child(0).filter(|target| target.kind == Kind::Paren).and_then(|target| target.child(0));
    count && inner.is_some_and(|inner| matches!(inner.kind, Kind::Pipeline | Kind::Command(_)))
}

/// Whether the loop has the form `for (…; …; …)`: more than a condition and a body.
fn counts(node: &Node) -> bool {
    matches!(node.kind, Kind::Loop(_)) && node.children.len() > 2
}

fn is_balanced(text: &str) -> bool {
    [('(', ')'), ('{', '}')].into_iter().all(|(open, close)| text.matches(open).count() == text.matches(close).count())
}

fn is_plain(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() || matches!(c, '"' | '\'' | '$' | '`'))
}

/// Whether a text has the form `"$Item.id"`, `"($found.id)"` or `"($found[0])"`.
fn names_a_member(text: &str, node: &Node) -> bool {
    let mut before = None;
    let mut parts = node.children.iter();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let variable = if c == PART { parts.next().map(|part| &part.kind) } else { None };
        if let Some(Kind::Variable(name)) = variable
            && let Some('.' | '[') = rest.peek()
        {
            let member = rest.clone().nth(1).is_some_and(char::is_alphanumeric);
            if member && (before == Some('(') || ["item", "_"].contains(&name.to_lowercase().as_str())) {
                return true;
            }
        }
        before = Some(c);
    }
    false
}
