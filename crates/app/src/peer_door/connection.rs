//! One connection to another process: requests with ids, replies in any order, and updates of watched sessions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parlor_doors::lines::{Line, Lines};
use parlor_doors::peer::{
    BorrowedCommand, BorrowedFrame, ClientFrame, ClientHello, MAX_LINE_BYTES, ServerFrame, VERSIONS,
};
use parlor_engine::{MAX_PEER_REQUESTS, PEER_REPLY_WAIT, PeerConnection, PeerError};
use parlor_vocab::{PeerUpdate, Seq, SessionCommand, SessionId, SessionRefusal, SessionReply};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::PROGRAM_VERSION;

/// How many updates of a session may wait for its mirror.
const QUEUED_UPDATES: usize = 64;

/// How many bytes of requests may wait to be written to one process, which may be stopped: two of the longest lines.
const MAX_PEER_QUEUED_BYTES: usize = 2 * MAX_LINE_BYTES;

/// The most bytes that one read takes.
const INPUT_PIECE_BYTES: usize = 64 * 1024;

/// A connection to another process. Clones share it.
#[derive(Clone)]
pub(super) struct Connection {
    requests: mpsc::Sender<QueuedLine>,
    shared: Arc<Shared>,
    next_id: Arc<AtomicU64>,
    /// Has a permit for each byte that may still be queued.
    free_bytes: Arc<Semaphore>,
    /// How long the other process may take to reply to a command: [`PEER_REPLY_WAIT`], shorter in tests.
    reply_wait: Duration,
}

/// A line that waits to be written. Clones share it.
#[derive(Clone)]
struct QueuedLine(Arc<Mutex<Option<CountedBytes>>>);

/// The bytes of a line, which count until this is dropped. The end of a watch does not count: it must not be refused.
struct CountedBytes {
    bytes: Vec<u8>,
    count: Option<OwnedSemaphorePermit>,
}

/// A request that was queued or sent.
struct SentRequest {
    id: u64,
    line: QueuedLine,
    reply: oneshot::Receiver<Reply>,
}

/// What the connection shares with its tasks.
#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// True when the other process is gone.
    has_ended: bool,
    replies: HashMap<u64, oneshot::Sender<Reply>>,
    watches: HashMap<SessionId, Watch>,
    /// Watches by the ids of their requests, until the reply. Updates that come before it belong to an earlier watch of the
    /// session.
    requested_watches: HashMap<u64, (SessionId, Watch)>,
}

/// A watch of a session. Dropping it ends the channel.
struct Watch {
    updates: mpsc::Sender<PeerUpdate>,
    /// Tells the task of the watch, which has a sender too.
    _ended: DropGuard,
}

type Reply = Result<Option<SessionReply>, SessionRefusal>;

