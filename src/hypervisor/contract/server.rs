//! A test server that answers each request from a script.

use std::sync::Arc;

use rcgen::ExtendedKeyUsagePurpose;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::authority::Authority;

/// A request to the server.
pub struct Request {
    /// `METHOD /path`.
    pub line: String,
    pub body: String,
}

/// The answer to a request.
pub enum Answer {
    /// The rest of the first line (`200 OK`) with more header lines, and the body.
    Whole { head: String, body: String },
    /// The connection ends in the middle of the answer.
    Torn,
}

pub type Answers = Arc<dyn Fn(&Request) -> Answer + Send + Sync>;

/// Starts a server with a certificate of that authority; returns its address.
pub async fn serve(authority: &Authority, answers: Answers) -> String {
    let identity = authority.issue("server", &["127.0.0.1"], ExtendedKeyUsagePurpose::ServerAuth);
    let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, answers) = (acceptor.clone(), answers.clone());
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                while let Some(request) = read(&mut stream).await {
                    let Answer::Whole { head, body } = answers(&request) else {
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{").await;
                        return;
                    };
                    let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", body.len());
                    stream.write_all((head + &body).as_bytes()).await.unwrap();
                }
            });
        }
    });
    server
}

async fn read(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<Request> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let line = head.split(" HTTP/1").next()?.to_owned();
    let length = head.to_lowercase().split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Request { line, body: String::from_utf8_lossy(&body).into_owned() })
}
