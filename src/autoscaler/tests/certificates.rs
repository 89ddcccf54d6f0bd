//! Tests of which clients are accepted, and of certificates that change.

use std::time::Duration;

use capw_patience::within;

use super::world::{Authority, Running, Shared, served, tls};
use crate::autoscaler::server::{Bound, CONNECTIONS, Security, ServeError, Settings};
use crate::autoscaler::wire::RefreshRequest;

/// The longest wait for one condition.
const LIMIT: Duration = Duration::from_secs(20);

/// Whether this client gets an answer of any kind. With TLS 1.3, a client learns that it is refused only when it reads.
async fn gets_in(running: &Running, servers: &Authority, clients: &Authority) -> bool {
    match running.connect(servers, clients).await {
        Ok(mut client) => client.refresh(RefreshRequest {}).await.is_ok(),
        Err(_) => false,
    }
}

#[tokio::test]
async fn only_certificates_of_the_authority_get_in() {
    let shared = Shared::new(0);
    let (running, _client) = served(&shared).await;
    let stranger = Authority::new();
    assert!(!gets_in(&running, &stranger, &stranger).await, "a client that trusts another authority");
    let pem = std::fs::read_to_string(running.directory.path().join("ca.crt")).unwrap();
    let tls = tonic::transport::ClientTlsConfig::new().ca_certificate(tonic::transport::Certificate::from_pem(pem)).domain_name("127.0.0.1");
    let endpoint = tonic::transport::Endpoint::from_shared(format!("https://{}", running.address)).unwrap().tls_config(tls).unwrap();
    let let_in = match endpoint.connect().await {
        Ok(channel) => crate::autoscaler::wire::cloud_provider_client::CloudProviderClient::new(channel).refresh(RefreshRequest {}).await.is_ok(),
        Err(_) => false,
    };
    assert!(!let_in, "a client without a certificate");
}

#[tokio::test]
async fn a_certificate_in_another_name_does_not_get_in() {
    let shared = Shared::new(0);
    let authority = Authority::new();
    let running = Running::start(&authority).await;
    super::world::successor(&running, &shared);
    for (name, expected) in [("cluster-autoscaler", true), ("etcd-client", false), ("cluster-autoscaler.example.com", false)] {
        let said = match running.connect_as(name, &authority, &authority).await {
            Ok(mut client) => client.refresh(RefreshRequest {}).await.is_ok(),
            Err(_) => false,
        };
        assert_eq!(said, expected, "{name}");
    }
}

#[tokio::test]
async fn connections_are_limited_and_one_that_ends_makes_room() {
    let shared = Shared::new(0);
    let authority = Authority::new();
    let running = Running::start(&authority).await;
    super::world::successor(&running, &shared);
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = running.connect(&authority, &authority).await.unwrap();
        client.refresh(RefreshRequest {}).await.unwrap();
        clients.push(client);
    }
    assert!(!gets_in(&running, &authority, &authority).await, "one more");
    clients.pop();
    let room = async {
        while !gets_in(&running, &authority, &authority).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("there is room again", LIMIT, room).await;
}

#[tokio::test]
async fn new_certificates_are_used_without_a_restart_and_broken_ones_are_not() {
    let (old, new) = (Authority::new(), Authority::new());
    let shared = Shared::new(0);
    let running = Running::start(&old).await;
    super::world::successor(&running, &shared);
    assert!(gets_in(&running, &old, &old).await);
    std::fs::write(running.directory.path().join("tls.crt"), "no certificate").unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(gets_in(&running, &old, &old).await, "a broken file ended what worked");
    new.write(running.directory.path(), &new);
    let changed = async {
        while !gets_in(&running, &new, &new).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("the new certificates come into use", LIMIT, changed).await;
    assert!(!gets_in(&running, &new, &old).await, "the old authority still gets in");
}

/// Otherwise a client of a process that does not lead would stay connected to it.
#[tokio::test]
async fn connections_end_after_a_while() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let settings = Settings { address: ([127, 0, 0, 1], 0).into(), security: Security::Loopback };
    let bound = Bound::new(&settings).await.unwrap().close_connections_after(Duration::from_millis(50));
    let address = bound.address().unwrap();
    let end = tokio_util::sync::CancellationToken::new();
    tokio::spawn(bound.serve(Default::default(), Default::default(), end.clone()));
    let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
    // The beginning of HTTP/2 and empty settings (RFC 9113, 3.4).
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut said = Vec::new();
    // The header of a GOAWAY frame without debug data (RFC 9113, 6.8): 8 bytes, type 7, no flags, stream 0.
    let goes = |said: &[u8]| said.windows(9).any(|header| header == [0, 0, 8, 7, 0, 0, 0, 0, 0]);
    let told = async {
        while !goes(&said) {
            assert_ne!(client.read_buf(&mut said).await.unwrap(), 0, "it ended without a word: {said:?}");
        }
    };
    within("the server says that it will not take more on this connection", LIMIT, told).await;
    end.cancel();
}

#[tokio::test]
async fn what_cannot_be_served_is_said_by_flag_and_file() {
    let refused = |settings: Settings| async move { Bound::new(&settings).await.err().map(|e: ServeError| e.to_string()).unwrap_or_default() };
    let any = Settings { address: ([0, 0, 0, 0], 0).into(), security: Security::Loopback };
    assert!(refused(any).await.contains("--autoscaler-tls"));
    assert_eq!(refused(Settings { address: ([127, 0, 0, 1], 0).into(), security: Security::Loopback }).await, "");
    let directory = tempfile::tempdir().unwrap();
    let tls = || Settings { address: ([127, 0, 0, 1], 0).into(), security: tls(directory.path()) };
    assert!(refused(tls()).await.contains("tls.crt"), "a missing file");
    let authority = Authority::new();
    authority.write(directory.path(), &authority);
    let (_, other) = authority.sign(rcgen::ExtendedKeyUsagePurpose::ServerAuth, "service");
    std::fs::write(directory.path().join("tls.key"), &other).unwrap();
    let said = refused(tls()).await;
    assert!(said.contains("do not make a server certificate"), "{said}");
    std::fs::write(directory.path().join("tls.key"), "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n").unwrap();
    let said = refused(tls()).await;
    assert!(said.contains("tls.key") && !said.contains("c2VjcmV0"), "{said}");
}
