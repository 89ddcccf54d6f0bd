//! The fields that take their values from Secrets and ConfigMaps.

use super::secret::{ConfigMapKeyRef, SecretKeyRef};
use super::spec::WindowsBootstrapConfigSpec;

/// Fields outside lists that take their value from a Secret or a ConfigMap.
pub const CA_BUNDLE: &str = "spec.network.caBundleFrom.secretKeyRef";
pub const CA_BUNDLE_MAP: &str = "spec.network.caBundleFrom.configMapKeyRef";
pub const PROXY_URL: &str = "spec.network.proxy.urlFrom.secretKeyRef";
pub const DOMAIN_BLOB: &str = "spec.windows.gmsa.domain.blobFrom.secretKeyRef";

/// A field that takes its value from a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretUse<'a> {
    /// The field, for messages, e.g. `spec.files[0].contentFrom.secretKeyRef`.
    pub field: String,
    pub reference: &'a SecretKeyRef,
}

impl WindowsBootstrapConfigSpec {
    /// Every field that takes its value from a Secret. Rendering refuses fields that are missing here.
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
        let network = &self.network;
        let gmsa = self.windows.gmsa.as_ref();
        let bundle = network.ca_bundle_from.as_ref().and_then(|from| from.secret_key_ref.as_ref());
        uses.extend(bundle.map(|reference| SecretUse { field: CA_BUNDLE.into(), reference }));
        for registry in &self.containerd.registries {
            for mirror in &registry.mirrors {
                uses.extend(mirror.secret_refs(registry).into_iter().map(|(field, from)| SecretUse { field, reference: &from.secret_key_ref }));
            }
        }
        for (field, from) in [
            (PROXY_URL, network.proxy.as_ref().and_then(|proxy| proxy.url_from.as_ref())),
            (DOMAIN_BLOB, gmsa.and_then(|gmsa| gmsa.domain.as_ref()).map(|domain| &domain.blob_from)),
        ] {
            uses.extend(from.map(|from| SecretUse { field: field.into(), reference: &from.secret_key_ref }));
        }
        uses
    }

    /// The ConfigMap that `spec.network.caBundleFrom` names.
    pub fn config_map_ref(&self) -> Option<&ConfigMapKeyRef> {
        self.network.ca_bundle_from.as_ref()?.config_map_key_ref.as_ref()
    }
}
