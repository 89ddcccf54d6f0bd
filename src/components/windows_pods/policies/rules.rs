//! The fields that pods cannot have on Windows nodes, in the language of admission policies (CEL).
//!
//! The rules use only features that every API server since 1.30 has: optional fields, `exists`, `startsWith`, `lowerAscii`.
//! They skip errors that the API server refuses for any OS: HostProcess containers beside others, or without `hostNetwork`.
//! <https://kubernetes.io/docs/concepts/windows/intro/#compatibility-v1-pod>

/// The effect of a field on Windows nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No node can run the pod, or provide what the pod requests from the node.
    Fails,
    /// The field is ignored, or a useful field is missing: the pod may still run well.
    Ignored,
}

/// A condition that a pod for Windows should avoid.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub id: &'static str,
    pub effect: Effect,
    /// An expression that is true if the pod itself breaks the rule.
    pub of_pod: Option<&'static str>,
    /// An expression that is true if the container `c` breaks the rule.
    pub of_container: Option<&'static str>,
    /// The field, the problem, and the remedy.
    pub message: &'static str,
}

/// Names for the expressions of rules. Each may use the names before it. `variables.template` is the pod, or the pod template.
pub const VARIABLES: [(&str, &str); 9] = [
    ("pod", "variables.template.spec"),
    ("annotations", "variables.template.?metadata.?annotations.orValue({})"),
    ("security", "variables.pod.?securityContext.orValue({})"),
    ("os", "variables.pod.?os.?name.orValue('')"),
    ("selected", "variables.pod.?nodeSelector[?'kubernetes.io/os'].orValue('')"),
    // An ephemeral container is being added to an existing pod, for debugging.
    ("isDebugged", "request.?subResource.orValue('') == 'ephemeralcontainers'"),
    (
        "containers",
        "variables.isDebugged ? variables.pod.?ephemeralContainers.orValue([]) : variables.pod.containers + variables.pod.?initContainers.orValue([])",
    ),
    ("userName", "variables.security.?windowsOptions.?runAsUserName.orValue('')"),
    // Either all containers of a pod are processes of the host, or none.
    (
        "isHostProcess",
        "variables.security.?windowsOptions.?hostProcess.orValue(false) || \
         variables.pod.containers.exists(c, c.?securityContext.?windowsOptions.?hostProcess.orValue(false))",
    ),
];

/// Whether `pod` is for Windows.
pub const IS_FOR_WINDOWS: &str = "pod.?os.?name.orValue('') == 'windows' || pod.?nodeSelector[?'kubernetes.io/os'].orValue('') == 'windows' || \
     pod.?runtimeClassName.orValue('').startsWith('windows-')";

use Effect::{Fails, Ignored};

