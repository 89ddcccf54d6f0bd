use tokio::io::DuplexStream;

use crate::hypervisor::drivers::libvirt::rpc::*;
use crate::hypervisor::drivers::libvirt::xdr::Encoder;

fn pair() -> (Connection, DuplexStream) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    (Connection::new(ours, Box::new(|_, _| {})), theirs)
}

async fn request(daemon: &mut DuplexStream) -> (u32, u32) {
    let mut header = [0; HEADER];
    daemon.read_exact(&mut header).await.unwrap();
    let numbers: Vec<u32> = header.chunks(4).map(|n| u32::from_be_bytes(n.try_into().unwrap())).collect();
    let mut body = vec![0; numbers[0] as usize - HEADER];
    daemon.read_exact(&mut body).await.unwrap();
    (numbers[3], numbers[5])
}

#[tokio::test]
async fn answers_find_their_calls_whatever_comes_between() {
    let (ours, mut daemon) = tokio::io::duplex(1 << 20);
    let (told, mut events) = mpsc::unbounded_channel();
    let connection = Connection::new(ours, Box::new(move |procedure, body| told.send((procedure, body.to_vec())).unwrap()));
    let both = async { tokio::join!(connection.call(14, vec![]), connection.call(24, vec![])) };
    let serve = async {
        let (first, second) = (request(&mut daemon).await, request(&mut daemon).await);
        daemon.write_all(&message(KEEPALIVE, PING, EVENT, 0, OK, &[])).await.unwrap();
        daemon.write_all(&message(PROGRAM, 318, EVENT, 0, OK, b"event")).await.unwrap();
        let error = Encoder::default().u32(42).u32(10).optional_text(Some("no domain")).bytes();
        daemon.write_all(&message(PROGRAM, second.0, 1, second.1, ERROR, &error)).await.unwrap();
        daemon.write_all(&message(PROGRAM, first.0, 1, first.1, OK, b"body")).await.unwrap();
        request(&mut daemon).await
    };
    let ((first, second), pong) = tokio::join!(both, serve);
    assert_eq!((first, pong), (Ok(b"body".to_vec()), (PONG, 0)));
    assert_eq!(second, Err(RpcError::Refused { code: 42, text: "no domain".into() }));
    assert_eq!(events.try_recv(), Ok((318, b"event".to_vec())));
}

#[tokio::test]
async fn an_answer_that_is_torn_too_long_or_not_libvirts_ends_the_connection() {
    let torn = message(PROGRAM, 14, 1, 1, OK, &[0; 100])[..60].to_vec();
    let huge = [100_000_000u32, PROGRAM, 1, 14, 1, 1, 0].into_iter().flat_map(u32::to_be_bytes).collect();
    let other = b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec();
    for answer in [torn, huge, other] {
        let (connection, mut daemon) = pair();
        let serve = async move {
            request(&mut daemon).await;
            daemon.write_all(&answer).await.unwrap();
        };
        let (result, ()) = tokio::join!(connection.call(14, vec![]), serve);
        assert_eq!(result, Err(RpcError::Closed));
        assert!(connection.is_closed() && connection.call(14, vec![]).await == Err(RpcError::Closed));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_waited_for_as_long_as_the_daemon_answers_pings() {
    let (connection, mut daemon) = pair();
    let serve = async {
        let (procedure, serial) = request(&mut daemon).await;
        for _ in 0..12 {
            assert_eq!(request(&mut daemon).await, (PING, 0));
            daemon.write_all(&message(KEEPALIVE, PONG, EVENT, 0, OK, &[])).await.unwrap();
        }
        daemon.write_all(&message(PROGRAM, procedure, 1, serial, OK, b"copied")).await.unwrap();
    };
    let (result, ()) = tokio::join!(connection.call(125, vec![]), serve);
    assert_eq!(result, Ok(b"copied".to_vec()));

    let began = tokio::time::Instant::now();
    assert_eq!(connection.call(14, vec![]).await, Err(RpcError::Silent));
    assert!(began.elapsed() <= PING_EVERY * (UNANSWERED + 1), "{:?}", began.elapsed());
    assert!(connection.is_closed() && connection.call(14, vec![]).await == Err(RpcError::Silent));
}

#[tokio::test(start_paused = true)]
async fn an_upload_to_a_daemon_that_hangs_ends() {
    let (connection, mut daemon) = pair();
    let serve = async {
        let (procedure, serial) = request(&mut daemon).await;
        daemon.write_all(&message(PROGRAM, procedure, 1, serial, OK, &[])).await.unwrap();
    };
    let drive = vec![0; 100 * CHUNK];
    let (result, ()) = tokio::join!(connection.upload(208, vec![], &drive), serve);
    assert_eq!(result, Err(RpcError::Silent));
}

#[tokio::test]
async fn a_refusal_of_the_wrong_form_is_told_as_such() {
    let (connection, mut daemon) = pair();
    let serve = async {
        let (procedure, serial) = request(&mut daemon).await;
        daemon.write_all(&message(PROGRAM, procedure, 1, serial, ERROR, &[0, 0])).await.unwrap();
    };
    let (result, ()) = tokio::join!(connection.call(14, vec![]), serve);
    assert!(matches!(result, Err(RpcError::Protocol(_))), "{result:?}");
}

/// libvirtd's worker begins a stream before it answers the call, and its event loop sends the readable data at once.
#[tokio::test]
async fn a_download_is_whole_in_whatever_order_it_comes() {
    const ANSWER: u32 = 1;
    let answer = |call: (u32, u32)| message(PROGRAM, call.0, ANSWER, call.1, OK, &[]);
    let part = |call: (u32, u32), body: &[u8]| message(PROGRAM, call.0, STREAMED, call.1, CONTINUE, body);
    for early in 0..=3 {
        let (connection, mut daemon) = pair();
        let serve = async {
            let call = request(&mut daemon).await;
            let mut messages = vec![part(call, b"whole "), part(call, b"file"), part(call, &[])];
            messages.insert(early, answer(call));
            daemon.write_all(&messages.concat()).await.unwrap();
            let end = request(&mut daemon).await;
            daemon.write_all(&message(PROGRAM, end.0, STREAMED, end.1, OK, &[])).await.unwrap();
        };
        let (result, ()) = tokio::join!(connection.download(209, vec![]), serve);
        assert_eq!(result, Ok(b"whole file".to_vec()), "the answer comes after {early} messages");
    }
}
