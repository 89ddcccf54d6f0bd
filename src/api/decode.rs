//! Typed objects from JSON values.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Decodes an object from a value by way of the value's text. The program has a text decoder for every type, and additional value
/// decoders would make it larger by half a megabyte.
pub fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, serde_json::Error> {
    serde_json::from_str(&value.to_string())
}
