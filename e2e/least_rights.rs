//! Story *least rights*: the network of a Flannel cluster is brought to a Windows node and taken away, while the account of the kubeconfig lacks one
//! right of `config/workload/network.yaml` after the other. A condition names what is missing, and it goes on once that is granted.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use uuid::Uuid;

use crate::linux_side::{BROUGHT, COMPONENTS, LIMIT, PODS, RECORDING, UNVERIFIED, flanneld_uses, gone, probes};
use crate::rights::role::Right;
use crate::workers::Workers;
use crate::world::{self, Capw, ControlPlane, Kind, Options, condition, step, text, wait_for};

const CLUSTER_ROLES: Kind = Kind::new("rbac.authorization.k8s.io/v1", "clusterroles");
const ROLE: &str = "capw-remote-network";
/// Other roles of the account, which may hold the same right.
const OTHERS: [&str; 2] = ["capw-remote-nodes", "capw-remote-cluster-api"];
/// Of Flannel, so that Windows nodes can share its network.
const SETTINGS: &str = r#"{"Network": "10.244.0.0/16", "EnableNFTables": false, "Backend": {"Type": "vxlan", "VNI": 4096, "Port": 4789}}"#;
/// Kinds of other networks: a cluster with Flannel does not serve them.
const OTHER_NETWORKS: [&str; 6] =
    ["operator.tigera.io", "crd.projectcalico.org", "projectcalico.org", "crd.antrea.io", "config.openshift.io", "operator.openshift.io"];

#[test]
fn a_missing_right_is_named_and_it_goes_on_once_it_is_granted() {
    world::run(async {
        let options = Options { scheduler: true, ..Options::default() };
        let cp = ControlPlane::start(options.named("least-rights")).await;
        let _capw = Capw::start(&cp, &["--image=registry.example.com/capw:v0"]).await;
        let workers = Workers { replicas: 1, ..Workers::new("least", &cp).await };
        workers.apply(&cp).await;
        cp.apply_recording(RECORDING).await;
        cp.patch(Kind::CONFIG_MAP, "kube-flannel/kube-flannel-cfg", &json!({"data": {"net-conf.json": SETTINGS}})).await.expect("Flannel's settings");
        flanneld_uses(&cp, 4096).await;
        let machines = workers.wait_settled(&cp, &cp, LIMIT).await;
        let node = text(&machines[0], "/status/nodeRef/name");
        let trials = Trials { cp: &cp, name: workers.name(&workers.cluster), node: node.to_owned() };
        let silent = tokio::select! {
            silent = trials.all() => silent,
            () = kubelet(&cp) => panic!("a kubelet does not end"),
        };
        assert_eq!(silent, [""; 0], "no condition names them when they are missing");
    });
}

/// The WindowsCluster and its one node.
struct Trials<'a> {
    cp: &'a ControlPlane,
    name: String,
    node: String,
}

