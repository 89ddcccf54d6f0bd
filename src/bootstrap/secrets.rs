//! The values of Secrets and ConfigMaps that the spec refers to, read before rendering.

use std::collections::BTreeMap;
use std::fmt;

use secrecy::{ExposeSecret, SecretSlice};

use super::error::RenderError;
use crate::api::bootstrap_config::{ConfigMapKeyRef, SecretKeyRef};

/// The values by reference. Its Debug output contains only their number.
#[derive(Clone, Default)]
pub struct Secrets {
    secret: BTreeMap<SecretKeyRef, SecretSlice<u8>>,
    public: BTreeMap<ConfigMapKeyRef, Vec<u8>>,
}

impl Secrets {
    pub fn insert(&mut self, reference: SecretKeyRef, value: Vec<u8>) {
        self.secret.insert(reference, value.into());
    }

    /// Adds a value of a ConfigMap, which is not secret.
    pub fn insert_public(&mut self, reference: ConfigMapKeyRef, value: Vec<u8>) {
        self.public.insert(reference, value);
    }

    /// Returns the value of a ConfigMap that `field` refers to. Fails if the value was not inserted.
    pub(super) fn public(&self, field: &str, reference: &ConfigMapKeyRef) -> Result<&[u8], RenderError> {
        let remedy = "the ConfigMap has no such value: create it, or name another one";
        let missing = || RenderError::invalid(field, format!("{}/{}", reference.name, reference.key), remedy);
        self.public.get(reference).map(Vec::as_slice).ok_or_else(missing)
    }

    /// Returns the value that `field` refers to. Fails if the value was not inserted.
    pub(super) fn bytes(&self, field: &str, reference: &SecretKeyRef) -> Result<&[u8], RenderError> {
        let missing = || RenderError::invalid(field, shown(reference), "the Secret has no such value: create it, or name another one");
        self.secret.get(reference).map(ExposeSecret::expose_secret).ok_or_else(missing)
    }

    /// Returns the value that `field` refers to as trimmed text: Secrets created from files end with a newline.
    pub(super) fn text(&self, field: &str, reference: &SecretKeyRef) -> Result<&str, RenderError> {
        let text = std::str::from_utf8(self.bytes(field, reference)?);
        text.map(str::trim).map_err(|_| RenderError::invalid(field, shown(reference), "the value is not text in UTF-8: correct the Secret"))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.secret.len())
    }
}

fn shown(reference: &SecretKeyRef) -> String {
    format!("{}/{}", reference.name, reference.key)
}
