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
    /// The text of the token: the name of a variable or option, a text without quotes, a keyword or operator in lower case.
    pub text: String,
    /// The parts that replace the placeholders in the text.
    pub parts: Vec<Part>,
    /// The position where the token begins in the scanned text; `end` is where it ends.
    pub start: usize,
    pub end: usize,
    pub line: usize,
}

/// A part between the characters of an expandable text.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Variable(Token),
    /// The unparsed text of `$( … )`.
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
    /// A word of no other kind.
    Word,
    Identifier,
    Keyword,
    Label,
    /// `-Name`, and whether a colon follows.
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
    /// A redirection of a stream to a file.
    Redirection(u8),
    /// A redirection of a stream into another stream.
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
    /// Whether the token is the same in commands, expressions and names of types.
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

    /// Whether the token is a keyword before which no attribute may stand.
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

/// Whether the word, without its dash, is an operator that begins with a dash.
pub(super) fn is_operator(word: &str) -> bool {
    const PLAIN: &[&str] = &["bnot", "not", "isnot", "is", "as", "f", "and", "band", "or", "bor", "xor", "bxor", "join", "shl", "shr"];
    const COMPARISONS: &[&str] =
        &["eq", "ne", "ge", "gt", "lt", "le", "like", "notlike", "match", "notmatch", "replace", "contains", "notcontains", "in", "notin", "split"];
    let comparison = |word: &str| COMPARISONS.contains(&word);
    PLAIN.contains(&word) || comparison(word) || word.strip_prefix(['i', 'c']).is_some_and(comparison)
}
