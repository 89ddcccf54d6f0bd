//! A proxy between driver and daemon, which answers some calls itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::hypervisor::drivers::libvirt::rpc::{ERROR, HEADER, OK, message};
use crate::hypervisor::drivers::libvirt::xdr::{Decoder, Encoder};

/// The answer to a call.
pub enum Answer {
    /// The answer of the daemon.
    Real,
    Played(Encoder),
    /// A refusal with a code of libvirt's errors, and its text.
    Refused(u32, &'static str),
}

/// Returns the answer to a call, by its program, procedure and arguments.
pub type Script = Arc<dyn Fn(u32, u32, &[u8]) -> Answer + Send + Sync>;

pub struct Between {
    directory: TempDir,
    _task: AbortOnDropHandle<()>,
}

impl Between {
    pub fn new(daemon: &Path, script: impl Fn(u32, u32, &[u8]) -> Answer + Send + Sync + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("sock")).unwrap();
        let (daemon, script): (PathBuf, Script) = (daemon.to_owned(), Arc::new(script));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, daemon.clone(), script.clone()));
            }
        });
        Self { directory, _task: AbortOnDropHandle::new(task) }
    }

    pub fn socket(&self) -> String {
        self.directory.path().join("sock").display().to_string()
    }
}

/// Reads one message, with its header.
async fn next(reader: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let length = reader.read_u32().await.ok()?;
    let mut whole = length.to_be_bytes().to_vec();
    whole.resize(length as usize, 0);
    reader.read_exact(&mut whole[4..]).await.ok()?;
    Some(whole)
}

async fn send(writer: &Mutex<OwnedWriteHalf>, message: &[u8]) -> Option<()> {
    writer.lock().await.write_all(message).await.ok()
}

async fn serve(client: UnixStream, daemon: PathBuf, script: Script) -> Option<()> {
    let (mut questions, to_client) = client.into_split();
    let (mut answers, mut to_daemon) = UnixStream::connect(daemon).await.ok()?.into_split();
    let to_client = Arc::new(Mutex::new(to_client));
    let back = to_client.clone();
    let _answers = AbortOnDropHandle::new(tokio::spawn(async move {
        while let Some(message) = next(&mut answers).await {
            send(&back, &message).await;
        }
    }));
    loop {
        let question = next(&mut questions).await?;
        let mut header = Decoder(&question[4..HEADER]);
        let [program, _version, procedure, kind, serial, _status] = std::array::from_fn(|_| header.u32().unwrap());
        let answer = |status, body: Encoder| message(program, procedure, 1, serial, status, &body.bytes());
        match if kind == 0 { script(program, procedure, &question[HEADER..]) } else { Answer::Real } {
            Answer::Real => to_daemon.write_all(&question).await.ok()?,
            Answer::Played(body) => send(&to_client, &answer(OK, body)).await?,
            Answer::Refused(code, text) => send(&to_client, &answer(ERROR, Encoder::default().u32(code).u32(0).optional_text(Some(text)))).await?,
        }
    }
}