pub const RULES: [Rule; 24] = [
    Rule {
        id: "systems",
        effect: Fails,
        of_pod: Some("!(variables.os in ['', 'windows']) || !(variables.selected in ['', 'windows'])"),
        of_container: None,
        message: "os.name, nodeSelector, runtimeClassName: one says Windows and another does not, so no node takes the pod: let them agree",
    },
    Rule {
        id: "host-network",
        effect: Fails,
        of_pod: Some("variables.pod.?hostNetwork.orValue(false) && !variables.isHostProcess"),
        of_container: None,
        message: "hostNetwork: only HostProcess pods have the node's network on Windows: take it out, or set windowsOptions.hostProcess",
    },
    Rule {
        id: "host-namespaces",
        effect: Fails,
        of_pod: Some("(variables.pod.?hostPID.orValue(false) || variables.pod.?hostIPC.orValue(false)) && !variables.isHostProcess"),
        of_container: None,
        message: "hostPID, hostIPC: only HostProcess pods see the node's processes on Windows: take it out, or set windowsOptions.hostProcess",
    },
    Rule {
        id: "shared-processes",
        effect: Fails,
        of_pod: Some("variables.pod.?shareProcessNamespace.orValue(false)"),
        of_container: None,
        message: "shareProcessNamespace: containers on Windows do not see each other's processes: take it out",
    },
    Rule {
        id: "privileged",
        effect: Fails,
        of_pod: None,
        of_container: Some("c.?securityContext.?privileged.orValue(false) && !variables.isHostProcess"),
        message: "securityContext.privileged: Windows has only HostProcess pods for that: take it out, or set windowsOptions.hostProcess",
    },
    Rule {
        id: "volume-devices",
        effect: Fails,
        of_pod: None,
        of_container: Some("c.?volumeDevices.hasValue()"),
        message: "volumeDevices: Windows nodes attach no raw block devices: use volumeMounts, and a volume with a file system",
    },
    Rule {
        id: "huge-pages",
        effect: Fails,
        of_pod: Some("variables.pod.?resources.?limits.orValue({}).exists(name, name.startsWith('hugepages-'))"),
        of_container: Some("c.?resources.?limits.orValue({}).exists(name, name.startsWith('hugepages-'))"),
        message: "resources.limits[hugepages-*]: no Windows node has huge pages, and the pod would wait forever: take it out",
    },
    Rule {
        id: "administrator",
        effect: Fails,
        of_pod: None,
        of_container: Some(
            "c.?securityContext.?runAsNonRoot.orValue(variables.security.?runAsNonRoot.orValue(false)) && \
             c.?securityContext.?windowsOptions.?runAsUserName.orValue(variables.userName).lowerAscii() == 'containeradministrator'",
        ),
        message: "securityContext.runAsNonRoot: ContainerAdministrator counts as root: set windowsOptions.runAsUserName to ContainerUser",
    },
    Rule {
        id: "os-name",
        effect: Ignored,
        of_pod: Some("variables.os == ''"),
        of_container: None,
        message: "os.name: it is missing: write windows, and the API server checks the other fields for Windows",
    },
    Rule {
        id: "node-selector",
        effect: Ignored,
        of_pod: Some(
            "variables.selected == '' && !variables.pod.?runtimeClassName.orValue('').startsWith('windows-') && \
             !variables.pod.?nodeName.hasValue() && !variables.pod.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution.hasValue()",
        ),
        of_container: None,
        message: "nodeSelector: the scheduler does not read os.name and may take a Linux node: add kubernetes.io/os: windows",
    },
    Rule {
        id: "capabilities",
        effect: Ignored,
        of_pod: None,
        of_container: Some("c.?securityContext.?capabilities.hasValue()"),
        message: "securityContext.capabilities: Windows has none and ignores it: take it out",
    },
    Rule {
        id: "se-linux",
        effect: Ignored,
        of_pod: Some("variables.security.?seLinuxOptions.hasValue() || variables.security.?seLinuxChangePolicy.hasValue()"),
        of_container: Some("c.?securityContext.?seLinuxOptions.hasValue()"),
        message: "securityContext.seLinuxOptions, seLinuxChangePolicy: Windows ignores it: take it out",
    },
    Rule {
        id: "seccomp",
        effect: Ignored,
        of_pod: Some("variables.security.?seccompProfile.hasValue()"),
        of_container: Some("c.?securityContext.?seccompProfile.hasValue()"),
        message: "securityContext.seccompProfile: Windows ignores it: take it out",
    },
    Rule {
        id: "app-armor",
        effect: Ignored,
        of_pod: Some("variables.security.?appArmorProfile.hasValue()"),
        of_container: Some("c.?securityContext.?appArmorProfile.hasValue()"),
        message: "securityContext.appArmorProfile: Windows ignores it: take it out",
    },
    Rule {
        id: "user-number",
        effect: Ignored,
        of_pod: Some("variables.security.?runAsUser.hasValue()"),
        of_container: Some("c.?securityContext.?runAsUser.hasValue()"),
        message: "securityContext.runAsUser: Windows has no user numbers and ignores it: name a user in windowsOptions.runAsUserName",
    },
    Rule {
        id: "group-numbers",
        effect: Ignored,
        of_pod: Some(
            "['runAsGroup', 'fsGroup', 'fsGroupChangePolicy', 'supplementalGroups', 'supplementalGroupsPolicy'].exists(key, key in variables.security)",
        ),
        of_container: Some("c.?securityContext.?runAsGroup.hasValue()"),
        message: "securityContext.runAsGroup, fsGroup*, supplementalGroups*: Windows has no group numbers and ignores it: take it out",
    },
    Rule {
        id: "sysctls",
        effect: Ignored,
        of_pod: Some("variables.security.?sysctls.hasValue()"),
        of_container: None,
        message: "securityContext.sysctls: Windows ignores it: take it out",
    },
    Rule {
        id: "privilege-escalation",
        effect: Ignored,
        of_pod: None,
        of_container: Some("c.?securityContext.?allowPrivilegeEscalation.hasValue()"),
        message: "securityContext.allowPrivilegeEscalation: Windows ignores it: take it out",
    },
    Rule {
        id: "read-only-root",
        effect: Ignored,
        of_pod: None,
        of_container: Some("c.?securityContext.?readOnlyRootFilesystem.orValue(false)"),
        message: "securityContext.readOnlyRootFilesystem: the root of a Windows container can be written to all the same: take it out",
    },
    Rule {
        id: "host-users",
        effect: Ignored,
        of_pod: Some("variables.pod.?hostUsers.hasValue()"),
        of_container: None,
        message: "hostUsers: Windows has no user namespaces and ignores it: take it out",
    },
    Rule {
        id: "mount-propagation",
        effect: Ignored,
        of_pod: None,
        of_container: Some("c.?volumeMounts.orValue([]).exists(mount, mount.?mountPropagation.orValue('None') != 'None')"),
        message: "volumeMounts.mountPropagation: Windows does not pass on what is mounted later: take it out",
    },
    Rule {
        id: "memory-volume",
        effect: Ignored,
        of_pod: Some("variables.pod.?volumes.orValue([]).exists(volume, volume.?emptyDir.?medium.orValue('') == 'Memory')"),
        of_container: None,
        message: "volumes.emptyDir.medium: on Windows it is on disk, and what is secret stays there: take it out",
    },
    Rule {
        id: "host-dns",
        effect: Ignored,
        of_pod: Some("variables.pod.?dnsPolicy.orValue('') == 'ClusterFirstWithHostNet'"),
        of_container: None,
        message: "dnsPolicy: ClusterFirstWithHostNet has no meaning on Windows: write ClusterFirst",
    },
    Rule {
        id: "isolation",
        effect: Ignored,
        of_pod: Some("'experimental.windows.kubernetes.io/isolation-type' in variables.annotations"),
        of_container: None,
        message: "annotation experimental.windows.kubernetes.io/isolation-type: nothing reads it: name a RuntimeClass in runtimeClassName",
    },
];
