//! Lists a cluster: two requests for any number of VMs, one more for each VM that was not seen before, and one for each guest that still
//! reports. If the storage for configuration drives is not shared, one request for each node.

use std::collections::HashSet;

use super::client::Resource;
use super::driver::ProxmoxDriver;
use super::found::{self, Found};
use super::names;
use super::owners::{Looks, Owners};
use super::words::{self, Words};
use crate::api::name::VmUuid;
use crate::hypervisor::{DriverError, Leftover, Listing, Row, Wanted};
use crate::vm::{MachineKey, Power};

impl ProxmoxDriver {
    pub(super) async fn list_all(&self, wanted: &Wanted) -> Result<Listing, DriverError> {
        let mut owners = self.owners.lock().await;
        let mut guests = self.client.guests().await?;
        guests.retain(names::may_be_ours);
        let there: HashSet<Looks> = guests.iter().map(Looks::of).collect();
        owners.retain(|looks, _| there.contains(looks));
        let mut ours = Vec::new();
        for guest in &guests {
            if let Some(key) = self.owner(&mut owners, guest).await? {
                ours.push((key, guest));
            }
        }
        let images = self.images_of_vms().await?;
        *self.known.lock().await = ours.iter().map(|(key, guest)| (key.vm, guest.location())).collect();
        let talking = ours.iter().filter(|(key, guest)| wanted.awaiting_reports.contains(&key.vm) && guest.status == "running");
        let talking: Vec<_> = talking.map(|(key, guest)| (key.vm, guest.location())).collect();
        // A guest that hangs must not delay the listing of the others.
        let turn = self.words.lock().await.next(&talking);
        let said = words::ask(&self.client, turn).await;
        let vms: HashSet<VmUuid> = ours.iter().map(|(key, _)| key.vm).collect();
        let mut words = self.words.lock().await;
        words.add(said);
        words.retain(|vm| vms.contains(&vm));
        let mut rows: Vec<Row> = ours.into_iter().map(|(key, guest)| row(key, guest, &images, &words)).collect();
        rows.sort_by_key(|row| row.key.vm);
        // Drops a copy of the same name.
        rows.dedup_by_key(|row| row.key.vm);
        // The drives of VMs that are being created are no leftovers.
        let is_leftover = |vm: &&VmUuid| !vms.contains(vm) && !wanted.awaiting_reports.contains(vm);
        let what = |vm: &VmUuid| format!("{}:iso/{}", self.settings.iso_storage, names::image_of(*vm));
        let mut leftovers: Vec<Leftover> = images.iter().filter(is_leftover).map(|vm| Leftover { what: what(vm) }).collect();
        leftovers.sort();
        Ok(Listing { rows, leftovers })
    }

    /// Returns the owner of a guest; `None`: the guest is not ours, or does not name its owner yet.
    async fn owner(&self, owners: &mut Owners, guest: &Resource) -> Result<Option<MachineKey>, DriverError> {
        let looks = Looks::of(guest);
        if let Some(owner) = owners.get(&looks) {
            return Ok(owner.clone());
        }
        // The configuration of a VM on a node that does not answer cannot be read; an earlier listing has read it.
        if guest.status == "unknown" {
            return Ok(None);
        }
        let Some(config) = self.client.config(&guest.location()).await? else { return Ok(None) };
        let found = Found::read(guest.location(), config);
        let owner = found.key();
        if !found.is_undecided() {
            owners.insert(looks, owner.clone());
        }
        Ok(owner)
    }

    /// Returns the VMs that have a configuration drive.
    async fn images_of_vms(&self) -> Result<HashSet<VmUuid>, DriverError> {
        let shown = self.images_of_nodes(None).await?;
        Ok(shown.iter().flat_map(|(_, images)| images).filter_map(|name| names::vm_of(name)).collect())
    }
}

fn row(key: MachineKey, guest: &Resource, images: &HashSet<VmUuid>, words: &Words) -> Row {
    let (power, trouble) = found::power(&guest.status, &guest.lock, &guest.location());
    let report = words.of(key.vm);
    let present = found::present((power, trouble), images.contains(&key.vm) && power != Power::Creating, report);
    Row { present, cpus: u32::try_from(guest.maxcpu).unwrap_or_default(), memory_mib: guest.maxmem >> 20, key }
}