impl Trials<'_> {
    /// Takes each right away in turn. Gives those that nothing has named.
    async fn all(&self) -> Vec<String> {
        let all = self.granted(ROLE).await;
        let mut elsewhere = Vec::new();
        for other in OTHERS {
            elsewhere.extend(self.granted(other).await);
        }
        let mut silent = Vec::new();
        let is_tried = |right: &&Right| !OTHER_NETWORKS.contains(&right.group.as_str()) && !elsewhere.iter().any(|other: &Right| other.has(right));
        let tried: Vec<&Right> = all.iter().filter(is_tried).collect();
        assert!(tried.len() > 50, "only {} of {} rights are tried", tried.len(), all.len());
        for right in tried {
            if !self.without(right, &all).await {
                silent.push(right.name());
            }
        }
        silent
    }

    async fn granted(&self, role: &str) -> Vec<Right> {
        let mut role = self.cp.get(CLUSTER_ROLES, role).await.expect("a role of the account");
        // Whether the API server answers is asked at an address, which is no resource.
        role["rules"].as_array_mut().expect("rules").retain(|rule| rule["nonResourceURLs"].is_null());
        Right::all(&role)
    }

    /// Whether something names the right while the network is brought or taken away without it.
    async fn without(&self, right: &Right, all: &[Right]) -> bool {
        let others: Vec<Right> = all.iter().filter(|other| *other != right).cloned().collect();
        self.grant(&others).await;
        self.cp.kubectl(&["taint", "node", &self.node, &format!("{UNVERIFIED}=:NoSchedule"), "--overwrite"]).await;
        self.set(json!({"spec": {"components": {"mode": "Auto"}}})).await;
        let brought = self.brought(Some(right)).await;
        if brought.is_some() {
            self.grant(all).await;
            self.look_again().await;
            self.brought(None).await;
            self.grant(&others).await;
        }
        self.set(json!({"spec": {"components": {"mode": "Off"}}})).await;
        let removed = self.removed(Some(right)).await;
        self.grant(all).await;
        if removed.is_some() {
            self.look_again().await;
            self.removed(None).await;
        }
        step(format!("without `{}`: {brought:?}, {removed:?}", right.name()));
        brought.or(removed).is_some()
    }

    async fn grant(&self, rights: &[Right]) {
        let rules: Vec<Value> = rights.iter().map(Right::rule).collect();
        self.cp.patch(CLUSTER_ROLES, ROLE, &json!({"rules": rules})).await.expect("the role of the account");
    }

    async fn set(&self, change: Value) {
        self.cp.patch(Kind::WINDOWS_CLUSTER, &self.name, &change).await.expect("the WindowsCluster");
    }

    /// Sooner than by itself: it tries again four times a minute.
    async fn look_again(&self) {
        self.set(json!({"metadata": {"annotations": {"example.com/granted": Uuid::new_v4().to_string()}}})).await;
    }

    /// Waits until the network is brought and the node is verified, or until a condition names the right: what it says.
    async fn brought(&self, missing: Option<&Right>) -> Option<String> {
        wait_for("the network is brought, or a condition says why not", LIMIT, || async {
            let object = self.cp.get(Kind::WINDOWS_CLUSTER, &self.name).await.ok_or_else(|| json!("no WindowsCluster"))?;
            let is_verified = object["status"]["components"]["verified"] == "1/1";
            let is_brought = is_verified && condition(&object, COMPONENTS).is_some_and(|said| said["status"] == "True");
            match named(&object, missing) {
                Some(said) => Ok(Some(said)),
                None if is_brought => Ok(None),
                None => Err(object["status"].clone()),
            }
        })
        .await
    }

    /// Waits until nothing of it is left, or until a condition names the right: what it says.
    async fn removed(&self, missing: Option<&Right>) -> Option<String> {
        wait_for("what was brought is gone, or a condition says why not", LIMIT, || async {
            let object = self.cp.get(Kind::WINDOWS_CLUSTER, &self.name).await.ok_or_else(|| json!("no WindowsCluster"))?;
            let left = gone::left(self.cp, &self.name).await;
            match named(&object, missing) {
                Some(said) => Ok(Some(said)),
                None if left.is_empty() => Ok(None),
                None => Err(json!([left, object["status"]])),
            }
        })
        .await
    }
}

/// What a condition says of the right that is missing.
fn named(object: &Value, missing: Option<&Right>) -> Option<String> {
    let missing = missing?;
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let mut said = conditions.filter(|condition| condition["status"] != "True").map(|condition| text(condition, "/message"));
    said.find(|message| is_named(missing, message)).map(str::to_owned)
}

/// Whether these words of the API server say that a right is missing: for a request, or for a role that an account may not grant.
fn is_named(Right { verb, resource, .. }: &Right, message: &str) -> bool {
    let is_granted = message.contains("not currently held") && message.contains(&format!("Resources:[\"{resource}\"]"));
    is_granted || message.contains(&format!("cannot {verb} resource \"{resource}\""))
}

/// The part of a kubelet: pods of what is brought run and are ready, connections are made, and pods that go are gone.
async fn kubelet(cp: &ControlPlane) {
    loop {
        for pod in cp.list(PODS, Some(BROUGHT)).await {
            let name = text(&pod, "/metadata/name");
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                // It may be gone by now.
                let _ = cp.try_kubectl(&["-n", BROUGHT, "delete", "pod", name, "--force", "--grace-period=0"]).await;
                continue;
            }
            let is_back = name.starts_with("probe-back-");
            if is_back || !text(&pod, "/spec/nodeName").is_empty() {
                let status = probes::status(&pod, is_back, 0);
                if ["phase", "conditions"].iter().any(|field| pod["status"][field] != status[field]) {
                    let _ = cp.patch_status(PODS, &format!("{BROUGHT}/{name}"), &json!({"status": status})).await;
                }
            }
        }
        sleep(Duration::from_millis(500)).await;
    }
}
