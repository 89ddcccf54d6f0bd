//! What this process remembers of configurations. It is lost with the process, and found again.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::report::Token;

/// What was made for a configuration: the name of its Secret, and the token in it.
#[derive(Clone, Debug)]
pub struct Made {
    pub secret: String,
    pub token: Token,
    /// What the rules have to say of the data: a message for the user, or empty.
    pub warnings: String,
}

/// What was made and could not be reported yet, by UID: Cluster API labels new objects while we work, and each such write makes
/// our report a conflict. The next try need not make or read anything again. Lost with the process, and found again then.
pub type Unreported = ByUid<Made>;

/// UIDs of the Secrets of the tokens that this process made, by UID of the configuration: such a token need not be read before it
/// is deleted.
pub type KnownTokens = ByUid<String>;

/// What this process knows of the owners of bootstrap Secrets, which nothing watches, by UID of the configuration. Of those that are
/// not in it, it knows nothing: their Secrets were made before it started.
pub type SecretOwners = ByUid<SecretOwner>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretOwner {
    /// The Secret was written here and names its configuration.
    Named,
    /// The configuration was seen without owner: what took its owner reference away may have done the same to the Secret.
    Doubted,
}

/// A memory of this process about objects, by their UID.
pub struct ByUid<T>(Mutex<HashMap<String, T>>);

impl<T> Default for ByUid<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> ByUid<T> {
    pub fn keep(&self, uid: String, value: T) {
        self.0.lock().insert(uid, value);
    }

    pub fn is(&self, uid: &str, value: T) -> bool
    where
        T: PartialEq,
    {
        self.0.lock().get(uid) == Some(&value)
    }

    pub fn take(&self, uid: &str) -> Option<T> {
        self.0.lock().remove(uid)
    }
}
