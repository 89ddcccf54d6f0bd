//! The memory of this process about configurations. It is lost with the process, and rebuilt.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::report::Token;

/// The objects created for a configuration: the name of its Secret, and the token in it.
#[derive(Clone, Debug)]
pub struct Made {
    pub secret: String,
    pub token: Token,
    /// The warnings of the rules about the data: a message for the user, or empty.
    pub warnings: String,
}

/// Created objects that could not be reported yet, by UID. Cluster API labels new objects while CAPW works, and each such write turns our
/// report into a conflict. The next try need not create or read anything again. After a restart, the next pass finds the objects.
pub type Unreported = ByUid<Made>;

/// UIDs of the token Secrets that this process created, by UID of the configuration. Such a token need not be read before it
/// is deleted.
pub type KnownTokens = ByUid<String>;

/// The known owners of bootstrap Secrets, which nothing watches, by UID of the configuration. Secrets that are missing here were created
/// before this process started: nothing is known about their owners.
pub type SecretOwners = ByUid<SecretOwner>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretOwner {
    /// This process wrote the Secret, and the Secret names its configuration.
    Named,
    /// The configuration was seen without an owner: whatever removed its owner reference may also have removed the Secret's.
    Doubted,
}

/// Facts that this process remembers about objects, by their UID.
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