impl Connection {
    /// Says hello on a new connection. Fails with the reason if the other process speaks no common version.
    pub(super) async fn open(
        from: impl AsyncRead + Send + Unpin + 'static,
        mut to: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Self, String> {
        let mut input =
            FrameReader { from, lines: Lines::new(MAX_LINE_BYTES), buffer: vec![0; INPUT_PIECE_BYTES] };
        let hello = ClientHello {
            versions: VERSIONS.to_vec(),
            program: PROGRAM_VERSION.to_owned(),
            pid: std::process::id(),
        };
        to.write_all(&line(&ClientFrame::Hello(hello))).await.map_err(|error| error.to_string())?;
        to.flush().await.map_err(|error| error.to_string())?;
        match input.next().await {
            Some(ServerFrame::Hello(hello)) if VERSIONS.contains(&hello.version) => {}
            Some(ServerFrame::Error { message }) => return Err(message),
            Some(_) | None => return Err("it does not answer hello".to_owned()),
        }
        let (requests, queue) = mpsc::channel(MAX_PEER_REQUESTS);
        let shared = Arc::<Shared>::default();
        tokio::spawn(write(to, queue));
        tokio::spawn(read(input, Arc::clone(&shared)));
        let free_bytes = Arc::new(Semaphore::new(MAX_PEER_QUEUED_BYTES));
        Ok(Self { requests, shared, next_id: Arc::default(), free_bytes, reply_wait: PEER_REPLY_WAIT })
    }

    /// Sends a request, and returns it with the channel of its reply. `watch` is what the reply begins. Fails if the connection has
    /// ended, its queue is full, or the request is longer than the owner accepts.
    fn request<F: Serialize>(
        &self,
        frame: impl FnOnce(u64) -> F,
        watch: Option<(SessionId, Watch)>,
    ) -> Result<SentRequest, PeerError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let bytes = line(&frame(id));
        // The owner would end the connection, which all sessions share.
        if bytes.len() - 1 > MAX_LINE_BYTES {
            return Err(PeerError::Refused(SessionRefusal::RequestTooLong { limit: MAX_LINE_BYTES }));
        }
        let too_many =
            PeerError::Refused(SessionRefusal::TooManyQueuedBytes { limit: MAX_PEER_QUEUED_BYTES });
        let permits = u32::try_from(bytes.len()).map_err(|_| too_many.clone())?;
        let count = Arc::clone(&self.free_bytes).try_acquire_many_owned(permits).map_err(|_| too_many)?;
        let place = self.requests.try_reserve().map_err(|error| match error {
            mpsc::error::TrySendError::Full(()) => {
                PeerError::Refused(SessionRefusal::TooManyRequests { limit: MAX_PEER_REQUESTS })
            }
            mpsc::error::TrySendError::Closed(()) => PeerError::NotSent,
        })?;
        let (sender, receiver) = oneshot::channel();
        // One critical section, so that the end of the connection finds both or neither.
        let mut waiting = self.shared.lock();
        if waiting.has_ended {
            return Err(PeerError::NotSent);
        }
        waiting.replies.insert(id, sender);
        waiting.requested_watches.extend(watch.map(|watch| (id, watch)));
        let line = QueuedLine::new(bytes, Some(count));
        place.send(line.clone());
        Ok(SentRequest { id, line, reply: receiver })
    }

    /// Waits for the reply to a command, for a limited time. Forgets the command then: a later reply is dropped.
    async fn limited_reply(&self, mut request: SentRequest, may_take_long: bool) -> Result<Reply, PeerError> {
        loop {
            match timeout(self.reply_wait, &mut request.reply).await {
                Ok(reply) => return reply.map_err(|_| PeerError::Lost),
                Err(_) if may_take_long && self.answers().await => {}
                Err(_) => {
                    self.shared.lock().replies.remove(&request.id);
                    return Err(PeerError::NoReply { was_sent: request.line.take().is_none() });
                }
            }
        }
    }

    /// Whether the other process answers requests. Asks for the end of a watch that does not exist, which changes nothing.
    async fn answers(&self) -> bool {
        let Ok(session) = SessionId::parse("") else { return false };
        let Ok(mut probe) = self.request(|id| ClientFrame::Unwatch { id, session }, None) else {
            return false;
        };
        let has_answered = timeout(self.reply_wait, &mut probe.reply).await.is_ok();
        if !has_answered {
            self.shared.lock().replies.remove(&probe.id);
        }
        has_answered
    }

    /// Waits for the reply to a request, for any time.
    fn reply(
        &self,
        frame: impl FnOnce(u64) -> ClientFrame,
        watch: Option<(SessionId, Watch)>,
    ) -> BoxFuture<'static, Result<Option<SessionReply>, PeerError>> {
        let sent = self.request(frame, watch);
        Box::pin(async move { sent?.reply.await.map_err(|_| PeerError::Lost)?.map_err(PeerError::Refused) })
    }
}

impl PeerConnection for Connection {
    fn is_connected(&self) -> bool {
        !self.shared.lock().has_ended
    }

