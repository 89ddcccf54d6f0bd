//! clusterctl with a local repository: Cluster API core as published, and our three providers as config/clusterctl makes them.
//! It must not reach the network.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::capw::{files, kustomize};
use super::client::output;
use super::control_plane::ControlPlane;
use super::tools::{Tools, checkout};

/// Our providers: the folder below config/clusterctl, the label and the type that clusterctl knows, the file it asks for.
const PROVIDERS: [(&str, &str, &str, &str); 3] = [
    ("infrastructure", "infrastructure-windows", "InfrastructureProvider", "infrastructure-components.yaml"),
    ("bootstrap", "bootstrap-windows", "BootstrapProvider", "bootstrap-components.yaml"),
    ("control-plane", "control-plane-windows", "ControlPlaneProvider", "control-plane-components.yaml"),
];

impl ControlPlane {
    /// Runs clusterctl and gives its standard output. Panics with what it said if it fails.
    pub async fn clusterctl(&self, args: &[&str]) -> String {
        self.try_clusterctl(args).await.unwrap_or_else(|said| panic!("clusterctl {}: {said}", args.join(" ")))
    }

    /// Runs clusterctl: its standard output, or everything it said if it fails.
    pub async fn try_clusterctl(&self, args: &[&str]) -> Result<String, String> {
        let home = self.directory().join("clusterctl");
        if !home.exists() {
            self.write_repository(&home).await;
        }
        let mut command = Command::new(&Tools::ensure().clusterctl);
        command
            .args(args)
            .env("KUBECONFIG", self.kubeconfig())
            .env("XDG_CONFIG_HOME", &home)
            .env("XDG_CACHE_HOME", home.join("cache"))
            .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true")
            // It looks for newer versions of itself and of providers there.
            .env("GOPROXY", "off")
            .current_dir(self.directory());
        output(command, None).await
    }

    /// The layout is clusterctl's: LABEL/VERSION/FILE.
    async fn write_repository(&self, home: &Path) {
        let tools = Tools::ensure();
        let repository = home.join("repository");
        let version = &tools.cluster_api_version;
        let core = repository.join("cluster-api").join(version);
        place(&core, "core-components.yaml", &read(&tools.core_components));
        place(&core, "metadata.yaml", &read(&tools.core_metadata));
        let certificates = repository.join("cert-manager").join(&tools.cert_manager_version);
        place(&certificates, "cert-manager.yaml", &read(&tools.cert_manager));
        let mut config = format!(
            "cert-manager:\n  url: {}\n  version: {}\nproviders:\n{}",
            certificates.join("cert-manager.yaml").display(),
            tools.cert_manager_version,
            entry("cluster-api", "CoreProvider", &core.join("core-components.yaml"))
        );
        let ours = checkout().join("config/clusterctl");
        for (folder, label, kind, components) in PROVIDERS {
            if !ours.join(folder).join("kustomization.yaml").exists() {
                continue;
            }
            let to = repository.join(label).join(format!("v{}", env!("CARGO_PKG_VERSION")));
            place(&to, components, &kustomize(&format!("config/clusterctl/{folder}")).await);
            place(&to, "metadata.yaml", &read(&metadata()));
            // Cluster templates and ClusterClasses are looked for beside the infrastructure provider.
            if folder == "infrastructure" {
                for file in files(&ours.join("templates"), "yaml").iter().chain(&files(&ours, "yaml")) {
                    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                    if name.starts_with("cluster") {
                        place(&to, name, &read(file));
                    }
                }
            }
            config += &entry("windows", kind, &to.join(components));
        }
        place(&home.join("cluster-api"), "clusterctl.yaml", &config);
    }
}

fn entry(name: &str, kind: &str, components: &Path) -> String {
    format!("- name: {name}\n  type: {kind}\n  url: {}\n", components.display())
}

fn metadata() -> PathBuf {
    checkout().join("metadata.yaml")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn place(directory: &Path, name: &str, content: &str) {
    std::fs::create_dir_all(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    let path = directory.join(name);
    std::fs::write(&path, content).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}
