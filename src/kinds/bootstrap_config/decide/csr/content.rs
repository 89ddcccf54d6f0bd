//! The content of a certificate request, parsed from its PKCS #10 form.

use std::fmt;
use std::net::IpAddr;

use sha2::{Digest, Sha256};
use x509_parser::certification_request::{X509CertificationRequest, X509CertificationRequestInfo};
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{OID_PKCS1_RSAENCRYPTION, OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

pub const PEM_LABEL: &str = "CERTIFICATE REQUEST";

/// SHA-256 of a public key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key(Vec<u8>);

/// The content of a PKCS #10 request.
#[derive(Debug, PartialEq, Eq)]
pub struct Content {
    pub common_names: Vec<String>,
    pub organizations: Vec<String>,
    /// Alternative names: DNS names and addresses.
    pub names: Vec<AlternativeName>,
    /// Whether the request holds anything else: other parts of the subject, other kinds of names, extensions, attributes.
    pub more: bool,
    pub rsa: bool,
    pub key: Key,
}

impl Content {
    /// Parses exactly one PEM block with exactly one request. The input is untrusted.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let damaged = || "it is not one certificate request in PEM".to_owned();
        let (pem, length) = Pem::read(std::io::Cursor::new(bytes)).map_err(|_| damaged())?;
        let rest = bytes.get(length..).unwrap_or_default();
        if pem.label != PEM_LABEL || !rest.iter().all(u8::is_ascii_whitespace) {
            return Err(damaged());
        }
        let (rest, request) = X509CertificationRequest::from_der(&pem.contents).map_err(|_| damaged())?;
        let info = &request.certification_request_info;
        if !rest.is_empty() {
            return Err(damaged());
        }
        let mut content = Self {
            common_names: Vec::new(),
            organizations: Vec::new(),
            names: Vec::new(),
            more: false,
            rsa: *info.subject_pki.algorithm.oid() == OID_PKCS1_RSAENCRYPTION,
            key: Key(Sha256::digest(info.subject_pki.raw).to_vec()),
        };
        content.read_attributes(info);
        for attribute in info.subject.iter_attributes() {
            let text = attribute.as_str().map(str::to_owned).map_err(|_| damaged())?;
            let kind = attribute.attr_type();
            if *kind == OID_X509_COMMON_NAME {
                content.common_names.push(text);
            } else if *kind == OID_X509_ORGANIZATION_NAME {
                content.organizations.push(text);
            } else {
                content.more = true;
            }
        }
        Ok(content)
    }

    /// A kubelet requests alternative names or no attributes at all. The field for attributes may be present but empty.
    fn read_attributes(&mut self, info: &X509CertificationRequestInfo<'_>) {
        let mut extensions = Vec::new();
        for attribute in info.attributes() {
            match attribute.parsed_attribute() {
                ParsedCriAttribute::ExtensionRequest(requested) if !requested.extensions.is_empty() => extensions.extend(&requested.extensions),
                _ => self.more = true,
            }
        }
        self.more |= extensions.len() > 1;
        for extension in extensions {
            let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() else {
                self.more = true;
                continue;
            };
            for name in &names.general_names {
                match AlternativeName::of(name) {
                    Some(name) => self.names.push(name),
                    None => self.more = true,
                }
            }
        }
    }
}

/// A name in addition to the common name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlternativeName {
    Dns(String),
    Address(IpAddr),
}

impl AlternativeName {
    /// Returns `None` for a name of another kind.
    fn of(name: &GeneralName<'_>) -> Option<Self> {
        match name {
            GeneralName::DNSName(name) => Some(Self::Dns((*name).to_owned())),
            GeneralName::IPAddress(bytes) => {
                let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)).ok().map(Self::Address)
            }
            _ => None,
        }
    }
}

impl fmt::Display for AlternativeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}