    fn submit(
        &self,
        session: &SessionId,
        command: &SessionCommand,
    ) -> BoxFuture<'static, Result<SessionReply, PeerError>> {
        let frame = |id| BorrowedFrame::Command { id, session, command: BorrowedCommand(command) };
        let sent = self.request(frame, None);
        let (connection, may_take_long) = (self.clone(), may_take_long(command));
        Box::pin(async move {
            let reply = connection.limited_reply(sent?, may_take_long).await?.map_err(PeerError::Refused)?;
            // A reply without a result is none to a command: the other side is broken.
            reply.ok_or(PeerError::Refused(SessionRefusal::Internal))
        })
    }

    fn delete(&self, session: &SessionId) -> BoxFuture<'static, Result<(), PeerError>> {
        let session = session.clone();
        let reply = self.reply(|id| ClientFrame::Delete { id, session }, None);
        Box::pin(async move { reply.await.map(|_| ()) })
    }

    fn watch(&self, session: &SessionId) -> mpsc::Receiver<PeerUpdate> {
        let (sender, receiver) = mpsc::channel(QUEUED_UPDATES);
        let (watched, shared) = (session.clone(), Arc::clone(&self.shared));
        let ended = CancellationToken::new();
        shared.lock().watches.remove(&watched);
        let watch = Watch { updates: sender.clone(), _ended: ended.clone().drop_guard() };
        let frame = |id| ClientFrame::Watch { id, session: watched.clone() };
        let reply = self.reply(frame, Some((watched.clone(), watch)));
        let requests = self.requests.clone();
        let next_id = self.next_id.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let is_refused = reply.await.is_err();
            if !is_refused {
                tokio::select! {
                    () = sender.closed() => {}
                    () = ended.cancelled() => return,
                }
            }
            // Fails if the connection has ended, and the watch with it. A full queue must not keep the owner's watch alive.
            let Ok(place) = requests.reserve().await else { return };
            let mut waiting = shared.lock();
            let is_current =
                waiting.watches.get(&watched).is_some_and(|watch| watch.updates.same_channel(&sender));
            if is_current {
                waiting.watches.remove(&watched);
            }
            // The owner has one watch of a session for this process, so the end of this one would end a later one too.
            let is_replaced = waiting.requested_watches.values().any(|(session, _)| *session == watched);
            if is_current && !is_refused && !is_replaced {
                // Under the lock, so that it is sent before a later watch.
                let unwatch = line(&ClientFrame::Unwatch { id: next_id, session: watched });
                place.send(QueuedLine::new(unwatch, None));
            }
        });
        receiver
    }
}

impl QueuedLine {
    fn new(bytes: Vec<u8>, count: Option<OwnedSemaphorePermit>) -> Self {
        Self(Arc::new(Mutex::new(Some(CountedBytes { bytes, count }))))
    }

    /// Takes the line out of the queue, to write it or to drop it. `None` if that was done before.
    fn take(&self) -> Option<CountedBytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Each change is a single step, so a panic leaves the maps consistent.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_reply(&self, id: u64, reply: Reply) {
        let sender = {
            let mut waiting = self.lock();
            if let Some((session, watch)) = waiting.requested_watches.remove(&id)
                && reply.is_ok()
            {
                waiting.watches.insert(session, watch);
            }
            waiting.replies.remove(&id)
        };
        // Nobody waits for the reply to an `unwatch`.
        if let Some(sender) = sender {
            let _ = sender.send(reply);
        }
    }

    async fn on_update(&self, session: &SessionId, update: PeerUpdate) {
        let sender = self.lock().watches.get(session).map(|watch| watch.updates.clone());
        if let Some(sender) = sender {
            // Waits for the mirror, which waits for nothing but the disk. Fails if the watch was dropped.
            let _ = sender.send(update).await;
        }
    }

