//! The loaf client: it starts or connects to a server, and calls its methods.

use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::driver::{self, Link, MAX_PENDING_CALLS};
use super::event::EVENT_BACKLOG;
use super::launch::{EXIT_WAIT, launch};
use super::{LoafError, LoafEvents, LoafLaunch};
use crate::child::process::{ChildStatus, EndChild};

/// How many requests may wait for a server that does not read.
const QUEUED_REQUESTS: usize = 16;

/// A connection to a server. Clones are handles on the same connection.
///
/// The connection ends when the last clone is dropped. Then the server's input closes. A server that [`spawn`] started is
/// killed if it does not exit within [`EXIT_WAIT`], and at once if the runtime shuts down.
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
/// let text: String = events.until_ready(&session).await?.iter().filter_map(|event| event.answer()).collect();
/// assert_eq!(text, "hello");
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
    status: ChildStatus,
    /// Nothing is ever sent on it. Dropping it tells the task that waits for the server's process to end the server.
    _end_server: Option<oneshot::Sender<EndChild>>,
}

/// The answer to a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SentPrompt {
    /// The turn of the prompt, which may not have begun yet.
    pub turn_id: String,
    /// Whether the turn waits for an earlier one.
    pub queued: bool,
}

impl LoafClient {
    /// Starts a server. Its stderr is this program's. Calls may be made at once; the server answers them when it is ready.
    pub fn spawn(command: &LoafLaunch) -> Result<(Self, LoafEvents), LoafError> {
        let server = launch(command)?;
        Ok(Self::open(server.stdout, server.stdin, server.status, Some(server.end)))
    }

    /// Connects to a server that another program started. `reader` is the server's output and `writer` its input; both are
    /// dropped when the connection ends.
    pub fn connect(
        reader: impl AsyncRead + Send + 'static,
        writer: impl AsyncWrite + Send + 'static,
    ) -> (Self, LoafEvents) {
        Self::open(reader, writer, ChildStatus::UNKNOWN, None)
    }

    fn open(
        reader: impl AsyncRead + Send + 'static,
        writer: impl AsyncWrite + Send + 'static,
        status: ChildStatus,
        end_server: Option<oneshot::Sender<EndChild>>,
    ) -> (Self, LoafEvents) {
        let (link, end_reason) = Link::new();
        let (lines, queue) = mpsc::channel(QUEUED_REQUESTS);
        let (sender, events) = mpsc::channel(EVENT_BACKLOG);
        tokio::spawn(driver::drive(reader, writer, queue, Arc::clone(&link), sender));
        let slots = Arc::new(Semaphore::new(MAX_PENDING_CALLS));
        let next_id = AtomicU64::new(1);
        let inner = Inner { link, lines, slots, next_id, status, _end_server: end_server };
        (Self(Arc::new(inner)), LoafEvents { events, end_reason })
    }

    /// Calls a method. If the future is dropped, the request may have been sent; its answer is then ignored.
    pub async fn call(&self, method: &str, params: impl Serialize) -> Result<Value, LoafError> {
        #[derive(Serialize)]
        struct Request<'a, P> {
            jsonrpc: &'a str,
            id: u64,
            method: &'a str,
            params: P,
        }
        let inner = &*self.0;
        let slot = Arc::clone(&inner.slots).acquire_owned().await.map_err(|_| inner.link.end_reason())?;
        let id = inner.next_id.fetch_add(1, Ordering::Relaxed);
        let request = Request { jsonrpc: "2.0", id, method, params };
        let mut line = serde_json::to_vec(&request)
            .map_err(|error| LoafError::protocol(&format!("params that are no JSON: {error}")))?;
        line.push(b'\n');
        let (reply, answer) = oneshot::channel();
        inner.link.add(id, reply, slot)?;
        // Callers who give up on a server that does not answer must not use up all slots.
        let _forget = ForgetOnDrop { link: &inner.link, id };
        if inner.lines.send(line).await.is_err() {
            return Err(inner.link.end_reason());
        }
        answer.await.unwrap_or_else(|_| Err(inner.link.end_reason()))
    }

    /// Creates a session, and returns its id.
    pub async fn create_session(&self) -> Result<String, LoafError> {
        #[derive(Deserialize)]
        struct Created {
            session_id: String,
        }
        let Created { session_id } = read(self.call("session.create", json!({})).await?)?;
        Ok(session_id)
    }

    /// Sends a prompt. The server refuses it if a turn is running in the session.
    pub async fn send(&self, session: &str, text: &str) -> Result<SentPrompt, LoafError> {
        read(self.call("session.send", json!({"session_id": session, "text": text})).await?)
    }

    /// Sends a prompt. If a turn is running in the session, the server queues it.
    pub async fn enqueue(&self, session: &str, text: &str) -> Result<SentPrompt, LoafError> {
        let params = json!({"session_id": session, "text": text, "enqueue": true});
        read(self.call("session.send", params).await?)
    }

    /// Adds text to the running turn. Returns false if no turn is running.
    pub async fn steer(&self, session: &str, text: &str) -> Result<bool, LoafError> {
        let answer = self.call("session.steer", json!({"session_id": session, "text": text})).await?;
        Ok(answer.get("accepted") == Some(&Value::Bool(true)))
    }

    /// Interrupts the running turn, which then ends with the event `session.interrupted`. Returns false if no turn is
    /// running.
    pub async fn interrupt(&self, session: &str) -> Result<bool, LoafError> {
        let answer = self.call("session.interrupt", json!({"session_id": session})).await?;
        Ok(answer.get("interrupted") == Some(&Value::Bool(true)))
    }

    /// The state of a session, as `session.get` returns it.
    pub async fn session(&self, session: &str) -> Result<Value, LoafError> {
        self.call("session.get", json!({"session_id": session})).await
    }

    /// Continues a saved chat in a session, and returns the chat's id. `chat` is an id, a part of one, or `last`.
    pub async fn resume(&self, session: &str, chat: &str) -> Result<String, LoafError> {
        let params = json!({"session_id": session, "raw_command": format!("/history {chat}")});
        let answer = self.call("command.execute", params).await?;
        let resumed = answer.get("output").and_then(|output| output.get("resumed")).and_then(Value::as_str);
        resumed.map(str::to_owned).ok_or_else(|| LoafError::protocol(&format!("no chat in {answer}")))
    }

    /// Ends the server, and returns its exit status if this client started it and it exits within [`EXIT_WAIT`].
    pub async fn shutdown(&self) -> Result<Option<ExitStatus>, LoafError> {
        match self.call("system.shutdown", json!({})).await {
            Ok(_) | Err(LoafError::Closed) if self.0.status.is_known() => {
                Ok(timeout(EXIT_WAIT, self.0.status.clone().exited()).await.ok().flatten())
            }
            Ok(_) | Err(LoafError::Closed) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

struct ForgetOnDrop<'a> {
    link: &'a Link,
    id: u64,
}

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        self.link.remove(self.id);
    }
}

fn read<T: serde::de::DeserializeOwned>(answer: Value) -> Result<T, LoafError> {
    serde_json::from_value(answer)
        .map_err(|error| LoafError::protocol(&format!("an answer that cannot be read: {error}")))
}
