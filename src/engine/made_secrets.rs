//! Bootstrap Secrets that this process has just created: the pass that creates the VM need not read them.

use std::collections::VecDeque;

use k8s_openapi::api::core::v1::Secret;
use parking_lot::Mutex;

use crate::api::name::ObjectKey;

/// The most bytes of Secret data that are kept, newest first. Other Secrets are read, as after a restart.
const MOST_BYTES: usize = 4 << 20;

#[derive(Default)]
pub struct MadeSecrets(Mutex<VecDeque<Secret>>);

impl MadeSecrets {
    pub fn keep(&self, secret: Secret) {
        let mut kept = self.0.lock();
        let key = ObjectKey::of(&secret.metadata);
        kept.retain(|other| ObjectKey::of(&other.metadata) != key);
        kept.push_back(secret);
        while kept.iter().map(size).sum::<usize>() > MOST_BYTES {
            kept.pop_front();
        }
    }

    /// Removes and returns the Secret.
    pub fn take(&self, key: &ObjectKey) -> Option<Secret> {
        let mut kept = self.0.lock();
        let place = kept.iter().position(|secret| ObjectKey::of(&secret.metadata) == *key)?;
        kept.remove(place)
    }
}

fn size(secret: &Secret) -> usize {
    secret.data.iter().flatten().map(|(_, value)| value.0.len()).sum()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use kube::api::ObjectMeta;

    use super::*;

    fn secret(name: &str, bytes: usize, fill: u8) -> Secret {
        let metadata = ObjectMeta { name: Some(name.into()), namespace: Some("lab".into()), ..ObjectMeta::default() };
        Secret { metadata, data: Some([("value".into(), ByteString(vec![fill; bytes]))].into()), ..Secret::default() }
    }

    #[test]
    fn the_newest_are_kept_and_each_is_given_once() {
        let (kept, key) = (MadeSecrets::default(), |name| ObjectKey::new("lab", name));
        kept.keep(secret("a", 10, 1));
        kept.keep(secret("a", 10, 2));
        let given = kept.take(&key("a")).expect("it is there");
        assert_eq!(given.data.unwrap()["value"].0, [2; 10], "the one that replaced the first");
        assert!(kept.take(&key("a")).is_none());
        for name in ["b", "c", "d"] {
            kept.keep(secret(name, MOST_BYTES / 2, 0));
        }
        assert!(kept.take(&key("b")).is_none(), "there is no room for three");
        assert!(kept.take(&ObjectKey::new("other", "c")).is_none());
        assert!(kept.take(&key("c")).is_some() && kept.take(&key("d")).is_some());
        kept.keep(secret("large", MOST_BYTES + 1, 0));
        assert!(kept.take(&key("large")).is_none());
    }
}
