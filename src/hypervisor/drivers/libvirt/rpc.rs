//! A connection to a libvirt daemon: concurrent calls, streams, and keepalive. The protocol is the one of libvirt's own clients
//! (virnetprotocol.x in its sources): a header of seven numbers, then the arguments in XDR.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::xdr::{Decoder, Malformed};

/// The procedures of libvirt for every hypervisor.
pub const PROGRAM: u32 = 0x2000_8086;
/// The procedures of libvirt for QEMU only.
pub const QEMU: u32 = 0x2000_8087;
const KEEPALIVE: u32 = 0x6b65_6570;
const VERSION: u32 = 1;
/// The length of a header, including the length field itself.
pub const HEADER: usize = 28;
/// The longest message that the daemon sends.
const LONGEST: usize = 32 << 20;
/// The payload of one message of a stream.
const CHUNK: usize = 256 * 1024 - 64;
/// The most bytes that are read from a stream; the caller of a stream states how many it needs.
const STREAM: usize = 4 << 20;

const CALL: u32 = 0;
const EVENT: u32 = 2;
const STREAMED: u32 = 3;
pub const OK: u32 = 0;
pub const ERROR: u32 = 1;
const CONTINUE: u32 = 2;
const PING: u32 = 1;
const PONG: u32 = 2;
/// The time between two pings while a call waits. The daemon always answers pings: a daemon that answers none hangs.
const PING_EVERY: Duration = Duration::from_secs(5);
/// The number of unanswered pings after which the connection is given up.
const UNANSWERED: u32 = 2;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RpcError {
    /// The connection has ended; the daemon may or may not have received the request.
    Closed,
    /// The daemon hangs, or the network to it is cut: even pings got no answer. The daemon may or may not have received the request.
    Silent,
    /// The other side does not follow libvirt's protocol.
    Protocol(&'static str),
    /// The daemon answered with an error.
    Refused { code: u32, text: String },
}

impl From<Malformed> for RpcError {
    fn from(Malformed(what): Malformed) -> Self {
        Self::Protocol(what)
    }
}

struct Message {
    kind: u32,
    status: u32,
    body: Vec<u8>,
}

/// Receives the procedure and the body of each event of the daemon, before any later answer.
pub type OnEvent = Box<dyn Fn(u32, &[u8]) + Send + Sync>;

/// A connection, which ends when this is dropped.
pub struct Connection {
    outgoing: mpsc::Sender<Vec<u8>>,
    waiting: Arc<Waiting>,
    serial: AtomicU32,
    _task: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Waiting {
    calls: Mutex<Calls>,
    /// Whether the daemon has sent or accepted something since the last check.
    heard: AtomicBool,
}

#[derive(Default)]
struct Calls {
    by_serial: HashMap<u32, mpsc::UnboundedSender<Message>>,
    /// Why the connection is unusable.
    ended: Option<RpcError>,
}

impl Waiting {
    fn end(&self, why: RpcError) {
        let mut calls = self.calls.lock();
        calls.ended.get_or_insert(why);
        // The waiting calls see the end of their channel.
        calls.by_serial.clear();
    }

    fn why(&self) -> RpcError {
        self.calls.lock().ended.clone().unwrap_or(RpcError::Closed)
    }
}

impl Connection {
    pub fn new(stream: impl AsyncRead + AsyncWrite + Send + 'static, on_event: OnEvent) -> Self {
        let (mut reader, writer) = tokio::io::split(stream);
        let (outgoing, messages) = mpsc::channel::<Vec<u8>>(64);
        let waiting = Arc::<Waiting>::default();
        let (shared, replies) = (waiting.clone(), outgoing.clone());
        let task = tokio::spawn(async move {
            let read = async {
                while receive(&mut reader, &shared, &replies, &on_event).await.is_some() {}
                shared.end(RpcError::Closed);
            };
            tokio::select! {
                () = read => {}
                () = send(writer, messages, &shared) => {}
                () = watch(&shared, &replies) => {}
            }
        });
        Self { outgoing, waiting, serial: AtomicU32::new(1), _task: AbortOnDropHandle::new(task) }
    }

    /// Whether the other side is known to have ended the connection.
    pub fn is_closed(&self) -> bool {
        self.waiting.calls.lock().ended.is_some()
    }

    /// Calls a procedure and returns its answer.
    pub async fn call(&self, procedure: u32, arguments: Vec<u8>) -> Result<Vec<u8>, RpcError> {
        self.call_of(PROGRAM, procedure, arguments).await
    }

    /// Calls a procedure of that program.
    pub async fn call_of(&self, program: u32, procedure: u32, arguments: Vec<u8>) -> Result<Vec<u8>, RpcError> {
        let mut call = self.begin(program)?;
        call.send(procedure, CALL, OK, &arguments).await?;
        Ok(call.answer().await?.body)
    }

    /// Calls a procedure that receives a stream.
    pub async fn upload(&self, procedure: u32, arguments: Vec<u8>, data: &[u8]) -> Result<(), RpcError> {
        let mut call = self.begin(PROGRAM)?;
        call.send(procedure, CALL, OK, &arguments).await?;
        call.answer().await?;
        for chunk in data.chunks(CHUNK) {
            call.send(procedure, STREAMED, CONTINUE, chunk).await?;
        }
        call.send(procedure, STREAMED, OK, &[]).await?;
        call.answer().await.map(|_| ())
    }

    /// Calls a procedure that sends a stream.
    pub async fn download(&self, procedure: u32, arguments: Vec<u8>) -> Result<Vec<u8>, RpcError> {
        let mut call = self.begin(PROGRAM)?;
        call.send(procedure, CALL, OK, &arguments).await?;
        let (mut data, mut is_answered, mut has_ended) = (Vec::new(), false, false);
        // Another thread of the daemon sends the stream: its first data may come before the answer to the call.
        while !(is_answered && has_ended) {
            let part = call.answer().await?;
            if part.kind != STREAMED {
                is_answered = true;
                continue;
            }
            has_ended = part.status != CONTINUE || part.body.is_empty();
            data.extend(part.body);
            if data.len() > STREAM {
                return Err(RpcError::Protocol("a stream that does not end"));
            }
        }
        call.send(procedure, STREAMED, OK, &[]).await?;
        call.answer().await?;
        Ok(data)
    }

    fn begin(&self, program: u32) -> Result<Call<'_>, RpcError> {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let (sender, answers) = mpsc::unbounded_channel();
        let mut calls = self.waiting.calls.lock();
        if let Some(why) = &calls.ended {
            return Err(why.clone());
        }
        calls.by_serial.insert(serial, sender);
        Ok(Call { connection: self, program, serial, answers })
    }
}

/// A call that is under way. After the caller gives up, a late answer is dropped.
struct Call<'a> {
    connection: &'a Connection,
    program: u32,
    serial: u32,
    answers: mpsc::UnboundedReceiver<Message>,
}

