//! `capw components list`: the images and programs that CAPW and its Windows nodes need, for a site that has to mirror them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use kube::ResourceExt;
use serde::Serialize;

use super::image;
use super::own_image::OwnImages;
use crate::api::bootstrap_config::{WindowsBootstrapConfig, WindowsBootstrapConfigTemplate};
use crate::api::capi::{MachineDeployment, MachinePool, machine_owner};
use crate::api::cluster::WindowsCluster;
use crate::api::machine::WindowsMachineTemplate;
use crate::api::pool::{POOL_LABEL, WindowsNodePool};
use crate::bootstrap::plan::{Check, Kind as Act};
use crate::bootstrap::{self, Bootstrap, paths};
use crate::cli::connection::Connection;
use crate::cli::output::{Format, json};
use crate::cli::render::given::Given;
use crate::cli::render::manifests::{self, Manifests};
use crate::kube_api::cluster::{Cluster, Kind};

/// The programs that CAPW's pods on Windows nodes start, by their names in spec.programs.downloads (docs/pod-network.md).
const OF_NETWORK: [(&str, &str); 4] =
    [("cni-plugins", paths::CNI_BIN), ("flannel-cni", paths::FLANNEL_CNI), ("flanneld", paths::FLANNELD), ("kube-proxy", paths::KUBE_PROXY)];

#[derive(Args, Debug)]
#[command(after_help = "\
Images of pods are not listed, nor those of Cluster API (`clusterctl init list-images`).
With -f no cluster is asked.
Exit code 0: all is listed. 1: a configuration was left out, and the last lines say why.")]
pub(super) struct List {
    /// YAML files as for `capw render`; `-` is standard input. Default: what is in the namespace of the management cluster.
    #[arg(short, long = "filename", value_name = "FILE", num_args = 1.., conflicts_with_all = ["namespace", "all_namespaces", "context", "kubeconfig"])]
    file: Vec<PathBuf>,
    /// The image of CAPW, e.g. registry.example.com/capw:v0.2.0. Default: what CAPW's Deployment in the management cluster says; with -f there is none.
    #[arg(long, value_name = "NAME", value_parser = image)]
    image: Option<String>,
    /// Look at all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Version of Kubernetes, e.g. v1.36.3. Default: that of what asks for the machines.
    #[arg(long, value_name = "VERSION")]
    kubernetes_version: Option<String>,
    #[command(flatten)]
    connection: Connection,
    /// How the answer is printed.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

/// The output.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    items: Vec<Item>,
    /// Configurations with unknown requirements, and the reasons.
    left_out: Vec<String>,
}

/// A required item.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    #[serde(flatten)]
    thing: Thing,
    /// The kinds and names of the objects that need the item.
    used_by: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
struct Thing {
    place: Place,
    name: String,
    /// The reference of an image, the URL of a download, or otherwise the path on the node.
    address: String,
    /// `sha256:…` or `sha512:…`; `null`: the digest is unknown.
    digest: Option<String>,
}

/// The source of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
enum Place {
    /// A registry of container images.
    Registry,
    /// A web server.
    Download,
    /// The image of the VM.
    MachineImage,
}

impl Place {
    const fn label(self) -> &'static str {
        match self {
            Self::Registry => "registry",
            Self::Download => "download",
            Self::MachineImage => "VM image",
        }
    }
}

/// The objects by namespace, because files do not contain the namespace.
type Namespaces = BTreeMap<String, Manifests>;

