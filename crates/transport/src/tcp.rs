//! The TCP driver for line protocols: it serves a bounded number of connections, each in a task of its own.
//!
//! The task of a connection reads, serves and writes, in this order, so one wake-up is enough to answer a request. When a
//! peer stops reading, its task stops serving it, and no other connection is affected.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parlor_doors::{BackendFor, Machine};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::accept::{CONNECTION_LOG_RATE, SendMachine, accept_connections};
use crate::connection::{ConnectionEnd, INCOMING_CHUNKS, Incoming, serve_within};
use crate::connection_limiter::{ConnectionLimiter, ConnectionLimits};
use crate::frame_memory::FrameMemory;
use crate::log_limit::LogLimit;
use crate::outgoing::{OutgoingReceiver, outgoing_within};
use crate::shared_stream::{HangUpProbe, SharedStream};
use crate::silent_connections::{SilentConnection, SilentConnections};
use crate::{ConnectedPeer, Listeners};

/// How many connections one door serves at a time. Beyond that, a connection that has sent nothing makes room for a new one,
/// or the new one is closed at once.
pub const MAX_CONNECTIONS: usize = 384;

/// How many connections all other users of this machine may have together, including peers whose user is unknown. These
/// peers need a token, and few have one.
pub const MAX_OTHER_USER_CONNECTIONS: usize = 32;

/// How many connections one address on another machine may have.
pub const MAX_ADDRESS_CONNECTIONS: usize = 128;

/// How many connections are reserved for the owner and root.
pub const OWNER_CONNECTIONS: usize = 64;

const CONNECTION_LIMITS: ConnectionLimits = ConnectionLimits {
    all: MAX_CONNECTIONS,
    other_users: MAX_OTHER_USER_CONNECTIONS,
    address: MAX_ADDRESS_CONNECTIONS,
    owner_only: OWNER_CONNECTIONS,
};

/// How long a peer whose connection ends may make no progress in reading its last frames.
pub const FINAL_WRITE_WAIT: Duration = Duration::from_secs(5);

/// How many bytes that a peer still sends at the end of its connection are read and discarded. Closing a socket with unread
/// input would reset the connection, and the peer could lose its last frames.
pub const FINAL_READ_BYTES: usize = 16 << 20;

/// How long to wait for a reset from a peer on another machine that has hung up and was sent its last reply.
const RESET_WAIT: Duration = Duration::from_millis(300);

/// The most bytes that one read takes.
const INPUT_PIECE_BYTES: usize = 64 * 1024;

/// Frames are gathered into one write up to this many bytes.
const WRITE_BYTES: usize = 256 * 1024;

/// What one connection is served with.
pub struct Service<M, B> {
    /// The door's machine, which decodes the peer's lines and writes its frames.
    pub machine: M,
    /// The backend that carries out the machine's requests.
    pub backend: B,
    /// Called whenever everything that was queued has been written and, as far as the kernel reports, received by the peer.
    pub on_delivered: Box<dyn Fn() + Send + Sync>,
    /// How long to pause after each write. Not zero only to debug clients.
    pub write_pause: Duration,
    /// The budget that the connection's frames share with those of other connections.
    pub memory: FrameMemory,
}

/// Accepts connections and serves each with the result of `make`, until `stop` is cancelled. All connections have ended
/// when this returns.
pub async fn serve_tcp<M, B>(
    listeners: Listeners,
    make: impl Fn(&ConnectedPeer, HangUpProbe) -> Service<M, B>,
    stop: CancellationToken,
) where
    M: SendMachine,
    B: BackendFor<M> + Send + 'static,
{
    serve_accepted(async move || Ok(listeners.accept().await?.0), make, stop).await;
}

