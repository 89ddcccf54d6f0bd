//! The paths of the programs: the versioned cache that `e2e/tools/build.sh` fills. It must not build anything itself and must
//! not search for programs elsewhere: a test uses the versions that the go.mod files pin.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use capw_patience::step;

const KUBERNETES: &str = include_str!("../tools/kubernetes/go.mod");
const CLUSTER_API: &str = include_str!("../tools/cluster-api/go.mod");
const CERT_MANAGER: &str = include_str!("../tools/cert-manager/go.mod");

/// Paths of the programs and manifests, which all exist.
#[derive(Debug, Clone)]
pub struct Tools {
    /// etcd.
    pub etcd: PathBuf,
    /// kube-apiserver.
    pub kube_apiserver: PathBuf,
    /// kube-controller-manager.
    pub kube_controller_manager: PathBuf,
    /// kube-scheduler.
    pub kube_scheduler: PathBuf,
    /// kubeadm.
    pub kubeadm: PathBuf,
    /// kubectl.
    pub kubectl: PathBuf,
    /// Cluster API's core controllers.
    pub capi_core: PathBuf,
    /// clusterctl.
    pub clusterctl: PathBuf,
    /// Core's definitions, rights and webhooks, without the objects that need pods.
    pub capi_core_manifests: PathBuf,
    /// Core as published, for clusterctl.
    pub core_components: PathBuf,
    /// Core's metadata.yaml, for clusterctl.
    pub core_metadata: PathBuf,
    /// The stand-in for cert-manager.
    pub cert_manager: PathBuf,
    /// Version of Kubernetes, e.g. `v1.36.3`.
    pub kubernetes_version: String,
    /// Version of Cluster API, e.g. `v1.14.2`.
    pub cluster_api_version: String,
    /// Version of cert-manager, e.g. `v1.21.2`.
    pub cert_manager_version: String,
}

impl Tools {
    /// The tools; runs build.sh once if something is missing, which takes minutes the first time.
    pub fn ensure() -> &'static Self {
        static TOOLS: OnceLock<Tools> = OnceLock::new();
        TOOLS.get_or_init(|| {
            let tools = Self::locate();
            if !tools.missing().is_empty() {
                step("building the control plane's programs; the first time takes several minutes");
                build(None);
                let missing = tools.missing();
                assert!(missing.is_empty(), "e2e/tools/build.sh ended well but did not make {missing:?}");
            }
            tools
        })
    }

    fn locate() -> Self {
        let programs = programs();
        let kubernetes = pinned(KUBERNETES, "k8s.io/kubernetes");
        let etcd = pinned(KUBERNETES, "go.etcd.io/etcd/server/v3");
        let capi = pinned(CLUSTER_API, "sigs.k8s.io/cluster-api");
        let certs = pinned(CERT_MANAGER, "github.com/cert-manager/cert-manager");
        let at = |name: &str, version: &str, file: &str| programs.join(format!("{name}-{version}")).join(file);
        let of_kubernetes = |name: &str| at(name, &kubernetes, name);
        Self {
            etcd: at("etcd", &etcd, "etcd"),
            kube_apiserver: of_kubernetes("kube-apiserver"),
            kube_controller_manager: of_kubernetes("kube-controller-manager"),
            kube_scheduler: of_kubernetes("kube-scheduler"),
            kubeadm: of_kubernetes("kubeadm"),
            kubectl: of_kubernetes("kubectl"),
            capi_core: at("capi-core", &capi, "capi-core"),
            clusterctl: at("clusterctl", &capi, "clusterctl"),
            capi_core_manifests: at("capi-core", &capi, "capi-core.yaml"),
            core_components: at("capi-core", &capi, "core-components.yaml"),
            core_metadata: at("capi-core", &capi, "metadata.yaml"),
            cert_manager: at("cert-manager", &certs, "cert-manager.yaml"),
            kubernetes_version: format!("v{kubernetes}"),
            cluster_api_version: format!("v{capi}"),
            cert_manager_version: format!("v{certs}"),
        }
    }

    fn missing(&self) -> Vec<&Path> {
        [
            &self.etcd,
            &self.kube_apiserver,
            &self.kube_controller_manager,
            &self.kube_scheduler,
            &self.kubeadm,
            &self.kubectl,
            &self.capi_core,
            &self.clusterctl,
            &self.capi_core_manifests,
            &self.core_components,
            &self.core_metadata,
            &self.cert_manager,
        ]
        .into_iter()
        .map(PathBuf::as_path)
        .filter(|path| !path.exists())
        .collect()
    }
}

/// The directory of the programs: `tools` below `$CAPW_CACHE`, or below the user's directory for caches.
pub fn programs() -> PathBuf {
    let own = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = own("CAPW_CACHE").map(|dir| checkout().join(dir)).or_else(|| Some(PathBuf::from(own("XDG_CACHE_HOME")?).join("capw")));
    let cache = cache.or_else(|| Some(PathBuf::from(own("HOME")?).join(".cache/capw")));
    cache.expect("HOME is set, or CAPW_CACHE names a directory for programs").join("tools")
}

/// The top of the checkout.
pub fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

impl Tools {
    /// A program with our own source, e.g. `vcsim`; runs build.sh if it is missing.
    pub fn own(name: &str) -> PathBuf {
        let answer = Command::new(checkout().join("e2e/tools/build.sh")).args(["--path", name]).output().expect("build.sh runs");
        assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
        let path = PathBuf::from(String::from_utf8_lossy(&answer.stdout).trim_end());
        if !path.is_file() {
            // This program is not built by default.
            build((name == "previous").then_some(name));
        }
        path
    }
}

fn build(also: Option<&str>) {
    let script = checkout().join("e2e/tools/build.sh");
    let status = Command::new(&script)
        .args(also)
        .stdin(Stdio::null())
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .unwrap_or_else(|e| panic!("{}: {e}", script.display()));
    assert!(status.success(), "{} failed ({status}): see above; it needs Go, and a module proxy the first time", script.display());
}

/// The version, without its v, that a go.mod requires of a module.
fn pinned(go_mod: &str, module: &str) -> String {
    go_mod
        .lines()
        .map(|line| line.trim().trim_start_matches("require "))
        .find_map(|line| line.strip_prefix(module)?.strip_prefix(" v")?.split_whitespace().next())
        .unwrap_or_else(|| panic!("go.mod does not require {module}"))
        .to_owned()
}