impl Call<'_> {
    async fn send(&self, procedure: u32, kind: u32, status: u32, body: &[u8]) -> Result<(), RpcError> {
        let message = message(self.program, procedure, kind, self.serial, status, body);
        self.connection.outgoing.send(message).await.map_err(|_| self.connection.waiting.why())
    }

    async fn answer(&mut self) -> Result<Message, RpcError> {
        let message = self.answers.recv().await.ok_or_else(|| self.connection.waiting.why())?;
        if message.status == ERROR { Err(refusal(&message.body)?) } else { Ok(message) }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.connection.waiting.calls.lock().by_serial.remove(&self.serial);
    }
}

pub fn message(program: u32, procedure: u32, kind: u32, serial: u32, status: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    let header = [length, program, VERSION, procedure, kind, serial, status];
    header.into_iter().flat_map(u32::to_be_bytes).chain(body.iter().copied()).collect()
}

/// Decodes a `remote_error`: code, domain and text come first.
fn refusal(body: &[u8]) -> Result<RpcError, Malformed> {
    let mut decoder = Decoder(body);
    let (code, _domain) = (decoder.u32()?, decoder.u32()?);
    Ok(RpcError::Refused { code, text: decoder.message()?.unwrap_or_default() })
}

fn ping() -> Vec<u8> {
    message(KEEPALIVE, PING, EVENT, 0, OK, &[])
}

/// Sends the queued messages. The reader handles a failure: the last messages of the daemon may still come.
async fn send(mut writer: impl AsyncWrite + Unpin, mut messages: mpsc::Receiver<Vec<u8>>, waiting: &Waiting) {
    while let Some(message) = messages.recv().await {
        if writer.write_all(&message).await.is_err() {
            break;
        }
        // A long upload is a sign of life; a ping that the daemon does not read is not.
        if message != ping() {
            waiting.heard.store(true, Ordering::Relaxed);
        }
    }
    drop(messages);
    std::future::pending().await
}

/// Ends the connection when calls wait and the daemon is silent.
async fn watch(waiting: &Waiting, outgoing: &mpsc::Sender<Vec<u8>>) {
    let mut unanswered = 0;
    while unanswered < UNANSWERED {
        sleep(PING_EVERY).await;
        let heard = waiting.heard.swap(false, Ordering::Relaxed);
        if waiting.calls.lock().by_serial.is_empty() {
            unanswered = 0;
            continue;
        }
        unanswered = if heard { 0 } else { unanswered + 1 };
        // A full queue takes no ping.
        let _ = outgoing.try_send(ping());
    }
    waiting.end(RpcError::Silent);
}

/// Reads one message and passes it to the call that waits for it. `None`: the connection is unusable.
async fn receive(reader: &mut (impl AsyncRead + Unpin), waiting: &Waiting, replies: &mpsc::Sender<Vec<u8>>, on_event: &OnEvent) -> Option<()> {
    let mut header = [0; HEADER];
    reader.read_exact(&mut header).await.ok()?;
    let mut numbers = Decoder(&header);
    let mut next = || numbers.u32().ok();
    let (length, program, _version, procedure, kind, serial, status) = (next()? as usize, next()?, next()?, next()?, next()?, next()?, next()?);
    if !(HEADER..=LONGEST).contains(&length) || ![PROGRAM, QEMU, KEEPALIVE].contains(&program) {
        tracing::warn!(length, program, "what answers is not libvirt: the connection is closed");
        return None;
    }
    let mut body = vec![0; length - HEADER];
    reader.read_exact(&mut body).await.ok()?;
    waiting.heard.store(true, Ordering::Relaxed);
    if program == KEEPALIVE {
        if procedure == PING {
            replies.send(message(KEEPALIVE, PONG, EVENT, 0, OK, &[])).await.ok()?;
        }
        return Some(());
    }
    if kind == EVENT {
        on_event(procedure, &body);
    } else {
        let calls = waiting.calls.lock();
        if let Some(sender) = calls.by_serial.get(&serial) {
            let _ = sender.send(Message { kind, status, body });
        }
    }
    Some(())
}

#[cfg(test)]
mod tests;