    fn end(&self) {
        let mut waiting = self.lock();
        waiting.has_ended = true;
        // Dropping the senders tells those who wait.
        waiting.replies.clear();
        waiting.watches.clear();
        waiting.requested_watches.clear();
    }
}

/// Passes on what the other process sends, until it hangs up or sends something that is no frame.
async fn read(mut input: FrameReader<impl AsyncRead + Unpin>, shared: Arc<Shared>) {
    while let Some(frame) = input.next().await {
        match frame {
            ServerFrame::Reply { id, reply } => shared.on_reply(id, Ok(reply.map(|reply| reply.0))),
            ServerFrame::Refusal { id, refusal } => shared.on_reply(id, Err(refusal.0)),
            ServerFrame::Head { session, seq } => {
                shared.on_update(&session, PeerUpdate::Head(Seq(seq))).await;
            }
            ServerFrame::Delta { session, run, stream, text } => {
                shared.on_update(&session, PeerUpdate::Delta { run, stream: stream.0, text }).await;
            }
            ServerFrame::Closed { session } => drop(shared.lock().watches.remove(&session)),
            ServerFrame::Hello(_) | ServerFrame::Error { .. } => break,
        }
    }
    shared.end();
}

async fn write(mut to: impl AsyncWrite + Unpin, mut queue: mpsc::Receiver<QueuedLine>) {
    while let Some(line) = queue.recv().await {
        // Taken back: its sender no longer waits.
        let Some(CountedBytes { mut bytes, count }) = line.take() else { continue };
        let mut counts = vec![count];
        while bytes.len() < INPUT_PIECE_BYTES
            && let Ok(more) = queue.try_recv()
        {
            if let Some(more) = more.take() {
                bytes.extend_from_slice(&more.bytes);
                counts.push(more.count);
            }
        }
        // TLS keeps bytes until they are flushed.
        if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
            return;
        }
        drop(counts);
    }
    // The other half is still reading, and keeps the connection open until the other process hangs up too.
    let _ = to.shutdown().await;
}

/// Reads frames from a connection.
struct FrameReader<R> {
    from: R,
    lines: Lines,
    /// What one read takes.
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// The next frame; `None` at the end of the connection, or if a line is not a frame.
    async fn next(&mut self) -> Option<ServerFrame> {
        loop {
            match self.lines.next_line() {
                Some(Line::Whole(line)) => return serde_json::from_slice(line).ok(),
                Some(Line::Oversize) => return None,
                None => {}
            }
            match self.from.read(&mut self.buffer).await {
                Ok(count @ 1..) => self.lines.push(self.buffer.get(..count).unwrap_or_default()),
                Ok(_) | Err(_) => return None,
            }
        }
    }
}

/// Whether the reply to a command comes when something long has ended.
fn may_take_long(command: &SessionCommand) -> bool {
    match command {
        // A model writes the summary.
        SessionCommand::Compact { .. } => true,
        SessionCommand::Send { .. }
        | SessionCommand::Stop { .. }
        | SessionCommand::ClearQueue
        | SessionCommand::Unqueue(_)
        | SessionCommand::ClearHistory
        | SessionCommand::Rename { .. }
        | SessionCommand::ChooseAgent(_)
        | SessionCommand::ChooseMode(_)
        | SessionCommand::AnswerQuestion { .. } => false,
    }
}

