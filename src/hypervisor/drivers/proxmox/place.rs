//! The places for VMs: nodes, storages and ids, as the cluster lists them.

use sha2::{Digest, Sha256};

use super::client::{Client, Resource};
use super::hardware;
use super::image::Image;
use crate::api::hypervisor::{Proxmox, VmIds};
use crate::hypervisor::DriverError;
use crate::hypervisor::fresh::listed;
use crate::vm::{MachineKey, Thing, VmSpec};

/// The nodes and storages of one WindowsHypervisor.
#[derive(Clone, Debug)]
pub struct Place {
    /// The nodes of the settings that answer.
    pub nodes: Vec<Node>,
    /// Whether each node shows all configuration drives.
    pub has_shared_images: bool,
    storages: Vec<Resource>,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub name: String,
    cpus: u64,
    memory_mib: u64,
}

/// The total capacity of the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    pub cpus: Option<i64>,
    pub memory_mib: Option<u64>,
}

/// The privileges that the API token needs, by place.
const ON_VMS: [&str; 10] = [
    "VM.Allocate",
    "VM.Audit",
    "VM.Config.CDROM",
    "VM.Config.CPU",
    "VM.Config.Disk",
    "VM.Config.HWType",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.PowerMgmt",
];
const ON_ISO_STORAGE: [&str; 3] = ["Datastore.Allocate", "Datastore.AllocateTemplate", "Datastore.Audit"];
const ON_STORAGE: [&str; 2] = ["Datastore.AllocateSpace", "Datastore.Audit"];
const ON_NODES: [&str; 1] = ["Sys.Audit"];

impl Place {
    pub async fn find(client: &Client, settings: &Proxmox) -> Result<Self, DriverError> {
        Self::of(client.resources().await?, settings).map_err(|text| DriverError::Missing { thing: Thing::Placement, text })
    }

    fn of(resources: Vec<Resource>, settings: &Proxmox) -> Result<Self, String> {
        let all: Vec<&Resource> = resources.iter().filter(|it| it.kind == "node").collect();
        let mut nodes = Vec::new();
        for name in &settings.nodes {
            let Some(node) = all.iter().find(|node| node.node == *name) else {
                let there = listed(all.iter().map(|node| node.node.as_str()));
                return Err(format!(
                    "spec.proxmox.nodes: the cluster has no node {name:?} that the token may see (Sys.Audit on /nodes); it has {there}"
                ));
            };
            if node.status == "online" {
                nodes.push(Node { name: name.clone(), cpus: node.maxcpu, memory_mib: node.maxmem >> 20 });
            }
        }
        if nodes.is_empty() {
            return Err(format!("spec.proxmox.nodes: none of {} answers; CAPW goes on when one does", settings.nodes.join(", ")));
        }
        let storages: Vec<Resource> = resources.into_iter().filter(|it| it.kind == "storage").collect();
        for node in &nodes {
            let there = |name: &str, content: &str| {
                let is = |it: &&Resource| it.node == node.name && it.storage == name && it.content.split(',').any(|has| has == content);
                storages.iter().find(is).map(|found| found.status == "available")
            };
            let wanted = [("isoStorage", Some(&settings.iso_storage), "iso"), ("storage", settings.storage.as_ref(), "images")];
            for (field, name, content) in wanted.iter().filter_map(|(field, name, content)| Some((field, (*name)?, content))) {
                match there(name, content) {
                    Some(true) => {}
                    Some(false) => return Err(format!("spec.proxmox.{field}: storage {name:?} does not answer on node {}", node.name)),
                    None => {
                        let here = storages.iter().filter(|it| it.node == node.name && it.content.split(',').any(|has| has == *content));
                        return Err(format!(
                            "spec.proxmox.{field}: node {} has no storage {name:?} for content {content} that the token may see (Datastore.Audit on it); it has {}",
                            node.name,
                            listed(here.map(|it| it.storage.as_str()))
                        ));
                    }
                }
            }
        }
        let has_shared_images = storages.iter().any(|it| it.storage == settings.iso_storage && it.shared == 1);
        Ok(Self { nodes, has_shared_images, storages })
    }

    pub fn capacity(&self) -> Capacity {
        let cpus: u64 = self.nodes.iter().map(|node| node.cpus).sum();
        Capacity { cpus: i64::try_from(cpus).ok(), memory_mib: Some(self.nodes.iter().map(|node| node.memory_mib).sum()) }
    }

    /// Returns nodes that together show every configuration drive; `also` is a node that has a VM.
    pub fn image_nodes<'a>(&'a self, also: Option<&'a str>) -> Vec<&'a str> {
        let mut nodes: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        nodes.extend(also.filter(|also| !nodes.contains(also)));
        nodes
    }

    fn is_shared(&self, storage: &str) -> bool {
        self.storages.iter().any(|it| it.storage == storage && it.shared == 1)
    }

    /// Chooses the node for a VM of that image: the node with the most memory that is not promised to a VM.
    pub fn choose(&self, image: &Image, settings: &Proxmox, spec: &VmSpec, guests: &[Resource]) -> Result<String, DriverError> {
        let is_full = !image.is_linked(spec, settings)?;
        let reaches = |node: &Node| {
            image.templates.iter().any(|template| {
                let target = settings.storage.as_deref().filter(|_| is_full);
                template.at.node == node.name
                    || (hardware::storages(&template.config).iter().all(|storage| self.is_shared(storage))
                        && target.is_none_or(|target| self.is_shared(target)))
            })
        };
        let promised = |node: &Node| -> u64 {
            guests.iter().filter(|guest| guest.node == node.name && guest.template == 0).map(|guest| guest.maxmem >> 20).sum()
        };
        let candidates = self.nodes.iter().filter(|node| reaches(node));
        let best = candidates.max_by_key(|node| (i128::from(node.memory_mib) - i128::from(promised(node)), std::cmp::Reverse(&node.name)));
        best.map(|node| node.name.clone()).ok_or_else(|| {
            DriverError::Invalid(format!(
                "image {:?} is on {}, and its disks are not on a shared storage: add a template of that name to a node of spec.proxmox.nodes, or put it on shared storage",
                image.name,
                listed(image.templates.iter().map(|template| template.at.node.as_str()))
            ))
        })
    }
}

