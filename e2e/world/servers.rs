//! The command lines of a control plane's programs. It must not start or wait for any of them.

use std::net::SocketAddr;
use std::path::Path;

use super::control_plane::Options;
use super::pki;
use super::ports::free_port;
use super::process::Process;
use super::tools::Tools;

/// The programs of one control plane, not started.
pub(super) struct Servers {
    /// The port of the API server.
    pub(super) port: u16,
    // Dropped, and so ended, from first to last: clients of the API server end before it.
    pub(super) scheduler: Option<Process>,
    pub(super) controller_manager: Process,
    pub(super) api_server: Process,
    pub(super) etcd: Process,
}

impl Servers {
    /// The programs in `dir`, which will contain certificates and kubeconfigs, with the API server on `port`.
    pub(super) fn new(dir: &Path, port: u16, options: &Options) -> Self {
        let tools = Tools::ensure();
        let (etcd, etcd_url) = etcd(tools, dir);
        Self {
            port,
            scheduler: options.scheduler.then(|| scheduler(tools, dir)),
            controller_manager: controller_manager(tools, dir, &options.controller_manager),
            api_server: api_server(tools, dir, SocketAddr::new(options.address, port), &etcd_url),
            etcd,
        }
    }
}

/// One line per answered request. A watch has one line at its start, another at its end.
pub(super) const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
";

/// A Go program that uses memory rather than time: it lives for a minute or two, and its start is half of a story. It collects garbage when its heap
/// is five times what was in use. A limit of memory would be reached with a thousand machines, and collecting would take most of the time then.
pub(super) fn go(name: &str, program: &Path, dir: &Path) -> Process {
    Process::new(name, program, dir).env("GOGC", "400")
}

fn etcd(tools: &Tools, dir: &Path) -> (Process, String) {
    let (url, peer) = (format!("http://127.0.0.1:{}", free_port()), format!("http://127.0.0.1:{}", free_port()));
    let process = go("etcd", &tools.etcd, dir).args([
        "--data-dir=etcd".to_owned(),
        // The data is worthless after a crash of the machine; this saves seconds.
        "--unsafe-no-fsync".to_owned(),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
    ]);
    (process, url)
}

fn api_server(tools: &Tools, dir: &Path, endpoint: SocketAddr, etcd: &str) -> Process {
    let ours = [
        format!("--bind-address={}", endpoint.ip()),
        format!("--etcd-servers={etcd}"),
        format!("--secure-port={}", endpoint.port()),
        format!("--advertise-address={}", pki::ADVERTISED),
        format!("--service-cluster-ip-range={}", pki::SERVICE_SUBNET),
    ];
    go("kube-apiserver", &tools.kube_apiserver, dir).args(ours).args(API_SERVER)
}

const API_SERVER: [&str; 21] = [
    "--tls-cert-file=pki/apiserver.crt",
    "--tls-private-key-file=pki/apiserver.key",
    "--client-ca-file=pki/ca.crt",
    "--service-account-key-file=pki/sa.pub",
    "--service-account-signing-key-file=pki/sa.key",
    "--service-account-issuer=https://kubernetes.default.svc",
    "--kubelet-client-certificate=pki/apiserver-kubelet-client.crt",
    "--kubelet-client-key=pki/apiserver-kubelet-client.key",
    "--requestheader-client-ca-file=pki/front-proxy-ca.crt",
    "--requestheader-allowed-names=front-proxy-client",
    "--requestheader-username-headers=X-Remote-User",
    "--requestheader-group-headers=X-Remote-Group",
    "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    "--enable-bootstrap-token-auth",
    "--authorization-mode=Node,RBAC",
    "--enable-admission-plugins=NodeRestriction",
    "--allow-privileged",
    "--audit-policy-file=audit-policy.yaml",
    "--audit-log-path=audit.jsonl",
    // Megabytes before the log rotates: never, so that a mark in it stays valid.
    "--audit-log-maxsize=100000",
    "--shutdown-delay-duration=0s",
];

fn controller_manager(tools: &Tools, dir: &Path, more: &[String]) -> Process {
    let controllers = format!("--controllers=*,bootstrapsigner,tokencleaner,-{}", LEFT_OUT.join(",-"));
    let ours = [format!("--secure-port={}", free_port()), format!("--cluster-cidr={}", pki::POD_SUBNET), controllers];
    go("kube-controller-manager", &tools.kube_controller_manager, dir).args(ours).args(CONTROLLER_MANAGER).args(more)
}

/// Controllers that no story needs: for volumes, devices, load balancers, and workloads whose pods must run. Each controller lists and watches
/// its objects, with a token of its own.
const LEFT_OUT: [&str; 22] = [
    "cloud-node-lifecycle-controller",
    "cronjob-controller",
    "device-taint-eviction-controller",
    "endpoints-controller",
    "endpointslice-mirroring-controller",
    "ephemeral-volume-controller",
    "kube-apiserver-serving-clustertrustbundle-publisher-controller",
    "legacy-serviceaccount-token-cleaner-controller",
    "node-route-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-expander-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "replicationcontroller-controller",
    "resourceclaim-controller",
    "service-lb-controller",
    "statefulset-controller",
    "storage-version-migrator-controller",
    "storageversion-garbage-collector-controller",
    "ttl-after-finished-controller",
    "volumeattributesclass-protection-controller",
];

const CONTROLLER_MANAGER: [&str; 12] = [
    "--kubeconfig=kube/controller-manager.conf",
    "--bind-address=127.0.0.1",
    "--leader-elect=false",
    "--use-service-account-credentials",
    "--service-account-private-key-file=pki/sa.key",
    "--root-ca-file=pki/ca.crt",
    "--cluster-signing-cert-file=pki/ca.crt",
    "--cluster-signing-key-file=pki/ca.key",
    "--allocate-node-cidrs",
    // Late leases on a busy machine are not the subject of any story.
    "--node-monitor-grace-period=5m",
    // By default the client is limited to 20 requests a second: 6 s until tokens are signed instead of 0.8 s.
    "--kube-api-qps=200",
    "--kube-api-burst=400",
];

fn scheduler(tools: &Tools, dir: &Path) -> Process {
    go("kube-scheduler", &tools.kube_scheduler, dir).args([
        "--kubeconfig=kube/scheduler.conf".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", free_port()),
        "--leader-elect=false".to_owned(),
    ])
}
