//! The local repository of clusterctl: the components of each provider, and the infrastructure provider's templates and classes.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::image::{clear, version};

/// The placeholder of the image in manifests, which may have any tag.
const PLACEHOLDER: &str = "example.invalid/capw/capw";
/// The folder below `config/clusterctl`, and clusterctl's name for the type.
const PROVIDERS: [(&str, &str); 3] =
    [("infrastructure", "InfrastructureProvider"), ("bootstrap", "BootstrapProvider"), ("control-plane", "ControlPlaneProvider")];

/// Flags of `capw-release components`.
#[derive(Args, Debug)]
pub struct Components {
    /// The image that the components run.
    #[arg(long, value_name = "NAME:TAG", value_parser = image)]
    image: String,
    /// A kubectl that knows `kustomize`.
    #[arg(long, value_name = "FILE", default_value = "kubectl")]
    kubectl: PathBuf,
    /// The checkout.
    #[arg(long, value_name = "DIR", default_value = ".")]
    source: PathBuf,
    /// Folder of the repository; what was there before is removed.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
}

impl Components {
    /// Writes the repository and returns how clusterctl uses it.
    pub fn write(&self) -> Result<String> {
        clear(&self.output)?;
        let output = fs::canonicalize(&self.output)?;
        let mut config = String::from("providers:\n");
        for (name, kind) in PROVIDERS {
            let folder = output.join(format!("{name}-windows")).join(version());
            fs::create_dir_all(&folder)?;
            fs::copy(self.source.join("metadata.yaml"), folder.join("metadata.yaml")).context("metadata.yaml")?;
            let text = component(&self.kustomize(name)?, &self.image, name)?;
            let file = folder.join(format!("{name}-components.yaml"));
            fs::write(&file, text).with_context(|| file.display().to_string())?;
            config += &format!("- name: windows\n  type: {kind}\n  url: {}\n", file.display());
        }
        let templates = output.join("infrastructure-windows").join(version());
        for entry in fs::read_dir(self.source.join("config/clusterctl/templates"))? {
            let entry = entry?;
            fs::copy(entry.path(), templates.join(entry.file_name()))?;
        }
        let config_file = output.join("clusterctl.yaml");
        fs::write(&config_file, config)?;
        Ok(format!("{}: give it to clusterctl with --config\n", config_file.display()))
    }

    fn kustomize(&self, name: &str) -> Result<String> {
        let folder = self.source.join("config/clusterctl").join(name);
        let done = Command::new(&self.kubectl).arg("kustomize").arg(&folder).output();
        let done = done.with_context(|| format!("{}: name a kubectl with KUBECTL=…", self.kubectl.display()))?;
        ensure!(done.status.success(), "kubectl kustomize {}: {}", folder.display(), String::from_utf8_lossy(&done.stderr));
        Ok(String::from_utf8(done.stdout)?)
    }
}

/// Parses a name with a tag: clusterctl cannot override the tag of a digest.
fn image(text: &str) -> Result<String> {
    let name = text.rsplit('/').next().unwrap_or(text);
    ensure!(name.contains(':') && !text.contains('@'), "expected REGISTRY/NAME:TAG");
    ensure!(!text.contains(PLACEHOLDER), "it stands for an image; build one with `make image`, push it, and give its name");
    Ok(text.to_owned())
}

/// Replaces the placeholder in the manifest by the image, if clusterctl can use the manifest.
fn component(manifest: &str, image: &str, name: &str) -> Result<String> {
    let text = with_image(manifest, image);
    check(&text, image, name).with_context(|| format!("the components of {name}-windows"))?;
    Ok(text)
}

/// Sets the manager's image, and the image name that the manager uses for Windows nodes.
fn with_image(manifest: &str, image: &str) -> String {
    let lines = manifest.lines().map(|line| match line.split_once(&format!("{PLACEHOLDER}:")) {
        Some((before, _tag)) => format!("{before}{image}\n"),
        None => format!("{line}\n"),
    });
    lines.collect()
}

