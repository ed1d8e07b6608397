//! The driver of a WebSocket connection: it passes messages, backend answers and events to the machine, and carries out the
//! machine's outputs.
//!
//! Each connection has one task and no output queue: the task asks the machine for the next frame after it has written the
//! one before. A peer that reads nothing is disconnected after a timeout; it can get the missed events from the log later.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, SinkExt, StreamExt};
use parlor_doors::{BackendFor, Input, Machine, Output};
use parlor_vocab::{Ticket, Update, UpdateOf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message, Utf8Bytes};

use crate::MeteredStream;
use crate::deflate::{MarkedMessages, Step};
use crate::frame_memory::{FREE_FRAME_BYTES, FrameAccount};
use crate::large_frames::block_in_place_if_large;

/// How many updates of the backend are handled in a row before the task reads from the peer again.
const UPDATES_AT_A_TIME: usize = 64;

/// The socket is taken out of its field only in [`Connection::rebuild_socket`], which puts one back.
const SOCKET_IS_PRESENT: &str = "the socket is in its field outside of rebuild_socket";

/// How long a peer may take to answer a close frame.
const CLOSE_REPLY_WAIT: Duration = Duration::from_secs(1);

/// The buffer size for input that is read and discarded.
const DISCARD_BYTES: usize = 4096;

/// How many frames, and how many bytes in all, are taken from a replaced connection that had sent them before it could know
/// of its replacement.
const LAST_FRAMES: usize = 16;
const LAST_BYTES: usize = 64 << 20;

/// How long the requests of a peer may take to complete after the peer is gone.
pub const LINGER_WAIT: Duration = Duration::from_secs(75);

/// The close code for a connection whose session has a newer connection.
pub const REPLACED_CLOSE_CODE: u16 = 4001;

/// The close code for a connection whose token was replaced, together with the order to evict its holders.
pub const EVICTED_CLOSE_CODE: u16 = 4002;

/// A WebSocket whose handshake is done.
///
/// The type is tungstenite's and not axum's: axum 0.8 depends on an older tungstenite, which would add second versions of
/// half a dozen crates, and it boxes the stream, which costs memory for each connection.
pub type Socket = WebSocketStream<MeteredStream>;

/// How a connection is kept alive, and when it is closed as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// The time between two pings to the peer.
    pub ping_interval: Duration,
    /// How long a peer may send neither a message nor a pong.
    pub read_timeout: Duration,
    /// How long a peer may read nothing while a frame is written to it.
    pub write_timeout: Duration,
}

/// Why the server closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The session has a newer connection: close code 4001, reason `replaced`.
    Replaced,
    /// The token of the connection was replaced, and its holders are evicted: close code 4002.
    Evicted,
    /// The server is stopping: close code 1001.
    GoingAway,
}

impl CloseReason {
    /// The code and the text of the close frame.
    pub fn code_and_text(self) -> (CloseCode, &'static str) {
        match self {
            Self::Replaced => (CloseCode::from(REPLACED_CLOSE_CODE), "replaced"),
            Self::Evicted => (CloseCode::from(EVICTED_CLOSE_CODE), "the token was replaced"),
            Self::GoingAway => (CloseCode::Away, "the server is ending"),
        }
    }
}

/// The direction of a frame, as the server sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameDirection {
    /// From the peer.
    Received,
    /// To the peer.
    Sent,
}

/// Is called for each frame, for the metrics of the server. All connections may share one.
pub type CountFrame = Arc<dyn Fn(FrameDirection) + Send + Sync>;

/// Serves one connection until the peer leaves, the machine closes it or `stop` completes. Requests that the peer made
/// before are still carried out.
///
/// Not an `async fn`, whose future would hold the arguments twice, and the closing future is boxed: most connections are
/// idle and there may be thousands, so each future must be small.
pub fn serve_socket<M, B>(
    machine: M,
    backend: B,
    mut socket: Socket,
    keepalive: Keepalive,
    count_frame: CountFrame,
    stop: impl Future<Output = CloseReason>,
) -> impl Future<Output = ()>
where
    M: Machine,
    B: BackendFor<M>,
{
    let now = Instant::now();
    socket.get_mut().set_write_timeout(keepalive.write_timeout);
    let mut connection = Box::new(Connection {
        machine,
        backend,
        socket: Some(socket),
        keepalive,
        count_frame,
        last_heard: now,
        last_ping: now,
        wake_at: None,
        is_writing: false,
        has_large_buffers: false,
    });
    async move {
        let end = connection.serve(stop).await;
        Box::pin(connection.close(end)).await;
    }
}

