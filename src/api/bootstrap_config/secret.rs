//! Values that come from Secrets: which fields name one.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::WindowsBootstrapConfigSpec;

/// One value of a Secret in the namespace of the WindowsBootstrapConfig. It is read once, when the bootstrap data is made.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')").message("must be the name of a Secret: lower case letters, digits, - and ."))]
    pub name: String,
    /// Key below its `data`.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[-._A-Za-z0-9]+$')").message("must be a key of a Secret: letters, digits, -, _ and ."))]
    pub key: String,
}

/// Where a value comes from.
#[derive(JsonSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ValueSource {
    /// A Secret in the same namespace, and the key in it.
    pub secret_key_ref: SecretKeyRef,
}

/// A field that takes its value from a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretUse<'a> {
    /// The field, for messages, e.g. `spec.files[0].contentFrom.secretKeyRef`.
    pub field: String,
    pub reference: &'a SecretKeyRef,
}

impl WindowsBootstrapConfigSpec {
    /// Every field that takes its value from a Secret. What is not in this list is not read, and rendering says so.
    pub fn secret_refs(&self) -> Vec<SecretUse<'_>> {
        let mut uses = Vec::new();
        for (index, file) in self.files.iter().enumerate() {
            if let Some(from) = &file.content_from {
                uses.push(SecretUse { field: format!("spec.files[{index}].contentFrom.secretKeyRef"), reference: &from.secret_key_ref });
            }
        }
        if let Some(unattend) = &self.unattend {
            for (field, from) in
                [("administratorPasswordFrom", &unattend.administrator_password_from), ("productKeyFrom", &unattend.product_key_from)]
            {
                let reference = from.as_ref().map(|from| &from.secret_key_ref);
                uses.extend(reference.map(|reference| SecretUse { field: format!("spec.unattend.{field}.secretKeyRef"), reference }));
            }
        }
        uses
    }
}
