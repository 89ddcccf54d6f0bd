//! The network of a Flannel cluster.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::{Account, named};
use crate::linux_side::{BROUGHT, COMPONENTS, LIMIT, PODS, RECORDING, UNVERIFIED, flanneld_uses, gone, probes};
use crate::rights::role::Right;
use crate::workers::Workers;
use crate::world::{self, Capw, ControlPlane, Kind, Options, condition, step, text, wait_for};

/// Flannel's settings with which Windows nodes can share its network.
const SETTINGS: &str = r#"{"Network": "10.244.0.0/16", "EnableNFTables": false, "Backend": {"Type": "vxlan", "VNI": 4096, "Port": 4789}}"#;
/// API groups of other networks, which a cluster with Flannel does not serve.
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
        let trials = Trials { account: Account::of(&cp, workers.name(&workers.cluster)).await, node: node.to_owned() };
        let silent = tokio::select! {
            silent = trials.all() => silent,
            () = kubelet(&cp) => panic!("a kubelet does not end"),
        };
        assert_eq!(silent, [""; 0], "no condition names them when they are missing");
    });
}

/// The account and the one node of its cluster.
struct Trials<'a> {
    account: Account<'a>,
    node: String,
}

impl Trials<'_> {
    /// Withholds each right in turn. Returns the rights that no condition or event has named.
    async fn all(&self) -> Vec<String> {
        let tried = self.account.of_groups(|group| !OTHER_NETWORKS.contains(&group));
        assert!(tried.len() > 50, "only {} rights are tried", tried.len());
        let mut silent = Vec::new();
        for right in tried {
            if !self.without(&right).await {
                silent.push(right.name());
            }
        }
        silent
    }

    /// Whether a condition or event names the right while the network is installed or removed without it.
    async fn without(&self, right: &Right) -> bool {
        let account = &self.account;
        account.grant_all_but(right).await;
        account.cp.kubectl(&["taint", "node", &self.node, &format!("{UNVERIFIED}=:NoSchedule"), "--overwrite"]).await;
        account.set(json!({"spec": {"components": {"mode": "Auto"}}})).await;
        let brought = self.brought(Some(right)).await;
        if brought.is_some() {
            account.grant_all().await;
            account.trigger().await;
            self.brought(None).await;
            account.grant_all_but(right).await;
        }
        account.set(json!({"spec": {"components": {"mode": "Off"}}})).await;
        let removed = self.removed(Some(right)).await;
        account.grant_all().await;
        if removed.is_some() {
            account.trigger().await;
            self.removed(None).await;
        }
        step(format!("without `{}`: {brought:?}, {removed:?}", right.name()));
        brought.or(removed).is_some()
    }

    /// Waits until the network is installed and the node is verified, or until a condition names the right: returns its message.
    async fn brought(&self, missing: Option<&Right>) -> Option<String> {
        wait_for("the network is brought, or a condition says why not", LIMIT, || async {
            let object = self.account.object().await?;
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

    /// Waits until all components are removed, or until a condition names the right: returns its message.
    async fn removed(&self, missing: Option<&Right>) -> Option<String> {
        wait_for("what was brought is gone, or a condition says why not", LIMIT, || async {
            let object = self.account.object().await?;
            let left = gone::left(self.account.cp, &self.account.cluster).await;
            match named(&object, missing) {
                Some(said) => Ok(Some(said)),
                None if left.is_empty() => Ok(None),
                None => Err(json!([left, object["status"]])),
            }
        })
        .await
    }
}

/// Plays the kubelet: pods of components run and become ready, connections succeed, and deleted pods disappear.
async fn kubelet(cp: &ControlPlane) {
    loop {
        for pod in cp.list(PODS, Some(BROUGHT)).await {
            let name = text(&pod, "/metadata/name");
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                // The pod may be deleted by now.
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