struct Connection<M, B> {
    machine: M,
    backend: B,
    /// None only while [`rebuild_socket`](Self::rebuild_socket) replaces it.
    socket: Option<Socket>,
    keepalive: Keepalive,
    count_frame: CountFrame,
    /// When the last message or pong of the peer came.
    last_heard: Instant,
    last_ping: Instant,
    /// The deadline that the machine has asked for.
    wake_at: Option<Instant>,
    /// Whether a frame is being written. A write that was cancelled may have left half a frame, so nothing may follow it.
    is_writing: bool,
    /// Whether the socket's buffers have grown for a large message.
    has_large_buffers: bool,
}

/// Why a connection ends.
enum End {
    /// The peer is gone, so no close frame is sent.
    Gone,
    /// The peer gets a close frame with this code and reason.
    Close(CloseCode, &'static str),
}

impl From<CloseReason> for End {
    fn from(reason: CloseReason) -> Self {
        let (code, text) = reason.code_and_text();
        Self::Close(code, text)
    }
}

impl<M, B> Connection<M, B>
where
    M: Machine,
    B: BackendFor<M>,
{
    async fn serve(&mut self, stop: impl Future<Output = CloseReason>) -> End {
        // `stop` also interrupts a write, so that a peer that does not read cannot delay it. The buffered part of that
        // frame is written before the close frame, and nothing else.
        tokio::select! {
            biased;
            reason = stop => {
                if reason == CloseReason::GoingAway && !self.is_writing {
                    // The time limit is for a peer that does not read.
                    let _ = timeout(CLOSE_REPLY_WAIT, self.send_remaining_updates()).await;
                }
                reason.into()
            }
            Err(end) = self.serve_until_end() => end,
        }
    }

    /// Sends the updates that the backend still has when the server is stopping.
    async fn send_remaining_updates(&mut self) -> Result<(), End> {
        self.backend.begin_close();
        while let Some(update) = self.backend.next().await {
            self.pass_to_machine(update);
            self.carry_out().await?;
        }
        Ok(())
    }

    async fn serve_until_end(&mut self) -> Result<Infallible, End> {
        self.carry_out().await?;
        loop {
            self.flush().await?;
            let may_receive = self.machine.wants_frame();
            if !self.has_large_buffers && !self.machine.has_work_in_progress() {
                self.account().release_held();
            }
            if may_receive && self.has_large_buffers && !self.machine.has_work_in_progress() {
                // Handle what has arrived first: it must not be in the buffers when they are freed.
                if let Some(message) = next_message(self.socket()).now_or_never() {
                    self.on_message(message).await?;
                    continue;
                }
                self.rebuild_socket().await;
            }
            let timer = self.next_timer();
            tokio::select! {
                message = next(&mut self.socket), if may_receive => self.on_message(message).await?,
                Some(update) = self.backend.next() => self.on_update(update).await?,
                () = sleep_until(timer) => self.on_timer(may_receive).await?,
            }
            if !may_receive {
                self.account().clear_deadline();
            }
            if !may_receive || self.is_reading_delayed() {
                // The driver did not read, so the peer's silence does not count.
                self.last_heard = Instant::now();
            }
        }
    }

    /// When the next ping, read timeout or machine deadline is due.
    fn next_timer(&self) -> Instant {
        let ping = self.last_ping + self.keepalive.ping_interval;
        let read_timeout = self.last_heard + self.keepalive.read_timeout;
        self.wake_at.into_iter().fold(ping.min(read_timeout), Instant::min)
    }

    async fn on_timer(&mut self, may_receive: bool) -> Result<(), End> {
        let now = Instant::now();
        if may_receive && now >= self.last_heard + self.keepalive.read_timeout {
            // The peer may have sent something while a long frame was being written to it.
            return match next_message(self.socket()).now_or_never() {
                Some(message) => self.on_message(message).await,
                None if self.is_reading_delayed() => Ok(()),
                None => Err(End::Gone),
            };
        }
        if now >= self.last_ping + self.keepalive.ping_interval {
            self.last_ping = now;
            self.write(Message::Ping(Bytes::new())).await?;
        }
        if self.wake_at.take_if(|moment| now >= *moment).is_some() {
            self.machine.handle(now.into_std(), Input::Deadline);
            self.carry_out().await?;
        }
        Ok(())
    }

    async fn on_message(&mut self, message: Option<Result<Message, Error>>) -> Result<(), End> {
        self.count(&message);
        match message {
            Some(Ok(Message::Text(text))) => self.on_frame(text.as_str().as_bytes()).await,
            Some(Ok(Message::Binary(bytes))) => self.on_frame(&bytes).await,
            Some(Ok(Message::Pong(_))) => {
                self.last_heard = Instant::now();
                Ok(())
            }
            // Tungstenite answers pings and closes itself. A ping does not count as a sign that the peer reads.
            Some(Ok(Message::Ping(_) | Message::Close(_) | Message::Frame(_))) => Ok(()),
            Some(Err(Error::Capacity(_))) => Err(End::Close(CloseCode::Size, "the message is too large")),
            Some(Err(Error::Utf8(_))) => Err(End::Close(CloseCode::Invalid, "the text is not UTF-8")),
            Some(Err(Error::Protocol(_))) => Err(End::Close(CloseCode::Protocol, "the protocol is broken")),
            Some(Err(Error::Io(error))) if error.kind() == ErrorKind::TimedOut => {
                Err(End::Close(CloseCode::Again, "the message took too long, and others wait for its memory"))
            }
            Some(Err(Error::Io(error))) if error.kind() == ErrorKind::InvalidData => {
                Err(End::Close(CloseCode::Invalid, "the compressed message is broken"))
            }
            Some(Err(_)) | None => Err(End::Gone),
        }
    }

    /// Counts a complete message as held, and no longer counts a control frame.
    fn count(&mut self, message: &Option<Result<Message, Error>>) {
        match message {
            Some(Ok(Message::Ping(payload) | Message::Pong(payload))) => {
                self.socket().get_mut().uncount_control(payload.len());
            }
            Some(Ok(Message::Text(_) | Message::Binary(_) | Message::Frame(_) | Message::Close(_))) => {
                self.account().hold_arrived();
            }
            Some(Err(_)) | None => {}
        }
    }

    async fn on_frame(&mut self, frame: &[u8]) -> Result<(), End> {
        let now = Instant::now();
        self.last_heard = now;
        (self.count_frame)(FrameDirection::Received);
        block_in_place_if_large(frame.len(), || self.machine.handle(now.into_std(), Input::Frame(frame)));
        self.carry_out().await?;
        self.has_large_buffers |= self.account().is_large();
        Ok(())
    }

    fn socket(&mut self) -> &mut Socket {
        self.socket.as_mut().expect(SOCKET_IS_PRESENT)
    }

    fn account(&mut self) -> &mut FrameAccount {
        self.socket().get_mut().account()
    }

    /// Whether the driver itself delays messages of the peer: it waits for memory, or has not inflated one yet.
    fn is_reading_delayed(&mut self) -> bool {
        self.account().is_waiting() || self.socket().get_ref().is_inflating()
    }

    /// Frees the socket's buffers, which keep the size of the largest message, by building a new socket on the same stream.
    /// Does nothing in the middle of a message. The caller has read all complete messages and flushed all output.
    async fn rebuild_socket(&mut self) {
        if !self.socket().get_ref().is_between_messages() {
            return;
        }
        let config = *self.socket().get_config();
        let stream = self.socket.take().expect(SOCKET_IS_PRESENT).into_inner();
        self.socket = Some(WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await);
        self.has_large_buffers = false;
        self.account().release_held();
    }

    async fn on_update(&mut self, update: UpdateOf<B>) -> Result<(), End> {
        self.pass_to_machine(update);
        self.carry_out().await?;
        for _ in 1..UPDATES_AT_A_TIME {
            let Some(Some(update)) = self.backend.next().now_or_never() else { break };
            self.pass_to_machine(update);
            self.carry_out().await?;
        }
        Ok(())
    }

    fn pass_to_machine(&mut self, update: UpdateOf<B>) {
        let now = Instant::now().into_std();
        match update {
            Update::Answer(ticket, answer) => self.machine.handle(now, Input::Answer(ticket, answer)),
            Update::Event(event) => self.machine.handle(now, Input::Event(&event)),
        }
    }

    /// Carries out the machine's outputs.
    async fn carry_out(&mut self) -> Result<(), End> {
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Send(frame) => self.send(frame.into()).await?,
                Output::SendShared(frame) => self.send(frame).await?,
                Output::Request(ticket, request) => self.submit(ticket, request),
                Output::WakeAt(moment) => self.wake_at = Some(moment.into()),
                Output::Close => return Err(End::Close(CloseCode::Normal, "")),
            }
        }
        Ok(())
    }

    async fn send(&mut self, frame: Bytes) -> Result<(), End> {
        (self.count_frame)(FrameDirection::Sent);
        let message = self.encode(frame);
        self.write(message).await
    }

    fn submit(&mut self, ticket: Ticket, request: M::Request) {
        if let Some((ticket, answer)) = self.backend.submit(ticket, request) {
            self.machine.handle(Instant::now().into_std(), Input::Answer(ticket, answer));
        }
    }

    /// The message of a frame, compressed if the peer understands that and it pays.
    fn encode(&mut self, frame: Bytes) -> Message {
        let deflate = self.socket().get_ref().deflate();
        let compressed =
            deflate.and_then(|deflate| block_in_place_if_large(frame.len(), || deflate.compress(&frame)));
        compressed.unwrap_or_else(|| {
            let text = Utf8Bytes::try_from(frame).expect("machines write JSON, which is UTF-8");
            Message::Text(text)
        })
    }

    /// Writes a frame to the socket's buffer, which [`flush`](Self::flush) sends.
    async fn write(&mut self, message: Message) -> Result<(), End> {
        if message.len() > FREE_FRAME_BYTES {
            self.account().hold(message.len());
            self.socket().get_mut().begin_large_write();
            self.has_large_buffers = true;
        }
        self.is_writing = true;
        let written = self.socket().feed(message).await;
        self.is_writing = false;
        written.map_err(|_| End::Gone)
    }

    async fn flush(&mut self) -> Result<(), End> {
        self.socket().flush().await.map_err(|_| End::Gone)?;
        self.socket().get_mut().end_write();
        Ok(())
    }

    /// Closes the WebSocket, and completes the requests that the peer made before.
    async fn close(self: Box<Self>, end: End) {
        let Self { machine, backend, socket, keepalive, count_frame, .. } = *self;
        let (socket, mut last) = (socket.expect(SOCKET_IS_PRESENT), LastFrames::default());
        // The memory stays counted until the requests are done.
        let _account = match end {
            End::Gone => socket.into_inner().into_account(),
            End::Close(code, reason) => {
                // The session goes on, so the frames count that the peer sent before it could know of its replacement.
                last.are_accepted = code == CloseCode::from(REPLACED_CLOSE_CODE);
                let close = CloseFrame { code, reason: reason.into() };
                close_socket(socket, close, &keepalive, &mut last).await
            }
        };
        finish_requests(machine, backend, last.frames, count_frame).await;
    }
}

