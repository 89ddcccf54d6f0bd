//! The choice of a hypervisor for a machine.

use crate::api::condition::Reason;
use crate::api::machine::WindowsMachine;
use crate::domain::identity::chosen;
use crate::domain::owner::TargetCluster;

/// The input of the choice, in addition to the machine itself.
pub struct Places<'a> {
    /// Names of the WindowsHypervisors in the namespace.
    pub hypervisors: &'a [String],
    pub cluster: &'a TargetCluster,
    /// The failure domain of the Machine.
    pub failure_domain: Option<&'a str>,
}

/// Chooses the hypervisor of a machine: the earlier choice, else the Machine's failure domain, else the spec, else the only hypervisor. A
/// new machine is never placed on a hypervisor that its cluster may not use.
pub fn choose(object: &WindowsMachine, places: &Places<'_>) -> Result<String, (Reason, String)> {
    if let Some(name) = chosen(object) {
        return Ok(name);
    }
    if let Some(domain) = places.failure_domain {
        return places.named("Machine spec.failureDomain", domain);
    }
    if let Some(reference) = &object.spec.hypervisor_ref {
        return places.named("spec.hypervisorRef.name", &reference.name);
    }
    let usable: Vec<&String> = places.hypervisors.iter().filter(|name| places.cluster.may_use(name)).collect();
    match usable[..] {
        [only] => Ok(only.clone()),
        _ => {
            let message = format!(
                "spec.hypervisorRef: name one, as this namespace has not exactly one WindowsHypervisor for the cluster ({})",
                listed(usable.into_iter())
            );
            Err((Reason::HypervisorMissing, message))
        }
    }
}

impl Places<'_> {
    /// Checks the hypervisor that a field names, and returns its name.
    fn named(&self, field: &str, name: &str) -> Result<String, (Reason, String)> {
        let is_missing = !self.hypervisors.iter().any(|h| h == name);
        if is_missing {
            let message = format!("{field}: there is no WindowsHypervisor {name:?} in this namespace ({})", listed(self.hypervisors.iter()));
            return Err((Reason::HypervisorMissing, message));
        }
        if !self.cluster.may_use(name) {
            let known = listed(self.cluster.hypervisors.iter());
            let message = format!("{field}: spec.hypervisors of the WindowsCluster does not have {name:?} ({known})");
            return Err((Reason::InvalidSpec, message));
        }
        Ok(name.to_owned())
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() { "there is none".into() } else { format!("there are: {}", names.join(", ")) }
}
