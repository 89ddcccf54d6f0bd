//! The steps in the life of a VM, each towards one goal.

use tokio::time::Instant;

use super::drive::Slot;
use super::driver::{CLONE, VsphereDriver};
use super::fault::{DUPLICATE_NAME, Error, FILE_NOT_FOUND, Fault, NOT_FOUND};
use super::found::{self, Found, Memory, name_of};
use super::group::Group;
use super::image::Asked;
use super::soap::Reference;
use crate::bootstrap::delivery::SeedImage;
use crate::hypervisor::{DriverError, DriverStep};
use crate::vm::{Journal, MachineKey, Seed, SeedKind, VmSpec};
use crate::xml::element;

/// How many times the driver tries to put a VM into a group that others change at the same time.
const GROUP_TRIES: u32 = 4;

impl VsphereDriver {
    pub(super) async fn begin_clone(&self, key: &MachineKey, spec: &VmSpec, seed: &Seed, journal: &Journal) -> Result<DriverStep, DriverError> {
        let (place, image, networks) = (self.place().await?, self.image(&spec.image).await?, self.networks(spec).await?);
        let place = place.with_datastore(&self.client, &self.settings).await?;
        let starts = seed.kind() == SeedKind::GuestInfo && self.settings.vm_group.is_none();
        let asked = Asked { place: &place, mode: self.settings.clone, networks: &networks, seed: found::seed_of_clone(seed), starts };
        let wanted = image.clone_spec(key, spec, &asked)?;
        let task = match self.client.clone_vm(image.vm(), &place.folder, &name_of(key), &wanted).await {
            Err(error) if error.is(&[NOT_FOUND]) => {
                // The image or a place was recreated: the next try finds it again.
                self.images.lock().await.clear();
                *self.place.lock().await = None;
                return Err(DriverError::Transient("the image, folder, pool or datastore was there and is not".into()));
            }
            Err(Error::Fault(fault)) if fault.is(&[DUPLICATE_NAME]) => return Err(self.duplicate(key).await),
            task => task?,
        };
        let mut journal = journal.clone();
        journal.insert(CLONE.to_owned(), task);
        self.known.lock().await.note(key.vm, Memory::Cloning(Instant::now()));
        Ok(DriverStep::Started { journal })
    }

    /// Explains why the name is taken: another process of CAPW was faster, or the VM is not ours.
    async fn duplicate(&self, key: &MachineKey) -> DriverError {
        match self.find_by_request(key, false).await {
            Ok(Some(found)) if !found.is_unknown() && !found.is_ours(key) => self.conflict(&found.name),
            Ok(Some(_)) => DriverError::Transient("the VM was made at the same time by another process".into()),
            Ok(None) => DriverError::Denied(format!(
                "the folder on {} has something named {} that the credentials do not see: grant System.Read on the folder, with propagation",
                self.client.server(),
                name_of(key)
            )),
            Err(error) => error,
        }
    }

    pub(super) async fn clone_failed(&self, key: &MachineKey, journal: &Journal, fault: Option<Fault>) -> DriverStep {
        self.known.lock().await.forget(key.vm);
        // A missing snapshot or disk of the image may be the cause.
        self.images.lock().await.clear();
        let error = match fault {
            Some(fault) if fault.is(&[DUPLICATE_NAME]) => self.duplicate(key).await,
            Some(fault) => match DriverError::from(fault) {
                DriverError::Invalid(text) => DriverError::Invalid(format!("the VM cannot be cloned: {text}")),
                error => error,
            },
            None => DriverError::Transient("the VM was cloned and is not there: it is made again".into()),
        };
        let mut journal = journal.clone();
        journal.remove(CLONE);
        DriverStep::Failed { journal, error }
    }

    /// Gives a VM that is off its seed, unless the VM has this seed already or its seed was taken away.
    pub(super) async fn reseed(&self, found: &Found, seed: &Seed) -> Result<(), DriverError> {
        let image = SeedImage::from(seed);
        let wanted = found::digest(&image);
        if found.seed.is_empty() || found.seed == wanted {
            return Ok(());
        }
        let spec = match image {
            SeedImage::GuestInfo(values) => element("spec").with_all(found::seed(&values)),
            SeedImage::Drive(bytes) => {
                let slot = Slot::read(&self.client, &found.vm).await?.ok_or_else(|| DriverError::Transient("the VM was there and is not".into()))?;
                self.client.upload(&self.settings.datacenter, &slot.file, bytes).await?;
                element("spec").with_all(slot.attach()).with(found::seeded(&wanted))
            }
        };
        let should = |vm: Option<&Found>| vm.is_some_and(|vm| vm.seed == wanted);
        self.is_done(&found.vm, self.client.reconfigure(&found.vm, &spec).await, &[], should).await.map(|_| ())
    }

    /// Takes the seed away. `false`: the removal still runs.
    pub(super) async fn unseed(&self, found: &Found) -> Result<bool, DriverError> {
        if found.has_drive() && !self.remove_drive(found).await? {
            return Ok(false);
        }
        let spec = element("spec").with_all(found::no_seed());
        let is_seedless = |vm: Option<&Found>| vm.is_some_and(|vm| vm.seed.is_empty());
        self.is_done(&found.vm, self.client.reconfigure(&found.vm, &spec).await, &[], is_seedless).await
    }

    /// Ejects the CD and deletes its file. `false`: the removal still runs.
    pub(super) async fn remove_drive(&self, found: &Found) -> Result<bool, DriverError> {
        let Some(slot) = Slot::read(&self.client, &found.vm).await? else { return Ok(true) };
        if let Some(eject) = slot.eject() {
            let spec = element("spec").with(eject);
            if !self.is_done(&found.vm, self.client.reconfigure(&found.vm, &spec).await, &[], |_| true).await? {
                return Ok(false);
            }
        }
        let datacenter = self.place().await?.datacenter;
        let deletion = self.client.delete_file(&slot.file, &datacenter).await;
        self.is_done(&found.vm, deletion, &[FILE_NOT_FOUND], |_| true).await
    }

    /// Puts a VM that is off into the group that the settings name. Others may change the group at the same time, so it is read again.
    pub(super) async fn join_group(&self, vm: &Reference) -> Result<(), DriverError> {
        let Some(name) = &self.settings.vm_group else { return Ok(()) };
        let pool = self.place().await?.pool;
        let _alone = self.client.session().groups.lock().await;
        for _ in 0..GROUP_TRIES {
            let group = Group::find(&self.client, &pool, name).await?;
            if group.has(vm) {
                return Ok(());
            }
            self.is_done(vm, self.client.reconfigure_cluster(&group.cluster, &group.with(vm)).await, &[], |_| true).await?;
        }
        Err(DriverError::Transient(format!("VM group {name:?} is changed by others again and again")))
    }
}
