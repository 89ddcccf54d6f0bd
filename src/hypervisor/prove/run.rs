//! The name of a run, which determines the names of its VMs: the leftovers of a run can be found by it.

use std::fmt;
use std::str::FromStr;

use crate::api::name::VmUuid;
use crate::vm::MachineKey;

/// The length of a run's name, in characters.
pub const LENGTH: usize = 8;
/// The longest name that a WindowsMachine may have.
const LONGEST: usize = 253;
/// The namespace in the marks of the VMs' Clusters; no such Cluster exists.
const NAMESPACE: &str = "capw-prove";

/// One run. Its name is in the names and marks of all its VMs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run(String);

/// Two machines with one name in two clusters.
#[derive(Clone, Copy, Debug)]
pub enum Twin {
    One,
    Other,
}

impl FromStr for Run {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() == LENGTH && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("{text:?} is not the name of a run: it has {LENGTH} characters of a-z and 0-9, and stands in the names of its VMs, prove-RUN-1"))
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Run {
    /// The machine of the case with that number.
    pub fn key(&self, number: usize) -> MachineKey {
        self.named(&number.to_string(), &self.cluster(), format!("prove-{self}-{number}"))
    }

    /// A machine with a name as long as Kubernetes admits.
    pub fn twin(&self, twin: Twin) -> MachineKey {
        let (id, cluster) = match twin {
            Twin::One => ("one", self.cluster()),
            Twin::Other => ("other", self.other_cluster()),
        };
        self.named(id, &cluster, format!("{:x<LONGEST$}", format!("prove-{self}-")))
    }

    /// The same machine with another cluster in its key.
    pub fn elsewhere(&self, key: &MachineKey) -> MachineKey {
        MachineKey { cluster: self.other_cluster(), ..key.clone() }
    }

    /// The machines of that many cases.
    pub fn keys(&self, cases: usize) -> Vec<MachineKey> {
        (1..=cases).map(|number| self.key(number)).chain([Twin::One, Twin::Other].map(|twin| self.twin(twin))).collect()
    }

    /// Whether this run created the VM with this mark.
    pub fn has_made(&self, key: &MachineKey) -> bool {
        [self.cluster(), self.other_cluster()].contains(&key.cluster)
    }

    /// The Cluster in the marks.
    pub fn cluster(&self) -> String {
        format!("{NAMESPACE}/{self}")
    }

    /// How a person removes the leftovers.
    pub fn remedy(&self) -> String {
        format!("`capw hypervisor prove -f FILE --remove {self}` removes what is left")
    }

    fn other_cluster(&self) -> String {
        format!("{NAMESPACE}/{self}-other")
    }

    fn named(&self, id: &str, cluster: &str, name: String) -> MachineKey {
        MachineKey { vm: VmUuid::of(&format!("{NAMESPACE}/{self}/{id}")), cluster: cluster.to_owned(), name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_machines_of_a_run_follow_from_its_name_and_differ() {
        let (run, other): (Run, Run) = ("k3x9d0aa".parse().unwrap(), "k3x9d0ab".parse().unwrap());
        let keys = run.keys(13);
        let all: HashSet<VmUuid> = keys.iter().chain(&other.keys(13)).map(|key| key.vm).collect();
        assert_eq!((keys.len(), all.len()), (15, 30));
        assert!(keys.iter().all(|key| run.has_made(key) && !other.has_made(key) && key.name.starts_with("prove-k3x9d0aa-")), "{keys:?}");
        let [one, two] = [Twin::One, Twin::Other].map(|twin| run.twin(twin));
        assert!(one.name == two.name && one.name.len() == 253 && one.cluster != two.cluster && one.vm != two.vm);
        let foreign = run.elsewhere(&keys[0]);
        assert!(foreign.vm == keys[0].vm && foreign.cluster != keys[0].cluster);
    }

    #[test]
    fn what_is_no_name_of_a_run_is_refused_with_the_rule() {
        for text in ["", "k3x9", "K3X9D0AA", "k3x9d0a/", "prove-k3x9d0aa-1"] {
            assert!(text.parse::<Run>().unwrap_err().contains("prove-RUN-1"), "{text}");
        }
    }
}
