//! YAML for Go programs, which follow YAML 1.1, where `on`, `1e5` and `12:30` are not strings. Therefore every string is quoted.

use serde::Serialize;

use crate::bootstrap::error::RenderError;

/// Serializes a document; `what` names it in an error.
pub(super) fn document<T: Serialize>(what: &'static str, value: &T) -> Result<String, RenderError> {
    let options = serde_saphyr::ser_options! { quote_all: true };
    serde_saphyr::to_string_with_options(value, options).map_err(|e| RenderError::Serialize { what, reason: e.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn strings_stay_strings() {
        let long = format!("{} {}", "a".repeat(70), "b".repeat(70));
        for value in ["on", "y", "1e5", "012345.6789012345678901", "12:30:45", "2026-01-01", "", "null", "0x1f", r"C:\k", "it's", &long] {
            let text = document("test", &BTreeMap::from([("key", value)])).unwrap();
            assert!(text.starts_with("key: '") || text.starts_with("key: \""), "{text}");
            assert_eq!(serde_saphyr::from_str::<BTreeMap<String, String>>(&text).unwrap()["key"], value);
        }
    }
}
