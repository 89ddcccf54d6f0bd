//! A Wine guest as the runner's machine.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::debug;

use super::items::Windows;
use super::registry;
use crate::api::hypervisor::Fault;
use crate::bootstrap::plan::{Check, ExitCodes, Item, Kind};
use crate::hypervisor::drivers::simulated::guest::journal::Journal;
use crate::hypervisor::drivers::simulated::guest::runner::{self, Failure, Machine};

/// The time between two checks of an awaited condition.
const POLL: Duration = Duration::from_millis(500);

impl Machine for Windows<'_> {
    fn journal(&mut self) -> &mut Journal {
        &mut self.kept.journal
    }

    async fn is_true(&mut self, item: &Item) -> Result<bool, String> {
        self.test(item).await
    }

    async fn act(&mut self, item: &Item) -> Result<(), Failure> {
        let joins = matches!(&item.kind, Kind::Command { argv, .. } if argv.iter().any(|word| word == "join"));
        if joins && self.guest.record.has(Fault::NoJoin) {
            return Err(String::from("the simulated fault NoJoin hits this VM: it finds its cluster and never joins").into());
        }
        let Kind::Wait { check } = &item.kind else { return self.make_true(item).await };
        let end = Instant::now() + Duration::from_secs(u64::from(item.seconds));
        while !self.check(check).await? {
            if Instant::now() > end {
                return Err(format!("{} within {} seconds", runner::finding(self, check).await, item.seconds).into());
            }
            sleep(POLL).await;
        }
        Ok(())
    }

    async fn undo(&mut self, item: &Item, argv: &[String]) {
        let Kind::Command { directory, .. } = &item.kind else { return };
        let undone = self.run(&format!("{}-undo", item.id), argv, directory, item.seconds, &ExitCodes::default()).await;
        if let Err(error) = undone {
            debug!(item = item.id, error, "what undoes an item failed");
        }
    }

    async fn holds(&mut self, check: &Check) -> Result<bool, String> {
        self.check(check).await
    }

    async fn value(&mut self, key: &str, name: &str) -> Option<String> {
        registry::read(self.machine, key, name).await.ok().flatten().map(|value| value.text())
    }

    async fn say(&mut self, line: String) {
        self.guest.print(line).await;
    }

    async fn keep(&mut self) -> io::Result<()> {
        self.disk.write(self.kept)
    }
}