/// Like [`serve_tcp`], with any source of connections.
async fn serve_accepted<M, B>(
    accept: impl AsyncFnMut() -> io::Result<TcpStream>,
    make: impl Fn(&ConnectedPeer, HangUpProbe) -> Service<M, B>,
    stop: CancellationToken,
) where
    M: SendMachine,
    B: BackendFor<M> + Send + 'static,
{
    let limiter = ConnectionLimiter::new(CONNECTION_LIMITS);
    let silent = Arc::new(SilentConnections::default());
    let refusals = LogLimit::new(CONNECTION_LOG_RATE);
    let foreign_peers = Arc::new(LogLimit::new(CONNECTION_LOG_RATE));
    let serve = |stream: TcpStream| {
        // This fails only if the connection has already ended.
        let peer = ConnectedPeer::from_stream(&stream).ok()?;
        let group = peer.group();
        let Some(permit) = limiter.try_acquire(group).or_else(|| silent.close_oldest(group)) else {
            log_refused_connection(&refusals, &peer);
            return None;
        };
        let silent = silent.add(group, permit);
        let stream = SharedStream::new(stream);
        let (service, stop) = (make(&peer, stream.probe()), stop.clone());
        let foreign_peers = Arc::clone(&foreign_peers);
        Some(async move {
            let end = serve_stream(stream, service, silent, stop).await;
            if let ConnectionEnd::Foreign(protocol) = end
                && let Some(left_out) = foreign_peers.allow_line()
            {
                let peer = peer.address();
                tracing::warn!(%peer, %protocol, left_out, "hung up on a peer that speaks another protocol");
            }
        })
    };
    accept_connections(accept, serve, stop.clone()).await;
}

/// Logs, if `limit` allows a line, that a connection of `peer` was closed because its group has reached its limit.
pub fn log_refused_connection(limit: &LogLimit, peer: &ConnectedPeer) {
    if let Some(left_out) = limit.allow_line() {
        let (from, user) = (peer.address(), peer.user());
        tracing::warn!(%from, ?user, left_out, "closed a connection: its user or address has reached its connection limit");
    }
}

async fn serve_stream<M, B>(
    stream: SharedStream,
    service: Service<M, B>,
    silent: SilentConnection,
    stop: CancellationToken,
) -> ConnectionEnd
where
    M: Machine,
    B: BackendFor<M>,
{
    // A request and its reply are one packet each, so waiting to fill packets would only delay them. Keepalive finds peers
    // that vanished without closing the connection.
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_socket_keepalive(&*stream, true);
    let Service { machine, backend, on_delivered, write_pause, memory } = service;
    // Kept until the connection has ended.
    let permit = OnceLock::new();
    let on_input = || match permit.get() {
        Some(_) => true,
        None => silent.on_input().is_some_and(|given| permit.set(given).is_ok()),
    };
    let (has_hung_up, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let (input, chunks) = mpsc::channel(INCOMING_CHUNKS);
    // No early hang-up signal: a peer that closes only its sending side still wants the answers to all that it sent.
    let incoming = Incoming { chunks, hung_up: oneshot::channel().1, refuses_foreign: true };
    let (sender, receiver) = outgoing_within(memory.clone());
    let is_written = {
        let mut reading = pin!(read(&stream, input, &has_hung_up, on_input));
        let mut writing = pin!(write(&stream, receiver, write_pause, &written, || {
            if !has_hung_up.load(Ordering::Relaxed) {
                on_delivered();
            }
        }));
        let serving = serve_within(&memory, machine, backend, incoming, sender, stop.cancelled());
        let mut serving = pin!(serving);
        let (mut is_read, mut is_written) = (false, None);
        let end = loop {
            // In this order, so that one wake-up is enough to read a request and write its reply.
            tokio::select! {
                biased;
                () = &mut reading, if !is_read => is_read = true,
                end = &mut serving => break end,
                // Nothing was received, so there is nothing to answer.
                () = silent.close.cancelled(), if permit.get().is_none() => return ConnectionEnd::Closed,
                done = &mut writing, if is_written.is_none() => is_written = Some(done),
            }
        };
        if let ConnectionEnd::Foreign(_) | ConnectionEnd::Unread = end {
            // Drop the connection with its unread input and unwritten output.
            if end == ConnectionEnd::Unread {
                stream.discard_unsent();
            }
            return end;
        }
        while is_written.is_none() {
            let before = written.load(Ordering::Relaxed);
            match timeout(FINAL_WRITE_WAIT, &mut writing).await {
                Ok(done) => is_written = Some(done),
                Err(_) if written.load(Ordering::Relaxed) > before => {}
                Err(_) => is_written = Some(false),
            }
        }
        is_written == Some(true)
    };
    if is_written {
        close_gracefully(&stream, &has_hung_up, &on_delivered, &stop).await;
    } else {
        stream.discard_unsent();
    }
    ConnectionEnd::Closed
}

/// Forwards input to the connection until the peer hangs up, or `on_input` returns false.
async fn read(
    from: &SharedStream,
    to: mpsc::Sender<Vec<u8>>,
    has_hung_up: &AtomicBool,
    on_input: impl Fn() -> bool,
) {
    let mut buffer = vec![0; INPUT_PIECE_BYTES];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if !on_input() {
            return;
        }
        let piece = buffer.get(..count).unwrap_or_default();
        if to.send(piece.to_vec()).await.is_err() {
            return;
        }
    }
    has_hung_up.store(true, Ordering::Relaxed);
}

