//! The types of the conditions.

use crate::api::documented::{compare_with_text, documented_enum};

documented_enum! {
    /// The type of a condition. `True` is good, except for [`Paused`](Self::Paused) and [`Deleting`](Self::Deleting), whose names are
    /// Cluster API's. The doc comments say what `True` means; the entry names the kinds that have the condition.
    pub enum ConditionType: &'static str {
        /// The object does what it is for. Cluster API copies it to the Machine (`InfrastructureReady`, `BootstrapConfigReady`) or the
        /// Cluster.
        Ready => "all",
        /// Nothing is done, not even deletion: the Cluster has `spec.paused: true`, or the object has the annotation
        /// `cluster.x-k8s.io/paused`.
        Paused => "all",
        /// The object is being deleted, and something that needs it is not known to be gone yet: a VM, a machine, or what CAPW brought to the
        /// workload cluster.
        Deleting => "WindowsMachine, WindowsNodePool, WindowsCluster, ExternalControlPlane",
        /// The VM exists, has its configuration drive and runs.
        VirtualMachineReady => "WindowsMachine",
        /// The Node of this machine has appeared in the workload cluster.
        NodeJoined => "WindowsMachine",
        /// Never `True`: it is `False` when the hypervisor cannot detach the configuration drive after the join.
        SeedDetached => "WindowsMachine",
        /// The Secret with the bootstrap data exists.
        DataSecretAvailable => "WindowsBootstrapConfig",
        /// The bootstrap token is valid, or is no longer needed.
        JoinCredentialValid => "WindowsBootstrapConfig",
        /// The API server answers, and the kubeconfig has the required permissions.
        Available => "ExternalControlPlane",
        /// Every machine was made from the current template.
        MachinesUpToDate => "WindowsNodePool",
        /// The API server runs `spec.version`, or that is not given. While it is `False`, Cluster API makes no Machines.
        VersionReached => "ExternalControlPlane",
        /// The hypervisors that machines may use exist and answer.
        HypervisorsReachable => "WindowsCluster",
        /// Windows nodes can be on the cluster's pod network. Only with `spec.components`.
        NetworkCompatible => "WindowsCluster",
        /// Nothing that Linux nodes run has to be changed, and every change has been taken up. Only with `spec.components.linuxSide: Change`.
        LinuxSideReady => "WindowsCluster",
        /// No DaemonSet puts pods on Windows nodes where they cannot run, and none for Windows is kept away. Only with `spec.components`.
        SchedulingClean => "WindowsCluster",
        /// What Windows nodes need runs on each of them. Only with `spec.components.mode: Auto`.
        ComponentsReady => "WindowsCluster",
        /// The endpoint answers and accepts the credentials.
        Reachable => "WindowsHypervisor",
        /// Nothing there carries CAPW's mark or name without belonging to a VM.
        InventoryClean => "WindowsHypervisor",
        /// No VM with CAPW's mark is without a WindowsMachine. Absent until one was found.
        VirtualMachinesOwned => "WindowsHypervisor",
    }
}

compare_with_text!(ConditionType);

impl ConditionType {
    /// The kinds that have this condition.
    pub const fn kinds(self) -> &'static str {
        self.entry()
    }
}
