//! A port that leads to a server. It must not interpret the data.

use std::future::pending;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// Forwards connections from a port of 127.0.0.1; when dropped, it ends all of them, and nothing listens there.
pub struct Forward {
    task: AbortHandle,
    is_silent: watch::Sender<bool>,
}

impl Forward {
    pub async fn start(port: u16, server: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap_or_else(|e| panic!("127.0.0.1:{port}: {e}"));
        let server = server.to_owned();
        let (is_silent, silent) = watch::channel(false);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((from, _)) = listener.accept().await {
                connections.spawn(pass(from, server.clone(), silent.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { task: task.abort_handle(), is_silent }
    }

    /// From now on connections are accepted and kept open, and no data is forwarded.
    pub fn silence(&self) {
        self.is_silent.send_replace(true);
    }
}

async fn pass(mut from: TcpStream, server: String, mut silent: watch::Receiver<bool>) {
    let passed = async {
        if let Ok(mut to) = TcpStream::connect(server).await {
            // Any end, also an error, closes both sides.
            let _ = copy_bidirectional(&mut from, &mut to).await;
        }
    };
    let silenced = async { silent.wait_for(|is_silent| *is_silent).await.is_ok() };
    tokio::select! {
        () = passed => {}
        true = silenced => pending().await,
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.task.abort();
    }
}
