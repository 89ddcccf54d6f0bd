//! How the node joins the cluster.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// The bootstrap token of a machine.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.tokenMaxAgeSeconds >= self.tokenTTLSeconds").message("tokenMaxAgeSeconds (default 7200) must not be less than tokenTTLSeconds (default 3600): raise the one or lower the other"))]
pub struct Join {
    /// Lifetime of a token in seconds unless it is refreshed, 60 s to 1 day. Default: 3600. The token is refreshed until the machine joins, and deleted once the node's first certificate is issued.
    #[serde(default = "default_ttl", rename = "tokenTTLSeconds")]
    #[schemars(range(min = 60, max = 86_400))]
    pub token_ttl_seconds: i64,
    /// How long the token is refreshed; after that the machine is reported as `TokenExpired`. 60 s to 7 days. Default: 7200.
    #[serde(default = "default_max_age")]
    #[schemars(range(min = 60, max = 604_800))]
    pub token_max_age_seconds: i64,
}

impl Default for Join {
    fn default() -> Self {
        Self { token_ttl_seconds: default_ttl(), token_max_age_seconds: default_max_age() }
    }
}

fn default_ttl() -> i64 {
    3_600
}

fn default_max_age() -> i64 {
    7_200
}
