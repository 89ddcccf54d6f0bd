//! clusterctl with a local repository: Cluster API core as published, and our three providers as config/clusterctl renders them.
//! It must not reach the network.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::capw::{files, kustomize};
use super::client::output;
use super::control_plane::ControlPlane;
use super::tools::{Tools, checkout};

/// Our providers: the folder below config/clusterctl, the label and the type in clusterctl, the file that it requests.
const PROVIDERS: [(&str, &str, &str, &str); 3] = [
    ("infrastructure", "infrastructure-windows", "InfrastructureProvider", "infrastructure-components.yaml"),
    ("bootstrap", "bootstrap-windows", "BootstrapProvider", "bootstrap-components.yaml"),
    ("control-plane", "control-plane-windows", "ControlPlaneProvider", "control-plane-components.yaml"),
];

impl ControlPlane {
    /// Runs clusterctl and returns its standard output. Panics with its output if it fails.
    pub async fn clusterctl(&self, args: &[&str]) -> String {
        self.try_clusterctl(args).await.unwrap_or_else(|said| panic!("clusterctl {}: {said}", args.join(" ")))
    }

    /// Runs clusterctl; returns its standard output, or its whole output if it fails.
    pub async fn try_clusterctl(&self, args: &[&str]) -> Result<String, String> {
        let home = self.clusterctl_home().await;
        let mut command = Command::new(&Tools::ensure().clusterctl);
        command.args(args).env("KUBECONFIG", self.kubeconfig()).envs(Self::clusterctl_environment(&home)).current_dir(self.directory());
        output(command, None).await
    }

    /// The directory of clusterctl's configuration and repository. They are created on first use.
    pub async fn clusterctl_home(&self) -> PathBuf {
        let home = self.directory().join("clusterctl");
        if !home.exists() {
            self.write_repository(&home).await;
        }
        home
    }

    /// The variables with which clusterctl, the program or the library, uses only this directory.
    pub fn clusterctl_environment(home: &Path) -> [(&'static str, PathBuf); 4] {
        [
            ("XDG_CONFIG_HOME", home.to_owned()),
            ("XDG_CACHE_HOME", home.join("cache")),
            ("CLUSTERCTL_DISABLE_VERSIONCHECK", "true".into()),
            // clusterctl would check for newer versions of itself and of providers there.
            ("GOPROXY", "off".into()),
        ]
    }

    /// Adds another release of CAPW, from its checkout.
    pub async fn add_release(&self, version: &str, checkout: &Path) {
        place_release(&self.clusterctl_home().await.join("repository"), version, checkout).await;
    }

    /// Adds a flavor: the template that we ship, in which these documents replace the documents of the same kind.
    pub async fn add_flavor(&self, name: &str, documents: &str) {
        let shipped = read(&checkout().join("config/clusterctl/templates/cluster-template.yaml"));
        let kind = |document: &str| document.lines().find_map(|line| line.strip_prefix("kind: ").map(str::to_owned));
        let ours: Vec<_> = split(documents).map(kind).collect();
        let template: Vec<&str> = split(&shipped).filter(|document| !ours.contains(&kind(document))).chain(split(documents)).collect();
        let to = self.clusterctl_home().await.join("repository").join("infrastructure-windows").join(format!("v{}", env!("CARGO_PKG_VERSION")));
        place(&to, &format!("cluster-template-{name}.yaml"), &template.join("\n---\n"));
    }

    /// Writes the repository in clusterctl's layout: LABEL/VERSION/FILE.
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
        let ours = format!("v{}", env!("CARGO_PKG_VERSION"));
        place_release(&repository, &ours, checkout()).await;
        for (_, label, kind, components) in PROVIDERS {
            config += &entry("windows", kind, &repository.join(label).join(&ours).join(components));
        }
        place(&home.join("cluster-api"), "clusterctl.yaml", &config);
    }
}

/// Writes a release of CAPW, from its checkout.
async fn place_release(repository: &Path, version: &str, checkout: &Path) {
    let ours = checkout.join("config/clusterctl");
    for (folder, label, _, components) in PROVIDERS {
        let to = repository.join(label).join(version);
        let made = kustomize(ours.join(folder).to_str().expect("a path in UTF-8")).await;
        place(&to, components, &made);
        place(&to, "metadata.yaml", &read(&checkout.join("metadata.yaml")));
        // clusterctl expects cluster templates and ClusterClasses beside the infrastructure provider.
        if folder == "infrastructure" {
            for file in files(&ours.join("templates"), "yaml") {
                place(&to, file.file_name().and_then(|name| name.to_str()).unwrap_or_default(), &read(&file));
            }
        }
    }
}

fn entry(name: &str, kind: &str, components: &Path) -> String {
    format!("- name: {name}\n  type: {kind}\n  url: {}\n", components.display())
}

fn split(yaml: &str) -> impl Iterator<Item = &str> {
    yaml.trim_end().split("\n---\n")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn place(directory: &Path, name: &str, content: &str) {
    std::fs::create_dir_all(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    let path = directory.join(name);
    std::fs::write(&path, content).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}
