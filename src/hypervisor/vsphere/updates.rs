//! What changes in a folder, told by the vCenter: one request that it answers when there is something to say.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use tokio::time::{sleep, timeout};

use super::client::Client;
use super::fault::Error;
use super::found;
use super::soap::Reference;
use crate::hypervisor::DriverError;

/// How long the vCenter keeps a request if nothing changes.
const LONGEST: Duration = Duration::from_secs(300);
/// How much later its answer may come.
const LATE: Duration = Duration::from_secs(30);
/// After a failure. The listing at each tick goes on meanwhile.
const PAUSE: Duration = Duration::from_secs(10);

/// A collector of changes, which lives as long as the session that it was made in.
struct Watch {
    collector: Reference,
    version: String,
}

/// An item for each time that a VM in the folder at that path has come, gone or changed.
pub fn updates(client: Arc<Client>, folder: String) -> BoxStream<'static, ()> {
    stream::unfold((client, folder, None), |(client, folder, mut watch)| async move {
        loop {
            match timeout(LONGEST + LATE, next(&client, &folder, &mut watch)).await {
                Ok(Ok(true)) => return Some(((), (client, folder, watch))),
                Ok(Ok(false)) => {}
                Ok(Err(_)) | Err(_) => {
                    // With the session, or with the vCenter, its collectors end.
                    watch = None;
                    sleep(PAUSE).await;
                }
            }
        }
    })
    .boxed()
}

/// Whether something has changed.
async fn next(client: &Client, folder: &str, watch: &mut Option<Watch>) -> Result<bool, Error> {
    let (collector, version) = match watch.take() {
        Some(Watch { collector, version }) => (collector, version),
        None => {
            let folder = client.find_path(folder).await?.ok_or_else(|| DriverError::Transient(format!("there is no folder {folder}")))?;
            (client.watch(&folder, &found::telling()).await?, String::new())
        }
    };
    let is_first = version.is_empty();
    let found = client.wait_for_updates(&collector, &version, LONGEST).await?;
    let is_news = found.is_some() && !is_first;
    *watch = Some(Watch { collector, version: found.unwrap_or(version) });
    Ok(is_news)
}
