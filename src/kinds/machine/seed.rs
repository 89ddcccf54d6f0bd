//! The seed of a machine for its first start: read from the bootstrap Secret once, and kept in memory while the VM is being created.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;

use super::context::Context;
use super::decide::step::Target;
use crate::api::bootstrap_config::{ANSWER_KEY, CHANNEL_KEY, Channel};
use crate::api::machine::WindowsMachine;
use crate::api::name::{HostName, ObjectKey};
use crate::bootstrap::delivery::{self, Instance};
use crate::kube_api::error::ApiError;
use crate::vm::Seed;

/// Why there is no seed.
#[derive(Debug)]
pub enum SeedError {
    /// The problem with the Secret, as the message of a condition.
    Secret(String),
    Api(ApiError),
}

/// Returns the seed with the data of that Secret.
pub async fn of_secret(ctx: &Context, object: &WindowsMachine, target: &Target, host_name: &HostName, secret: &str) -> Result<Arc<Seed>, SeedError> {
    if let Some(seed) = ctx.seeds.get(target.key.vm) {
        return Ok(seed);
    }
    let namespace = object.namespace().unwrap_or_default();
    let found = match ctx.made_secrets.take(&ObjectKey::new(&namespace, secret)) {
        Some(made) => Some(made),
        None => ctx.management.cluster.get::<Secret>(&namespace, secret).await.map_err(SeedError::Api)?,
    };
    let Some(found) = found else {
        return Err(SeedError::Secret(format!(
            "Secret {namespace}/{secret}, named by the Machine's spec.bootstrap.dataSecretName, does not exist: delete the Machine, or create the Secret"
        )));
    };
    let value = |key: &str| found.data.as_ref().and_then(|data| data.get(key)).map(|value| value.0.as_slice()).filter(|value| !value.is_empty());
    let Some(user_data) = value("value") else {
        return Err(SeedError::Secret(format!("Secret {namespace}/{secret} has no data under the key \"value\": it must hold the bootstrap data")));
    };
    // A Secret of another bootstrap provider, or of a user, names no channel.
    let channel = match value(CHANNEL_KEY).map(String::from_utf8_lossy) {
        None => Channel::default(),
        Some(name) => match Channel::parse(&name) {
            Some(channel) => channel,
            None => {
                let known = Channel::ALL.map(Channel::name).join(", ");
                return Err(SeedError::Secret(format!(
                    "Secret {namespace}/{secret} names the channel {name:?} under the key {CHANNEL_KEY:?}: expected one of {known}"
                )));
            }
        },
    };
    let answer = value(ANSWER_KEY).unwrap_or_default();
    if channel == Channel::Unattend && answer.is_empty() {
        return Err(SeedError::Secret(format!(
            "Secret {namespace}/{secret} has no answer file under the key {ANSWER_KEY:?}, which its channel {channel} needs"
        )));
    }
    let seed = Arc::new(delivery::build(channel, &Instance { vm: target.key.vm, host_name: Some(host_name), user_data, answer }));
    ctx.seeds.keep(target.key.vm, seed.clone());
    Ok(seed)
}
