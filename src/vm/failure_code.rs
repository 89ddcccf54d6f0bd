//! The failure codes of the node plan. To add one, add an entry here and run `make tables`.

use serde::{Deserialize, Serialize};

use crate::api::condition::Reason::{self, *};
use crate::api::documented::documented_enum;

/// The properties of a code.
pub(super) struct Entry {
    number: u32,
    reason: Reason,
    remedy: &'static str,
}

const fn code(number: u32, reason: Reason, remedy: &'static str) -> Entry {
    Entry { number, reason, remedy }
}

/// The remedy for failures that only a full or broken disk causes.
const DISK: &str = "Check the free space and the health of drive C:.";
const READ_CONTAINERD_LOG: &str =
    r"Read the end of `C:\var\log\containerd\containerd.log`: it says why. `capw diagnose logs containerd.log` knows the usual causes.";
const READ_KUBELET_LOG: &str = r"Read the end of `C:\var\log\kubelet\kubelet.log`; `capw diagnose logs kubelet.log` explains the usual causes.";
const READ_KUBE_PROXY_LOG: &str = r"Read `C:\var\log\kube-proxy\kube-proxy.log`; give the file to `capw diagnose logs`.";

documented_enum! {
    /// Why an item of the node plan failed, as a number in the guest's reports. Codes of the same ten have the same reason. The doc
    /// comments say what failed.
    #[derive(Serialize, Deserialize)]
    #[serde(into = "u32", try_from = "u32")]
    pub enum FailureCode: Entry {
        /// The machine cannot read what it was given to start with.
        Input => code(
            10, BootstrapInputInvalid,
            "Check that the configuration drive is the one that CAPW made, and that the image's cloudbase-init is complete; then delete the Machine.",
        ),
        /// The runner itself failed: the message names the file and the line.
        RunnerFailed => code(
            11, BootstrapInputInvalid,
            r"Check the free space and the health of drive C:, and that no policy keeps PowerShell from running scripts; read `C:\ProgramData\capw\bootstrap.log` on the machine's console. If the payload is incomplete, the image's cloudbase-init or the configuration drive is at fault.",
        ),
        /// The plan is newer than the runner on the machine.
        PlanTooNew => code(
            12, BootstrapInputInvalid,
            r"Remove `C:\ProgramData\capw` from the image: it was taken from a machine that CAPW had prepared before. Make the image again with sysprep.",
        ),
        /// A directory or a scheduled task of CAPW could not be made.
        NodePreparation => code(13, BootstrapInputInvalid, "Check the free space and health of drive C:, and that the service Task Scheduler runs in the image."),
        /// A file of `spec.files` could not be written.
        UserFile => code(
            14, BootstrapInputInvalid, "Check that the drive of its path exists and has space, and correct the path in a new WindowsBootstrapConfigTemplate.",
        ),
        /// The node joined, but its secrets or its scheduled task could not be removed.
        SecretRemoval => code(
            15, BootstrapInputInvalid,
            "Remove the named files and the scheduled task `capw` by hand: they hold the bootstrap token, which has expired by then.",
        ),
        /// A step of `spec.steps` failed.
        UserStep => code(
            18, BootstrapInputInvalid,
            r"Read `C:\ProgramData\capw\bootstrap.log` on the machine's console for what it said; correct the step in a new WindowsBootstrapConfigTemplate.",
        ),
        /// A step of `spec.steps` asked for too many restarts.
        UserRestart => code(
            19, BootstrapInputInvalid,
            r"Find out which step asks for a restart each time, in `C:\ProgramData\capw\bootstrap.log` on the machine's console; correct it in a new WindowsBootstrapConfigTemplate.",
        ),
        /// The image has a different Windows release than the plan was made for.
        WindowsRelease => code(
            20, WindowsSetupFailed,
            "Name the release of the image in `spec.windowsRelease` of a new WindowsBootstrapConfigTemplate, or another image in a new WindowsMachineTemplate.",
        ),
        /// The Windows feature Containers could not be installed.
        ContainersFeature => code(
            21, WindowsSetupFailed,
            "Install the feature Containers in the image (`Install-WindowsFeature Containers`), or give Windows its installation source; then delete the Machine.",
        ),
        /// Drive C: has too little free space.
        FreeSpace => code(
            22, WindowsSetupFailed,
            "Give the machine a larger system disk (`spec.systemDisk` in a new WindowsMachineTemplate), or lower `spec.windows.freeSpaceGiB`.",
        ),
        /// Hyper-V could not be installed or does not start.
        HyperV => code(
            23, WindowsSetupFailed,
            "Give the machine nested virtualization (`spec.nestedVirtualization` in a new WindowsMachineTemplate), or leave `spec.windows.hyperVIsolation` off.",
        ),
        /// Windows did not get its host name.
        HostName => code(
            24, WindowsSetupFailed,
            "Use an image whose cloudbase-init runs SetHostNamePlugin before UserDataPlugin, or whose answer file sets the name.",
        ),
        /// A Windows setting could not be applied.
        WindowsSetting => code(
            25, WindowsSetupFailed,
            r"Check the fields of `spec.windows` in the WindowsBootstrapConfig; `C:\ProgramData\capw\bootstrap.log` on the machine has the error from Windows.",
        ),
        /// A value of the registry could not be set.
        RegistrySetting => code(
            26, WindowsSetupFailed, r"Read `C:\ProgramData\capw\bootstrap.log` on the machine's console for what Windows said.",
        ),
        /// The machine could not join its domain, or the plug-in for managed service accounts could not be registered.
        DomainJoin => code(
            27, WindowsSetupFailed,
            r"Make the file for djoin again, for the name of this machine; read `C:\Windows\debug\NetSetup.LOG` on the machine.",
        ),
        /// A hardening setting could not be applied.
        Hardening => code(28, WindowsSetupFailed, "Switch the field off in `spec.windows.hardening` if the node must do without it."),
        /// Windows asks for more restarts than the plan allows.
        PendingRestart => code(
            29, WindowsSetupFailed,
            r"Read `C:\Windows\Logs\CBS\CBS.log` for what asks for them: usually updates that wait in the image. Finish them in the image.",
        ),
        /// The time service of Windows could not be set up.
        TimeService => code(
            30, NodeNetworkFailed, "Start the service Windows Time (W32Time) in the image, and check `spec.network.timeServers`.",
        ),
        /// The machine's clock is wrong, or the API server does not answer it.
        Clock => code(
            31, NodeNetworkFailed,
            "Check from the machine that the API server's address answers, that `spec.network.timeServers` are reached by UDP port 123, and that the hypervisor gives the clock that the image expects (UTC or local time).",
        ),
        /// The proxy could not be set.
        Proxy => code(32, NodeNetworkFailed, "Check `spec.network.proxy` of the WindowsBootstrapConfig."),
        /// The DNS suffixes could not be set.
        DnsSuffixes => code(33, NodeNetworkFailed, "Check `spec.network.dnsSuffixes` of the WindowsBootstrapConfig."),
        /// A firewall rule could not be created.
        Firewall => code(
            34, NodeNetworkFailed, "Start the service Windows Defender Firewall (mpssvc) in the image; it need not filter traffic, but it must run.",
        ),
        /// A certificate authority could not be added to those that Windows trusts.
        CertificateAuthority => code(
            35, NodeNetworkFailed, "Check `spec.network.caBundle`: each part must be the certificate of an authority.",
        ),
        /// A range of ports could not be set.
        PortRange => code(
            37, NodeNetworkFailed,
            "Check the ranges in `spec.network` against `netsh int ipv4 show excludedportrange tcp` on the machine.",
        ),
        /// A route could not be set.
        Route => code(38, NodeNetworkFailed, "Check the gateways in `spec.network` against the networks of the machine."),
        /// The image lacks a program that a node needs, or has it elsewhere.
        ProgramMissing => code(
            41, ProgramsUnavailable,
            "Use an image built by image-builder, or put containerd, kubelet, kubeadm and kube-log-runner where the message says; then delete the Machine.",
        ),
        /// A program of `spec.programs` could not be downloaded, or has another digest than the one given.
        ProgramDownload => code(
            42, ProgramsUnavailable,
            "Check from the machine that the address answers (proxy, DNS, CA of the mirror) and that `spec.programs` has the digest of this version; correct it in a new WindowsBootstrapConfigTemplate, then delete the Machine.",
        ),
        /// An archive of `spec.programs` could not be unpacked, or does not have the programs that it should.
        ProgramArchive => code(
            43, ProgramsUnavailable,
            "Check that the address is that of the release's windows-amd64 archive, and that drive C: has free space.",
        ),
        /// The configuration of containerd could not be written.
        ContainerdConfig => code(50, ContainerRuntimeFailed, DISK),
        /// The service containerd could not be set up.
        ContainerdService => code(51, ContainerRuntimeFailed, r"Read `C:\ProgramData\capw\bootstrap.log` on the machine's console for what Windows said."),
        /// containerd does not run.
        ContainerdStart => code(52, ContainerRuntimeFailed, READ_CONTAINERD_LOG),
        /// containerd runs, but its pipe does not appear.
        ContainerdPipe => code(
            53, ContainerRuntimeFailed,
            r"Read the end of `C:\var\log\containerd\containerd.log`: it says which plug-in failed. `capw diagnose logs containerd.log` explains the usual ones.",
        ),
        /// containerd does not answer the kubelet.
        ContainerdAnswer => code(
            54, ContainerRuntimeFailed,
            r"Read `C:\var\log\containerd\containerd.log` for a CRI plug-in that was not loaded; `capw diagnose logs containerd.log` explains the usual causes.",
        ),
        /// The sandbox image, which every pod needs, is not on the node and cannot be pulled.
        SandboxImage => code(
            55, ContainerRuntimeFailed,
            "Check that its registry or mirror answers from the machine and has it, or name another one in `spec.containerd.sandboxImage`.",
        ),
        /// The configuration of the join could not be written.
        JoinConfig => code(70, JoinFailed, DISK),
        /// kubeadm could not join the cluster.
        Join => code(
            71, JoinFailed,
            "Check from the machine that the API server's address answers, that the clock is right and that the token has not expired (see the WindowsBootstrapConfig); then delete the Machine. If JoinCredentialValid of the WindowsBootstrapConfig says `TokenUsed`, the machine was interrupted after its certificate was issued: no second one is issued, so delete the Machine at once.",
        ),
        /// The configuration of the kubelet could not be written.
        KubeletConfig => code(72, JoinFailed, DISK),
        /// The service kubelet could not be set up.
        KubeletService => code(73, JoinFailed, r"Read `C:\ProgramData\capw\bootstrap.log` on the machine's console for what Windows said."),
        /// The service kubelet could not be set to start with Windows.
        KubeletStartType => code(74, JoinFailed, r"Read `C:\ProgramData\capw\bootstrap.log` on the machine's console for what Windows said."),
        /// The node has its certificate, but its kubelet does not run.
        KubeletStart => code(75, JoinFailed, READ_KUBELET_LOG),
        /// The kubelet runs, but does not say that it is healthy.
        KubeletHealth => code(76, JoinFailed, READ_KUBELET_LOG),
        /// The file that tells Cluster API of the success could not be written.
        SuccessFile => code(77, JoinFailed, DISK),
        /// The configuration of kube-proxy could not be written.
        KubeProxyConfig => code(80, ServiceNetworkFailed, DISK),
        /// The service kube-proxy could not be set up.
        KubeProxyService => code(81, ServiceNetworkFailed, READ_KUBE_PROXY_LOG),
        /// kube-proxy does not run.
        KubeProxyStart => code(82, ServiceNetworkFailed, READ_KUBE_PROXY_LOG),
        /// The exclusions of Microsoft Defender could not be set. The node works without them, but more slowly.
        DefenderExclusions => code(90, AddOnFailed, "The machine need not be replaced for it. Tamper protection or a policy forbids exclusions: set them there."),
    }
}

