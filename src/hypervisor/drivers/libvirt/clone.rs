//! Full clones. A copy of an image takes longer than a call may: the daemon copies, and later calls poll the progress.
//!
//! A copy is the first volume of a VM and is created while the VM has no other, so a second volume proves that the copy is complete. A
//! copy without a second volume may be torn, and there is no other sign: if this process did not create the copy, it is recreated.

use std::sync::Arc;

use super::client::Volume;
use super::copies::{Copied, Progress};
use super::driver::LibvirtDriver;
use super::link::Session;
use super::refusal::{Error, code, unless};
use super::volumes::{self, Image, Volumes};
use crate::hypervisor::DriverError;
use crate::vm::MachineKey;

impl LibvirtDriver {
    /// Continues the copy that becomes the system disk of a VM without a domain. False: the copy is not ready yet.
    pub(super) async fn copy(&self, session: &Arc<Session>, key: &MachineKey, image: &Image, gib: Option<u64>) -> Result<bool, DriverError> {
        match self.copies.progress(key.vm) {
            Progress::Underway => return Ok(false),
            Progress::Ended(Ok(())) => return Ok(true),
            // Another process has created the copy first.
            Progress::Ended(Err(Error::Refused { code: code::STORAGE_VOL_EXIST, .. })) | Progress::None => {}
            Progress::Ended(Err(error)) => return Err(error.into()),
        }
        let name = Volumes::of(key).system();
        let there = self.volumes_of(session, key).await?;
        if let Some(copy) = there.iter().find(|volume| volume.name == name) {
            if there.len() > 1 {
                self.copies.forget(key.vm);
                return Ok(true);
            }
            if session.client.is_being_made(&session.pool, copy).await? {
                self.copies.forget(key.vm);
                return Ok(false);
            }
            if !self.copies.is_abandoned(key.vm) {
                return Ok(false);
            }
        }
        if !there.is_empty() {
            self.refuse_other(session, key).await?;
            if !self.delete_volumes(session, &there).await? {
                return Ok(false);
            }
        }
        let (session, image, bytes) = (session.clone(), image.clone(), gib.map(|gib| gib << 30));
        self.copies.begin(key.vm, async move { make(&session, &name, &image, bytes).await });
        Ok(false)
    }
}

async fn make(session: &Session, name: &str, image: &Image, bytes: Option<u64>) -> Copied {
    let (client, pool) = (&session.client, &session.pool);
    let original = Volume { name: image.name.clone(), key: image.path.clone() };
    let copy = client.copy_volume(pool, &volumes::copy(name, image), &original).await?;
    match bytes.filter(|bytes| *bytes > image.bytes) {
        // A copy always has the size of its original, whatever the size in its definition.
        Some(bytes) => match client.resize_volume(pool, &copy, bytes).await {
            Ok(()) => Ok(()),
            Err(error) => {
                // The copy is deleted because a later call would treat it as complete, with the size of the image.
                unless(client.delete_volume(pool, &copy).await, code::NO_STORAGE_VOL)?;
                Err(error)
            }
        },
        None => Ok(()),
    }
}
