//! The Rust client over a WebSocket: its connection is cut, and it goes on with its processes.

use std::net::SocketAddr;
use std::sync::Arc;

use parlor_client::exec::{
    ExecProcess, ExecProcessEvent, ExecProcessParams, ExecServerClient, ExecServerError,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;

use parlor_testkit::STEP_TIMEOUT;

use crate::server::Server;

const PROCESSES: usize = 5;
const CUTS: usize = 30;

fn shell(id: &str, text: &str) -> ExecProcessParams {
    ExecProcessParams::new(id, ["/bin/sh", "-c", text], "/").env("PATH", "/usr/bin:/bin").stdin()
}

/// Passes bytes on, and loses all connections whenever `cut` is notified.
async fn relay(to: SocketAddr, cut: Arc<Notify>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut server = TcpStream::connect(to).await.unwrap();
            let cut = Arc::clone(&cut);
            tokio::spawn(async move {
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                    () = cut.notified() => {}
                }
            });
        }
    });
    address
}

/// Goes on with a session as soon as the server has noticed that its connection is lost.
async fn resume(url: &str, session: &str) -> ExecServerClient {
    loop {
        match ExecServerClient::resume_websocket(url, None, session).await {
            Err(ExecServerError::Refused { code: -32010, .. }) => {}
            resumed => return resumed.unwrap(),
        }
    }
}

struct Followed {
    process: ExecProcess,
    output: Vec<u8>,
    is_closed: bool,
}

impl Followed {
    /// Takes the next event. Returns false if the connection is lost.
    async fn take(&mut self) -> bool {
        match timeout(STEP_TIMEOUT, self.process.next_event()).await.expect("an event") {
            Ok(Some(ExecProcessEvent::Output { bytes, .. })) => self.output.extend(bytes),
            Ok(Some(ExecProcessEvent::Exited { exit_code, .. })) => assert_eq!(exit_code, 7),
            Ok(None) => self.is_closed = true,
            Err(ExecServerError::Closed { .. }) => return false,
            Err(error) => panic!("{error}"),
        }
        true
    }
}

#[tokio::test]
async fn nothing_is_lost_or_doubled_when_the_connection_is_cut() {
    let server = Server::start();
    let cut = Arc::new(Notify::new());
    let url = format!("ws://{}", relay(server.exec, Arc::clone(&cut)).await);
    let mut client = ExecServerClient::connect_websocket(&url, None).await.unwrap();
    let session = client.session_id().unwrap().to_owned();
    let script = "while read line; do echo got $line; [ $line = quit ] && exit 7; done";
    let mut followed = Vec::new();
    for number in 0..PROCESSES {
        let process = client.start_numbered(shell(&format!("p{number}"), script)).await.unwrap();
        followed.push(Followed { process, output: Vec::new(), is_closed: false });
    }
    for number in 1..=CUTS {
        for followed in &followed {
            followed.process.write_once(&number.to_string(), format!("{number}\n")).await.unwrap();
        }
        // Some events are taken before the cut, some are under way, and some come when nobody is connected.
        for followed in followed.iter_mut().take(number % PROCESSES) {
            assert!(followed.take().await);
        }
        cut.notify_waiters();
        for followed in &mut followed {
            while followed.take().await {}
        }
        client = resume(&url, &session).await;
        assert_eq!(client.session_id(), Some(&*session));
        for followed in &mut followed {
            followed.process = client.attach(followed.process.position()).await.unwrap();
        }
    }
    let expected: String =
        (1..=CUTS).map(|number| format!("got {number}\n")).collect::<String>() + "got quit\n";
    for followed in &mut followed {
        followed.process.write_once("quit", "quit\n").await.unwrap();
        while !followed.is_closed {
            assert!(followed.take().await);
        }
        assert_eq!(String::from_utf8_lossy(&followed.output), expected);
        // What has ended is gone on with, too.
        let mut again = client.attach(followed.process.position()).await.unwrap();
        assert_eq!(again.next_event().await.unwrap(), None);
    }
}

#[tokio::test]
async fn output_that_is_no_longer_retained_is_reported_as_lost() {
    let server = Server::start();
    let url = format!("ws://{}", server.exec);
    let client = ExecServerClient::connect_websocket(&url, None).await.unwrap();
    let session = client.session_id().unwrap().to_owned();
    let mut process =
        client.start_numbered(shell("p", "echo up; read go; head -c 3000000 /dev/zero")).await.unwrap();
    process.next_event().await.unwrap();
    let position = process.position();
    process.write("go\n").await.unwrap();
    while process.next_event().await.unwrap().is_some() {}
    drop((process, client));
    let client = resume(&url, &session).await;
    let lost = client.attach(position).await.unwrap_err();
    assert!(matches!(&lost, ExecServerError::OutputLost { process_id } if process_id == "p"), "{lost}");
}

#[tokio::test]
async fn a_refused_connection_is_explained() {
    let server = Server::with_settings("[serve]\nallow_local = \"token\"\n");
    let url = format!("ws://{}", server.exec);
    for (token, reason) in
        [(None, "missing websocket bearer token"), (Some("x"), "invalid websocket bearer token")]
    {
        let error = ExecServerClient::connect_websocket(&url, token).await.unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
    let token = server.token(&[]);
    let client = ExecServerClient::connect_websocket(&url, Some(&token)).await.unwrap();
    assert!(client.is_ready().await.unwrap());
    let error = ExecServerClient::connect_websocket("http://127.0.0.1:1", None).await.unwrap_err();
    assert!(error.to_string().contains("ws://"), "{error}");
    let unknown = ExecServerClient::resume_websocket(&url, Some(&token), "none").await.unwrap_err();
    assert!(matches!(unknown, ExecServerError::Refused { code: -32600, .. }), "{unknown}");
}