/// Writes queued frames until the driver is gone, and calls `on_empty` whenever the queue is empty. Returns false if the
/// peer is gone first.
async fn write(
    to: &SharedStream,
    mut receiver: OutgoingReceiver,
    write_pause: Duration,
    written: &AtomicU64,
    on_empty: impl Fn(),
) -> bool {
    while let Some(mut bytes) = receiver.next().await {
        let mut is_empty = false;
        while bytes.len() < WRITE_BYTES {
            let Some(frame) = receiver.try_next() else {
                is_empty = true;
                break;
            };
            bytes.extend_from_slice(&frame);
        }
        let size = bytes.len();
        if write_all(to, &bytes, written).await.is_err() {
            return false;
        }
        drop(bytes);
        receiver.written(size);
        // If the peer is on this machine and gone, its reset has arrived by now.
        if !matches!(to.take_error(), Ok(None)) {
            return false;
        }
        if is_empty {
            on_empty();
        }
        if !write_pause.is_zero() {
            sleep(write_pause).await;
        }
    }
    true
}

async fn write_all(to: &SharedStream, mut bytes: &[u8], written: &AtomicU64) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = to.write(bytes).await?;
        written.fetch_add(count as u64, Ordering::Relaxed);
        bytes = bytes.get(count..).unwrap_or_default();
    }
    Ok(())
}

/// Closes the connection so that the last frames reach the peer: closing a socket with unread input would reset the
/// connection and discard them. Once `stop` is cancelled, this does not wait for a peer that sends nothing.
async fn close_gracefully(
    stream: &SharedStream,
    has_hung_up: &AtomicBool,
    on_delivered: &(dyn Fn() + Send + Sync),
    stop: &CancellationToken,
) {
    if has_hung_up.load(Ordering::Relaxed) {
        if !was_reset(stream).await {
            on_delivered();
        }
        let _ = stream.shutdown();
        return;
    }
    if stream.shutdown().is_err() {
        return;
    }
    let mut buffer = vec![0; INPUT_PIECE_BYTES];
    let discard_input = async {
        let mut discarded = 0;
        while discarded < FINAL_READ_BYTES {
            let read = tokio::select! {
                biased;
                read = stream.read(&mut buffer) => read,
                () = stop.cancelled() => return,
            };
            match read {
                Ok(count @ 1..) => discarded += count,
                Ok(_) | Err(_) => return,
            }
        }
    };
    let _ = timeout(FINAL_WRITE_WAIT, discard_input).await;
}

