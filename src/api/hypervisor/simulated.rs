//! The settings of the driver `simulated`.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A simulated data centre.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.datacenter) == has(oldSelf.datacenter) && (!has(self.datacenter) || self.datacenter == oldSelf.datacenter)").message("datacenter: cannot change, the VMs would be lost: make another WindowsHypervisor"))]
pub struct Simulated {
    /// Name of the data centre. WindowsHypervisors with the same data centre see the same VMs, like two connections to one vCenter. Default: `<namespace>.<name>` of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')").message("must be lower case letters, digits, - and ., e.g. munich-1"))]
    pub datacenter: Option<String>,
    /// Images (VM templates) that exist there. Default: `windows-server-2019`, `windows-server-2022` and `windows-server-2025`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100), inner(length(min = 1, max = 253)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[x_kube(validation = Rule::new("self.all(i, i.matches('^[^[:space:][:cntrl:]]([^[:cntrl:]]*[^[:space:][:cntrl:]])?$'))").message("must not begin or end with a blank or hold line breaks: write the names as machines do, e.g. windows-server-2022"))]
    pub images: Option<Vec<String>>,
    /// Guest of new VMs: `Model` is a model of Windows inside the operator, for thousands of VMs; `Wine` runs the Windows programs themselves (kubelet, kubeadm, containerd) under Wine; it needs `--wine-programs`, root, Linux and a build with the feature `wine-guests`, which releases do not have.
    #[serde(default)]
    pub guest: GuestKind,
    /// Capacity. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<SimulatedCapacity>,
    /// Simulated durations.
    #[serde(default)]
    pub delays: SimulatedDelays,
    /// `true` makes the endpoint refuse every call, like a hypervisor whose network is down.
    #[serde(default)]
    pub unreachable: bool,
    /// Percentage of calls that fail: a third is not carried out, a third loses its reply, a third is never answered. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub failing_calls: Option<i32>,
    /// Faults by VM name. The names `*-noboot`, `*-nojoin` and `*-slow` (also followed by a random suffix) have those faults without being listed.
    #[serde(default)]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub faults: Vec<SimulatedFault>,
}

impl Simulated {
    /// The images that exist if the spec names none.
    pub const DEFAULT_IMAGES: [&str; 3] = ["windows-server-2019", "windows-server-2022", "windows-server-2025"];
}

/// Kind of the guests of a simulated data centre.
#[derive(JsonSchema, Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub enum GuestKind {
    /// A model of Windows inside the operator. It joins as kubeadm and the kubelet do.
    #[default]
    Model,
    /// The Windows programs themselves, run by Wine.
    Wine,
}

/// Limits of a simulated data centre.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SimulatedCapacity {
    /// Total virtual processors.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub cpus: i32,
    /// Total memory, e.g. `256Gi`.
    #[schemars(length(max = 12))]
    #[x_kube(validation = Rule::new("self.matches('^[1-9][0-9]{0,8}(Mi|Gi|Ti)$')").message("must be a whole number with Mi, Gi or Ti, e.g. 256Gi"))]
    pub memory: String,
}

/// Delays in milliseconds, 0 to 1 hour.
#[derive(JsonSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct SimulatedDelays {
    /// From the create call until the VM exists.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub create_milliseconds: i64,
    /// From power on until the guest reads its config drive.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub boot_milliseconds: i64,
    /// From the reading of the config drive until the guest joins the cluster.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub join_milliseconds: i64,
    /// From the stop call until the VM is off.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub stop_milliseconds: i64,
}

/// One scripted fault.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SimulatedFault {
    /// VM names that it affects; `*` stands for any text.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[-a-z0-9.*]+$')").message("must be the name of a machine, lower case letters, digits, - and ., with * for any text, e.g. pool-1-*"))]
    pub names: String,
    /// Simulated fault.
    pub fault: Fault,
    /// Number of VMs that it affects: the first ones that match. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub count: Option<i32>,
}

/// Faults of a simulated data centre.
#[derive(JsonSchema, Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub enum Fault {
    /// The VM is on but nothing ever runs in it.
    NoBoot,
    /// The guest boots and carries out its plan, but its join never succeeds.
    NoJoin,
    /// Boot and join take ten times as long (at least 10 s).
    Slow,
    /// The create call fails with a transient error, three times.
    CreateFails,
    /// The guest cannot install a Windows feature: the image lacks its source.
    FeatureMissing,
    /// The guest's disk is full when it writes the first file.
    DiskFull,
    /// containerd does not start in the guest.
    RuntimeBroken,
    /// The guest's token is refused as unknown.
    TokenExpired,
    /// The guest's clock stays wrong.
    ClockWrong,
    /// The image lacks the kubelet.
    ProgramMissing,
    /// The guest's kubeadm finds a certificate authority other than the one that it was given.
    ClusterUnknown,
    /// The guest's kubeadm finds that a Node with its name exists.
    NameTaken,
    /// The guest's kubelet does not stay up.
    KubeletBroken,
}