/// Waits for the next message. It borrows only the socket field, so that the caller can poll the backend meanwhile.
async fn next(socket: &mut Option<Socket>) -> Option<Result<Message, Error>> {
    next_message(socket.as_mut().expect(SOCKET_IS_PRESENT)).await
}

/// Waits for the next message, and inflates it if it is compressed. A call that is cancelled loses nothing: the next call
/// goes on where it stopped.
async fn next_message(socket: &mut Socket) -> Option<Result<Message, Error>> {
    if !socket.get_ref().is_inflating() {
        let message = match socket.next().await? {
            Ok(message) => message,
            Err(error) => return Some(Err(error)),
        };
        let max_bytes = socket.get_config().max_message_size.unwrap_or(usize::MAX);
        let Some(messages) = socket.get_mut().marked_messages() else { return Some(Ok(message)) };
        if let Some(message) = messages.take(message, max_bytes) {
            return Some(Ok(message));
        }
    }
    Some(inflate(socket.get_mut()).await)
}

/// Inflates a message in steps, each of which waits for memory as a message that arrives does.
async fn inflate(stream: &mut MeteredStream) -> Result<Message, Error> {
    loop {
        poll_fn(|cx| stream.account().poll_room(cx)).await;
        let step = stream.marked_messages().and_then(MarkedMessages::inflate);
        match step.ok_or(Error::ConnectionClosed)? {
            Step::Grown(bytes) => {
                stream.account().add_arriving(bytes);
                // Other connections have their turn before the next step.
                yield_now().await;
            }
            Step::Complete(message) => return Ok(message),
            Step::Refused { error, freed } => {
                // Others need not wait for this memory while the connection closes.
                stream.account().subtract_arriving(freed);
                return Err(error);
            }
        }
    }
}

