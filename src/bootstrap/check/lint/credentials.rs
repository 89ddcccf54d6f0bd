//! Rule L24: credential providers. The kubelet does not start if their configuration is invalid
//! (`pkg/credentialprovider/plugin/config.go` of Kubernetes).

use super::findings::Findings;
use super::input::Node;

/// The minor from which credential providers get service account tokens without a feature gate.
const TOKENS: u32 = 34;

pub(super) fn check(node: &Node<'_>, findings: &mut Findings) {
    let providers = node.facts.spec.kubelet.image_credential_provider.iter().flat_map(|spec| &spec.providers);
    for provider in providers {
        let field = |name: &str| format!("spec.kubelet.imageCredentialProvider.providers[{}].{name}", provider.name);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if provider.name.is_empty() || provider.name.starts_with('.') || !provider.name.chars().all(plain) {
            findings.error("L24", field("name"), &provider.name, "expected the name of the program without directory and without .exe");
        }
        if provider.match_images.is_empty() || provider.match_images.iter().any(|image| image.is_empty() || image.contains("://")) {
            findings.error("L24", field("matchImages"), provider.match_images.join(","), "expected hosts of registries, e.g. *.azurecr.io");
        }
        if provider.token_attributes.is_some() && node.minor < TOKENS {
            let remedy =
                format!("the kubelet of 1.{} gives credential providers no tokens and would not start: leave it out, or use 1.{TOKENS}", node.minor);
            findings.error("L24", field("tokenAttributes"), "", remedy);
        }
    }
}
