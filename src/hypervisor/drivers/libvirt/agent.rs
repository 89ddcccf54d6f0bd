//! The reports of guests through the QEMU guest agent, which reads the file that the bootstrap writes. The guest controls the content, so
//! the driver trusts only complete reports.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};

use super::client::{Client, Domain};
use super::refusal::Error;
use crate::hypervisor::DriverError;

/// The report file of the bootstrap, which restarts it after 32 KiB.
const REPORT: &str = r"C:\ProgramData\capw\report.log";
const MOST: u32 = 64 << 10;
/// The most guests that are queried at the same time: an agent that hangs costs the time limit of a query.
const AT_ONCE: usize = 4;

/// Reads the reports of the guests that have one, in no order.
pub async fn reports(client: &Client, guests: Vec<Domain>) -> Result<Vec<(Domain, Vec<u8>)>, DriverError> {
    let asked = stream::iter(guests).map(|guest| async move {
        let text = report(client, &guest).await;
        (guest, text)
    });
    let answers: Vec<_> = asked.buffer_unordered(AT_ONCE).collect().await;
    answers.into_iter().filter_map(|(guest, text)| Some(text.transpose()?.map(|text| (guest, text)))).collect()
}

/// Reads the report of a guest; `None`: the agent does not answer, or there is no report yet.
async fn report(client: &Client, guest: &Domain) -> Result<Option<Vec<u8>>, DriverError> {
    let Some(handle) = ask(client, guest, "guest-file-open", json!({"path": REPORT, "mode": "r"})).await? else { return Ok(None) };
    let read = ask(client, guest, "guest-file-read", json!({"handle": handle, "count": MOST})).await;
    // The guest cannot write the file while it is open.
    ask(client, guest, "guest-file-close", json!({"handle": handle})).await?;
    Ok(read?.and_then(|read| STANDARD.decode(read.get("buf-b64")?.as_str()?).ok()))
}

/// Sends a command to the agent and returns the result; `None`: the agent refuses, or does not answer.
pub async fn ask(client: &Client, guest: &Domain, command: &str, arguments: Value) -> Result<Option<Value>, DriverError> {
    let text = json!({"execute": command, "arguments": arguments}).to_string();
    match client.ask_agent(guest, &text).await {
        Ok(answer) => Ok(serde_json::from_str::<Value>(&answer).ok().and_then(|mut answer| Some(answer.get_mut("return")?.take()))),
        Err(Error::Refused { code, text }) => {
            tracing::debug!(guest = guest.name, command, code, text, "the guest agent gives no answer");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
