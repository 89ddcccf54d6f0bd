//! `WindowsHypervisor`: an endpoint that provides VMs, with exactly one driver.

mod libvirt;
mod proxmox;
mod simulated;
mod spec;
mod status;
mod vsphere;

pub use self::libvirt::{Acceleration, Console, DeviceModel, GuestWords, Libvirt};
pub use self::proxmox::{Proxmox, VmIds};
pub use self::simulated::{Fault, GuestKind, Simulated, SimulatedCapacity, SimulatedDelays, SimulatedFault};
pub use self::spec::{Alias, Limits, Orphans, WindowsHypervisor, WindowsHypervisorSpec};
pub use self::status::{HypervisorCapacity, HypervisorUse, WindowsHypervisorStatus};
pub use self::vsphere::{CloneMode, Vsphere};
