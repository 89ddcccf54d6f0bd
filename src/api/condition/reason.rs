//! The reasons of conditions and events. To add one, add an entry here and run `make tables`.

use super::blame::Blame::*;
use super::blame::{Entry, event, on_linux, problem, stage};
use super::condition_type::ConditionType::*;
use crate::api::documented::{compare_with_text, documented_enum};

documented_enum! {
    /// Why a condition has its status. The doc comments say what a reason means.
    pub enum Reason: Entry {
        // Any kind.
        /// The object is as it should be.
        Ready => stage(Ready, "Nothing."),
        /// Nothing is done for the object; the message says why.
        Paused => stage(Paused, "Unpause the Cluster or remove the annotation when you are done."),
        /// The object is not paused.
        NotPaused => stage(Paused, "Nothing."),
        /// The object is being deleted; the message says what is left.
        Deleting => stage(Deleting, "Wait. If it takes long, check that the hypervisor is `Reachable`."),
        /// A field has a value that cannot work; the message names the field.
        InvalidSpec => problem(Spec, Ready, "Correct it: in a new template, if the object was made from one."),
        /// A Secret with a name that CAPW needs exists but does not belong to this object. It is not touched.
        SecretConflict => problem(ManagementCluster, Ready, "Remove or rename the Secret."),

        // Preconditions of a machine.
        /// The Machine, its Cluster or the Cluster's infrastructure is not there yet.
        WaitingForClusterInfrastructureReady => stage(Ready, "Look at the Cluster and its WindowsCluster."),
        /// The control plane is not initialized yet, or the Cluster has no control plane endpoint.
        WaitingForControlPlaneInitialized => stage(Ready, "Look at the condition `Available` of the ExternalControlPlane."),
        /// The Machine has no bootstrap data yet.
        WaitingForBootstrapData => stage(Ready, "Look at the WindowsBootstrapConfig that the Machine names."),
        /// The Secret with the bootstrap data that the Machine names does not exist or lacks its key.
        BootstrapSecretMissing => problem(ManagementCluster, Ready, "The Secret was deleted: delete the Machine, so that a new one is made."),
        /// A Windows template is used for control plane machines.
        ControlPlaneMachineRefused => problem(Spec, Ready, "Use Windows templates for worker machines only."),
        /// The WindowsHypervisor that is named does not exist, or none is named and the namespace does not have exactly one.
        HypervisorMissing => problem(
            Spec, Ready, "Create it, or correct `spec.hypervisorRef` in a new template or the failure domain of the MachineDeployment.",
        ),
        /// The versions do not work together. The message has each pair that fails with its reason and source, and the nearest set of
        /// versions that works.
        Incompatible => problem(
            Spec, Ready,
            "Change what the message names, in a new template or in the Machine's version. `capw compat` answers the same question, see docs/compatibility.md.",
        ),
        /// The name of the machine is longer than the 15 characters that Windows allows, and `hostName: ObjectName` forbids shortening it.
        HostNameTooLong => problem(Spec, Ready, "Set `machineNaming.template: win-{{ .random }}` in the MachineDeployment, or `hostName: Auto`."),

        // The hypervisor and the VM.
        /// The endpoint answers and accepts the credentials.
        Reachable => stage(Reachable, "Nothing."),
        /// The hypervisor does not answer. VMs that run are left alone.
        HypervisorUnreachable => problem(
            Hypervisor, Ready, "Look at the WindowsHypervisor: its message has the cause. CAPW keeps trying.",
        ),
        /// Another endpoint than the one that the VMs were made on answers at the address: another host, or one that was reinstalled.
        /// Nothing is asked of it, and no machine is released on its word.
        EndpointChanged => problem(
            Hypervisor, Reachable,
            "Correct the address. If the old endpoint is gone for good, with every VM on it, remove `status.endpointID` (`kubectl edit --subresource=status`).",
        ),
        /// The credentials lack permissions that are needed at the hypervisor; the message lists them. What cannot be seen is not taken for
        /// gone, so machines wait.
        HypervisorPermissionsMissing => problem(Hypervisor, Reachable, "Grant them to the user of the credentials."),
        /// The endpoint answers, and cannot run VMs as the WindowsHypervisor asks for them, e.g. by KVM; the message has what was seen. No VM
        /// can be made there; VMs that are there are looked after, and removed when they are no longer wanted.
        HypervisorUnfit => problem(
            Hypervisor, Ready, "Do what the message says, on the host or to the WindowsHypervisor. CAPW checks again every 30 s.",
        ),
        /// The endpoint's certificate or host key is not the one that is trusted. Nothing was sent to it.
        CertificateRejected => problem(
            Hypervisor, Reachable, "Find out why it changed. If it was renewed, correct the certificate authority or fingerprint.",
        ),
        /// Something on the hypervisor carries CAPW's mark or name but belongs to no VM: what is left of an interrupted removal, or what
        /// another management cluster is making. It is not touched.
        LeftoversFound => problem(Hypervisor, InventoryClean, "Look at what the message names, and remove it when it is no longer needed."),
        /// Everything on the hypervisor with CAPW's mark belongs to a VM.
        NoLeftovers => stage(InventoryClean, "Nothing."),
        /// VMs that CAPW made for machines of this namespace, and that no WindowsMachine asks for; the message names them.
        OrphansFound => problem(
            Hypervisor, VirtualMachinesOwned, "Remove the VMs by hand, or set `spec.orphans: Remove`. If the WindowsMachines were lost, restore them: they find their VMs.",
        ),
        /// The VMs that no WindowsMachine asked for are gone.
        OrphansGone => stage(VirtualMachinesOwned, "Nothing."),
        /// The hypervisor does not accept the credentials.
        Unauthorized => problem(Hypervisor, Ready, "Renew the credentials."),
        /// The object is being provisioned; the message says which step.
        Provisioning => stage(Ready, "Wait."),
        /// What the object stands for is there, e.g. a VM that runs.
        Provisioned => stage(Ready, "Nothing."),
        /// The hypervisor has no image of this name.
        ImageMissing => problem(Spec, Ready, "Correct `spec.image` in a new template, or add the image to the hypervisor."),
        /// The hypervisor has no network of this name.
        NetworkMissing => problem(Spec, Ready, "Correct `spec.networks` in a new template, or add the network to the hypervisor."),
        /// The hypervisor lacks the place that VMs are to be put in, e.g. a storage pool.
        PlacementMissing => problem(Hypervisor, Ready, "Correct the WindowsHypervisor, or add what the message names to the hypervisor."),
        /// The hypervisor has no room for the VM.
        NoCapacity => problem(Hypervisor, Ready, "Free or add capacity, or spread the machines over more hypervisors. CAPW keeps trying."),
        /// The hypervisor refused the request; the message has its answer.
        RefusedByHypervisor => problem(Spec, Ready, "Correct what the message names."),
        /// The hypervisor answers, and what is asked of it has failed three times in a row, or for 30 s, by a fault that should pass by itself;
        /// the message has its words. It is tried again at least every 30 s.
        HypervisorFailing => problem(Hypervisor, Ready, "Do what the message says; if it says nothing, look at the logs of the hypervisor."),
        /// A VM with this identity exists, but it carries no mark of CAPW or that of another machine. It is not touched.
        ForeignVirtualMachine => problem(Hypervisor, Ready, "Find out what the VM is for; remove or rename it on the hypervisor."),
        /// The VM was removed, but not by CAPW. It is not made again, since the state of its Node is lost with it.
        VirtualMachineRemoved => problem(Hypervisor, VirtualMachineReady, "Delete the Machine, or let a MachineHealthCheck do so."),
        /// The VM is on, but the hypervisor does not run it; the message has its words.
        VirtualMachineHalted => problem(Hypervisor, VirtualMachineReady, "Do what the message says, or delete the Machine."),
        /// The VM was switched off, but not by CAPW.
        VirtualMachineOff => problem(Hypervisor, VirtualMachineReady, "Switch it on, or delete the Machine."),
        /// The machine has joined, but the hypervisor cannot detach its configuration drive (or guestinfo); the message says why.
        SeedNotDetached => problem(
            Hypervisor, SeedDetached,
            "Remove the drive by hand, or leave it: its token has expired, but other secrets that you gave can still be read from it.",
        ),

        // The guest.
        /// The Node exists. If it has not been Ready for more than a minute and a rule knows why, the message adds cause, remedy and rule;
        /// the status stays `True`.
        Joined => stage(NodeJoined, "Nothing, or what the message says."),
        /// The VM runs; its Node has not appeared yet. When something is known to be wrong, the message adds cause, remedy and rule: the
        /// guest has reported nothing for 15 minutes, a restart does not happen, Windows starts again and again, or a rule knows what the
        /// guest reported.
        Joining => stage(NodeJoined, "Wait: Windows takes minutes, and `status.bootstrap` says how far it is. Or do what the message says."),
        /// No Node appeared within `spec.joinDeadlineSeconds` after power on. The message has the guest's last report, cause, remedy and
        /// rule.
        NodeNeverJoined => problem(Guest, NodeJoined, "See docs/troubleshooting.md. A MachineHealthCheck replaces such machines."),
        /// The guest gave up: what the machine was given to start with cannot be used, or cannot be kept on its disk.
        BootstrapInputInvalid => problem(
            Guest, NodeJoined,
            "Check that the configuration drive is the one CAPW made, that the drive of the path exists and has space, and `spec.files` of the WindowsBootstrapConfig; then delete the Machine.",
        ),
        /// The guest gave up: Windows lacks something that a node needs, or could not be set up for it.
        WindowsSetupFailed => problem(
            Guest, NodeJoined,
            "Compare the image with docs/windows-image.md; fix the image, name it in a new WindowsMachineTemplate, then delete the Machine.",
        ),
        /// The guest gave up: the network, time, name resolution, proxy or firewall of the machine is not as the node needs it.
        NodeNetworkFailed => problem(
            Guest, NodeJoined,
            "Check from the machine's console that the API server's address answers, that the clock is right, and the proxy settings of the WindowsBootstrapConfig.",
        ),
        /// The guest gave up: a program of the node is missing, could not be downloaded, or has another digest than expected.
        ProgramsUnavailable => problem(
            Guest, NodeJoined,
            "Use an image that has the programs of that Kubernetes version, or correct address and digest of the download; then delete the Machine.",
        ),
        /// The guest gave up: containerd does not work on the machine.
        ContainerRuntimeFailed => problem(
            Guest, NodeJoined,
            r"Read `C:\var\log\containerd\containerd.log` on the machine's console; give the file to `capw diagnose logs`.",
        ),
        /// The guest gave up: the machine could not join the cluster, or its kubelet does not work.
        JoinFailed => problem(
            Guest, NodeJoined,
            r"Check from the machine that the API server's address answers, that the clock is right and that the token has not expired; read `C:\var\log\kubelet\kubelet.log`.",
        ),
        /// The guest gave up: kube-proxy or the cluster's name resolution does not work on the machine.
        ServiceNetworkFailed => problem(
            Guest, NodeJoined, "Look at the kube-proxy and CNI pods of the node, and at their logs with `capw diagnose logs`.",
        ),
        /// The guest gave up: an optional part of the node failed; the node itself can work.
        AddOnFailed => problem(Guest, NodeJoined, "Check what the message names; the machine need not be replaced."),
        /// The guest gave up with a failure code that this version of CAPW does not know.
        GuestFailed => problem(Guest, NodeJoined, r"Read `C:\ProgramData\capw\bootstrap.log` on the machine's console."),

        // Bootstrap data and token.
        /// A Secret that a field of the spec names does not exist or lacks the key; the message has field, Secret and key.
        SecretMissing => problem(Spec, Ready, "Create it: CAPW looks for it every ten seconds."),
        /// The bootstrap data does not fit into its channel; the message has size and limit.
        PayloadTooLarge => problem(Spec, Ready, "Make `spec.files` smaller, or use another `spec.channel`."),
        /// The bootstrap token can be used. It is renewed until the machine has joined.
        TokenValid => stage(JoinCredentialValid, "Nothing."),
        /// The node has its certificate, so the token was deleted.
        TokenUsed => stage(JoinCredentialValid, "Nothing, if the Node appears. If it does not, no second certificate is issued: delete the Machine."),
        /// The machine did not join within `spec.join.tokenMaxAgeSeconds`, so its token was deleted.
        TokenExpired => problem(
            Guest, JoinCredentialValid, "Find out why it did not join (see the WindowsMachine), then delete the Machine.",
        ),
        /// A certificate request that was made with the machine's token, in its name or by its Node was not approved by CAPW; the message says
        /// why.
        CertificateRequestRefused => event(
            Guest, "Find out who made the request: the kubelet's own requests are approved. If a second key or another requester is told of, its token or name may be in other hands: delete the Machine. See docs/security.md.",
        ),

        // The workload cluster.
        /// The Secret with the kubeconfig does not exist or lacks its key.
        KubeconfigMissing => problem(WorkloadCluster, Available, "Create it: the message has its name and key."),
        /// The Secret holds no usable kubeconfig. A kubeconfig that runs a program, reads a local file or names a proxy is refused.
        KubeconfigInvalid => problem(WorkloadCluster, Available, "Use a kubeconfig with embedded certificates or a token."),
        /// The API server that the kubeconfig names does not answer.
        EndpointUnreachable => problem(WorkloadCluster, Available, "Look at address, port, firewall and certificate authority."),
        /// The API server answers, but does not accept the credentials.
        CredentialsRejected => problem(WorkloadCluster, Available, "Renew the kubeconfig in the Secret."),
        /// The credentials lack permissions; the message lists them.
        PermissionsMissing => problem(WorkloadCluster, Available, "Grant them to the user of the kubeconfig."),
        /// The API server reports another version than `spec.version`. CAPW upgrades no control plane.
        VersionDiffers => problem(
            WorkloadCluster, VersionReached,
            "Upgrade the control plane, or correct `spec.version`; with a ClusterClass, the version in the topology of the Cluster.",
        ),
        /// The API server of the workload cluster does not answer.
        WorkloadClusterUnreachable => problem(WorkloadCluster, Ready, "Look at the ExternalControlPlane and the network to it."),
        /// The API server of the workload cluster answers with more than CAPW reads: an object, or a list that is larger than in any cluster that
        /// Kubernetes supports, or that does not end. The message says which.
        WorkloadClusterTooLarge => problem(
            WorkloadCluster, Ready, "Remove objects of that kind that are not needed, or look at what answers in the place of the API server.",
        ),
        /// The kubeconfig lacks a permission in the workload cluster; the message says which.
        WorkloadClusterForbidden => problem(
            WorkloadCluster, Ready, "Grant it to the user of the kubeconfig, or use the kubeconfig of an administrator.",
        ),

        /// The kubeconfig leads to another cluster than the one that machines were made for. They are not taken for lost.
        ClusterReplaced => problem(
            WorkloadCluster, Ready,
            "Put the kubeconfig of their cluster back into the Secret; or delete the Secret: then machines can be removed, and their Nodes stay. See docs/security.md.",
        ),
        /// The pool, machine or configuration asks for the cluster that CAPW runs in, and CAPW was not told that its namespace may.
        OwnClusterRefused => problem(
            ManagementCluster, Ready,
            "Start CAPW with `--own-cluster-namespaces`, see docs/security.md; or give a kubeconfig in `spec.cluster.kubeconfigSecretRef`.",
        ),

        // The pod network of Linux nodes.
        /// Windows nodes can be on the network as it is.
        NetworkUsable => stage(NetworkCompatible, "Nothing."),
        /// A field cannot be understood.
        Unreadable => on_linux(),
        /// There is no Linux node, so nothing shows what is in use.
        NoLinuxNodes => on_linux(),
        /// No network was recognized, or more than one.
        NetworkUnknown => on_linux(),
        /// The network, or the way in which it is used, does not exist on Windows.
        NetworkUnsupported => on_linux(),
        /// What is configured is not what nodes use.
        NotRolledOut => on_linux(),
        /// Windows has no VXLAN below 4096.
        VniBelow4096 => on_linux(),
        /// Windows routes by 16 bits of the VNI.
        VniAbove65535 => on_linux(),
        /// Windows sends VXLAN to port 4789 only.
        PortNot4789 => on_linux(),
        /// Linux nodes of one subnet do without the tunnel; Windows nodes cannot.
        DirectRouting => on_linux(),
        /// Group policies in VXLAN headers.
        GbpOn => on_linux(),
        /// Windows has no IP-in-IP.
        IpipPool => on_linux(),
        /// Linux nodes of one subnet do without the tunnel; Calico refuses that as soon as Windows is switched on.
        CrossSubnet => on_linux(),
        /// Linux packets in eBPF; Calico does not support Windows nodes beside it.
        EbpfDataplane => on_linux(),
        /// Nodes may borrow addresses from another node's block, which Windows cannot route.
        StrictAffinityOff => on_linux(),
        /// Calico on Windows has either BGP or VXLAN.
        BgpWithVxlan => on_linux(),
        /// A node's part of the network has too few addresses.
        BlockTooSmall => on_linux(),
        /// Antrea on Windows does not do this with packets.
        TrafficModeUnsupported => on_linux(),
        /// Antrea on Windows does not have this tunnel.
        TunnelUnsupported => on_linux(),
        /// Windows nodes cannot take part in the encryption between nodes.
        EncryptionOn => on_linux(),
        /// OVN-Kubernetes reaches Windows nodes by its hybrid overlay only.
        HybridOverlayOff => on_linux(),
        /// Nothing gives Windows nodes addresses.
        WindowsIpamOff => on_linux(),
        /// Pods or Services have IPv6 only.
        Ipv6Only => on_linux(),
        /// Pods have IPv4 and IPv6, and this network has IPv4 only on Windows.
        DualStack => on_linux(),
        /// The same addresses are used twice.
        NetworksOverlap => on_linux(),
        /// No object tells the network of Services.
        ServiceNetworkUnknown => on_linux(),
        /// Calico's operator is not told the networks of Services.
        ServiceNetworkNotConfigured => on_linux(),
        /// Calico's operator is not told where nodes reach the API server without a Service.
        ApiServerNotConfigured => on_linux(),
        /// Calico has its CNI plugin on Windows nodes in other folders than those where containerd of CAPW's nodes looks.
        CniFoldersDiffer => on_linux(),
        /// Calico's operator is not told to bring Calico to Windows nodes.
        WindowsDataplaneOff => on_linux(),
        /// Nothing tells the port of VXLAN.
        PortUnknown => on_linux(),
        /// Objects contradict each other.
        SourcesDisagree => on_linux(),
        /// Calico's operator does not get on, as it says itself.
        OperatorDegraded => on_linux(),

        // Changes to Linux nodes.
        /// Nothing has to be changed.
        NoChangeNeeded => stage(LinuxSideReady, "Nothing."),
        /// An object was changed, or pods restart with what is written; the message says how many have.
        ChangingLinuxSide => stage(LinuxSideReady, "Wait. If it takes long, look at the pods of the DaemonSet that the message names."),
        /// Something has to be changed that CAPW leaves to people; the message has object, field and what to do.
        ChangeNeeded => problem(WorkloadCluster, LinuxSideReady, "Do what the message says."),
        /// An object belongs to a tool, or another writer has undone CAPW's change; the message says which. It is not touched.
        ManagedElsewhere => problem(WorkloadCluster, LinuxSideReady, "Change it where it comes from: the values of the chart, or the repository."),

        // Placement of the pods of DaemonSets.
        /// Pods of DaemonSets are where they can run.
        PodsPlaceable => stage(SchedulingClean, "Nothing."),
        /// Pods of a DaemonSet for Linux come to Windows nodes, where they hang.
        LinuxOnWindows => problem(
            WorkloadCluster, SchedulingClean,
            "Add the node selector `kubernetes.io/os: linux` to the DaemonSets that the message names; `status.components.findings` has the commands.",
        ),
        /// A DaemonSet for Windows has no pods, because it does not tolerate the taints of the nodes.
        WindowsPodsShutOut => problem(
            WorkloadCluster, SchedulingClean,
            "Add the toleration to the DaemonSets that the message names; `status.components.findings` has the commands.",
        ),

        // Components that CAPW deploys on Windows nodes.
        /// Each Windows node has all of it.
        PartsReady => stage(ComponentsReady, "Nothing."),
        /// A Windows node does not have it, or not yet; the message has the words of its pod.
        PartNotReady => stage(ComponentsReady, "Wait for new nodes. If it takes long, do what the message says, or look at the pods in the namespace capw-windows."),
        /// A pod on a new Windows node does not reach yet what pods need; the message says which node and what. No other pods come to it until then.
        NodeNotVerified => stage(ComponentsReady, "Wait for new nodes. If it takes long, do what the message says, or set spec.components.probes.mode to Off."),
        /// CAPW does not bring the network of this cluster to Windows nodes, or something is in the way; the message says what.
        NotDeployed => problem(WorkloadCluster, ComponentsReady, "Do what the message says, or set spec.components.mode to Report."),
        /// There is an object with a name that CAPW needs, and it is not CAPW's. It is not touched.
        NameTaken => problem(WorkloadCluster, ComponentsReady, "Remove or rename the object that the message names, if nothing needs it."),
        /// Another writer changes fields of what CAPW brings; the message says which, and who. CAPW sets them back, at most once in ten seconds.
        FieldManagerConflict => problem(WorkloadCluster, ComponentsReady, "If it comes again, end what writes these fields, or set spec.components.mode to Report."),
        /// What CAPW brought is to be removed (`mode: "Off"`, or the Cluster is being deleted), and a request for that failed; the message says which.
        /// CAPW tries again.
        NotRemoved => stage(ComponentsReady, "Wait. If it takes long, do what the message says, or set spec.components.mode to Report: what is there stays then."),
        /// The Cluster or the WindowsCluster is being deleted, and what CAPW brought stays in the workload cluster; the message says what, where and why.
        LeftBehind => problem(WorkloadCluster, ComponentsReady, "Remove it by the command of the message, if you do not want it."),
        /// Nodes have the taint that new ones begin with, and with `mode: Report` nothing takes it away; the message names them.
        TaintNotRemoved => problem(WorkloadCluster, ComponentsReady, "Run the command of the message once the network of these nodes works, or set spec.components.mode to Auto or Off."),
        /// CAPW does not know its own image, whose part for Windows the pods run.
        ImageUnknown => problem(ManagementCluster, ComponentsReady, "Name the image in the variable CAPW_IMAGE of CAPW's Deployment."),

        // Node pools, and the drain of machines without Cluster API.
        /// The pool makes machines, or waits for those that it has made; the message has the numbers.
        ScalingUp => stage(Ready, "Wait: Windows takes minutes. If it takes long, look at the WindowsMachines of the pool."),
        /// There are more machines than asked for; the surplus is being removed.
        ScalingDown => stage(Ready, "Wait. If it takes long, look at the machines that are being deleted: a drain may wait for pods."),
        /// Failed machines are being replaced; the message names them.
        ReplacingUnhealthy => stage(Ready, "If it happens again, look at the conditions of the machines."),
        /// Machines failed, and the pool does not replace them: the cause is in the template, or Cluster API decides. The message names
        /// them.
        MachinesFailed => problem(
            Machines, Ready,
            "Fix what their conditions say. A machine that is deleted, by a MachineHealthCheck or by hand, is made again.",
        ),
        /// More machines are unhealthy than `spec.health.maxUnhealthy` allows, so none is replaced: the cause is probably elsewhere.
        TooManyUnhealthy => problem(
            Machines, Ready,
            "Find the cause (network, hypervisor, control plane); or raise `maxUnhealthy`, or delete machines by hand.",
        ),
        /// Every machine was made from the current template.
        UpToDate => stage(MachinesUpToDate, "Nothing."),
        /// Outdated machines are being replaced; the message has the numbers.
        RollingOut => stage(MachinesUpToDate, "Wait."),
        /// Machines of the new template failed and none became Ready, or the failed ones are not replaced, so the rollout has stopped.
        /// The message names them and their reasons.
        RolloutStopped => problem(
            Spec, Ready,
            "Fix the template, or set it back: machines that match it are kept. To try the same template again, delete the failed machines.",
        ),
        /// The API server refuses more machines of the pool: a ResourceQuota, an admission policy or a missing permission; the message
        /// says which. CAPW tries again every 30 seconds.
        MachinesRefused => problem(ManagementCluster, Ready, "Raise the quota or make room in it; change the policy; grant the permission."),
        /// The workload cluster refuses labels or taints of the template on Nodes that are there; the message says which.
        NodesRefused => problem(Spec, MachinesUpToDate, "Correct `kubelet.nodeLabels` or `kubelet.taints` in the template."),
        /// A template that the pool names does not exist; the message names it.
        TemplateMissing => problem(Spec, Ready, "Create it, or correct the reference."),
        /// The Node of a standalone machine is being drained before its VM is removed. The message names what the drain waits for: a pod
        /// that a PodDisruptionBudget protects, one that does not terminate, one that runs to completion, a volume that is attached.
        DrainingNode => stage(
            Deleting,
            "Add replicas or Nodes until the budget allows a disruption; or set `spec.drain.timeoutSeconds` of the pool; or annotate the WindowsMachine with `machine.cluster.x-k8s.io/exclude-node-draining`, which removes it without a drain.",
        ),
        /// The time limit of the drain passed, and the machine was removed with the pods that were left.
        DrainTimedOut => event(WorkloadCluster, "Look at the last message of `Deleting`: it named the pods."),
    }
}

compare_with_text!(Reason);