/// A frame with its newline.
fn line(frame: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(frame).expect("frames have string keys and memory does not fail");
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use parlor_doors::peer::ServerHello;
    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::net::UnixStream;

    use super::*;

    /// How long a test waits for something that must happen.
    const TIMEOUT: Duration = Duration::from_secs(20);

    /// A connection, and the owner's end of it after `hello`.
    async fn connection() -> (Connection, UnixStream) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let hello = ServerHello { version: VERSIONS[0], program: PROGRAM_VERSION.to_owned(), pid: 1 };
        let mut bytes = serde_json::to_vec(&ServerFrame::Hello(hello)).unwrap();
        bytes.push(b'\n');
        theirs.write_all(&bytes).await.unwrap();
        let (from, to) = ours.into_split();
        (Connection::open(from, to).await.unwrap(), theirs)
    }

    fn session() -> SessionId {
        SessionId::parse("s").unwrap()
    }

    fn rename(title: String) -> SessionCommand {
        SessionCommand::Rename { title }
    }

    #[tokio::test]
    async fn a_command_that_is_too_long_is_refused_and_the_connection_stays() {
        let (connection, owner) = connection().await;
        let mut owner = BufReader::new(owner).lines();
        let too_long = connection.submit(&session(), &rename("x".repeat(MAX_LINE_BYTES))).await;
        assert_eq!(
            too_long,
            Err(PeerError::Refused(SessionRefusal::RequestTooLong { limit: MAX_LINE_BYTES }))
        );
        let reply = connection.submit(&session(), &rename("short".to_owned()));
        let hello = owner.next_line().await.unwrap().unwrap();
        assert!(hello.starts_with(r#"{"hello""#), "{hello}");
        let request = owner.next_line().await.unwrap().unwrap();
        assert!(request.contains("short"), "{request}");
        drop(owner);
        assert_eq!(reply.await, Err(PeerError::Lost));
        let unsent = connection.submit(&session(), &rename("late".to_owned())).await;
        assert_eq!(unsent, Err(PeerError::NotSent));
    }

    #[tokio::test]
    async fn a_watch_is_ended_at_the_owner_also_if_many_requests_wait() {
        let (connection, owner) = connection().await;
        let (from, mut to) = owner.into_split();
        let mut from = BufReader::new(from).lines();
        let updates = connection.watch(&session());
        while !from.next_line().await.unwrap().unwrap().starts_with(r#"{"watch""#) {}
        to.write_all(b"{\"reply\":{\"id\":0}}\n").await.unwrap();
        while !connection.shared.lock().watches.contains_key(&session()) {
            tokio::task::yield_now().await;
        }
        // Longer than what the socket holds, so that the queue behind it stays full until the owner reads.
        let mut replies = vec![connection.submit(&session(), &rename("x".repeat(4 << 20)))];
        while connection.requests.capacity() < MAX_PEER_REQUESTS {
            tokio::task::yield_now().await;
        }
        replies.extend((0..MAX_PEER_REQUESTS).map(|_| connection.submit(&session(), &rename(String::new()))));
        let refused = connection.submit(&session(), &rename(String::new())).await;
        let limit = MAX_PEER_REQUESTS;
        assert_eq!(refused, Err(PeerError::Refused(SessionRefusal::TooManyRequests { limit })));
        drop(updates);
        // The end of the watch waits by now, if it was not dropped.
        tokio::task::yield_now().await;
        let unwatched =
            async { while !from.next_line().await.unwrap().unwrap().starts_with(r#"{"unwatch""#) {} };
        timeout(TIMEOUT, unwatched).await.expect("the end of the watch");
    }

    #[tokio::test]
    async fn a_watch_ends_with_the_connection_also_without_a_reply() {
        let (connection, owner) = connection().await;
        let mut unanswered = connection.watch(&session());
        drop(owner);
        assert_eq!(timeout(TIMEOUT, unanswered.recv()).await, Ok(None));
        let mut late = connection.watch(&session());
        assert_eq!(timeout(TIMEOUT, late.recv()).await, Ok(None));
    }

    /// Reads the owner's lines until one contains `text`.
    async fn read_until(from: &mut (impl AsyncBufReadExt + Unpin), text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            let read = timeout(TIMEOUT, from.read_line(&mut line)).await.expect("a line").unwrap();
            assert_ne!(read, 0, "no line contains {text}");
        }
    }

    #[tokio::test]
    async fn a_command_that_is_not_answered_fails_and_its_late_reply_is_dropped() {
        let (mut connection, owner) = connection().await;
        connection.reply_wait = Duration::from_millis(50);
        let (from, mut to) = owner.into_split();
        let unanswered = timeout(TIMEOUT, connection.submit(&session(), &rename("a".to_owned()))).await;
        assert_eq!(unanswered, Ok(Err(PeerError::NoReply { was_sent: true })));
        connection.reply_wait = TIMEOUT;
        let answered = connection.submit(&session(), &rename("b".to_owned()));
        read_until(&mut BufReader::new(from), r#""title":"b""#).await;
        let replies =
            "{\"reply\":{\"id\":0,\"reply\":\"done\"}}\n{\"reply\":{\"id\":1,\"reply\":\"done\"}}\n";
        to.write_all(replies.as_bytes()).await.unwrap();
        assert_eq!(answered.await, Ok(SessionReply::Done));
        assert!(connection.shared.lock().replies.is_empty());
    }

    #[tokio::test]
    async fn a_command_behind_one_that_is_not_read_is_taken_back() {
        let (mut connection, owner) = connection().await;
        // Longer than what the socket holds.
        let first = connection.submit(&session(), &rename("x".repeat(4 << 20)));
        while connection.requests.capacity() < MAX_PEER_REQUESTS {
            tokio::task::yield_now().await;
        }
        connection.reply_wait = Duration::from_millis(50);
        let taken_back = timeout(TIMEOUT, connection.submit(&session(), &rename("late".to_owned()))).await;
        assert_eq!(taken_back, Ok(Err(PeerError::NoReply { was_sent: false })));
        drop((connection, first));
        let mut received = String::new();
        BufReader::new(owner).read_to_string(&mut received).await.unwrap();
        assert!(received.contains("xxx") && !received.contains("late"));
    }

    #[tokio::test]
    async fn a_compaction_takes_any_time_while_the_owner_answers() {
        let (mut connection, owner) = connection().await;
        connection.reply_wait = Duration::from_millis(500);
        let (from, mut to) = owner.into_split();
        let mut from = BufReader::new(from);
        let compacted = tokio::spawn(connection.submit(&session(), &SessionCommand::Compact { keep: 1 }));
        read_until(&mut from, "compact").await;
        for id in 1..=2 {
            read_until(&mut from, &format!(r#"{{"unwatch":{{"id":{id},"session":""}}}}"#)).await;
            to.write_all(format!("{{\"reply\":{{\"id\":{id}}}}}\n").as_bytes()).await.unwrap();
        }
        // The next question stays without an answer.
        let outcome = timeout(TIMEOUT, compacted).await.unwrap().unwrap();
        assert_eq!(outcome, Err(PeerError::NoReply { was_sent: true }));
    }

    #[tokio::test]
    async fn the_bytes_that_wait_for_a_process_are_limited_and_are_free_again_when_they_are_taken_back() {
        let (mut connection, _owner) = connection().await;
        connection.reply_wait = Duration::from_millis(50);
        let long = rename("x".repeat(MAX_LINE_BYTES / 2));
        // The owner does not read, so the first is being written and the next two wait.
        let replies: Vec<_> = (0..3).map(|_| connection.submit(&session(), &long)).collect();
        let refused = connection.submit(&session(), &long).await;
        let limit = MAX_PEER_QUEUED_BYTES;
        assert_eq!(refused, Err(PeerError::Refused(SessionRefusal::TooManyQueuedBytes { limit })));
        let replies = timeout(TIMEOUT, futures_util::future::join_all(replies)).await.unwrap();
        let was_sent = |was_sent| Err(PeerError::NoReply { was_sent });
        assert_eq!(replies, [was_sent(true), was_sent(false), was_sent(false)]);
        assert!(connection.free_bytes.available_permits() > MAX_LINE_BYTES);
    }
}
