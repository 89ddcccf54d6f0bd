//! Values of Secrets that the spec names, read before rendering.

use std::collections::BTreeMap;
use std::fmt;

use secrecy::{ExposeSecret, SecretSlice};

use super::error::RenderError;
use crate::api::bootstrap_config::SecretKeyRef;

/// The values, by reference. Shows how many there are and nothing else.
#[derive(Clone, Default)]
pub struct Secrets(BTreeMap<SecretKeyRef, SecretSlice<u8>>);

impl Secrets {
    pub fn insert(&mut self, reference: SecretKeyRef, value: Vec<u8>) {
        self.0.insert(reference, value.into());
    }

    /// The bytes of the value that `field` names. Fails when nobody read it.
    pub(super) fn bytes(&self, field: &str, reference: &SecretKeyRef) -> Result<&[u8], RenderError> {
        let missing = || RenderError::invalid(field, shown(reference), "the Secret has no such value: make it, or name another one");
        self.0.get(reference).map(ExposeSecret::expose_secret).ok_or_else(missing)
    }

    /// The same as text, without white space around it: Secrets made from files end with a line end.
    pub(super) fn text(&self, field: &str, reference: &SecretKeyRef) -> Result<&str, RenderError> {
        let text = std::str::from_utf8(self.bytes(field, reference)?);
        text.map(str::trim).map_err(|_| RenderError::invalid(field, shown(reference), "the value is not text in UTF-8: correct the Secret"))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

fn shown(reference: &SecretKeyRef) -> String {
    format!("{}/{}", reference.name, reference.key)
}
