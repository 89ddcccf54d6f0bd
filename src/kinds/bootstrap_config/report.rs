//! The status of a WindowsBootstrapConfig.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::bootstrap_config::{BootstrapInitialization, WindowsBootstrapConfig, WindowsBootstrapConfigStatus};
use crate::api::condition::Desired;
use crate::domain::conditions::{carry_over, whole_second};

/// A bootstrap token as it is reported: its public half, creation and expiry.
#[derive(Clone, Debug)]
pub struct Token {
    pub id: String,
    pub created: Timestamp,
    pub expires: Timestamp,
    /// UID of the cluster in which the token is valid, if it is known.
    pub cluster_uid: Option<String>,
}

/// The next status of a WindowsBootstrapConfig. `secret` is set once the Secret exists, `token` when the token was created or extended.
pub fn status(
    object: &WindowsBootstrapConfig,
    said: &[Desired],
    secret: Option<&str>,
    token: Option<Token>,
    now: Timestamp,
) -> WindowsBootstrapConfigStatus {
    let mut status = object.status.clone().unwrap_or_default();
    (status.conditions, status.observed_generation) =
        carry_over(&status.conditions, status.observed_generation, said, object.metadata.generation, now);
    if let Some(secret) = secret {
        status.data_secret_name = Some(secret.to_owned());
        status.initialization = Some(BootstrapInitialization { data_secret_created: Some(true) });
    }
    if let Some(token) = token {
        status.cluster_uid = token.cluster_uid.or(status.cluster_uid);
        status.token_id = Some(token.id);
        status.token_created_at = Some(Time(whole_second(token.created)));
        status.token_expires_at = Some(Time(whole_second(token.expires)));
    }
    status
}
