//! The cluster's VM group for the machines, which an administrator's DRS rules use: e.g. Windows runs only on the
//! hosts that are licensed for it.

use super::client::Client;
use super::soap::{Reference, attribute, children, text_at, typed};
use crate::hypervisor::DriverError;
use crate::hypervisor::fresh::listed;
use crate::vm::Thing;
use crate::xml::{Element, element};

/// A group as it was read.
pub struct Group {
    pub cluster: Reference,
    name: String,
    members: Vec<Reference>,
}

impl Group {
    /// Finds the group of that name in the cluster of a resource pool.
    pub async fn find(client: &Client, pool: &Reference, name: &str) -> Result<Self, DriverError> {
        let missing = |why: String| DriverError::Missing {
            thing: Thing::Placement,
            text: format!(
                "spec.vsphere.vmGroup {name:?}: {why} on {}. Correct it, or make the VM group in the cluster's VM/Host Groups",
                client.server()
            ),
        };
        let owner = client.of_one(pool, "ResourcePool", &["owner".to_owned()], |pool| pool.reference("owner")).await?;
        let cluster = owner.filter(|owner| owner.kind == "ClusterComputeResource");
        let cluster = cluster.ok_or_else(|| missing("the resource pool is not one of a cluster".into()))?;
        let paths = ["configurationEx".to_owned()];
        let groups = client.of_one(&cluster, "ClusterComputeResource", &paths, |properties| {
            let groups = children(properties.get("configurationEx")?, "group");
            let of_vms = groups.filter(|group| attribute(*group, "type").is_some_and(|kind| kind.ends_with("ClusterVmGroup")));
            let read = of_vms.map(|group| {
                let members = children(group, "vm").filter_map(Reference::of).collect();
                (text_at(group, &["name"]).unwrap_or_default().to_owned(), members)
            });
            Some(read.collect::<Vec<(String, Vec<Reference>)>>())
        });
        let groups = groups.await?.unwrap_or_default();
        let there = listed(groups.iter().map(|(name, _)| name.as_str()));
        let (name, members) = groups
            .into_iter()
            .find(|(known, _)| known == name)
            .ok_or_else(|| missing(format!("the cluster has no such VM group (it has {there})")))?;
        Ok(Self { cluster, name, members })
    }

    /// The privileges for changing the group that the credentials lack.
    pub async fn lacks(&self, client: &Client) -> Result<Vec<String>, DriverError> {
        let lacking = client.lacking(&self.cluster, &["Host.Inventory.EditCluster"]).await?;
        Ok(lacking.into_iter().map(|privilege| format!("{privilege} on the cluster")).collect())
    }

    pub fn has(&self, vm: &Reference) -> bool {
        self.members.contains(vm)
    }

    /// The change that adds a VM. It names all members: a vCenter offers no other change.
    pub fn with(&self, vm: &Reference) -> Element {
        let members = self.members.iter().chain([vm]).map(|vm| vm.element("vm"));
        let group = typed("info", "ClusterVmGroup").with(element("name").text(&self.name)).with_all(members);
        typed("spec", "ClusterConfigSpecEx").with(element("groupSpec").with(element("operation").text("edit")).with(group))
    }
}
