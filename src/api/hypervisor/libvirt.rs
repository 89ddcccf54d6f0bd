//! The settings of the driver `libvirt`.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::vsphere::CloneMode;

/// QEMU on a host of your own, through its libvirt daemon.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.pool == oldSelf.pool").message("pool: cannot change, the VMs would be lost: make another WindowsHypervisor"))]
pub struct Libvirt {
    /// Address of the daemon, as libvirt's own clients write it: `qemu+tls://HOST/system` or `qemu+tls://HOST:PORT/system`, with `ca.crt`, `tls.crt` and `tls.key` in the Secret of `credentialsRef`; `qemu+ssh://USER@HOST/system` or `qemu+ssh://USER@HOST:PORT/system?socket=PATH`, with `ssh-privatekey` and `known_hosts`; or on the same host `qemu+unix:///system`, `qemu+unix:///system?socket=/run/libvirt/libvirt-sock`. For an unprivileged daemon: `session` in place of `system`, and the path of its socket.
    #[schemars(length(min = 1, max = 500))]
    #[x_kube(validation = Rule::new("self.matches('^qemu[+](unix:///(system|session)([?]socket=/[^ ?#]+)?|tls://([-a-zA-Z0-9.]+|[[][0-9a-fA-F:]+[]])(:[0-9]{1,5})?/(system|session)|ssh://[-_a-zA-Z0-9.]+@([-a-zA-Z0-9.]+|[[][0-9a-fA-F:]+[]])(:[0-9]{1,5})?/(system|session)([?]socket=/[^ ?#]+)?)$')").message("must be like qemu+tls://kvm1.example.com/system, qemu+ssh://capw@kvm1.example.com/system or qemu+unix:///system?socket=/run/libvirt/libvirt-sock"))]
    pub address: String,
    /// The storage pool with the images. CAPW creates everything that VMs need in it.
    #[serde(default = "default_pool")]
    #[schemars(length(min = 1, max = 100))]
    pub pool: String,
    /// The network of interfaces that name no network: a network of libvirt, or `bridge:NAME` for a bridge of the host. Default: `default`; with an address that ends in `session`, QEMU's own network, in which guests reach others but are not reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100))]
    pub network: Option<String>,
    /// Accelerator that runs the guests' code: `KVM` is the processor itself; `TCG` is a translation that needs nothing from the host and is many times slower. CAPW never guesses it.
    #[serde(default)]
    pub acceleration: Acceleration,
    /// Disks and network interfaces: `Virtio` is fast, but the image must have its drivers; `Emulated` (SATA, e1000e) is known to every Windows.
    #[serde(default)]
    pub devices: DeviceModel,
    /// How disks are created from the image: `Linked` is a file that holds only the differences from the image; it is created at once, and the image must not change. `Full` is a copy, which takes longer the larger the image is. `Auto` is `Linked`.
    #[serde(default)]
    pub clone: CloneMode,
    /// How CAPW receives a guest's reports: `Serial`, by its serial port COM1, which QEMU writes to a file in the pool; `Agent`, by the QEMU guest agent, which must be in the image, for hosts on which QEMU may not write such a file.
    #[serde(default)]
    pub words: GuestWords,
    /// Access to the screen and keyboard of a VM: `VNC` is a server without a password at 127.0.0.1 of the host, which all users of the host can reach, and only they; `virsh vncdisplay NAME` prints its number. A change applies to VMs that are created afterwards.
    #[serde(default)]
    pub console: Console,
}

fn default_pool() -> String {
    "default".into()
}

impl Default for Libvirt {
    fn default() -> Self {
        Self {
            address: "qemu+unix:///system".into(),
            pool: default_pool(),
            network: None,
            acceleration: Acceleration::default(),
            devices: DeviceModel::default(),
            clone: CloneMode::default(),
            words: GuestWords::default(),
            console: Console::default(),
        }
    }
}

/// The accelerator that runs the code of guests.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum Acceleration {
    /// The processor, by the kernel's KVM.
    #[default]
    #[serde(rename = "KVM")]
    Kvm,
    /// QEMU's translation.
    #[serde(rename = "TCG")]
    Tcg,
}

/// The model of disks and network interfaces that a guest sees.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum DeviceModel {
    /// The virtual hardware that QEMU recommends.
    #[default]
    Virtio,
    /// A model of real hardware.
    Emulated,
}

/// Access to the screen of a VM.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum Console {
    /// No access.
    #[default]
    None,
    /// By VNC, on the host.
    #[serde(rename = "VNC")]
    Vnc,
}

/// How CAPW receives the reports of guests.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum GuestWords {
    /// By the serial port COM1.
    #[default]
    Serial,
    /// By the QEMU guest agent.
    Agent,
}
