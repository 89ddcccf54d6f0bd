//! `CredentialProviderConfig`: the programs that the kubelet runs to get credentials, each for certain images
//! (<https://kubernetes.io/docs/reference/config-api/kubelet-config.v1/>). Its version is the same for all supported minors.

use serde::Serialize;

use crate::api::bootstrap_config::{CredentialProvider, ProviderVariable, TokenCache};
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::render::yaml;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Configuration<'a> {
    api_version: &'static str,
    kind: &'static str,
    providers: Vec<Provider<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Provider<'a> {
    name: &'a str,
    /// The version of the protocol between the kubelet and the program.
    api_version: &'static str,
    match_images: &'a [String],
    default_cache_duration: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    args: &'a [String],
    #[serde(skip_serializing_if = "<[ProviderVariable]>::is_empty")]
    env: &'a [ProviderVariable],
    #[serde(skip_serializing_if = "Option::is_none")]
    token_attributes: Option<Token<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Token<'a> {
    service_account_token_audience: &'a str,
    cache_type: TokenCache,
    require_service_account: bool,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    required_service_account_annotation_keys: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    optional_service_account_annotation_keys: &'a [String],
}

/// Returns the file, if there are credential providers. [`crate::bootstrap::check::lint`] checks its content.
pub(in crate::bootstrap) fn credential_providers(facts: &BootstrapFacts) -> Result<Option<String>, RenderError> {
    let Some(spec) = &facts.spec.kubelet.image_credential_provider else { return Ok(None) };
    let providers: Vec<Provider<'_>> = spec.providers.iter().map(document).collect();
    if providers.is_empty() {
        return Err(RenderError::invalid("spec.kubelet.imageCredentialProvider.providers", "", "name at least one program"));
    }
    let configuration = Configuration { api_version: "kubelet.config.k8s.io/v1", kind: "CredentialProviderConfig", providers };
    yaml::document("the kubelet's list of credential providers", &configuration).map(Some)
}

fn document(provider: &CredentialProvider) -> Provider<'_> {
    Provider {
        name: &provider.name,
        api_version: "credentialprovider.kubelet.k8s.io/v1",
        match_images: &provider.match_images,
        default_cache_duration: &provider.default_cache_duration,
        args: &provider.args,
        env: &provider.env,
        token_attributes: provider.token_attributes.as_ref().map(|token| Token {
            service_account_token_audience: &token.service_account_token_audience,
            cache_type: token.cache_type,
            require_service_account: token.require_service_account,
            required_service_account_annotation_keys: &token.required_service_account_annotation_keys,
            optional_service_account_annotation_keys: &token.optional_service_account_annotation_keys,
        }),
    }
}
