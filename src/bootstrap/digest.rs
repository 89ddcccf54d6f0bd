//! SHA-256 digests: of files, and of the public key of the cluster's CA.

use std::fmt;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use thiserror::Error;
use x509_parser::pem::parse_x509_pem;

/// The reason why a text is not a certificate.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("the cluster's CA is not a certificate in PEM form: {0}; expected the content of ca.crt, starting with -----BEGIN CERTIFICATE-----")]
pub struct CaError(String);

/// Returns `sha256:<hex>` of the SubjectPublicKeyInfo (DER) of the first certificate, which kubeadm pins in discovery.
pub fn ca_hash(pem: &str) -> Result<String, CaError> {
    let wrong = |reason: &dyn fmt::Display| CaError(reason.to_string());
    let (_, block) = parse_x509_pem(pem.as_bytes()).map_err(|e| wrong(&e))?;
    let certificate = block.parse_x509().map_err(|e| wrong(&e))?;
    Ok(format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(certificate.public_key().raw))))
}

/// Returns the SHA-256 digest in hexadecimal.
pub(super) fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_of_a_known_certificate() {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec![]).unwrap().self_signed(&key).unwrap();
        // rcgen computes the SubjectPublicKeyInfo from the key, independently of the certificate.
        let expected = format!("sha256:{}", sha256(&rcgen::PublicKeyData::subject_public_key_info(&key)));
        assert_eq!(ca_hash(&certificate.pem()).unwrap(), expected);
    }

    #[test]
    fn a_text_that_is_not_a_certificate_is_refused() {
        for bad in ["", "no", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(ca_hash(bad).unwrap_err().to_string().contains("ca.crt"));
        }
    }
}