/// Whether a peer that has hung up reset the connection when its last reply was sent. A peer that closed both directions
/// looks like one that closed only its sending side until something is sent to it.
async fn was_reset(stream: &TcpStream) -> bool {
    match stream.peer_addr() {
        // The reset of a peer on this machine would have made the write fail.
        Ok(peer) if peer.ip().is_loopback() => false,
        Ok(_) => {
            sleep(RESET_WAIT).await;
            !matches!(stream.take_error(), Ok(None))
        }
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use parlor_doors::{Input, InputOf, Output, Ticket};
    use parlor_vocab::{Answer, Backend, SessionRefusal, UpdateOf};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::task::JoinSet;

    use super::*;
    use crate::accept::{ACCEPT_PAUSE, STOP_WAIT};
    use crate::peer::PeerGroup;

    /// Answers the first line with a frame of `reply_bytes` bytes, and closes.
    struct OneReply {
        reply_bytes: usize,
        max_line_bytes: usize,
        has_replied: bool,
        outputs: Vec<Output<()>>,
    }

    impl Machine for OneReply {
        type Request = ();
        type Reply = ();
        type Event = ();
        type Error = SessionRefusal;

        fn handle(&mut self, _now: Instant, input: InputOf<'_, Self>) {
            if matches!(input, Input::Frame(_) | Input::Oversize { .. }) {
                self.has_replied = true;
                self.outputs = vec![Output::Close, Output::Send(vec![b'x'; self.reply_bytes])];
            }
        }

        fn poll(&mut self) -> Option<Output<()>> {
            self.outputs.pop()
        }

        fn wants_frame(&self) -> bool {
            !self.has_replied
        }

        fn max_line_bytes(&self) -> usize {
            self.max_line_bytes
        }
    }

    struct EmptyBackend;

    impl Backend for EmptyBackend {
        type Request = ();
        type Reply = ();
        type Event = ();
        type Error = SessionRefusal;

        fn submit(&mut self, ticket: Ticket, (): ()) -> Option<Answer<(), SessionRefusal>> {
            Some((ticket, Ok(())))
        }

        async fn next(&mut self) -> Option<UpdateOf<Self>> {
            None
        }

        fn begin_close(&mut self) {}

        async fn closed(self) {}
    }

    fn service(reply_bytes: usize) -> Service<OneReply, EmptyBackend> {
        let machine = OneReply { reply_bytes, max_line_bytes: 1024, has_replied: false, outputs: Vec::new() };
        let (on_delivered, memory) = (Box::new(|| {}), FrameMemory::default());
        Service { machine, backend: EmptyBackend, on_delivered, write_pause: Duration::ZERO, memory }
    }

    /// A task that serves a connection until `stop` with one reply of `reply_bytes`, and the client's end.
    async fn served(
        reply_bytes: usize,
        stop: &CancellationToken,
    ) -> (tokio::task::JoinHandle<ConnectionEnd>, TcpStream) {
        let listener = Listeners::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let permit = ConnectionLimiter::new(CONNECTION_LIMITS).try_acquire(PeerGroup::Owner).unwrap();
        let silent = Arc::new(SilentConnections::default()).add(PeerGroup::Owner, permit);
        let serving = serve_stream(SharedStream::new(stream), service(reply_bytes), silent, stop.clone());
        (tokio::spawn(serving), client)
    }

    #[tokio::test]
    async fn the_last_reply_arrives_although_the_peer_still_sends() {
        let (task, mut client) = served(100, &CancellationToken::new()).await;
        let sent = tokio::spawn(async move {
            client.write_all(&vec![b'y'; FINAL_READ_BYTES / 2]).await.unwrap();
            let mut received = Vec::new();
            client.read_to_end(&mut received).await.unwrap();
            received
        });
        assert_eq!(sent.await.unwrap().len(), 101);
        task.await.unwrap();
    }

    #[tokio::test]
    async fn a_peer_that_does_not_stop_sending_is_disconnected() {
        let (task, mut client) = served(100, &CancellationToken::new()).await;
        let endless = tokio::spawn(async move { while client.write_all(&[b'y'; 65536]).await.is_ok() {} });
        task.await.unwrap();
        endless.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn failed_accepts_are_retried_after_a_pause() {
        let (stop, begun) = (CancellationToken::new(), tokio::time::Instant::now());
        let mut failures = 0;
        let accept = async || {
            assert_eq!(begun.elapsed(), failures * ACCEPT_PAUSE);
            failures += 1;
            if failures == 5 {
                stop.cancel();
            }
            Err(io::Error::from(io::ErrorKind::Other))
        };
        serve_accepted(accept, |_, _| service(0), stop.clone()).await;
        assert_eq!(failures, 5);
    }

    #[tokio::test]
    async fn a_stopping_server_does_not_wait_for_idle_peers() {
        let stop = CancellationToken::new();
        let (task, mut client) = served(100, &stop).await;
        stop.cancel();
        tokio::time::pause();
        let begun = tokio::time::Instant::now();
        task.await.unwrap();
        assert!(begun.elapsed() < FINAL_WRITE_WAIT);
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        assert!(received.is_empty(), "{received:?}");
    }

    /// Panics on every input.
    struct PanickingMachine;

    impl Machine for PanickingMachine {
        type Request = ();
        type Reply = ();
        type Event = ();
        type Error = SessionRefusal;

        fn handle(&mut self, _now: Instant, _input: InputOf<'_, Self>) {
            panic!("this machine panics on every input");
        }

        fn poll(&mut self) -> Option<Output<()>> {
            None
        }

        fn wants_frame(&self) -> bool {
            true
        }

        fn max_line_bytes(&self) -> usize {
            1024
        }
    }

    #[tokio::test]
    async fn a_panic_ends_only_its_own_connection() {
        let listener = Listeners::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let make = |_: &ConnectedPeer, _: HangUpProbe| {
            let Service { backend, on_delivered, write_pause, memory, .. } = service(0);
            Service { machine: PanickingMachine, backend, on_delivered, write_pause, memory }
        };
        let server = tokio::spawn(serve_tcp(listener, make, CancellationToken::new()));
        let idle = TcpStream::connect(address).await.unwrap();
        for _ in 0..2 * MAX_CONNECTIONS {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(b"go\n").await.unwrap();
            // The server closes or resets the connection.
            let _ = client.read(&mut [0]).await;
        }
        assert!(!server.is_finished());
        let read = idle.try_read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(read, Err(io::ErrorKind::WouldBlock), "the idle connection is still open");
    }

    #[tokio::test]
    async fn connections_with_stalled_lines_are_closed_while_others_wait_for_memory() {
        let memory = FrameMemory::new(crate::MIN_FRAME_MEMORY);
        let listener = Listeners::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = memory.clone();
        let make = move |_: &ConnectedPeer, _: HangUpProbe| {
            let Service { mut machine, backend, on_delivered, write_pause, .. } = service(2);
            machine.max_line_bytes = 4 << 20;
            Service { machine, backend, on_delivered, write_pause, memory: shared.clone() }
        };
        tokio::spawn(serve_tcp(listener, make, CancellationToken::new()));
        let mut stalled = JoinSet::new();
        for _ in 0..3 {
            let mut client = TcpStream::connect(address).await.unwrap();
            stalled.spawn(async move {
                let _ = client.write_all(&vec![b'x'; 1 << 20]).await;
                // The server closes the connection without a reply.
                client.read(&mut [0]).await.unwrap_or(0)
            });
        }
        while memory.used() < crate::MIN_FRAME_MEMORY {
            tokio::task::yield_now().await;
        }
        let mut small = TcpStream::connect(address).await.unwrap();
        small.write_all(b"go\n").await.unwrap();
        let mut received = Vec::new();
        small.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, b"xx\n", "short lines need no memory from the budget");
        tokio::time::pause();
        for _ in 0..2 {
            assert_eq!(stalled.join_next().await.unwrap().unwrap(), 0);
        }
        let last = timeout(100 * crate::FRAME_WAIT, stalled.join_next()).await;
        assert!(last.is_err(), "no connection waits for the last one's memory: {last:?}");
    }

    #[tokio::test]
    async fn a_stopping_server_aborts_connections_after_a_time_limit() {
        let listener = Listeners::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve_tcp(listener, |_, _| service(64 << 20), stop.clone()));
        let mut not_reading = TcpStream::connect(address).await.unwrap();
        not_reading.write_all(b"go\n").await.unwrap();
        not_reading.readable().await.unwrap();
        // From here on, sleeps end at once when no task can make progress.
        tokio::time::pause();
        let begun = tokio::time::Instant::now();
        stop.cancel();
        server.await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), STOP_WAIT.as_secs());
        assert!(TcpStream::connect(address).await.is_err(), "the listener is closed");
    }

    #[tokio::test]
    async fn a_stopped_connection_does_not_wait_for_a_peer_that_does_not_read() {
        let stop = CancellationToken::new();
        let (task, mut client) = served(64 << 20, &stop).await;
        client.write_all(b"go\n").await.unwrap();
        client.readable().await.unwrap();
        stop.cancel();
        // From here on, sleeps end at once when no task can make progress.
        tokio::time::pause();
        task.await.unwrap();
    }
}
