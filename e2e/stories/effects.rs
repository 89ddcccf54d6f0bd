//! CAPW's external effects, in order, as the audit log and the hypervisor's files show them. This file must not know the purpose of an effect.

use std::collections::{BTreeMap, BTreeSet};

use crate::workers::REMOTE_USER;
use crate::world::{AuditEvent, AuditMark, Capw, ControlPlane, SimulatedVm, simulated_vms};

/// The effects in the life of a machine and its cluster, roughly in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    HypervisorReported,
    ClusterReported,
    KubeconfigWritten,
    EndpointSet,
    ControlPlaneReported,
    MachineAdopted,
    ConfigAdopted,
    JoinRightsGiven,
    TokenMade,
    DataSecretMade,
    ConfigReported,
    VmMade,
    ConfigDriveAttached,
    VmOn,
    ProviderIdSet,
    MachineReported,
    RequestApproved,
    TokenDeleted,
    VmOff,
    VmGone,
    MachineReleased,
    RequestDeleted,
    ConfigReleased,
}

impl Effect {
    /// All effects.
    pub const ALL: [Self; 23] = [
        Self::HypervisorReported,
        Self::ClusterReported,
        Self::KubeconfigWritten,
        Self::EndpointSet,
        Self::ControlPlaneReported,
        Self::MachineAdopted,
        Self::ConfigAdopted,
        Self::JoinRightsGiven,
        Self::TokenMade,
        Self::DataSecretMade,
        Self::ConfigReported,
        Self::VmMade,
        Self::ConfigDriveAttached,
        Self::VmOn,
        Self::ProviderIdSet,
        Self::MachineReported,
        Self::RequestApproved,
        Self::TokenDeleted,
        Self::VmOff,
        Self::VmGone,
        Self::MachineReleased,
        Self::RequestDeleted,
        Self::ConfigReleased,
    ];
}

/// A reader that continues where it stopped the last time.
#[derive(Debug, Default)]
pub struct Effects {
    mark: AuditMark,
    vms: BTreeMap<String, SimulatedVm>,
    /// Objects with our finalizer, and the subset whose provider ID is set too.
    adopted: BTreeSet<String>,
    identified: BTreeSet<String>,
}

impl Effects {
    /// Returns the effects since the last call, oldest first, with the name of the object.
    pub fn next(&mut self, cp: &ControlPlane, capw: &Capw) -> Vec<(Effect, String)> {
        let events = cp.audit_next(&mut self.mark);
        let mut effects: Vec<(Effect, String)> =
            events.iter().filter(|event| event.is_write() && may_be_done(event)).filter_map(|e| self.of(e)).collect();
        effects.extend(self.of_vms(&simulated_vms(capw.state())));
        effects
    }

    fn of(&mut self, event: &AuditEvent) -> Option<(Effect, String)> {
        // Core uses the same kubeconfig, with its own user agent.
        let remote = event.user == REMOTE_USER && !event.user_agent.contains("cluster-api");
        if event.user != Capw::USER && !remote {
            return None;
        }
        let name = format!("{}/{}", event.namespace, event.name);
        let effect = match (event.verb.as_str(), event.resource.as_str(), event.subresource.as_str()) {
            (_, "windowshypervisors", "status") => Effect::HypervisorReported,
            (_, "windowsclusters", "status") => Effect::ClusterReported,
            (_, "externalcontrolplanes", "status") => Effect::ControlPlaneReported,
            (_, "externalcontrolplanes", "") => Effect::EndpointSet,
            (_, "windowsmachines", "status") => Effect::MachineReported,
            (_, "windowsmachines", "") if self.adopted.insert(name.clone()) => Effect::MachineAdopted,
            (_, "windowsmachines", "") if self.identified.insert(name.clone()) => Effect::ProviderIdSet,
            (_, "windowsmachines", "") => Effect::MachineReleased,
            (_, "windowsbootstrapconfigs", "status") => Effect::ConfigReported,
            (_, "windowsbootstrapconfigs", "") if self.adopted.insert(format!("config {name}")) => Effect::ConfigAdopted,
            (_, "windowsbootstrapconfigs", "") => Effect::ConfigReleased,
            ("delete", "secrets", _) if remote => Effect::TokenDeleted,
            ("create", "secrets", _) if remote => Effect::TokenMade,
            ("create" | "patch", "secrets", _) if name.ends_with("-kubeconfig") || name.ends_with("-ca") => Effect::KubeconfigWritten,
            ("create" | "patch", "secrets", _) if !remote => Effect::DataSecretMade,
            (_, "certificatesigningrequests", "approval") => Effect::RequestApproved,
            ("delete", "certificatesigningrequests", _) => Effect::RequestDeleted,
            (_, "clusterroles" | "clusterrolebindings" | "roles" | "rolebindings", _) if remote => Effect::JoinRightsGiven,
            _ => return None,
        };
        Some((effect, name))
    }

    fn of_vms(&mut self, now: &[SimulatedVm]) -> Vec<(Effect, String)> {
        let now: BTreeMap<String, SimulatedVm> = now.iter().filter(|vm| vm.is_whole()).map(|vm| (vm.directory.clone(), vm.clone())).collect();
        let mut effects = Vec::new();
        for (id, vm) in &now {
            let before = self.vms.get(id);
            let was = |state: fn(&SimulatedVm) -> bool| before.is_some_and(state);
            let mut add = |happened: bool, effect| {
                if happened {
                    effects.push((effect, vm.name.clone()))
                }
            };
            add(before.is_none(), Effect::VmMade);
            add(vm.seeded && !was(|vm| vm.seeded), Effect::ConfigDriveAttached);
            add(vm.power == "On" && !was(|vm| vm.power == "On"), Effect::VmOn);
            add(vm.power != "On" && was(|vm| vm.power == "On"), Effect::VmOff);
        }
        effects.extend(self.vms.iter().filter(|(id, _)| !now.contains_key(*id)).map(|(_, vm)| (Effect::VmGone, vm.name.clone())));
        self.vms = now;
        effects
    }
}

/// Whether the API server executed the request, or may have: it answers 504 to a client that was killed, and a write that happens once in a cluster's
/// life is not repeated after it succeeded. The order of its writes shows whether a machine is adopted or identified, so only writes that certainly
/// happened count there.
fn may_be_done(event: &AuditEvent) -> bool {
    event.code < 300 || event.code == 504 && !(event.resource.starts_with("windows") && event.subresource.is_empty())
}
