//! The server is killed again and again while clients chat, come back and hear what they missed.
//!
//! An event is acknowledged if its frame has arrived. At the end, what each client heard over all its
//! connections is compared with what its session has: nothing was missed, doubled, or made up.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::client::{Client, patiently};
use crate::server::{Server, soak};

/// How long a client waits for another server before it tries the one that it knows.
const RETRY: Duration = Duration::from_millis(50);

/// What is heard over all connections of a client: events in their order, with the key of the input for those that
/// start a run.
type Heard = Vec<(String, Option<String>)>;

/// What one client does until it is told to end.
struct Chatter {
    session: String,
    addresses: watch::Receiver<SocketAddr>,
    is_over: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
    heard: Heard,
}

impl Chatter {
    async fn chat(mut self) -> (String, Heard) {
        let mut number = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            let address = *self.addresses.borrow_and_update();
            let after = self.heard.last().map_or("", |(event, _)| event.as_str());
            let query = format!("session_id={}&after={after}", self.session);
            // Between two servers there is nobody to connect to.
            if let Ok(mut client) = Client::if_served(address, &query).await {
                self.use_connection(&mut client, &mut number).await;
            }
            if !self.is_over.load(Ordering::Relaxed) {
                // Either there is another server, or this one is still there.
                let _ = timeout(RETRY, self.addresses.changed()).await;
            }
        }
        (self.session, self.heard)
    }

    /// Says one thing after another, each with a key of its own, until the connection is gone. What was not
    /// answered is said again: the key makes it the same thing.
    async fn use_connection(&mut self, client: &mut Client, number: &mut u64) {
        loop {
            let key = format!("{}-{number}", self.session);
            let payload = json!({"content": format!("/say answer {number}"), "key": key});
            let has_begun = self.heard.iter().any(|(_, begun)| begun.as_deref() == Some(key.as_str()));
            if !has_begun
                && client.try_send(&json!({"type": "message.send", "payload": payload})).await.is_err()
            {
                return;
            }
            loop {
                let Ok(frame) = client.next().await else { return };
                let Some(event) = self.hear(&frame) else { continue };
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

    /// Remembers an event, and says what it is.
    fn hear(&mut self, frame: &Value) -> Option<String> {
        let kind = frame["event_type"].as_str()?;
        let key = frame["data"]["input"]["key"].as_str().map(str::to_owned);
        self.heard.push((frame["event_id"].as_str()?.to_owned(), key));
        Some(kind.to_owned())
    }
}

/// Clients that chat, each in a session of its own, while their server is killed and started again.
pub(crate) struct Chatters {
    tasks: Vec<JoinHandle<(String, Heard)>>,
    address: watch::Sender<SocketAddr>,
    is_over: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
}

impl Chatters {
    pub(crate) fn start(count: usize, server: &Server) -> Self {
        let (address, addresses) = watch::channel(server.http);
        let (is_over, answers) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let chatter = |number| Chatter {
            session: format!("s{number}"),
            addresses: addresses.clone(),
            is_over: Arc::clone(&is_over),
            answers: Arc::clone(&answers),
            heard: Vec::new(),
        };
        let tasks = (0..count).map(|number| tokio::spawn(chatter(number).chat())).collect();
        Self { tasks, address, is_over, answers }
    }

    /// Waits until each client has had about two more answers: some time in the middle of work, however slow the
    /// machine is.
    pub(crate) async fn some_answers(&self) {
        let before = self.answers.load(Ordering::Relaxed);
        patiently(async {
            while self.answers.load(Ordering::Relaxed) < before + 2 * self.tasks.len() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }

    /// Tells the clients where the next server is.
    pub(crate) fn come_to(&self, server: &Server) {
        self.address.send_replace(server.http);
    }

    /// Ends the clients and compares what they heard with what `server` has. Gives the number of events.
    pub(crate) async fn end_and_compare(self, server: &Server) -> usize {
        self.is_over.store(true, Ordering::Relaxed);
        let mut events = 0;
        for task in self.tasks {
            let (session, heard) = task.await.unwrap();
            let mut client = Client::connect(server.http, &format!("session_id={session}&after=")).await;
            client.until("agent.list").await;
            let mut keys = Vec::new();
            for (event, _) in &heard {
                let frame = client.next().await.unwrap();
                assert_eq!(frame["event_id"], event.as_str(), "{session}: {frame}");
                keys.extend(frame["data"]["input"]["key"].as_str().map(str::to_owned));
            }
            events += heard.len();
            let said = keys.len();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), said, "{session}: a message that was said again was answered twice");
        }
        events
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_misses_or_doubles_an_event_while_servers_are_killed() {
    let (kills, clients) = (soak(5, 50), soak(10, 100));
    let mut server = Server::with(&format!("max_connections = {}", 2 * clients));
    let chatters = Chatters::start(clients, &server);
    for _ in 0..kills {
        chatters.some_answers().await;
        tokio::task::block_in_place(|| server.kill_and_restart());
        chatters.come_to(&server);
    }
    let events = chatters.end_and_compare(&server).await;
    eprintln!("{kills} kills, {clients} clients, {events} events");
}
