//! How a pool replaces, removes and judges its machines.

use std::borrow::Cow;

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A number of machines, e.g. `2`, or a share of the desired number, e.g. `25%`.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(untagged, expecting = "neither a number of machines, e.g. 2, nor a share of them, e.g. \"25%\"")]
pub enum Amount {
    Count(i32),
    Share(String),
}

impl Amount {
    /// The number of machines out of `total`; a share is rounded up.
    pub fn up(&self, total: usize) -> usize {
        self.hundredths(total).div_ceil(100)
    }

    /// The number of machines out of `total`; a share is rounded down.
    pub fn down(&self, total: usize) -> usize {
        self.hundredths(total) / 100
    }

    /// The number in hundredths of a machine. The schema admits no negative number and no share above 100%: they count as 0 and as 100%.
    fn hundredths(&self, total: usize) -> usize {
        match self {
            Self::Count(count) => usize::try_from(*count).unwrap_or_default().saturating_mul(100),
            Self::Share(share) => share.strip_suffix('%').and_then(|s| s.parse::<usize>().ok()).unwrap_or_default().min(100) * total,
        }
    }
}

impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // Without `nullable`, kube would set it to true where the field has a default.
        json_schema!({ "x-kubernetes-int-or-string": true, "nullable": false, "minimum": 0, "maximum": 10000, "maxLength": 4, "pattern": "^(100|[1-9]?[0-9])%$" })
    }
}

/// How outdated machines are replaced: new ones are created and old ones removed, in batches within both limits.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!((self.maxSurge == 0 || self.maxSurge == '0%') && (self.maxUnavailable == 0 || self.maxUnavailable == '0%'))").message("maxSurge and maxUnavailable are both 0, so no machine could ever be replaced: set maxSurge to 1 to make the new one first, or maxUnavailable to 1 to remove the old one first"))]
pub struct Strategy {
    /// Machines above `replicas` during a replacement, as a number or a share that is rounded up. A machine counts until its VM is deleted. Default: 1.
    #[serde(default = "one")]
    pub max_surge: Amount,
    /// Machines below `replicas` that may be missing during a replacement, as a number or a share that is rounded down. Default: 0.
    #[serde(default = "none")]
    pub max_unavailable: Amount,
    /// Which outdated machines are replaced first. Unavailable ones may always be replaced at once.
    #[serde(default)]
    pub order: Order,
}

impl Default for Strategy {
    fn default() -> Self {
        Self { max_surge: one(), max_unavailable: none(), order: Order::default() }
    }
}

fn one() -> Amount {
    Amount::Count(1)
}

fn none() -> Amount {
    Amount::Count(0)
}

/// Which outdated machines are replaced first.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum Order {
    /// The oldest machines.
    #[default]
    Oldest,
    /// The machines whose Node is not Ready, then the oldest.
    NotReady,
    /// The machines with the lowest Windows build, then the oldest.
    Build,
}

/// Which machines are removed when there are too many. Machines with the annotation `cluster.x-k8s.io/delete-machine` always come first,
/// then outdated machines, then machines that failed or are not ready.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum DeletePolicy {
    /// The newest machines.
    #[default]
    Newest,
    /// The oldest machines.
    Oldest,
}

/// How failed machines are replaced automatically.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// Machines that may be unhealthy at once, as a number or a share that is rounded up. While there are more, none is replaced, because the cause is probably elsewhere. `0` disables replacement. Default: 40%.
    #[serde(default = "forty_percent")]
    pub max_unhealthy: Amount,
    /// Seconds that a Node may be not Ready before its machine counts as failed, 60 to 604800. Only without Cluster API, which has MachineHealthChecks for this. Default: never, because the Node may come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 604_800))]
    pub not_ready_seconds: Option<i64>,
}

impl Default for Health {
    fn default() -> Self {
        Self { max_unhealthy: forty_percent(), not_ready_seconds: None }
    }
}

fn forty_percent() -> Amount {
    Amount::Share("40%".into())
}

/// How the Node of a machine is cordoned and drained, as `kubectl drain` does, in a pool without Cluster API. With Cluster API, `spec.deletion` of the Machine decides.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Drain {
    /// Seconds after its deletion until a machine is removed even if pods are left, 0 to 604800. Default: 0, which waits forever, as Cluster API does.
    #[serde(default)]
    #[schemars(range(min = 0, max = 604_800))]
    pub timeout_seconds: i64,
    /// Seconds beyond its grace period after which a pod that is stuck in termination is deleted by force, 0 to 86400; 0 never does. Default: 300.
    #[serde(default = "five_minutes")]
    #[schemars(range(min = 0, max = 86_400))]
    pub hung_pod_seconds: i64,
}

impl Default for Drain {
    fn default() -> Self {
        Self { timeout_seconds: 0, hung_pod_seconds: five_minutes() }
    }
}

fn five_minutes() -> i64 {
    300
}

/// Bounds for cluster-autoscaler.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.minReplicas <= self.maxReplicas").message("minReplicas must not be more than maxReplicas"))]
pub struct Autoscaling {
    /// Minimum number of machines, 0 to 10000.
    #[serde(default)]
    #[schemars(range(min = 0, max = 10_000))]
    pub min_replicas: i32,
    /// Maximum number of machines, 1 to 10000.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_replicas: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_in_favour_of_the_user() {
        let share = |text: &str| Amount::Share(text.into());
        for (amount, total, up, down) in [
            (Amount::Count(2), 10, 2, 2),
            (Amount::Count(-1), 10, 0, 0),
            (share("25%"), 10, 3, 2),
            (share("100%"), 3, 3, 3),
            (share("0%"), 3, 0, 0),
            (share("1%"), 0, 0, 0),
            (share("x"), 3, 0, 0),
        ] {
            assert_eq!((amount.up(total), amount.down(total)), (up, down), "{amount:?} of {total}");
        }
    }
}
