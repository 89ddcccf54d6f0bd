//! The programs of a guest after power on: the start of Windows, the plan item by item, then the kubelet. They write only files
//! below `disk/` and the console.

use std::io;

use tracing::debug;

use super::disk::Disk;
use super::error::JoinError;
use super::files::{forget_configuration, load, read_kept, read_seed, write_kept};
use super::image::Image;
use super::model::{Kept, Model, World};
use super::powered::Guest;
use super::{failure, join};
use crate::api::hypervisor::Fault;
use crate::bootstrap::plan::{Item, REPORT_PLAN, state};
use crate::bootstrap::read::Payload;
use crate::vm::FailureCode;

/// The code of reports about the plan as a whole.
pub const INPUT: u32 = FailureCode::Input.number();

impl Guest {
    /// Runs the plan after power on, then the kubelet until the power goes off.
    pub async fn live(&self) {
        if self.record.has(Fault::NoBoot) {
            return;
        }
        self.until(self.record.boots_at()).await;
        if let Err(error) = Box::pin(self.carry_out()).await {
            // The disk failed: no state can be stored, so the guest does nothing. A later start of the operator tries again.
            debug!(vm = %self.record.vm, %error, "a simulated guest stopped");
            return;
        }
        match load(self).await {
            Ok(Some((running, registered))) => running.run(self, registered).await,
            Ok(None) => {}
            Err(error) => debug!(vm = %self.record.vm, %error, "a simulated kubelet cannot start"),
        }
    }

    async fn carry_out(&self) -> io::Result<()> {
        let known = self.files(read_kept).await?;
        let started = known.as_ref().is_some_and(|kept| kept.power_ons == self.record.power_ons);
        if started && known.as_ref().is_some_and(|kept| kept.journal.is_over()) {
            return Ok(());
        }
        let (payload, name) = match self.files(|home| Ok(read_seed(home))).await? {
            Ok((payload, name)) => (Ok(payload), name),
            Err(error) => (Err(error), String::new()),
        };
        let world = Vm { guest: self, payload: payload.as_ref().ok() };
        let mut model = match known {
            Some(kept) => Model::new(kept, world),
            None => Model::of_image(&Image::named(&self.record.image), &name, world),
        };
        if !started {
            model.kept.power_ons = self.record.power_ons;
            model.start();
        }
        match &payload {
            // The VM may have lost its seed since.
            _ if model.kept.journal.finished() => {
                if let Some(report) = model.kept.journal.untold() {
                    self.print(report.line() + "\n").await;
                }
                model.world.keep(&model.kept).await
            }
            Ok(payload) => model.carry_out(&payload.plan).await,
            Err(error) => {
                let report = model.kept.journal.report(REPORT_PLAN, state::FAILED, INPUT, &error.to_string());
                model.kept.journal.end = Some(state::FAILED.into());
                self.print(report.line() + "\n").await;
                model.world.keep(&model.kept).await
            }
        }
    }
}

/// A VM of the simulator, as the model's surroundings.
struct Vm<'a> {
    guest: &'a Guest,
    payload: Option<&'a Payload>,
}

impl World for Vm<'_> {
    fn broken(&self, item: &Item) -> Option<String> {
        failure::words(&self.guest.record.faults, item).map(str::to_owned)
    }

    async fn join(&mut self, disk: &Disk, configuration: &str) -> Result<(), JoinError> {
        let payload = self.payload.ok_or_else(|| JoinError("there is no payload".into()))?;
        join::join(self.guest, payload, disk, configuration).await
    }

    async fn reset(&mut self) {
        if let Err(error) = self.guest.files(forget_configuration).await {
            debug!(vm = %self.guest.record.vm, %error, "a simulated kubeadm cannot reset");
        }
    }

    async fn say(&mut self, lines: String) {
        self.guest.print(lines).await;
    }

    async fn keep(&mut self, kept: &Kept) -> io::Result<()> {
        write_kept(self.guest, kept).await
    }
}
