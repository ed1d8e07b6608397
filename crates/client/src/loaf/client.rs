//! The client: calls of a server that was started, or that somebody else started.

use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::driver::{self, Link, MAX_PENDING_CALLS};
use super::event::EVENT_BACKLOG;
use super::launch::{self, Life};
use super::{LoafError, LoafEvents, LoafLaunch};

/// How many requests may wait for a server that does not read.
const QUEUED_REQUESTS: usize = 16;

/// A server. Clones are handles on the same one.
///
/// The connection ends when the last clone is gone. Then the server's input closes; one that [`spawn`] started and
/// that does not exit soon is killed. If the runtime shuts down, it is killed at once.
///
/// Needs a tokio runtime with I/O and time enabled.
///
/// ```no_run
/// use parlor_client::loaf::{LoafClient, LoafError, LoafLaunch};
///
/// # async fn example() -> Result<(), LoafError> {
/// let (client, mut events) = LoafClient::spawn(&LoafLaunch::new("loaf"))?;
/// let session = client.create_session().await?;
/// client.send(&session, "/say hello").await?;
/// let said: String = events.until_ready(&session).await?.iter().filter_map(|event| event.answer()).collect();
/// assert_eq!(said, "hello");
/// client.shutdown().await?;
/// # Ok(())
/// # }
/// ```
///
/// [`spawn`]: Self::spawn
#[derive(Clone, Debug)]
pub struct LoafClient(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    link: Arc<Link>,
    lines: mpsc::Sender<Vec<u8>>,
    slots: Arc<Semaphore>,
    next_id: AtomicU64,
    life: Life,
}

/// What a server says to a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Sent {
    /// The turn that it is, or will be.
    pub turn_id: String,
    /// Whether it waits for the turn before it.
    pub queued: bool,
}

impl LoafClient {
    /// Starts a server. Its stderr is this program's. It need not be waited for: requests are answered once it is
    /// ready.
    pub fn spawn(launch: &LoafLaunch) -> Result<(Self, LoafEvents), LoafError> {
        let server = launch::launch(launch)?;
        Ok(Self::open(server.stdout, server.stdin, server.life))
    }

    /// Talks to a server that somebody else started. `reader` carries what the server says, `writer` what it hears;
    /// both are dropped when the connection ends.
    pub fn connect(
        reader: impl AsyncRead + Send + 'static,
        writer: impl AsyncWrite + Send + 'static,
    ) -> (Self, LoafEvents) {
        Self::open(reader, writer, Life::UNKNOWN)
    }

    fn open(
        reader: impl AsyncRead + Send + 'static,
        writer: impl AsyncWrite + Send + 'static,
        life: Life,
    ) -> (Self, LoafEvents) {
        let (link, verdict) = Link::new();
        let (lines, queue) = mpsc::channel(QUEUED_REQUESTS);
        let (sender, events) = mpsc::channel(EVENT_BACKLOG);
        tokio::spawn(driver::drive(reader, writer, queue, Arc::clone(&link), sender));
        let slots = Arc::new(Semaphore::new(MAX_PENDING_CALLS));
        let inner = Inner { link, lines, slots, next_id: AtomicU64::new(1), life };
        (Self(Arc::new(inner)), LoafEvents { events, verdict })
    }

    /// Calls a method. If the future is dropped, the request may have been sent; its answer will be ignored.
    pub async fn call(&self, method: &str, params: impl Serialize) -> Result<Value, LoafError> {
        #[derive(Serialize)]
        struct Request<'a, P> {
            jsonrpc: &'a str,
            id: u64,
            method: &'a str,
            params: P,
        }
        let inner = &*self.0;
        let slot = Arc::clone(&inner.slots).acquire_owned().await.map_err(|_| inner.link.verdict())?;
        let id = inner.next_id.fetch_add(1, Ordering::Relaxed);
        let request = Request { jsonrpc: "2.0", id, method, params };
        let mut line = serde_json::to_vec(&request)
            .map_err(|error| LoafError::protocol(&format!("params that are no JSON: {error}")))?;
        line.push(b'\n');
        let (reply, answer) = oneshot::channel();
        inner.link.enter(id, reply, slot)?;
        // Callers who give up on a server that does not answer must not use up all the slots.
        let _forget = Forget { link: &inner.link, id };
        if inner.lines.send(line).await.is_err() {
            return Err(inner.link.verdict());
        }
        answer.await.unwrap_or_else(|_| Err(inner.link.verdict()))
    }

    /// Creates a session, and gives its id.
    pub async fn create_session(&self) -> Result<String, LoafError> {
        #[derive(Deserialize)]
        struct Created {
            session_id: String,
        }
        let Created { session_id } = read(self.call("session.create", json!({})).await?)?;
        Ok(session_id)
    }

    /// Sends a prompt. Refused if the session is at work.
    pub async fn send(&self, session: &str, text: &str) -> Result<Sent, LoafError> {
        read(self.call("session.send", json!({"session_id": session, "text": text})).await?)
    }

    /// Sends a prompt, which waits for its turn if the session is at work.
    pub async fn enqueue(&self, session: &str, text: &str) -> Result<Sent, LoafError> {
        let params = json!({"session_id": session, "text": text, "enqueue": true});
        read(self.call("session.send", params).await?)
    }

    /// Lets text join the turn that is at work. Says whether there was one.
    pub async fn steer(&self, session: &str, text: &str) -> Result<bool, LoafError> {
        let answer = self.call("session.steer", json!({"session_id": session, "text": text})).await?;
        Ok(answer.get("accepted") == Some(&Value::Bool(true)))
    }

    /// Interrupts the turn that is at work. Says whether there was one; it ends with `session.interrupted`.
    pub async fn interrupt(&self, session: &str) -> Result<bool, LoafError> {
        let answer = self.call("session.interrupt", json!({"session_id": session})).await?;
        Ok(answer.get("interrupted") == Some(&Value::Bool(true)))
    }

    /// The session as it is now.
    pub async fn session(&self, session: &str) -> Result<Value, LoafError> {
        self.call("session.get", json!({"session_id": session})).await
    }

    /// Goes on with a saved chat in a session: one of this id or a part of it, or the `last`. Gives its id.
    pub async fn resume(&self, session: &str, chat: &str) -> Result<String, LoafError> {
        let params = json!({"session_id": session, "raw_command": format!("/history {chat}")});
        let answer = self.call("command.execute", params).await?;
        let resumed = answer.get("output").and_then(|output| output.get("resumed")).and_then(Value::as_str);
        resumed.map(str::to_owned).ok_or_else(|| LoafError::protocol(&format!("no chat in {answer}")))
    }

    /// Ends the server, and gives its exit status if this client started it.
    pub async fn shutdown(&self) -> Result<Option<ExitStatus>, LoafError> {
        match self.call("system.shutdown", json!({})).await {
            Ok(_) | Err(LoafError::Closed) => Ok(self.0.life.end().await),
            Err(error) => Err(error),
        }
    }
}

struct Forget<'a> {
    link: &'a Link,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.link.forget(self.id);
    }
}

fn read<T: serde::de::DeserializeOwned>(answer: Value) -> Result<T, LoafError> {
    serde_json::from_value(answer)
        .map_err(|flaw| LoafError::protocol(&format!("an answer that cannot be read: {flaw}")))
}