impl FailureCode {
    /// Returns the code with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.number() == number)
    }

    /// Returns the number, as written in the plan and in reports.
    pub const fn number(self) -> u32 {
        self.entry().number
    }

    /// Returns the reason of NodeJoined when a guest gives up with this code.
    pub const fn reason(self) -> Reason {
        self.entry().reason
    }

    /// Returns the remedy in Markdown.
    pub const fn remedy(self) -> &'static str {
        self.entry().remedy
    }
}

impl From<FailureCode> for u32 {
    fn from(code: FailureCode) -> Self {
        code.number()
    }
}

impl TryFrom<u32> for FailureCode {
    type Error = String;

    fn try_from(number: u32) -> Result<Self, String> {
        Self::from_number(number).ok_or_else(|| format!("there is no failure code {number}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn numbers_rise_and_those_of_the_same_ten_have_one_reason() {
        let numbers: Vec<u32> = FailureCode::ALL.iter().map(|code| code.number()).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        let mut groups = BTreeMap::new();
        for code in FailureCode::ALL {
            assert_eq!(*groups.entry(code.number() / 10).or_insert(code.reason()), code.reason(), "{code:?}");
        }
    }

    #[test]
    fn meaning_and_remedy_are_sentences() {
        for code in FailureCode::ALL {
            assert!(code.meaning().ends_with('.') && code.remedy().ends_with('.') && !code.remedy().contains('|'), "{code:?}");
        }
    }
}
