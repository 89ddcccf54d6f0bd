//! Reads the documents of manifests. Errors name file, document, field, value and remedy.

use std::fs;
use std::io::Read;
use std::path::Path;

use k8s_openapi::api::core::v1::Secret;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads a file; `-` is standard input.
pub fn text(path: &Path) -> Result<String, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(failed)?;
        return Ok(text);
    }
    fs::read_to_string(path).map_err(failed)
}

/// Splits a stream into documents. Empty lines before each document keep its line numbers, so that errors name the line of the file.
pub fn documents(text: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for (number, line) in text.lines().enumerate() {
        if line == "---" || line.starts_with("--- ") {
            all.push("\n".repeat(number + 1));
        } else if let Some(last) = all.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
    }
    all.retain(|document| document.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#')));
    all
}

/// Returns the text at a path of keys.
pub fn at<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    path.split('.').try_fold(value, |value, key| value.get(key))?.as_str().filter(|text| !text.is_empty())
}

/// Parses the object; an unknown field is an error, as with `kubectl apply`. Errors name the field.
pub fn typed<T: DeserializeOwned + Serialize>(origin: &str, written: &Value) -> Result<T, String> {
    let object: T = serde_path_to_error::deserialize(written).map_err(|error| format!("{origin}: {}: {}", error.path(), error.inner()))?;
    let known = serde_json::to_value(&object).map_err(|e| format!("{origin}: {e}"))?;
    let (Some(written), Some(known)) = (written.get("spec"), known.get("spec")) else { return Ok(object) };
    match unknown("spec", written, known) {
        Some(field) => Err(format!("{origin}: {field}: there is no such field; `kubectl explain` lists those there are")),
        None => Ok(object),
    }
}

/// Parses a Secret. Errors do not quote its content.
pub fn secret(origin: &str, written: &Value) -> Result<Secret, String> {
    serde_path_to_error::deserialize(written).map_err(|error| {
        let field = error.path();
        format!("{origin}: {field}: it cannot be read: values are text in quotes, in base64 below `data`, and as they are below `stringData`")
    })
}

/// Returns the first written field that the type does not have. Empty values are ignored, because serialization may omit them.
fn unknown(path: &str, written: &Value, known: &Value) -> Option<String> {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    match (written, known) {
        (Value::Object(written), Value::Object(known)) => written.iter().filter(|(_, value)| !empty(value)).find_map(|(key, value)| {
            let path = format!("{path}.{key}");
            known.get(key).map_or_else(|| Some(path.clone()), |known| unknown(&path, value, known))
        }),
        (Value::Array(written), Value::Array(known)) => {
            written.iter().zip(known).enumerate().find_map(|(index, (written, known))| unknown(&format!("{path}[{index}]"), written, known))
        }
        _ => None,
    }
}
