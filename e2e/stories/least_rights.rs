//! Story *least rights*: CAPW brings the network of a cluster to a Windows node and removes it, and configures Calico for Windows nodes, while the
//! kubeconfig's account lacks each right of `config/workload/network.yaml` in turn. A condition names the missing right, and CAPW continues once the
//! right is granted.

mod calico;
mod flannel;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::rights::role::Right;
use crate::world::{ControlPlane, Kind, text};

const ROLE: &str = "capw-remote-network";
/// The account's other roles, which may hold the same right.
const OTHERS: [&str; 2] = ["capw-remote-nodes", "capw-remote-cluster-api"];

/// The account that loses rights, and the WindowsCluster that uses it.
struct Account<'a> {
    cp: &'a ControlPlane,
    /// NAMESPACE/NAME
    cluster: String,
    /// The rights that the account has through its role for the network.
    rights: Vec<Right>,
    /// The rights that the account has through other roles.
    elsewhere: Vec<Right>,
}

impl<'a> Account<'a> {
    async fn of(cp: &'a ControlPlane, cluster: String) -> Self {
        let mut elsewhere = Vec::new();
        for other in OTHERS {
            elsewhere.extend(granted(cp, other).await);
        }
        Self { cp, cluster, rights: granted(cp, ROLE).await, elsewhere }
    }

    /// Returns the rights in these API groups that no other role grants.
    fn of_groups(&self, is_tried: impl Fn(&str) -> bool) -> Vec<Right> {
        let is_its = |right: &&Right| is_tried(&right.group) && !self.elsewhere.iter().any(|other| other.has(right));
        self.rights.iter().filter(is_its).cloned().collect()
    }

    async fn grant_all_but(&self, right: &Right) {
        let others: Vec<&Right> = self.rights.iter().filter(|other| *other != right).collect();
        self.grant(&others).await;
    }

    async fn grant_all(&self) {
        self.grant(&self.rights.iter().collect::<Vec<_>>()).await;
    }

    async fn grant(&self, rights: &[&Right]) {
        let rules: Vec<Value> = rights.iter().map(|right| right.rule()).collect();
        self.cp.patch(Kind::CLUSTER_ROLE, ROLE, &json!({"rules": rules})).await.expect("the role of the account");
    }

    async fn set(&self, change: Value) {
        self.cp.patch(Kind::WINDOWS_CLUSTER, &self.cluster, &change).await.expect("the WindowsCluster");
    }

    /// Triggers a reconcile. Otherwise CAPW retries only four times a minute.
    async fn trigger(&self) {
        self.set(json!({"metadata": {"annotations": {"example.com/granted": Uuid::new_v4().to_string()}}})).await;
    }

    async fn object(&self) -> Result<Value, Value> {
        self.cp.get(Kind::WINDOWS_CLUSTER, &self.cluster).await.ok_or_else(|| json!("no WindowsCluster"))
    }
}

async fn granted(cp: &ControlPlane, role: &str) -> Vec<Right> {
    let mut role = cp.get(Kind::CLUSTER_ROLE, role).await.expect("a role of the account");
    // The health check of the API server uses a URL, which is no resource.
    role["rules"].as_array_mut().expect("rules").retain(|rule| rule["nonResourceURLs"].is_null());
    Right::all(&role)
}

/// Returns the message of a condition that names the missing right.
fn named(object: &Value, missing: Option<&Right>) -> Option<String> {
    let missing = missing?;
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let mut said = conditions.filter(|condition| condition["status"] != "True").map(|condition| text(condition, "/message"));
    said.find(|message| is_named(missing, message)).map(str::to_owned)
}

/// Whether this message of the API server reports a missing right: for a request, or for a role that the account may not grant.
fn is_named(Right { verb, resource, .. }: &Right, message: &str) -> bool {
    let is_granted = message.contains("not currently held") && message.contains(&format!("Resources:[\"{resource}\"]"));
    is_granted || message.contains(&format!("cannot {verb} resource \"{resource}\""))
}