/// The frames of a peer that were not read yet when the connection was closed.
#[derive(Default)]
struct LastFrames {
    are_accepted: bool,
    frames: VecDeque<Bytes>,
    bytes: usize,
}

impl LastFrames {
    fn push(&mut self, message: Message) {
        let frame = match message {
            Message::Text(text) => Bytes::from(text),
            Message::Binary(bytes) => bytes,
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => return,
        };
        self.are_accepted &= self.frames.len() < LAST_FRAMES && self.bytes + frame.len() <= LAST_BYTES;
        if self.are_accepted {
            self.bytes += frame.len();
            self.frames.push_back(frame);
        }
    }
}

async fn close_socket(
    mut socket: Socket,
    close: CloseFrame,
    keepalive: &Keepalive,
    last: &mut LastFrames,
) -> FrameAccount {
    let closing = async {
        let is_fault_of_peer = matches!(
            close.code,
            CloseCode::Protocol | CloseCode::Invalid | CloseCode::Size | CloseCode::Again
        );
        if socket.send(Message::Close(Some(close))).await.is_ok() {
            if is_fault_of_peer {
                // Such a peer may never answer the close frame, and waits for the end of the stream.
                let _ = socket.get_mut().stream().shutdown().await;
            }
            // Read until the peer closes too: dropping a socket with unread input would reset the connection, and the peer
            // could lose the close frame.
            while let Some(Ok(message)) = next_message(&mut socket).await {
                let is_close = message.is_close();
                last.push(message);
                socket.get_mut().account().hold_arrived();
                if is_close {
                    // A client that has answered the close waits for the server to close the stream.
                    return;
                }
            }
            // After a protocol error no frame boundary can be found, so the rest is discarded as bytes.
            let mut discarded = [0; DISCARD_BYTES];
            while socket.get_mut().stream().read(&mut discarded).await.is_ok_and(|count| count > 0) {}
        }
    };
    let _ = timeout(CLOSE_REPLY_WAIT.min(keepalive.write_timeout), closing).await;
    socket.into_inner().into_account()
}

