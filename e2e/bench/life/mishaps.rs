//! Faults during a run, and how soon CAPW continues or reports them. It must not judge.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use capw_libvirtd::Daemon;
use jiff::Timestamp;
use serde_json::json;

use super::{Group, Run, SOON};
use crate::workers::by_capw;
use crate::world::{Kind, Simulator, condition, hardware, simulated_vms, text, wait_for};

impl Run {
    /// Restarts CAPW with one machine to create, then removes that machine's VM: returns the times to the first write and to the report.
    pub(super) async fn restart_and_loss(&mut self, machines: usize) -> (Duration, Duration) {
        let before = self.names().await;
        self.capw.kill();
        self.workers.replicas = machines + 1;
        self.ask().await;
        if self.group == Group::Deployment {
            self.added(&before).await;
        }
        let (mark, start) = (self.cp.audit_mark(), Timestamp::now());
        self.capw.start_again().await;
        let added = self.added(&before).await;
        let first = wait_for("the first write after the restart", SOON, || async {
            self.cp.audit_since(mark).into_iter().find(|event| by_capw(event) && event.is_write()).map(|event| event.time)
        })
        .await;
        let added = self.workers.name(&added);
        self.cp.wait_condition(Kind::WINDOWS_MACHINE, &added, "NodeJoined", "True", self.limit).await;
        self.quiet().await;

        let name = added.rsplit('/').next().unwrap_or_default();
        self.remove_vm(name);
        let start_of_loss = Instant::now();
        self.cp
            .wait_object(Kind::WINDOWS_MACHINE, &added, "says that its VM was removed", SOON, |object| {
                condition(object, "VirtualMachineReady").filter(|found| text(found, "/reason") == "VirtualMachineRemoved").cloned()
            })
            .await;
        let noticed = start_of_loss.elapsed();
        let mark_for_deletion = json!({"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": "yes"}}});
        let machine = self.cp.get(Kind::WINDOWS_MACHINE, &added).await.expect("the WindowsMachine is there");
        let owners = machine["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let owner = owners.filter(|owner| owner["kind"] == "Machine").map(|owner| self.workers.name(text(owner, "/name"))).next().expect("a Machine");
        self.cp.patch(Kind::MACHINE, &owner, &mark_for_deletion).await.expect("the Machine takes an annotation");
        self.scale(machines, "replicas").await;
        self.cp.wait_gone(Kind::WINDOWS_MACHINE, &added, SOON).await;
        self.quiet().await;
        (Duration::try_from(first.duration_since(start)).unwrap_or_default(), noticed)
    }

    /// Removes a VM as an administrator of its hypervisor would.
    fn remove_vm(&self, name: &str) {
        if let Some(daemon) = &self.daemon {
            return hardware::remove(daemon, name);
        }
        if let Some(simulator) = &self.simulator {
            return simulator.remove(name);
        }
        let vms = simulated_vms(self.capw.state());
        let vm = vms.iter().find(|vm| vm.name == name).unwrap_or_else(|| panic!("no VM {name} among {vms:?}"));
        let home = self.capw.state().join(&vm.datacenter).join(&vm.directory);
        // A rename first, because a hypervisor removes a VM in one step.
        let away = home.with_extension("taken");
        std::fs::rename(&home, &away).and_then(|()| std::fs::remove_dir_all(&away)).unwrap_or_else(|e| panic!("{}: {e}", home.display()));
    }

    /// The new WindowsMachine: Cluster API creates it for a MachineDeployment, CAPW for a pool.
    async fn added(&self, before: &[String]) -> String {
        wait_for("one more WindowsMachine", SOON, || async { self.names().await.into_iter().find(|name| !before.contains(name)) }).await
    }

    /// Freezes the hypervisor until every machine reports it unreachable; returns how long each took, shortest first. Empty for
    /// simulated VMs, whose hypervisor is a part of CAPW.
    pub(super) async fn silence(&self) -> Vec<Duration> {
        match (&self.daemon, &self.simulator) {
            (Some(daemon), _) => daemon.freeze(),
            (_, Some(simulator)) => simulator.freeze(),
            (None, None) => return Vec::new(),
        }
        let (start, machines, told) = (Instant::now(), self.names().await.len(), RefCell::new(Vec::new()));
        wait_for("every machine says that its hypervisor cannot be reached", self.limit, || async {
            let objects = self.cp.list(Kind::WINDOWS_MACHINE, Some(&self.workers.namespace)).await;
            let reasons = objects.iter().filter_map(|machine| condition(machine, "VirtualMachineReady")).map(|found| text(found, "/reason"));
            told.borrow_mut().resize(reasons.filter(|reason| *reason == "HypervisorUnreachable").count(), start.elapsed());
            if told.borrow().len() == machines { Ok(()) } else { Err(format!("{} of {machines} do", told.borrow().len())) }
        })
        .await;
        self.daemon.iter().for_each(Daemon::thaw);
        self.simulator.iter().for_each(Simulator::thaw);
        self.cp.wait_condition(Kind::WINDOWS_HYPERVISOR, &self.workers.name("lab"), "Reachable", "True", SOON).await;
        self.quiet().await;
        told.into_inner()
    }
}
