//! TOML tables and their text.

use toml::{Table, Value};

use crate::bootstrap::error::RenderError;

pub(super) fn table<const N: usize>(pairs: [(&str, Value); N]) -> Table {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

pub(super) fn list<const N: usize>(texts: [&str; N]) -> Value {
    Value::Array(texts.into_iter().map(Value::from).collect())
}

pub(super) fn text(what: &'static str, document: &Table) -> Result<String, RenderError> {
    toml::to_string(document).map_err(|e| RenderError::Serialize { what, reason: e.to_string() })
}
