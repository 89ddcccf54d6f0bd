//! The content of an endpoint's Secret.

use std::collections::BTreeMap;
use std::fmt;

use crate::vm::DriverError;

/// The values of a Secret, by key. They are never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// `<namespace>/<name>` of the Secret.
    secret: String,
    values: BTreeMap<String, Vec<u8>>,
}

impl Login {
    pub fn new(secret: String, values: BTreeMap<String, Vec<u8>>) -> Self {
        Self { secret, values }
    }

    /// Returns the value of a key, unless it is empty.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key).map(Vec::as_slice).filter(|value| !value.is_empty())
    }

    /// Returns the value of a key that must be present.
    pub fn required(&self, key: &str) -> Result<&[u8], DriverError> {
        self.get(key).ok_or_else(|| DriverError::Auth(format!("{} is missing", self.place(key))))
    }

    /// Returns the login without the name of its Secret, so that two Secrets with the same values compare equal.
    pub fn without_place(&self) -> Self {
        Self { secret: String::new(), values: self.values.clone() }
    }

    /// Describes where the value of a key is, for messages.
    pub fn place(&self, key: &str) -> String {
        if self.secret.is_empty() {
            format!("key {key} of the Secret that spec.credentialsRef of the WindowsHypervisor must name")
        } else {
            format!("key {key} of Secret {}", self.secret)
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({}: {:?})", self.secret, self.values.keys())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_is_shown() {
        let login = Login::new("lab/kvm1".into(), [("tls.key".to_owned(), b"canary".to_vec()), ("ca.crt".to_owned(), vec![])].into());
        assert_eq!(format!("{login:?}"), "Login(lab/kvm1: [\"ca.crt\", \"tls.key\"])");
        assert_eq!((login.get("tls.key"), login.get("ca.crt"), login.get("x")), (Some(b"canary".as_slice()), None, None), "an empty value is none");
        assert!(login.place("tls.key").contains("lab/kvm1") && Login::default().place("tls.key").contains("spec.credentialsRef"));
    }
}
