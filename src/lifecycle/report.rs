//! What the status of each kind becomes. Pure: the controllers write it only if it differs from what is stored.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::guest;
use super::machine::{chosen, host_name};
use super::paused_condition;
use crate::api::bootstrap_config::{BootstrapInitialization, WindowsBootstrapConfig, WindowsBootstrapConfigStatus};
use crate::api::condition::{self, ConditionType, Desired};
use crate::api::control_plane::{ControlPlaneInitialization, ExternalControlPlane, ExternalControlPlaneStatus};
use crate::api::machine::{MachineAddress, MachineAddressType, MachineInitialization, WindowsMachine, WindowsMachineStatus};
use crate::vm::{Journal, Present};

/// `said` on top of `current`; whoever says anything also says whether the object is paused.
pub fn conditions(current: &[Condition], said: &[Desired], generation: Option<i64>, now: Timestamp) -> Vec<Condition> {
    if let [only] = said
        && still_paused(current, only)
    {
        // Not even the generation is noted: nothing is written about what is paused, whatever changes in it.
        return current.to_vec();
    }
    let mut said = said.to_vec();
    let stale_pause = condition::is_true(current, ConditionType::Paused);
    if (stale_pause || !said.is_empty()) && !said.iter().any(|d| d.type_ == ConditionType::Paused) {
        said.push(paused_condition(None));
    }
    condition::apply(current, &said, generation, now)
}

/// Whether `said` is that the object is paused, as is already known.
fn still_paused(current: &[Condition], said: &Desired) -> bool {
    let known = condition::find(current, ConditionType::Paused);
    said.type_ == ConditionType::Paused && said.status == Some(true) && known.is_some_and(|c| c.status == "True" && c.message == said.message)
}

/// Status of a WindowsMachine: `present` is what the hypervisor showed when the VM runs, else `None`.
pub fn machine(
    object: &WindowsMachine,
    said: &[Desired],
    present: Option<&Present>,
    journal: Option<Journal>,
    now: Timestamp,
) -> WindowsMachineStatus {
    let mut status = object.status.clone().unwrap_or_default();
    status.conditions = conditions(&status.conditions, said, object.metadata.generation, now);
    if let Some(journal) = journal {
        status.journal = journal;
    }
    if let Some(vm) = present {
        status.initialization = Some(MachineInitialization { provisioned: Some(true) });
        status.failure_domain = chosen(object);
        let host = host_name(object).ok().map(|h| h.to_string());
        let name = host.iter().map(|h| MachineAddress { type_: MachineAddressType::Hostname, address: h.clone() });
        let addresses = vm.addresses.iter().map(|a| MachineAddress { type_: MachineAddressType::InternalIp, address: a.clone() });
        // A guest that reboots has no address for a moment: the last known ones stay.
        if !vm.addresses.is_empty() || status.addresses.is_empty() {
            status.addresses = name.chain(addresses).collect();
        }
        status.host_name = host;
        status.powered_on_at.get_or_insert(Time(whole_second(now)));
        status.bootstrap = guest::told(status.bootstrap.as_ref(), vm.report.as_ref(), now);
    }
    status
}

/// The bootstrap token of a report: public half, creation and expiry.
#[derive(Clone, Debug)]
pub struct Token {
    pub id: String,
    pub created: Timestamp,
    pub expires: Timestamp,
}

/// Status of a WindowsBootstrapConfig: `secret` once it exists, `token` when it was made or extended.
pub fn bootstrap(
    object: &WindowsBootstrapConfig,
    said: &[Desired],
    secret: Option<&str>,
    token: Option<Token>,
    now: Timestamp,
) -> WindowsBootstrapConfigStatus {
    let mut status = object.status.clone().unwrap_or_default();
    status.conditions = conditions(&status.conditions, said, object.metadata.generation, now);
    if let Some(secret) = secret {
        status.data_secret_name = Some(secret.to_owned());
        status.initialization = Some(BootstrapInitialization { data_secret_created: Some(true) });
    }
    if let Some(token) = token {
        status.token_id = Some(token.id);
        status.token_created_at = Some(Time(whole_second(token.created)));
        status.token_expires_at = Some(Time(whole_second(token.expires)));
    }
    status
}

/// Status of an ExternalControlPlane: `answer` is version and digest of the kubeconfig once the API server has answered.
pub fn control_plane(object: &ExternalControlPlane, said: &[Desired], answer: Option<(&str, &str)>, now: Timestamp) -> ExternalControlPlaneStatus {
    let mut status = object.status.clone().unwrap_or_default();
    status.conditions = conditions(&status.conditions, said, object.metadata.generation, now);
    status.external_managed_control_plane = Some(true);
    if let Some((version, digest)) = answer {
        status.initialization = Some(ControlPlaneInitialization { control_plane_initialized: Some(true) });
        status.version = Some(version.to_owned());
        status.checked_kubeconfig = Some(digest.to_owned());
    }
    status
}

/// The API server stores whole seconds: anything finer would differ from what it gives back, and be written again.
pub(super) fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::condition::Reason;

    #[test]
    fn what_is_paused_is_said_once_whatever_changes() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let ready = [Desired::yes(ConditionType::Ready, Reason::Provisioned)];
        let paused = [paused_condition(Some("Cluster c1 has spec.paused: true".into()))];
        let before = conditions(&[], &ready, Some(1), at(1));
        let said = conditions(&before, &paused, Some(1), at(2));
        assert!(condition::is_true(&said, ConditionType::Paused) && condition::is_true(&said, ConditionType::Ready));
        assert_eq!(conditions(&said, &paused, Some(2), at(3)), said);
        let other = [paused_condition(Some("the annotation cluster.x-k8s.io/paused is set".into()))];
        assert_ne!(conditions(&said, &other, Some(2), at(3)), said);
        let after = conditions(&said, &ready, Some(2), at(4));
        assert!(!condition::is_true(&after, ConditionType::Paused));
        assert_eq!(condition::find(&after, ConditionType::Ready).unwrap().observed_generation, Some(2));
    }
}
