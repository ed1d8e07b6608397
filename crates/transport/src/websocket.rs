//! One connection over WebSocket: hands messages, answers and events to the machine, and does what the
//! machine wants.
//!
//! There is one task for each connection and nothing waits in it: a frame is made when the one before it is
//! on its way. A peer that does not read is given up after a while; what it missed is in the log.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io::ErrorKind;
use std::time::Duration;

use futures_util::{FutureExt, SinkExt, StreamExt};
use parlor_doors::{BackendFor, Input, Machine, Output};
use parlor_vocab::{Ticket, Update, UpdateOf};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message, Utf8Bytes};

use crate::Metered;
use crate::frame_memory::{FREE_FRAME_BYTES, FrameAccount};
use crate::long_work::without_holding_up_others;

/// How many events are written one after another before the peer is listened to again.
const EVENTS_AT_A_TIME: usize = 64;

/// A socket is taken out only to be made anew.
const THERE: &str = "the socket is there";

/// How long a peer that was told goodbye may take to say it too.
const PARTING_WAIT: Duration = Duration::from_secs(1);

/// How much of what a peer still sends is read at once, and thrown away.
const REST_BYTES: usize = 4096;

/// How many frames of a peer are taken that were under way when another took its place, and how many bytes in all.
const LAST_FRAMES: usize = 16;
const LAST_BYTES: usize = 64 << 20;

/// How long what a peer asked for may take after it has gone.
pub const LINGER_WAIT: Duration = Duration::from_secs(75);

/// The close code of a connection whose session has a newer one.
pub const REPLACED: u16 = 4001;

/// A WebSocket whose handshake is done.
///
/// It is tungstenite's own and not axum's: axum 0.8 holds on to an older release of it, which would bring
/// second versions of half a dozen crates, and it boxes the stream, which costs memory for each connection.
pub type Socket = WebSocketStream<Metered>;

/// How a connection is kept alive, and when it is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// How long after the last one a ping is sent.
    pub ping_interval: Duration,
    /// How long a peer may be silent.
    pub read_timeout: Duration,
    /// How long a frame may take to be written.
    pub write_timeout: Duration,
}

/// Why the server ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The session has a newer connection: close code 4001, reason `replaced`.
    Replaced,
    /// The server ends: close code 1001.
    GoingAway,
}

/// Serves one connection until the peer leaves, the machine closes it or `stop` is ready. What the peer asked
/// for before that is still carried out.
///
/// Not an `async fn`, which would keep room for its arguments and for what it makes of them, and the goodbye
/// is boxed: most connections are idle, and there may be thousands.
pub fn serve_socket<M, B>(
    machine: M,
    backend: B,
    socket: Socket,
    keepalive: &Keepalive,
    stop: impl Future<Output = CloseReason>,
) -> impl Future<Output = ()>
where
    M: Machine,
    B: BackendFor<M>,
{
    let now = Instant::now();
    let mut connection = Box::new(Connection {
        machine,
        backend,
        socket: Some(socket),
        keepalive: *keepalive,
        silent_since: now,
        pinged: now,
        wake_at: None,
        is_writing: false,
        is_swollen: false,
    });
    async move {
        let end = connection.serve(stop).await;
        Box::pin(connection.part(end)).await;
    }
}

struct Connection<M, B> {
    machine: M,
    backend: B,
    /// Always there, but while it is made anew.
    socket: Option<Socket>,
    keepalive: Keepalive,
    /// When the peer was heard of last.
    silent_since: Instant,
    /// When the last ping was sent.
    pinged: Instant,
    wake_at: Option<Instant>,
    /// Whether a frame is being written. If nobody waits for that any more, it may be lost, and none may follow it.
    is_writing: bool,
    /// Whether the buffers of the socket have grown for a large message.
    is_swollen: bool,
}