/// Lists the permissions for creating and removing VMs here that the credentials lack.
pub async fn lacks(client: &Client, settings: &Proxmox) -> Result<Vec<String>, DriverError> {
    let vms = settings.pool.as_ref().map_or("/vms".to_owned(), |pool| format!("/pool/{pool}"));
    let storage = |name: &str| format!("/storage/{name}");
    let mut needed: Vec<(String, &[&str])> = vec![(vms, &ON_VMS), (storage(&settings.iso_storage), &ON_ISO_STORAGE)];
    needed.extend(settings.storage.as_deref().map(|name| (storage(name), ON_STORAGE.as_slice())));
    needed.extend(settings.nodes.iter().map(|node| (format!("/nodes/{node}"), ON_NODES.as_slice())));
    let mut lacks = Vec::new();
    for (path, privileges) in needed {
        let has = client.privileges(&path).await?;
        lacks.extend(privileges.iter().filter(|privilege| !has.contains(**privilege)).map(|privilege| format!("{privilege} on {path}")));
    }
    Ok(lacks)
}

/// Returns the ids that a machine may get, in the order in which it tries them. The order is fixed for each machine: four processes that
/// choose at the same time choose the same id, and two machines hardly ever do.
pub fn ids(range: VmIds, key: &MachineKey) -> impl Iterator<Item = u32> {
    let (first, last) = (u32::try_from(range.first).unwrap_or_default(), u32::try_from(range.last).unwrap_or_default());
    let count = last.saturating_sub(first).saturating_add(1);
    let digest: [u8; 32] = Sha256::digest(key.vm.0.as_bytes()).into();
    let start = digest.iter().take(4).fold(0, |start: u32, byte| start << 8 | u32::from(*byte)) % count;
    (0..count).map(move |step| first + u32::try_from((u64::from(start) + u64::from(step)) % u64::from(count)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::name::VmUuid;
    use std::collections::BTreeSet;

    fn key(uid: &str) -> MachineKey {
        MachineKey { vm: VmUuid::of(uid), cluster: "lab/one".into(), name: "x".into() }
    }

    #[test]
    fn each_machine_tries_every_id_once_from_a_place_of_its_own() {
        let range = VmIds { first: 20_000, last: 20_099 };
        let of = |uid: &str| ids(range, &key(uid)).collect::<Vec<_>>();
        assert_eq!(of("a"), of("a"));
        assert_ne!(of("a"), of("b"));
        assert_eq!(of("a").into_iter().collect::<BTreeSet<_>>(), (20_000..=20_099).collect());
        assert_eq!(ids(VmIds { first: 100, last: 100 }, &key("a")).collect::<Vec<_>>(), [100]);
    }

    fn settings() -> Proxmox {
        Proxmox { nodes: vec!["pve1".into(), "pve2".into()], iso_storage: "isos".into(), storage: Some("ceph".into()), ..Proxmox::default() }
    }

    fn resources() -> Vec<Resource> {
        let node = |name: &str, status: &str| Resource {
            kind: "node".into(),
            node: name.into(),
            status: status.into(),
            maxcpu: 8,
            maxmem: 32 << 30,
            ..Resource::default()
        };
        let storage = |node: &str, name: &str, content: &str| Resource {
            kind: "storage".into(),
            node: node.into(),
            storage: name.into(),
            status: "available".into(),
            content: content.into(),
            shared: 1,
            ..Resource::default()
        };
        let mut all = vec![node("pve1", "online"), node("pve2", "online"), node("pve3", "offline")];
        for name in ["pve1", "pve2", "pve3"] {
            all.extend([storage(name, "isos", "iso,vztmpl"), storage(name, "ceph", "images,rootdir")]);
        }
        all
    }

    #[test]
    fn what_is_not_there_is_named_with_what_is() {
        let place = Place::of(resources(), &settings()).unwrap();
        assert_eq!(place.capacity(), Capacity { cpus: Some(16), memory_mib: Some(64 << 10) });
        assert!(place.has_shared_images);
        for (wrong, words) in [
            (Proxmox { nodes: vec!["pve9".into()], ..settings() }, ["spec.proxmox.nodes", "pve1, pve2, pve3"]),
            (Proxmox { nodes: vec!["pve3".into()], ..settings() }, ["spec.proxmox.nodes", "none of pve3 answers"]),
            (Proxmox { iso_storage: "ceph".into(), ..settings() }, ["spec.proxmox.isoStorage", "it has isos"]),
            (Proxmox { storage: Some("lvm".into()), ..settings() }, ["spec.proxmox.storage", "it has ceph"]),
        ] {
            let error = Place::of(resources(), &wrong).unwrap_err();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
        let mut local = resources();
        local.iter_mut().for_each(|it| it.shared = 0);
        let place = Place::of(local, &settings()).unwrap();
        assert_eq!((place.has_shared_images, place.image_nodes(Some("pve3"))), (false, vec!["pve1", "pve2", "pve3"]));
    }
}
