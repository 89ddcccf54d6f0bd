//! Calico, whose operator is configured for Windows nodes.

use serde_json::json;

use super::{Account, named};
use crate::calico_side::{ENDPOINT, INSTALLATIONS, RECORDING, definitions, tunnel};
use crate::linux_side::{COMPATIBLE, LIMIT, LINUX_SIDE};
use crate::rights::role::Right;
use crate::workers::Workers;
use crate::world::{self, Capw, ControlPlane, Kind, Options, condition, step, wait_for};

const FELIX: Kind = Kind::new("crd.projectcalico.org/v1", "felixconfigurations");
const ADDRESSES: Kind = Kind::new("projectcalico.org/v3", "ipamconfigurations");
/// API groups of Calico and of its operator.
const GROUPS: [&str; 3] = ["operator.tigera.io", "crd.projectcalico.org", "projectcalico.org"];
/// Resources of other Calico installations: those without its API server, or with an operator that reports its status.
const NOT_SERVED: [&str; 2] = ["ipamconfigs", "tigerastatuses"];

#[test]
fn a_missing_right_to_calico_is_named_and_it_goes_on_once_it_is_granted() {
    world::run(async {
        let cp = ControlPlane::start(Options::default().named("least-rights-calico")).await;
        cp.apply_objects(&definitions()).await;
        cp.apply_recording(RECORDING).await;
        tunnel(&cp, "Always", "VXLAN").await;
        let _capw = Capw::start(&cp, &["--image=registry.example.com/capw:v0"]).await;
        let workers = Workers { replicas: 0, ..Workers::new("least", &cp).await };
        workers.apply(&cp).await;
        let account = Account::of(&cp, workers.name(&workers.cluster)).await;
        let mut silent = Vec::new();
        let mut tried = account.of_groups(|group| GROUPS.contains(&group));
        tried.retain(|right| !NOT_SERVED.contains(&right.resource.as_str()));
        assert!(tried.len() > 10, "only {} rights are tried", tried.len());
        for right in tried {
            if !without(&account, &right).await {
                silent.push(right.name());
            }
        }
        assert_eq!(silent, [""; 0], "no condition names them when they are missing");
    });
}

/// Whether a condition or event names the right while CAPW has to fix all problems without it.
async fn without(account: &Account<'_>, right: &Right) -> bool {
    not_told(account.cp).await;
    account.grant_all_but(right).await;
    account.set(json!({"spec": {"components": {"mode": "Report", "linuxSide": "Change"}}})).await;
    let told = put_right(account, Some(right)).await;
    account.grant_all().await;
    if told.is_some() {
        account.trigger().await;
        put_right(account, None).await;
    }
    // CAPW would see watched objects without the right.
    account.set(json!({"spec": {"components": {"mode": "Off", "linuxSide": "Report"}}})).await;
    let is_left = |object: &_| [LINUX_SIDE, COMPATIBLE].iter().all(|kind| condition(object, kind).is_none()).then_some(());
    account.cp.wait_object(Kind::WINDOWS_CLUSTER, &account.cluster, "the network is not read any more", LIMIT, is_left).await;
    step(format!("without `{}`: {told:?}", right.name()));
    told.is_some()
}

/// Sets Calico back to its state before any change, with a tunnel that Windows nodes cannot use.
async fn not_told(cp: &ControlPlane) {
    let annotations = json!({"annotations": {"infrastructure.cluster.x-k8s.io/linux-side-changed": null}});
    let installation = json!({"serviceCIDRs": null, "windowsNodes": null, "calicoNetwork": {"windowsDataplane": null}});
    for (kind, spec) in [(INSTALLATIONS, installation), (FELIX, json!({"vxlanVNI": 1})), (ADDRESSES, json!({"strictAffinity": false}))] {
        cp.patch(kind, "default", &json!({"metadata": annotations, "spec": spec})).await.unwrap_or_else(|e| panic!("{}: {e}", kind.plural));
    }
    cp.kubectl(&["-n", "tigera-operator", "delete", "configmap", ENDPOINT, "--ignore-not-found"]).await;
}

/// Waits until all is fixed, or until a condition names the right: returns its message.
async fn put_right(account: &Account<'_>, missing: Option<&Right>) -> Option<String> {
    wait_for("Calico is told of Windows nodes, or a condition says why not", LIMIT, || async {
        let object = account.object().await?;
        let is_told = [LINUX_SIDE, COMPATIBLE].iter().all(|kind| condition(&object, kind).is_some_and(|said| said["status"] == "True"));
        match named(&object, missing) {
            Some(said) => Ok(Some(said)),
            None if is_told => Ok(None),
            None => Err(object["status"].clone()),
        }
    })
    .await
}
