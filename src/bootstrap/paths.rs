//! Paths on a node, in one list, so that the plan, the configurations and the simulated guest cannot disagree.

/// CAPW's own directory; only SYSTEM and Administrators have access.
pub const ROOT: &str = r"C:\ProgramData\capw";
/// Files that hold secrets. Removed by the last item of the plan.
pub const SECRET: &str = r"C:\ProgramData\capw\secret";
/// The files that the loader unpacks: `node.json`, `runner\`, `files\`, `secret\`.
pub const PAYLOAD: &str = r"C:\ProgramData\capw\payload";
/// The archive from which the loader unpacks the payload, and unpacks it again if a file is damaged. It contains secrets. Removed by the
/// last item of the plan.
pub const PAYLOAD_ARCHIVE: &str = r"C:\ProgramData\capw\payload.gz";
/// The file where the simulated guest records the digest of the unpacked payload.
pub const PAYLOAD_STAMP: &str = r"C:\ProgramData\capw\payload.sha256";
/// The secrets of the payload. Removed by the last item of the plan.
pub const PAYLOAD_SECRET: &str = r"C:\ProgramData\capw\payload\secret";
/// Downloaded archives. Removed by the last item of the plan.
pub const DOWNLOADS: &str = r"C:\ProgramData\capw\downloads";
/// kubeadm's JoinConfiguration. It holds the bootstrap token.
pub const JOIN_CONFIG: &str = r"C:\ProgramData\capw\secret\kubeadm-join.yaml";

/// Windows PowerShell, by its full path: programs that run as SYSTEM do not search for their programs.
pub const POWERSHELL: &str = r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe";

/// Programs of Kubernetes.
pub const KUBERNETES_BIN: &str = r"C:\k";
pub const KUBELET: &str = r"C:\k\kubelet.exe";
pub const KUBEADM: &str = r"C:\k\kubeadm.exe";
pub const KUBE_PROXY: &str = r"C:\k\kube-proxy.exe";
pub const FLANNELD: &str = r"C:\k\flanneld.exe";
pub const KUBE_PROXY_CONFIG: &str = r"C:\etc\kubernetes\kube-proxy.yaml";
pub const KUBE_PROXY_LOG: &str = r"C:\var\log\kube-proxy";
pub const LOG_RUNNER: &str = r"C:\k\kube-log-runner.exe";
pub const CRICTL: &str = r"C:\k\crictl.exe";
/// crictl's default configuration, beside the program.
pub const CRICTL_CONFIG: &str = r"C:\k\crictl.yaml";
/// The kubelet's CredentialProviderConfig; it exists only if the spec names credential providers.
pub const CREDENTIAL_PROVIDERS: &str = r"C:\etc\kubernetes\credential-providers.yaml";
pub const KUBERNETES: &str = r"C:\etc\kubernetes";
pub const KUBELET_KUBECONFIG: &str = r"C:\etc\kubernetes\kubelet.conf";
/// The kubeconfig that kubeadm writes during the join; it holds the bootstrap token.
pub const BOOTSTRAP_KUBECONFIG: &str = r"C:\etc\kubernetes\bootstrap-kubelet.conf";
pub const CLUSTER_CA: &str = r"C:\etc\kubernetes\pki\ca.crt";
/// The authorities of `spec.network.caBundle` in PEM form, if any.
pub const CA_BUNDLE: &str = r"C:\etc\ca-bundle.pem";
/// The directory for static pods of kubeadm clusters; the kubelet complains every 20 s if it is missing.
pub const MANIFESTS: &str = r"C:\etc\kubernetes\manifests";
/// Flexvolume drivers, which the kubelet runs as SYSTEM. The kubelet would create this directory writable for every user.
pub const VOLUME_PLUGINS: &str = r"C:\usr\libexec\kubernetes\kubelet-plugins\volume\exec";
/// The patches that kubeadm applies to the configuration it downloads from the cluster.
pub const PATCHES: &str = r"C:\etc\kubernetes\patches";
/// Our fields of the KubeletConfiguration: they override the cluster's `kubelet-config`.
pub const KUBELET_PATCH: &str = r"C:\etc\kubernetes\patches\kubeletconfiguration+strategic.yaml";
pub const KUBELET_ROOT: &str = r"C:\var\lib\kubelet";
/// The KubeletConfiguration that kubeadm writes: the cluster's, with our patch.
pub const KUBELET_CONFIG: &str = r"C:\var\lib\kubelet\config.yaml";
/// Drop-in files `*.conf` of the KubeletConfiguration; they override [`KUBELET_CONFIG`], the last one overrides all.
pub const KUBELET_DROP_INS: &str = r"C:\etc\kubernetes\kubelet.conf.d";
/// The users' own fields. Other files in the directory belong to the users.
pub const KUBELET_DROP_IN: &str = r"C:\etc\kubernetes\kubelet.conf.d\50-user.conf";
/// Keys and certificates of the kubelet (`--cert-dir`). `kubeadm reset` empties [`KUBELET_ROOT`]: beside it the keys survive an attempt to
/// join, and the next attempt sends its request with the same key. CAPW admits no other key.
pub const KUBELET_PKI: &str = r"C:\var\lib\kubelet-pki";
/// Volumes of pods, one directory each.
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
/// Flannel's plugin. Conflists call it by this name.
pub const FLANNEL_CNI: &str = r"C:\opt\cni\bin\flannel.exe";
pub const CNI_CONF: &str = r"C:\etc\cni\net.d";
/// The named pipe of containerd, without `\\.\pipe\`.
pub const CRI_PIPE: &str = "containerd-containerd";
/// The named pipe of containerd, as kubeadm and the kubelet write it.
pub const CRI_SOCKET: &str = "npipe:////./pipe/containerd-containerd";

/// The directory of the sentinel file, which reports success to Cluster API.
pub const SENTINEL_DIR: &str = r"C:\run\cluster-api";
pub const SENTINEL: &str = r"C:\run\cluster-api\bootstrap-success.complete";

/// Windows Setup's copies of the answer file; they contain the password of Administrator.
pub const SETUP_ANSWERS: [&str; 2] = [r"C:\Windows\Panther\unattend.xml", r"C:\Windows\Panther\Unattend\unattend.xml"];