fn check(text: &str, image: &str, name: &str) -> Result<()> {
    let count = |line: &str| text.lines().filter(|l| l.trim_start_matches([' ', '-']) == line).count();
    ensure!(!text.contains(PLACEHOLDER), "{PLACEHOLDER} is left, which no registry has");
    ensure!(count(&format!("image: {image}")) == 1, "the image is named {} times instead of once", count(&format!("image: {image}")));
    ensure!(!text.contains("${"), "`${{` is left: other installers than clusterctl take it literally");
    ensure!(count("name: manager") == 1, "no container `manager`, to which clusterctl gives an overridden image");
    if text.lines().filter(|line| *line == "kind: Namespace").count() != 1 {
        bail!("clusterctl expects one Namespace");
    }
    let label = format!("cluster.x-k8s.io/provider: {name}-windows");
    let objects = text.split("\n---\n").filter(|object| !object.trim().is_empty());
    match objects.into_iter().find(|object| !object.contains(&label)) {
        Some(object) => bail!("an object lacks the label {label}: {}", object.chars().take(200).collect::<String>()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkout;

    const LABEL: &str = "  labels:\n    cluster.x-k8s.io/provider: bootstrap-windows\n";

    fn manifest() -> String {
        format!(
            "kind: Namespace\nmetadata:\n{LABEL}---\nkind: Deployment\nmetadata:\n{LABEL}spec:\n      containers:\n      - image: {PLACEHOLDER}:unreleased\n        name: manager\n"
        )
    }

    fn refused(manifest: &str) -> String {
        format!("{:#}", component(manifest, "registry.example/capw:v1", "bootstrap").unwrap_err())
    }

    #[test]
    fn components_name_the_image_that_was_given() {
        let text = component(&manifest(), "registry.example/capw:v1", "bootstrap").unwrap();
        assert!(text.contains("      - image: registry.example/capw:v1\n        name: manager\n"), "{text}");
    }

    #[test]
    fn the_manager_runs_the_image_and_tells_windows_nodes_of_it() {
        let manager = fs::read_to_string(checkout().join("config/manager/deployment.yaml")).unwrap();
        let text = with_image(&manager, "registry.example/capw:v1");
        for line in ["        image: registry.example/capw:v1\n", "        - name: CAPW_IMAGE\n          value: registry.example/capw:v1\n"] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!text.contains("example.invalid"), "{text}");
    }

    #[test]
    fn components_that_clusterctl_cannot_use_are_refused() {
        assert!(refused(&manifest().replace(":unreleased", "")).contains("is left, which no registry has"));
        assert!(refused(&manifest().replace("image: ", "picture: ")).contains("named 0 times"));
        assert!(refused(&manifest().replace(&format!("- image: {PLACEHOLDER}:unreleased"), "- image: other")).contains("named 0 times"));
        assert!(refused(&manifest().replace("name: manager", "name: other")).contains("no container `manager`"));
        assert!(refused(&manifest().replace("kind: Namespace", "kind: Other")).contains("one Namespace"));
        assert!(refused(&(manifest() + "---\nkind: Role\n")).contains("lacks the label"));
        assert!(refused(&(manifest() + "# ${REPLICAS:=1}\n")).contains("`${` is left"));
    }

    #[test]
    fn an_image_has_a_tag_and_is_not_what_stands_for_one() {
        assert!(image("registry.example:5000/capw:v1").is_ok());
        for wrong in ["registry.example:5000/capw", "registry.example/capw@sha256:0", "example.invalid/capw/capw:v1"] {
            assert!(image(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_container_file_copies_only_what_reaches_the_builder() {
        let read = |name: &str| fs::read_to_string(checkout().join(name)).unwrap();
        let (container, ignore) = (read("Containerfile"), read(".containerignore"));
        let passes: Vec<&str> = ignore.lines().filter_map(|line| line.strip_prefix('!')).collect();
        assert_eq!(ignore.lines().next(), Some("*"), "everything is left out but what is named");
        let copies = container.lines().filter_map(|line| line.strip_prefix("COPY "));
        let sources: Vec<&str> = copies.filter_map(|line| line.split(' ').find(|word| !word.starts_with("--"))).collect();
        assert!(sources.len() >= 2, "{sources:?}");
        for source in sources {
            assert!(passes.iter().any(|pass| source.starts_with(pass.trim_end_matches("**"))), "COPY {source}: .containerignore leaves it out");
        }
    }
}
