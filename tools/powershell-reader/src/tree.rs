//! The tree of a script. One kind of node serves all parts, because its users search for a few kinds anywhere in the tree.

/// The placeholder for a variable or a subexpression in an expandable text.
pub const PART: char = '\u{fffc}';

/// A part of a script and its own parts, in the order of the text.
#[derive(Clone, Debug)]
pub struct Node {
    pub kind: Kind,
    pub line: usize,
    pub children: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `{ … }`, or the whole script: parameters, then statements.
    Block,
    /// Parameters, then a block.
    Function(String),
    /// Types and attributes, then the default value.
    Parameter(String),
    /// `[Name(…)]` with its arguments.
    Attribute(String),
    /// `Name = value` in an attribute.
    Argument(String),
    /// `[type]`.
    Type(String),
    /// `[type] value`.
    Convert(String),
    /// An attribute and the value that it applies to.
    Attributed,
    /// The name of a variable, with scope or drive.
    Variable(String),
    Splat(String),
    /// `$using:name`.
    Using,
    /// Text in single quotes.
    Constant(String),
    /// Text without quotes: an argument, the name of a command, of a member or of a key.
    Word(String),
    Number(String),
    /// Text in double quotes, or a word with variables. The variables are its children; in the text a [`PART`] stands for each.
    Expandable(String),
    /// `a, b`.
    List,
    /// `@( … )`.
    Array,
    /// `$( … )`.
    Sub,
    /// `( … )`.
    Paren,
    /// `@{ … }` with entries.
    Table,
    /// Key and value.
    Entry,
    /// Target and name.
    Member(Access),
    /// Target, name and arguments.
    Invoke(Access),
    /// Target and index.
    Index(Access),
    Unary(String),
    /// Operands of one or more operators.
    Binary(Vec<String>),
    Ternary,
    /// Target and value.
    Assign(String),
    /// A name, then arguments and options; whether `&` or `.` stands before it.
    Command(bool),
    /// `-Name` or `-Name:value`.
    Option(String),
    /// A redirection, and its target if the target is a file.
    Redirection,
    Pipeline,
    If,
    /// Any loop except `foreach`.
    Loop(Option<String>),
    /// The variable, the collection, and the body.
    Foreach(Option<String>),
    Switch(Option<String>),
    /// Statements between braces that are not a script block.
    Body,
    /// A body, then catches and a `finally`.
    Try,
    /// Types, then a body.
    Catch,
    Finally,
    Trap,
    /// `break`, `continue`, with a label.
    Jump(String),
    /// `return`, `throw`, `exit`, with a value.
    Leave(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// `a.b`, `a[b]`.
    Instance,
    /// `[a]::b`.
    Static,
    /// `${a}?.b`, `${a}?[b]`.
    Conditional,
}

impl Node {
    pub fn new(kind: Kind, line: usize, children: Vec<Node>) -> Self {
        Self { kind, line, children }
    }

    /// Returns this node and all nodes below it, parents before children.
    pub fn all(&self) -> Vec<&Node> {
        let mut found = vec![self];
        let mut at = 0;
        while let Some(node) = found.get(at).copied() {
            found.extend(&node.children);
            at += 1;
        }
        found
    }

    pub fn child(&self, at: usize) -> Option<&Node> {
        self.children.get(at)
    }

    /// Returns the node's text, if it is a text without variables.
    pub fn constant(&self) -> Option<&str> {
        match &self.kind {
            Kind::Constant(text) | Kind::Word(text) => Some(text),
            Kind::Expandable(text) if self.children.is_empty() => Some(text),
            _ => None,
        }
    }
}
