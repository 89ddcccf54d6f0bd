//! Where things are on a node. One list, so that the plan, the configurations and the simulated guest cannot disagree.

/// Everything of ours; SYSTEM and Administrators only.
pub const ROOT: &str = r"C:\ProgramData\capw";
/// Files that hold secrets. Removed by the last item of the plan.
pub const SECRET: &str = r"C:\ProgramData\capw\secret";
/// What the loader unpacks: `node.json`, `runner\`, `files\`, `secret\`.
pub const PAYLOAD: &str = r"C:\ProgramData\capw\payload";
/// What the loader unpacks it from: again, if a file of the payload is damaged. It holds secrets. Removed by the last item of the plan.
pub const PAYLOAD_ARCHIVE: &str = r"C:\ProgramData\capw\payload.gz";
/// Where the simulated guest notes the digest of what it has unpacked.
pub const PAYLOAD_STAMP: &str = r"C:\ProgramData\capw\payload.sha256";
/// The secrets among what the loader unpacks. Removed by the last item of the plan.
pub const PAYLOAD_SECRET: &str = r"C:\ProgramData\capw\payload\secret";
/// Archives until they are unpacked. Removed by the last item of the plan.
pub const DOWNLOADS: &str = r"C:\ProgramData\capw\downloads";
/// kubeadm's JoinConfiguration. It holds the bootstrap token.
pub const JOIN_CONFIG: &str = r"C:\ProgramData\capw\secret\kubeadm-join.yaml";

/// Windows PowerShell, by its own path: what runs as SYSTEM does not look for its programs.
pub const POWERSHELL: &str = r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe";

/// Programs of Kubernetes.
pub const KUBERNETES_BIN: &str = r"C:\k";
pub const KUBELET: &str = r"C:\k\kubelet.exe";
pub const KUBEADM: &str = r"C:\k\kubeadm.exe";
pub const KUBE_PROXY: &str = r"C:\k\kube-proxy.exe";
pub const KUBE_PROXY_CONFIG: &str = r"C:\etc\kubernetes\kube-proxy.yaml";
pub const KUBE_PROXY_LOG: &str = r"C:\var\log\kube-proxy";
pub const LOG_RUNNER: &str = r"C:\k\kube-log-runner.exe";
pub const CRICTL: &str = r"C:\k\crictl.exe";
/// Where crictl looks when it has no options and its user no settings: beside itself.
pub const CRICTL_CONFIG: &str = r"C:\k\crictl.yaml";
/// Which images the kubelet asks which program for credentials; only where some are named.
pub const CREDENTIAL_PROVIDERS: &str = r"C:\etc\kubernetes\credential-providers.yaml";
pub const KUBERNETES: &str = r"C:\etc\kubernetes";
pub const KUBELET_KUBECONFIG: &str = r"C:\etc\kubernetes\kubelet.conf";
/// Written by kubeadm during the join; it holds the bootstrap token.
pub const BOOTSTRAP_KUBECONFIG: &str = r"C:\etc\kubernetes\bootstrap-kubelet.conf";
pub const CLUSTER_CA: &str = r"C:\etc\kubernetes\pki\ca.crt";
/// The authorities of `spec.network.caBundle`, PEM; only where some are given.
pub const CA_BUNDLE: &str = r"C:\etc\ca-bundle.pem";
/// Where clusters of kubeadm let the kubelet look for static pods; it complains every 20 s while there is no such directory.
pub const MANIFESTS: &str = r"C:\etc\kubernetes\manifests";
/// Where the kubelet looks for Flexvolume drivers and runs them as SYSTEM: its default, which it makes itself for every user to write to.
pub const VOLUME_PLUGINS: &str = r"C:\usr\libexec\kubernetes\kubelet-plugins\volume\exec";
/// Patches that kubeadm lays over what it downloads from the cluster.
pub const PATCHES: &str = r"C:\etc\kubernetes\patches";
/// Our fields of the KubeletConfiguration: they win over those of the cluster's `kubelet-config`.
pub const KUBELET_PATCH: &str = r"C:\etc\kubernetes\patches\kubeletconfiguration+strategic.yaml";
pub const KUBELET_ROOT: &str = r"C:\var\lib\kubelet";
/// The KubeletConfiguration that kubeadm writes: the cluster's, with our patch.
pub const KUBELET_CONFIG: &str = r"C:\var\lib\kubelet\config.yaml";
/// Files `*.conf` with more fields of the KubeletConfiguration; they win over [`KUBELET_CONFIG`], the last one over all.
pub const KUBELET_DROP_INS: &str = r"C:\etc\kubernetes\kubelet.conf.d";
/// The users' own fields. Other files of the directory are theirs altogether.
pub const KUBELET_DROP_IN: &str = r"C:\etc\kubernetes\kubelet.conf.d\50-user.conf";
pub const KUBELET_PKI: &str = r"C:\var\lib\kubelet\pki";
/// Volumes of pods, each in a directory of its own.
pub const KUBELET_PODS: &str = r"C:\var\lib\kubelet\pods";
/// Sockets of plug-ins that run as administrators.
pub const KUBELET_PLUGINS: [&str; 4] = [
    r"C:\var\lib\kubelet\plugins",
    r"C:\var\lib\kubelet\plugins_registry",
    r"C:\var\lib\kubelet\device-plugins",
    r"C:\var\lib\kubelet\pod-resources",
];
pub const KUBELET_LOG: &str = r"C:\var\log\kubelet";

pub const CONTAINERD_BIN: &str = r"C:\Program Files\containerd";
pub const CONTAINERD: &str = r"C:\Program Files\containerd\containerd.exe";
pub const CONTAINERD_CONFIG: &str = r"C:\Program Files\containerd\config.toml";
pub const CONTAINERD_LOG: &str = r"C:\var\log\containerd";
pub const REGISTRIES: &str = r"C:\etc\containerd\certs.d";
pub const CNI_BIN: &str = r"C:\opt\cni\bin";
pub const CNI_CONF: &str = r"C:\etc\cni\net.d";
/// Named pipe of containerd, without `\\.\pipe\`.
pub const CRI_PIPE: &str = "containerd-containerd";
/// The same as kubeadm and the kubelet write it.
pub const CRI_SOCKET: &str = "npipe:////./pipe/containerd-containerd";

/// Cluster API's mark of success.
pub const SENTINEL_DIR: &str = r"C:\run\cluster-api";
pub const SENTINEL: &str = r"C:\run\cluster-api\bootstrap-success.complete";

/// Where Windows Setup keeps copies of the answer file that it was given; with the password of Administrator.
pub const SETUP_ANSWERS: [&str; 2] = [r"C:\Windows\Panther\unattend.xml", r"C:\Windows\Panther\Unattend\unattend.xml"];