/// Completes the requests of a peer that is gone, and handles its last frames. Frames for the peer are dropped.
async fn finish_requests<M, B>(
    mut machine: M,
    mut backend: B,
    mut last: VecDeque<Bytes>,
    count_frame: CountFrame,
) where
    M: Machine,
    B: BackendFor<M>,
{
    let deadline = Instant::now() + LINGER_WAIT;
    loop {
        let now = Instant::now().into_std();
        loop {
            // This includes outputs from before the peer was gone.
            while let Some(output) = machine.poll() {
                if let Output::Request(ticket, request) = output
                    && let Some((ticket, answer)) = backend.submit(ticket, request)
                {
                    machine.handle(now, Input::Answer(ticket, answer));
                }
            }
            match last.pop_front_if(|_| machine.wants_frame()) {
                Some(frame) => {
                    count_frame(FrameDirection::Received);
                    block_in_place_if_large(frame.len(), || machine.handle(now, Input::Frame(&frame)));
                }
                None => break,
            }
        }
        if !machine.has_work_in_progress() && last.is_empty() {
            break;
        }
        let Ok(Some(update)) = timeout_at(deadline, backend.next()).await else { break };
        if let Update::Answer(ticket, answer) = update {
            machine.handle(now, Input::Answer(ticket, answer));
        }
    }
    backend.begin_close();
    backend.closed().await;
}

#[cfg(test)]
mod tests;
