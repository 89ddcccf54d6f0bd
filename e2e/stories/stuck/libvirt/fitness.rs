//! A host that answers, but cannot run the requested VMs.

use serde_json::json;

use super::super::judge::{LIMIT, hypervisor_is_unfit, machine_says};
use super::Host;
use crate::world::{Kind, hardware};

impl Host<'_> {
    /// The host has no /dev/kvm.
    pub async fn no_kvm(&self) {
        let (cp, address) = (self.cp, self.daemon.address());
        self.daemon.pool("kvm", hardware::IMAGE);
        let mut workers = self.one_machine_by("kvm", &address).await;
        workers.driver["libvirt"]["acceleration"] = json!("KVM");
        workers.apply(cp).await;
        let says = [&address, "the accel 'kvm' is not supported", "/dev/kvm", "set spec.libvirt.acceleration of the WindowsHypervisor to TCG"];
        let of_machine = [&["WindowsHypervisor lab"], &says[1..]].concat();
        tokio::join!(hypervisor_is_unfit(cp, "kvm", &says), machine_says(cp, &workers, "RefusedByHypervisor", &of_machine));
        assert_eq!(self.domains_of(&self.machines("kvm").await), Vec::<String>::new(), "a VM was made that cannot run");
        workers.driver["libvirt"]["acceleration"] = json!("TCG");
        let runs = json!({"spec": workers.driver});
        cp.patch(Kind::WINDOWS_HYPERVISOR, "kvm/lab", &runs).await.expect("the acceleration can be changed");
        self.settled(&workers).await;
        cp.wait_condition(Kind::WINDOWS_HYPERVISOR, "kvm/lab", "Ready", "True", LIMIT).await;
    }
}
