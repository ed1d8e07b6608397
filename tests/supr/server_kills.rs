//! The server is killed several times while clients chat, reconnect and replay the events that they missed.
//!
//! At the end, the events that each client received over all its connections are compared with the events of its
//! session: the client missed no event, received none twice, and received none that the session does not have.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::client::{Client, within_timeout};
use crate::server::{Server, soak};

/// How long a client waits for the address of the next server before it tries the known one again.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// The events that a client received over all its connections, in order: each event's id, and for the start of a run
/// also the key of its input.
type ReceivedEvents = Vec<(String, Option<String>)>;

/// A client that chats in its own session until `is_over` is set.
struct ChatClient {
    session: String,
    addresses: watch::Receiver<SocketAddr>,
    is_over: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
    received: ReceivedEvents,
}

impl ChatClient {
    async fn chat(mut self) -> (String, ReceivedEvents) {
        let mut number = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            let address = *self.addresses.borrow_and_update();
            let after = self.received.last().map_or("", |(event, _)| event.as_str());
            let query = format!("session_id={}&after={after}", self.session);
            // Between two servers nothing listens.
            if let Ok(mut client) = Client::try_connect(address, &query).await {
                self.use_connection(&mut client, &mut number).await;
            }
            if !self.is_over.load(Ordering::Relaxed) {
                // After a timeout the same server may still be there.
                let _ = timeout(RETRY_DELAY, self.addresses.changed()).await;
            }
        }
        (self.session, self.received)
    }

    /// Sends one message after another, each with its own key, until the connection is lost. An unanswered message
    /// is sent again with the same key, so that the server can recognize it.
    async fn use_connection(&mut self, client: &mut Client, number: &mut u64) {
        loop {
            let key = format!("{}-{number}", self.session);
            let payload = json!({"content": format!("/say answer {number}"), "key": key});
            let has_started =
                self.received.iter().any(|(_, started)| started.as_deref() == Some(key.as_str()));
            if !has_started
                && client.try_send(&json!({"type": "message.send", "payload": payload})).await.is_err()
            {
                return;
            }
            loop {
                let Ok(frame) = client.next().await else { return };
                let Some(event) = self.record(&frame) else { continue };
                if event == "run.completed" || event == "run.failed" {
                    break;
                }
            }
            *number += 1;
            self.answers.fetch_add(1, Ordering::Relaxed);
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Records a frame if it is an event, and returns its type.
    fn record(&mut self, frame: &Value) -> Option<String> {
        let kind = frame["event_type"].as_str()?;
        let key = frame["data"]["input"]["key"].as_str().map(str::to_owned);
        self.received.push((frame["event_id"].as_str()?.to_owned(), key));
        Some(kind.to_owned())
    }
}

/// Clients that chat, each in a session of its own, while their server is killed and started again.
pub(crate) struct ChatClients {
    tasks: Vec<JoinHandle<(String, ReceivedEvents)>>,
    address: watch::Sender<SocketAddr>,
    is_over: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
}

impl ChatClients {
    pub(crate) fn start(count: usize, server: &Server) -> Self {
        let (address, addresses) = watch::channel(server.http);
        let (is_over, answers) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let client = |number| ChatClient {
            session: format!("s{number}"),
            addresses: addresses.clone(),
            is_over: Arc::clone(&is_over),
            answers: Arc::clone(&answers),
            received: Vec::new(),
        };
        let tasks = (0..count).map(|number| tokio::spawn(client(number).chat())).collect();
        Self { tasks, address, is_over, answers }
    }

    /// Waits until each client has received about two more answers, so that a kill hits the clients in the middle of
    /// their work, however slow the machine is.
    pub(crate) async fn wait_for_answers(&self) {
        let before = self.answers.load(Ordering::Relaxed);
        within_timeout(async {
            while self.answers.load(Ordering::Relaxed) < before + 2 * self.tasks.len() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }

    /// Gives the clients the address of the next server.
    pub(crate) fn use_server(&self, server: &Server) {
        self.address.send_replace(server.http);
    }

    /// Stops the clients and compares what they received with what `server` has. Returns the number of events.
    pub(crate) async fn stop_and_compare(self, server: &Server) -> usize {
        self.is_over.store(true, Ordering::Relaxed);
        let mut events = 0;
        for task in self.tasks {
            let (session, received) = task.await.unwrap();
            let mut client = Client::connect(server.http, &format!("session_id={session}&after=")).await;
            client.until("agent.list").await;
            let mut keys = Vec::new();
            for (event, _) in &received {
                let frame = client.next().await.unwrap();
                assert_eq!(frame["event_id"], event.as_str(), "{session}: {frame}");
                keys.extend(frame["data"]["input"]["key"].as_str().map(str::to_owned));
            }
            events += received.len();
            let count = keys.len();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), count, "{session}: a message that was sent again was answered twice");
        }
        events
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_receive_each_event_exactly_once_while_servers_are_killed() {
    let (kills, client_count) = (soak(5, 50), soak(10, 100));
    let mut server = Server::with(&format!("max_connections = {}", 2 * client_count));
    let clients = ChatClients::start(client_count, &server);
    for _ in 0..kills {
        clients.wait_for_answers().await;
        tokio::task::block_in_place(|| server.kill_and_restart());
        clients.use_server(&server);
    }
    let events = clients.stop_and_compare(&server).await;
    eprintln!("{kills} kills, {client_count} clients, {events} events");
}