impl List {
    /// Returns the output and the exit code.
    pub(super) fn run(&self) -> Result<(String, ExitCode), String> {
        let named = self.image.as_deref().map(OwnImages::named);
        let (own, namespaces) = match (self.file.as_slice(), named) {
            ([], named) => self.connection.ask(async |cluster, namespace| {
                let own = match named {
                    Some(named) => named,
                    None => OwnImages::installed(&cluster).await?,
                };
                let namespace = Some(namespace).filter(|_| !self.all_namespaces);
                Ok((own, read(&cluster, namespace.as_deref()).await?))
            })?,
            (files, Some(named)) => (named, Namespaces::from([(String::new(), manifests::read(files)?)])),
            (_, None) => {
                return Err("components: --image: with -f no cluster is asked, so name it, e.g. --image registry.example.com/capw:v0.2.0".into());
            }
        };
        let answer = self.answer(&own, &namespaces)?;
        let text = match self.output {
            Format::Text => text(&answer),
            Format::Json => json(&answer)?,
        };
        Ok((text, if answer.left_out.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
    }

    fn answer(&self, own: &OwnImages, namespaces: &Namespaces) -> Result<Answer, String> {
        let of_capw = own.run.iter().chain(&own.on_nodes).map(|image| (of_registry("capw", image), BTreeSet::from(["CAPW".to_owned()])));
        let mut found = Found { things: of_capw.collect(), left_out: Vec::new() };
        let asked = namespaces.iter().filter(|(_, manifests)| !self.all_namespaces || manifests.has_configs());
        for (namespace, manifests) in asked {
            self.add(&mut found, own, namespace, manifests)?;
        }
        if self.all_namespaces && !namespaces.values().any(Manifests::has_configs) {
            return Err("components: no namespace has a WindowsBootstrapConfig, WindowsBootstrapConfigTemplate or WindowsNodePool".into());
        }
        let items = found.things.into_iter().map(|(thing, used_by)| Item { thing, used_by }).collect();
        Ok(Answer { items, left_out: found.left_out })
    }

    /// Adds the requirements of a namespace's machines.
    fn add(&self, found: &mut Found, own: &OwnImages, namespace: &str, manifests: &Manifests) -> Result<(), String> {
        let given = Given { kubernetes_version: self.kubernetes_version.clone(), ..Given::default() };
        for machine in manifests.machines_of_all()? {
            let of_machine = machine.and_then(|machine| {
                let rendered = bootstrap::render(&given.facts(manifests, &machine)?).map_err(|e| format!("{}: {e}", machine.origin))?;
                Ok((things(&rendered), machine.asked_by.unwrap_or(machine.name)))
            });
            let (mut things, user) = match of_machine {
                Ok(found) => found,
                Err(error) => {
                    found.left_out.push(error);
                    continue;
                }
            };
            if manifests.brings_network() {
                let lacking = OF_NETWORK.into_iter().filter(|(name, _)| !things.iter().any(|thing| thing.name == *name));
                let lacking: Vec<Thing> = lacking.map(|(name, path)| in_machine_image(name, path)).collect();
                things.extend(lacking);
                things.extend(own.on_nodes.iter().map(|image| of_registry("capw", image)));
                things.extend(manifests.probe_images().map(|image| of_registry("agnhost", image)));
            }
            let user = if self.all_namespaces { in_namespace(&user, namespace) } else { user };
            for thing in things {
                found.things.entry(thing).or_default().insert(user.clone());
            }
        }
        Ok(())
    }
}

/// Formats a user with its namespace: `MachineDeployment lab/windows`.
fn in_namespace(user: &str, namespace: &str) -> String {
    match user.split_once(' ') {
        Some((kind, name)) => format!("{kind} {namespace}/{name}"),
        None => format!("{namespace}/{user}"),
    }
}

/// The items found so far.
struct Found {
    things: BTreeMap<Thing, BTreeSet<String>>,
    left_out: Vec<String>,
}

/// The external items in the plan of a machine.
fn things(rendered: &Bootstrap) -> Vec<Thing> {
    let downloads = rendered.plan.items.iter().filter_map(|item| match &item.kind {
        Act::Download { url, digest, .. } => {
            let name = item.id.strip_prefix("download-").unwrap_or(&item.id).to_owned();
            Some(Thing { place: Place::Download, name, address: url.clone(), digest: Some(digest.clone()) })
        }
        _ => None,
    });
    let mut things: Vec<Thing> = [of_registry("pause", &rendered.sandbox_image)].into_iter().chain(downloads).collect();
    let in_image = rendered.plan.items.iter().filter_map(|item| match &item.kind {
        Act::Wait { check: Check::File(path) } => Some(in_machine_image(item.id.strip_prefix("program-")?, path)),
        _ => None,
    });
    let in_image: Vec<Thing> = in_image.filter(|thing| !things.iter().any(|known| known.name == thing.name)).collect();
    things.extend(in_image);
    things
}

fn of_registry(name: &str, reference: &str) -> Thing {
    let digest = reference.split_once('@').map(|(_, digest)| digest.to_owned());
    Thing { place: Place::Registry, name: name.to_owned(), address: reference.to_owned(), digest }
}

fn in_machine_image(name: &str, path: &str) -> Thing {
    Thing { place: Place::MachineImage, name: name.to_owned(), address: path.to_owned(), digest: None }
}

/// Formats the answer with one line per item.
fn text(answer: &Answer) -> String {
    let row = |item: &Item| {
        let digest = item.thing.digest.clone().unwrap_or_else(|| "digest not known".to_owned());
        let users = item.used_by.iter().cloned().collect::<Vec<_>>().join(", ");
        [item.thing.place.label().to_owned(), item.thing.name.clone(), item.thing.address.clone(), digest, users]
    };
    let rows: Vec<[String; 5]> = answer.items.iter().map(row).collect();
    let widths: [usize; 4] = std::array::from_fn(|column| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or_default());
    let mut text = String::new();
    for row in &rows {
        let padded = row.iter().zip(widths.into_iter().chain([0])).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    for error in &answer.left_out {
        text.push_str(&format!("\nleft out: {error}\n"));
    }
    text
}

/// Reads the configurations in a namespace or in all namespaces, the owners that request machines with them, and the machines' specs.
async fn read(cluster: &Cluster, namespace: Option<&str>) -> Result<Namespaces, String> {
    let found = namespace.map(|namespace| (namespace.to_owned(), Manifests::default()));
    let mut reader = Reader { cluster, namespace, found: found.into_iter().collect() };
    // The configurations of single machines are copies.
    let is_original = |config: &WindowsBootstrapConfig| {
        machine_owner(config.metadata.owner_references.as_ref()).is_none() && !config.labels().contains_key(POOL_LABEL)
    };
    reader.add(is_original).await?;
    reader.add(|_: &WindowsBootstrapConfigTemplate| true).await?;
    reader.add(|_: &WindowsMachineTemplate| true).await?;
    reader.add(|_: &WindowsNodePool| true).await?;
    reader.add(|_: &WindowsCluster| true).await?;
    reader.add(|_: &MachineDeployment| true).await?;
    reader.add(|_: &MachinePool| true).await?;
    Ok(reader.found)
}

struct Reader<'a> {
    cluster: &'a Cluster,
    /// `None`: all namespaces.
    namespace: Option<&'a str>,
    found: Namespaces,
}

impl Reader<'_> {
    /// Adds the objects of a kind. A kind that is not installed has no objects.
    async fn add<K: Kind>(&mut self, is_wanted: impl Fn(&K) -> bool) -> Result<(), String> {
        let objects = self.cluster.list_served::<K>(self.namespace).await.map_err(|e| e.to_string())?;
        for object in objects.iter().filter(|object| is_wanted(object)) {
            let namespace = object.meta().namespace.clone().unwrap_or_default();
            let document = serde_json::to_string(object).map_err(|e| e.to_string())?;
            let origin = format!("namespace {namespace}");
            self.found.entry(namespace).or_default().add(&origin, &document)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
