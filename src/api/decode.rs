//! Typed objects from JSON values.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// The object that a value holds. It is read from the value's text: the program has a decoder of texts for every type, and decoders of
/// values beside them would make it larger by half a megabyte.
pub fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, serde_json::Error> {
    serde_json::from_str(&value.to_string())
}
