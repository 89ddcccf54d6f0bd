//! A port that leads to a server. It must not know what is said on the way.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// Connections to a port of 127.0.0.1 are passed on; dropped, it ends with all of them, and nothing listens there.
pub struct Forward(AbortHandle);

impl Forward {
    pub async fn start(port: u16, server: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap_or_else(|e| panic!("127.0.0.1:{port}: {e}"));
        let server = server.to_owned();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut from, _)) = listener.accept().await {
                let server = server.clone();
                connections.spawn(async move {
                    if let Ok(mut to) = TcpStream::connect(server).await {
                        // However it ends, it ends for both.
                        let _ = copy_bidirectional(&mut from, &mut to).await;
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Self(task.abort_handle())
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.0.abort();
    }
}
