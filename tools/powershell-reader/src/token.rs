//! Tokens, and the words that are keywords or operators.

/// A character and the line that it is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Glyph {
    pub c: char,
    pub line: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Token {
    pub kind: Kind,
    /// What it says: the name of a variable or option, a text without quotes, a keyword or operator in lower case.
    pub text: String,
    /// What is to be put into the text.
    pub parts: Vec<Part>,
    /// Where it begins and ends in the text that is scanned.
    pub start: usize,
    pub end: usize,
    pub line: usize,
}

/// What an expandable text has between its characters.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Variable(Token),
    /// `$( … )` as it stands there.
    Sub(Vec<Glyph>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    End,
    NewLine,
    Semicolon,
    Variable,
    Splat,
    Number,
    Quoted,
    Expandable,
    /// A word that is nothing else.
    Word,
    Identifier,
    Keyword,
    Label,
    /// `-Name`; whether a colon follows.
    Option(bool),
    OpenParen,
    CloseParen,
    OpenBrace,
    CloseBrace,
    OpenBracket,
    CloseBracket,
    AtParen,
    AtBrace,
    DollarParen,
    AndAnd,
    OrOr,
    Ampersand,
    Pipe,
    Comma,
    Increment,
    Decrement,
    Operator,
    Assignment,
    /// A stream to a file.
    Redirection(u8),
    /// A stream into another.
    Merge(u8, u8),
    Input,
    Colon,
    ColonColon,
    Dot,
    Question,
    QuestionDot,
    QuestionBracket,
}

impl Kind {
    /// It is the same token in commands, expressions and names of types.
    pub fn is_invariant(self) -> bool {
        use Kind::*;
        matches!(
            self,
            End | NewLine
                | Semicolon
                | Quoted
                | Expandable
                | OpenParen
                | CloseParen
                | OpenBrace
                | CloseBrace
                | CloseBracket
                | AtParen
                | AtBrace
                | DollarParen
                | AndAnd
                | OrOr
                | Ampersand
                | Pipe
                | Comma
                | Input
        )
    }
}

impl Token {
    pub fn is_keyword(&self, word: &str) -> bool {
        self.kind == Kind::Keyword && self.text == word
    }

    pub fn is_binary(&self) -> bool {
        self.kind == Kind::Operator && !matches!(self.text.as_str(), "!" | "not" | "bnot")
    }

    pub fn is_unary(&self) -> bool {
        match self.kind {
            Kind::Comma | Kind::Increment | Kind::Decrement => true,
            Kind::Operator => matches!(self.text.as_str(), "!" | "+" | "-" | "not" | "bnot" | "join" | "split" | "isplit" | "csplit"),
            _ => false,
        }
    }

    pub fn names_block(&self) -> bool {
        self.kind == Kind::Keyword && ["begin", "process", "end", "dynamicparam", "clean"].contains(&self.text.as_str())
    }

    /// A keyword before which no attribute may stand.
    pub fn refuses_attributes(&self) -> bool {
        const ALLOW: &[&str] = &[
            "begin",
            "catch",
            "class",
            "dynamicparam",
            "else",
            "elseif",
            "end",
            "finally",
            "in",
            "param",
            "process",
            "until",
            "configuration",
            "public",
            "private",
            "static",
            "interface",
            "enum",
            "namespace",
            "module",
            "type",
            "assembly",
            "command",
            "hidden",
            "base",
            "default",
            "clean",
        ];
        self.kind == Kind::Keyword && !ALLOW.contains(&self.text.as_str())
    }
}

pub(super) fn is_keyword(word: &str) -> bool {
    const KEYWORDS: &[&str] = &[
        "elseif",
        "if",
        "else",
        "switch",
        "foreach",
        "from",
        "in",
        "for",
        "while",
        "until",
        "do",
        "try",
        "catch",
        "finally",
        "trap",
        "data",
        "return",
        "continue",
        "break",
        "exit",
        "throw",
        "begin",
        "process",
        "end",
        "dynamicparam",
        "function",
        "filter",
        "param",
        "class",
        "define",
        "var",
        "using",
        "workflow",
        "parallel",
        "sequence",
        "configuration",
        "public",
        "private",
        "static",
        "interface",
        "enum",
        "namespace",
        "module",
        "type",
        "assembly",
        "command",
        "hidden",
        "base",
        "default",
        "clean",
    ];
    KEYWORDS.contains(&word)
}

/// Operators that begin with a dash, without it.
pub(super) fn is_operator(word: &str) -> bool {
    const PLAIN: &[&str] = &["bnot", "not", "isnot", "is", "as", "f", "and", "band", "or", "bor", "xor", "bxor", "join", "shl", "shr"];
    const COMPARISONS: &[&str] =
        &["eq", "ne", "ge", "gt", "lt", "le", "like", "notlike", "match", "notmatch", "replace", "contains", "notcontains", "in", "notin", "split"];
    let comparison = |word: &str| COMPARISONS.contains(&word);
    PLAIN.contains(&word) || comparison(word) || word.strip_prefix(['i', 'c']).is_some_and(comparison)
}
