//! The Secret with the credentials of a hypervisor. It is read at connect, when the object changes, every five minutes, and at once after the
//! endpoint rejected them. The Secret is not watched, so no right to list Secrets is needed.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use parking_lot::Mutex;

use crate::api::hypervisor::WindowsHypervisor;
use crate::api::name::ObjectKey;
use crate::domain::age::seconds;
use crate::hypervisor::DriverError;
use crate::hypervisor::login::Login;
use crate::kube_api::cluster::Cluster;

/// The age at which a login is read again.
const FRESH_SECONDS: i64 = 300;

/// The logins that were read last, by hypervisor.
#[derive(Default)]
pub struct Logins(Mutex<HashMap<ObjectKey, Known>>);

struct Known {
    login: Login,
    generation: Option<i64>,
    read: Timestamp,
}

impl Logins {
    /// Returns the login of a hypervisor; an empty login if the hypervisor names no Secret.
    pub async fn of(&self, cluster: &Cluster, object: &WindowsHypervisor, now: Timestamp) -> Result<Login, DriverError> {
        let Some(reference) = &object.spec.credentials_ref else { return Ok(Login::default()) };
        let key = ObjectKey::of(&object.metadata);
        let generation = object.metadata.generation;
        if let Some(known) = self.0.lock().get(&key).filter(|known| known.generation == generation && seconds(known.read, now) < FRESH_SECONDS) {
            return Ok(known.login.clone());
        }
        let namespace = object.namespace().unwrap_or_default();
        let place = format!("{namespace}/{}", reference.name);
        let failed = |why: &dyn std::fmt::Display| DriverError::Auth(format!("Secret {place}, named by spec.credentialsRef, {why}"));
        let found = cluster.get::<Secret>(&namespace, &reference.name).await.map_err(|error| failed(&format!("cannot be read: {error}")))?;
        let secret = found.ok_or_else(|| failed(&"does not exist: create it"))?;
        let values = secret.data.unwrap_or_default().into_iter().map(|(name, value)| (name, value.0)).collect();
        let login = Login::new(place, values);
        self.0.lock().insert(key, Known { login: login.clone(), generation, read: now });
        Ok(login)
    }

    /// Forgets the login, so that the next call reads the Secret.
    pub fn forget(&self, hypervisor: &ObjectKey) {
        self.0.lock().remove(hypervisor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube_api::mock::{Script, step};
    use crate::testing::read;
    use serde_json::json;

    const SECRET: &str = "GET /api/v1/namespaces/lab/secrets/kvm1";

    fn hypervisor(generation: i64, secret: Option<&str>) -> WindowsHypervisor {
        let reference = secret.map(|name| json!({"name": name}));
        read(json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "WindowsHypervisor",
            "metadata": {"name": "h1", "namespace": "lab", "generation": generation}, "spec": {"credentialsRef": reference}}))
    }

    fn secret(value: &str) -> serde_json::Value {
        use base64::Engine;
        let encoded = base64::engine::general_purpose::STANDARD.encode(value);
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kvm1", "namespace": "lab"}, "data": {"tls.key": encoded}})
    }

    #[tokio::test]
    async fn it_is_read_at_first_after_a_change_after_a_refusal_and_every_five_minutes() {
        let (client, script) = Script::new((0..4).map(|n| step(SECRET, secret(&n.to_string()))).collect());
        let (cluster, logins) = (Cluster::new(client), Logins::default());
        let at = |second| Timestamp::from_second(second).unwrap();
        let value = async |generation, second| {
            let login = logins.of(&cluster, &hypervisor(generation, Some("kvm1")), at(second)).await.unwrap();
            String::from_utf8(login.get("tls.key").unwrap().to_vec()).unwrap()
        };
        assert_eq!((value(1, 0).await, value(1, 299).await), ("0".into(), "0".into()));
        assert_eq!((value(2, 299).await, value(2, 598).await), ("1".into(), "1".into()), "the object has changed");
        assert_eq!(value(2, 599).await, "2", "five minutes");
        logins.forget(&ObjectKey::new("lab", "h1"));
        assert_eq!(value(2, 600).await, "3", "it was not accepted");
        assert_eq!(script.seen().len(), 4);
        assert_eq!(logins.of(&cluster, &hypervisor(3, None), at(700)).await, Ok(Login::default()));
    }
}