/// Why a connection ends.
enum End {
    /// There is nobody to say goodbye to.
    Gone,
    /// The peer is told this.
    Told(CloseCode, &'static str),
}

impl From<CloseReason> for End {
    fn from(farewell: CloseReason) -> Self {
        match farewell {
            CloseReason::Replaced => Self::Told(CloseCode::from(REPLACED), "replaced"),
            CloseReason::GoingAway => Self::Told(CloseCode::Away, "the server is ending"),
        }
    }
}

impl<M, B> Connection<M, B>
where
    M: Machine,
    B: BackendFor<M>,
{
    async fn serve(&mut self, stop: impl Future<Output = CloseReason>) -> End {
        // Also while something is being written: a peer that does not read is not waited for. What was written
        // in part goes out before the goodbye, and nothing comes after it.
        tokio::select! {
            biased;
            farewell = stop => {
                if farewell == CloseReason::GoingAway && !self.is_writing {
                    // Whoever does not read is told no more.
                    let _ = timeout(PARTING_WAIT, self.tell_the_rest()).await;
                }
                farewell.into()
            }
            Err(end) = self.serve_until_it_ends() => end,
        }
    }

    /// Tells what has happened so far.
    async fn tell_the_rest(&mut self) -> Result<(), End> {
        self.backend.begin_close();
        while let Some(news) = self.backend.next().await {
            self.hand_over(news);
            self.do_what_it_wants().await?;
        }
        Ok(())
    }

    async fn serve_until_it_ends(&mut self) -> Result<Infallible, End> {
        self.do_what_it_wants().await?;
        loop {
            self.flush().await?;
            let may_receive = self.machine.wants_frame();
            if !self.is_swollen && !self.machine.is_at_work() {
                self.account().let_go();
            }
            if may_receive && self.is_swollen && !self.machine.is_at_work() {
                // What has arrived comes first: it must not be in the buffers when they are given back.
                if let Some(message) = self.socket().next().now_or_never() {
                    self.on_message(message).await?;
                    continue;
                }
                self.give_back_buffers().await;
            }
            let alarm = self.alarm();
            tokio::select! {
                message = next(&mut self.socket), if may_receive => self.on_message(message).await?,
                Some(news) = self.backend.next() => self.on_news(news).await?,
                () = sleep_until(alarm) => self.on_alarm(may_receive).await?,
            }
            if !may_receive {
                self.account().stop_clock();
            }
            if !may_receive || self.account().is_waiting() {
                // It may have said something that nobody has listened to.
                self.silent_since = Instant::now();
            }
        }
    }

    /// The next moment at which something is to be done.
    fn alarm(&self) -> Instant {
        let ping = self.pinged + self.keepalive.ping_interval;
        let silence = self.silent_since + self.keepalive.read_timeout;
        self.wake_at.into_iter().fold(ping.min(silence), Instant::min)
    }

    async fn on_alarm(&mut self, may_receive: bool) -> Result<(), End> {
        let now = Instant::now();
        if may_receive && now >= self.silent_since + self.keepalive.read_timeout {
            // It may have spoken while a long frame was being written to it.
            return match self.socket().next().now_or_never() {
                Some(message) => self.on_message(message).await,
                None if self.account().is_waiting() => Ok(()),
                None => Err(End::Gone),
            };
        }
        if now >= self.pinged + self.keepalive.ping_interval {
            self.pinged = now;
            self.write(Message::Ping(Bytes::new())).await?;
        }
        if self.wake_at.take_if(|moment| now >= *moment).is_some() {
            self.machine.handle(now.into_std(), Input::Deadline);
            self.do_what_it_wants().await?;
        }
        Ok(())
    }

    async fn on_message(&mut self, message: Option<Result<Message, Error>>) -> Result<(), End> {
        self.count(&message);
        match message {
            Some(Ok(Message::Text(text))) => self.on_frame(text.as_str().as_bytes()).await,
            Some(Ok(Message::Binary(bytes))) => self.on_frame(&bytes).await,
            Some(Ok(Message::Pong(_))) => {
                self.silent_since = Instant::now();
                Ok(())
            }
            // Answered by the protocol itself; it says that the peer's wire works, not that the peer listens.
            Some(Ok(Message::Ping(_) | Message::Close(_) | Message::Frame(_))) => Ok(()),
            Some(Err(Error::Capacity(_))) => Err(End::Told(CloseCode::Size, "the message is too large")),
            Some(Err(Error::Utf8(_))) => Err(End::Told(CloseCode::Invalid, "the text is not UTF-8")),
            Some(Err(Error::Protocol(_))) => Err(End::Told(CloseCode::Protocol, "the protocol is broken")),
            Some(Err(Error::Io(error))) if error.kind() == ErrorKind::TimedOut => {
                Err(End::Told(CloseCode::Again, "the message took too long, and others wait for its memory"))
            }
            Some(Err(_)) | None => Err(End::Gone),
        }
    }

    /// Counts what a message takes from now on.
    fn count(&mut self, message: &Option<Result<Message, Error>>) {
        match message {
            Some(Ok(Message::Ping(payload) | Message::Pong(payload))) => {
                self.socket().get_mut().leave_out_control(payload.len());
            }
            Some(Ok(Message::Text(_) | Message::Binary(_) | Message::Frame(_) | Message::Close(_))) => {
                self.account().keep_arrived();
            }
            Some(Err(_)) | None => {}
        }
    }

    async fn on_frame(&mut self, frame: &[u8]) -> Result<(), End> {
        let now = Instant::now();
        self.silent_since = now;
        without_holding_up_others(frame.len(), || self.machine.handle(now.into_std(), Input::Frame(frame)));
        self.do_what_it_wants().await?;
        self.is_swollen |= self.account().is_large();
        Ok(())
    }

    fn socket(&mut self) -> &mut Socket {
        self.socket.as_mut().expect(THERE)
    }

    fn account(&mut self) -> &mut FrameAccount {
        self.socket().get_mut().account()
    }

    /// Makes the socket anew, since its buffers keep the size of the largest message for as long as they are there. Only
    /// between messages: all that was read is here, and all that was to be written is gone.
    async fn give_back_buffers(&mut self) {
        if !self.socket().get_ref().is_between_messages() {
            return;
        }
        let config = *self.socket().get_config();
        let stream = self.socket.take().expect(THERE).into_inner();
        self.socket = Some(WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await);
        self.is_swollen = false;
        self.account().let_go();
    }

    async fn on_news(&mut self, news: UpdateOf<B>) -> Result<(), End> {
        self.hand_over(news);
        self.do_what_it_wants().await?;
        for _ in 1..EVENTS_AT_A_TIME {
            let Some(Some(news)) = self.backend.next().now_or_never() else { break };
            self.hand_over(news);
            self.do_what_it_wants().await?;
        }
        Ok(())
    }

    fn hand_over(&mut self, news: UpdateOf<B>) {
        let now = Instant::now().into_std();
        match news {
            Update::Answer(ticket, answer) => self.machine.handle(now, Input::Answer(ticket, answer)),
            Update::Event(event) => self.machine.handle(now, Input::Event(&event)),
        }
    }

    async fn do_what_it_wants(&mut self) -> Result<(), End> {
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Send(frame) => {
                    let text = Utf8Bytes::try_from(Bytes::from(frame)).expect("a machine writes JSON");
                    self.write(Message::Text(text)).await?;
                }
                Output::Request(ticket, request) => self.submit(ticket, request),
                Output::WakeAt(moment) => self.wake_at = Some(moment.into()),
                Output::Close => return Err(End::Told(CloseCode::Normal, "")),
            }
        }
        Ok(())
    }

    fn submit(&mut self, ticket: Ticket, request: M::Request) {
        if let Some((ticket, answer)) = self.backend.submit(ticket, request) {
            self.machine.handle(Instant::now().into_std(), Input::Answer(ticket, answer));
        }
    }

    /// Puts a frame on its way; it may wait for others to go with it.
    async fn write(&mut self, message: Message) -> Result<(), End> {
        if message.len() > FREE_FRAME_BYTES {
            self.account().keep(message.len());
            self.is_swollen = true;
        }
        self.is_writing = true;
        let wait = self.keepalive.write_timeout;
        let written = timeout(wait, self.socket().feed(message)).await;
        self.is_writing = false;
        match written {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(End::Gone),
        }
    }

    async fn flush(&mut self) -> Result<(), End> {
        let wait = self.keepalive.write_timeout;
        match timeout(wait, self.socket().flush()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(End::Gone),
        }
    }

    /// Says goodbye, and carries out what the peer asked for before.
    async fn part(self: Box<Self>, end: End) {
        let Self { machine, backend, socket, keepalive, .. } = *self;
        let (socket, mut last) = (socket.expect(THERE), LastWords::default());
        // Held until all is done.
        let _account = match end {
            End::Gone => socket.into_inner().into_account(),
            End::Told(code, reason) => {
                // The session goes on: what was said before the peer could know of it counts.
                last.are_heard = code == CloseCode::from(REPLACED);
                let goodbye = CloseFrame { code, reason: reason.into() };
                say_goodbye(socket, goodbye, &keepalive, &mut last).await
            }
        };
        linger(machine, backend, last.frames).await;
    }
}

