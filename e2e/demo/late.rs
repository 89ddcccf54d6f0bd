//! Reports the steps that take longer than they should, and where to find the cause. It must not investigate.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The step that a machine, or the Cluster, waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The Cluster has no machine yet, or still exists after its last one.
    Cluster,
    /// A machine has no VM that runs.
    Vm,
    /// The guest of a machine has not become a Node.
    Join,
    /// The Node of a machine is not Ready.
    Ready,
    /// The machine is being deleted.
    Removal,
}

/// The kind of guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guests {
    /// A model of Windows, in this process or in a small Linux.
    Small,
    /// Windows, run natively by the processor.
    Windows,
    /// Windows, whose code QEMU translates.
    Translated,
}

impl Step {
    /// How long the step takes at most where nothing is wrong. `None`: it may take forever.
    pub fn limit(self, guests: Guests) -> Option<Duration> {
        let minutes = match (self, guests) {
            (Self::Vm, _) => 1,
            (Self::Cluster, _) | (Self::Ready, Guests::Small) => 2,
            // The Node becomes Ready with a network plugin, and the demo installs none.
            (Self::Ready, _) => return None,
            (Self::Removal, _) => 4,
            (Self::Join, Guests::Small) => 5,
            (Self::Join, Guests::Windows) => 20,
            (Self::Join, Guests::Translated) => 90,
        };
        Some(Duration::from_secs(60 * minutes))
    }

    fn words(self) -> &'static str {
        match self {
            Self::Cluster => "has no machine, or has not gone after its last one,",
            Self::Vm => "has no VM that runs",
            Self::Join => "has not become a Node",
            Self::Ready => "has a Node that is not Ready",
            Self::Removal => "is being deleted",
        }
    }
}

/// A machine or Cluster that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    pub step: Step,
    /// Name of its VM on the hypervisor; empty if unknown.
    pub vm: String,
}

/// Commands for further diagnosis, as a shell takes them.
pub struct Programs {
    pub kubectl: String,
    pub capw: String,
    /// The flags by which kubectl and capw find the cluster.
    pub flags: String,
    /// virsh with the address of the daemon, and the pool of the VMs; `None`: libvirt is not used.
    pub virsh: Option<(String, String)>,
}

impl Programs {
    /// The commands that show why a step takes long.
    fn commands(&self, name: &str, waits: &Waits) -> Vec<String> {
        let (kubectl, capw, flags) = (&self.kubectl, &self.capw, &self.flags);
        if waits.step == Step::Cluster {
            return vec![format!("{kubectl} {flags} describe clusters,machinedeployments,externalcontrolplanes,windowshypervisors")];
        }
        let mut commands =
            vec![format!("{kubectl} {flags} describe machine/{name} windowsmachine/{name}"), format!("{capw} diagnose machine {name} {flags}")];
        match (&self.virsh, waits.step) {
            (Some((virsh, _)), Step::Vm | Step::Removal) => commands.push(format!("{virsh} list --all")),
            // The output of the guest on its serial port.
            (Some((virsh, pool)), Step::Join) => commands.push(format!("{virsh} vol-download --pool {pool} {}.log /dev/stdout", waits.vm)),
            (_, Step::Ready) => commands.push(format!("{kubectl} {flags} describe nodes")),
            _ => {}
        }
        commands
    }
}

/// The current step of each waiting machine, and when it began.
#[derive(Default)]
pub struct Watch(BTreeMap<String, Since>);

struct Since {
    step: Step,
    begun: Instant,
    is_told: bool,
}

impl Watch {
    /// The messages about late steps of `waiting`, which is keyed by name: each step that takes too long is reported once.
    pub fn late(&mut self, waiting: &BTreeMap<String, Waits>, guests: Guests, programs: &Programs, now: Instant) -> Vec<String> {
        self.0.retain(|name, since| waiting.get(name).is_some_and(|waits| waits.step == since.step));
        let mut told = Vec::new();
        for (name, waits) in waiting {
            let since = self.0.entry(name.clone()).or_insert(Since { step: waits.step, begun: now, is_told: false });
            let Some(limit) = waits.step.limit(guests).filter(|limit| !since.is_told && now - since.begun > *limit) else { continue };
            since.is_told = true;
            let commands = programs.commands(name, waits).join("\n    ");
            told.push(format!(
                "{name} {} after {} min, longer than it should take. Look at\n    {commands}",
                waits.step.words(),
                limit.as_secs() / 60
            ));
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(step: Step) -> BTreeMap<String, Waits> {
        [("win-1".to_owned(), Waits { step, vm: "win-1-3f2504e0".to_owned() })].into()
    }

    fn programs() -> Programs {
        Programs { kubectl: "kubectl".into(), capw: "capw".into(), flags: "-n lab".into(), virsh: Some(("virsh".into(), "images".into())) }
    }

    #[test]
    fn each_step_that_takes_too_long_is_told_once_with_what_to_look_at() {
        let about = "kubectl -n lab describe machine/win-1 windowsmachine/win-1\n    capw diagnose machine win-1 -n lab";
        let (mut watch, start) = (Watch::default(), Instant::now());
        let mut now = start;
        for (step, minutes, last) in [
            (Step::Cluster, 2, "kubectl -n lab describe clusters,machinedeployments,externalcontrolplanes,windowshypervisors"),
            (Step::Vm, 1, "virsh list --all"),
            (Step::Join, 20, "virsh vol-download --pool images win-1-3f2504e0.log /dev/stdout"),
            (Step::Removal, 4, "virsh list --all"),
        ] {
            let limit = Duration::from_secs(60 * minutes);
            let mut late = |now| watch.late(&waiting(step), Guests::Windows, &programs(), now);
            assert_eq!((late(now), late(now + limit)), (vec![], vec![]), "{step:?}");
            now += limit + Duration::from_secs(1);
            let told = late(now).concat();
            assert!(told.starts_with(&format!("win-1 {} after {minutes} min", step.words())) && told.ends_with(last), "{told}");
            assert_eq!(told.contains(about), step != Step::Cluster, "{told}");
            assert_eq!(late(now + limit), Vec::<String>::new(), "once");
        }
        let told = watch.late(&BTreeMap::new(), Guests::Windows, &programs(), now);
        assert!(told.is_empty() && watch.0.is_empty(), "who has gone waits no more: {told:?}");
    }

    #[test]
    fn a_machine_that_comes_back_to_a_step_has_its_time_again() {
        let (mut watch, now, long) = (Watch::default(), Instant::now(), Duration::from_secs(61));
        let mut late = |step, now| watch.late(&waiting(step), Guests::Small, &programs(), now).len();
        assert_eq!((late(Step::Vm, now), late(Step::Vm, now + long), late(Step::Join, now + long)), (0, 1, 0));
        assert_eq!((late(Step::Vm, now + long), late(Step::Vm, now + 2 * long)), (0, 1));
    }

    #[test]
    fn slow_guests_have_more_time_and_nothing_tells_when_a_network_comes() {
        let limit = |step: Step, guests| step.limit(guests).map(|limit| limit.as_secs() / 60);
        assert_eq!([Guests::Small, Guests::Windows, Guests::Translated].map(|guests| limit(Step::Join, guests)), [5, 20, 90].map(Some));
        assert_eq!((limit(Step::Ready, Guests::Small), limit(Step::Ready, Guests::Windows)), (Some(2), None));
    }
}
