//! A limit for the number of simultaneous connections.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::server::Connected;

/// The free places for connections. Clones share them.
#[derive(Clone)]
pub struct Limit(Arc<Semaphore>);

impl Limit {
    pub fn new(places: usize) -> Self {
        Self(Arc::new(Semaphore::new(places)))
    }

    /// Gives the connection a place, which it holds until it ends. Without a free place the connection is closed.
    pub fn admit<S>(&self, stream: S, peer: SocketAddr) -> Option<Limited<S>> {
        let Ok(place) = self.0.clone().try_acquire_owned() else {
            tracing::debug!(%peer, "too many connections: this one is closed");
            return None;
        };
        Some(Limited { stream, place })
    }
}

/// A connection that holds a place.
pub struct Limited<S> {
    stream: S,
    place: OwnedSemaphorePermit,
}

impl<S> Limited<S> {
    /// Splits the connection from its place.
    pub fn split(self) -> (S, OwnedSemaphorePermit) {
        (self.stream, self.place)
    }
}

impl<S: Connected> Connected for Limited<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Limited<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Limited<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_its_connection_ends() {
        let limit = Limit::new(2);
        let peer = ([127, 0, 0, 1], 1).into();
        let (first, _second) = (limit.admit((), peer), limit.admit((), peer));
        assert!(first.is_some() && limit.admit((), peer).is_none());
        drop(first);
        assert!(limit.admit((), peer).is_some());
    }
}