/// What comes next from a socket.
async fn next(socket: &mut Option<Socket>) -> Option<Result<Message, Error>> {
    socket.as_mut().expect(THERE).next().await
}

/// What a peer said that nobody had listened to when it was told goodbye.
#[derive(Default)]
struct LastWords {
    are_heard: bool,
    frames: VecDeque<Bytes>,
    bytes: usize,
}

impl LastWords {
    fn take(&mut self, message: Message) {
        let frame = match message {
            Message::Text(text) => Bytes::from(text),
            Message::Binary(bytes) => bytes,
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => return,
        };
        self.are_heard &= self.frames.len() < LAST_FRAMES && self.bytes + frame.len() <= LAST_BYTES;
        if self.are_heard {
            self.bytes += frame.len();
            self.frames.push_back(frame);
        }
    }
}

async fn say_goodbye(
    mut socket: Socket,
    goodbye: CloseFrame,
    keepalive: &Keepalive,
    last: &mut LastWords,
) -> FrameAccount {
    let parting = async {
        if socket.send(Message::Close(Some(goodbye))).await.is_ok() {
            // Until the peer has said it too: a socket that is closed with something unread takes it back.
            while let Some(Ok(message)) = socket.next().await {
                let is_goodbye = message.is_close();
                last.take(message);
                socket.get_mut().account().keep_arrived();
                if is_goodbye {
                    // Who has said it waits for us to close.
                    return;
                }
            }
            // What breaks the protocol has no end that could be found.
            let mut rest = [0; REST_BYTES];
            while socket.get_mut().stream().read(&mut rest).await.is_ok_and(|count| count > 0) {}
        }
    };
    let _ = timeout(PARTING_WAIT.min(keepalive.write_timeout), parting).await;
    socket.into_inner().into_account()
}

/// What a peer asked for is done although it does not hear of it.
async fn linger<M, B>(mut machine: M, mut backend: B, mut last: VecDeque<Bytes>)
where
    M: Machine,
    B: BackendFor<M>,
{
    let deadline = Instant::now() + LINGER_WAIT;
    loop {
        let now = Instant::now().into_std();
        loop {
            // What it wanted before the peer had gone is here too.
            while let Some(output) = machine.poll() {
                if let Output::Request(ticket, request) = output
                    && let Some((ticket, answer)) = backend.submit(ticket, request)
                {
                    machine.handle(now, Input::Answer(ticket, answer));
                }
            }
            match last.pop_front_if(|_| machine.wants_frame()) {
                Some(frame) => {
                    without_holding_up_others(frame.len(), || machine.handle(now, Input::Frame(&frame)));
                }
                None => break,
            }
        }
        if !machine.is_at_work() && last.is_empty() {
            break;
        }
        let Ok(Some(news)) = timeout_at(deadline, backend.next()).await else { break };
        if let Update::Answer(ticket, answer) = news {
            machine.handle(now, Input::Answer(ticket, answer));
        }
    }
    backend.begin_close();
    backend.closed().await;
}

#[cfg(test)]
mod tests;
