//! Connections over TCP: a bounded number of them, each with a task of its own.
//!
//! A task does everything for its connection: it reads, serves and writes in this order, so that a
//! request that has arrived is answered without waiting for anybody else. Who stops reading stops
//! being served, and holds up nobody.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parlor_doors::{BackendFor, Machine};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::connection::{ConnectionEnd, INCOMING_CHUNKS, Incoming, serve_within};
use crate::connection_shares::{Places, Shares};
use crate::frame_memory::FrameMemory;
use crate::log_limit::LogLimit;
use crate::outgoing::{Outlet, outgoing_within};
use crate::rate::Rate;
use crate::{Listeners, Peer};

/// How many connections one door serves at a time. More are closed as soon as they are made.
pub const MAX_CONNECTIONS: usize = 384;

/// How many of them all other users of this machine have together, with those who cannot be known. They need a token,
/// and few have one.
pub const MAX_STRANGER_CONNECTIONS: usize = 32;

/// How many of them one address on another machine has.
pub const MAX_ADDRESS_CONNECTIONS: usize = 128;

/// How many of them only the owner and root get.
pub const OWNER_CONNECTIONS: usize = 64;

const SHARES: Shares = Shares {
    all: MAX_CONNECTIONS,
    other_users: MAX_STRANGER_CONNECTIONS,
    address: MAX_ADDRESS_CONNECTIONS,
    owner_only: OWNER_CONNECTIONS,
};

/// How long to wait before accepting again after the system refused, for want of descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often the log may tell of connections that cannot be accepted, have no place or are hung up on, each.
pub const CONNECTION_LOG_RATE: Rate = Rate { per_second: 1.0, burst: 1.0 };

/// How long a peer whose connection ends may leave unread what was written to it.
pub const PARTING_WAIT: Duration = Duration::from_secs(5);

/// How much of what a peer still sends when its connection ends is read and dropped, so that the last
/// words reach it.
pub const PARTING_BYTES: usize = 16 << 20;

/// How long connections may take to end when the server ends.
pub const STOP_WAIT: Duration = Duration::from_secs(3);

/// How long it is waited for a peer on another machine that has hung up to object to its last answer.
const OBJECTION_WAIT: Duration = Duration::from_millis(300);

/// The largest piece in which input is read.
const INPUT_PIECE_BYTES: usize = 64 * 1024;

/// Frames are written together up to this many bytes.
const WRITE_BYTES: usize = 256 * 1024;

/// What serves one connection.
pub struct Service<M, B> {
    /// What speaks with the peer.
    pub machine: M,
    /// What stands behind it.
    pub backend: B,
    /// Is called when all that was sent has arrived, as far as can be known.
    pub arrived: Box<dyn Fn() + Send + Sync>,
    /// How long to rest after something was written. For debugging clients.
    pub rest: Duration,
    /// What its frames share with those of other connections.
    pub memory: FrameMemory,
}

/// Accepts connections and serves each with what `make` gives, until `stop` is cancelled. All
/// connections are over when this returns.
pub async fn serve_tcp<M, B>(
    listeners: Listeners,
    make: impl Fn(&Peer) -> Service<M, B>,
    stop: CancellationToken,
) where
    M: Machine + Send + 'static,
    B: BackendFor<M> + Send + 'static,
    M::Request: Send,
    M::Error: Send,
    M::Reply: Send,
    M::Event: Send + Sync,
{
    serve_accepted(async move || Ok(listeners.accept().await?.0), make, stop).await;
}

/// The same for whatever gives connections.
async fn serve_accepted<M, B>(
    mut accept: impl AsyncFnMut() -> io::Result<TcpStream>,
    make: impl Fn(&Peer) -> Service<M, B>,
    stop: CancellationToken,
) where
    M: Machine + Send + 'static,
    B: BackendFor<M> + Send + 'static,
    M::Request: Send,
    M::Error: Send,
    M::Reply: Send,
    M::Event: Send + Sync,
{
    let places = Places::new(SHARES);
    let mut connections = JoinSet::new();
    let accept_errors = LogLimit::new(CONNECTION_LOG_RATE);
    let without_place = LogLimit::new(CONNECTION_LOG_RATE);
    let hang_ups = Arc::new(LogLimit::new(CONNECTION_LOG_RATE));
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept() => accepted,
        };
        match accepted {
            Ok(stream) => {
                // One that is over already needs nothing.
                let Ok(peer) = Peer::of(&stream) else { continue };
                let Some(place) = places.take(peer.account()) else {
                    tell_of_no_place(&without_place, &peer);
                    continue;
                };
                let (service, stop) = (make(&peer), stop.clone());
                let hang_ups = Arc::clone(&hang_ups);
                connections.spawn(async move {
                    let end = serve_stream(stream, service, stop).await;
                    drop(place);
                    if let ConnectionEnd::Foreign(protocol) = end
                        && let Some(left_out) = hang_ups.next_line()
                    {
                        let peer = peer.address();
                        tracing::warn!(%peer, %protocol, left_out, "hung up on a peer that speaks another protocol");
                    }
                });
            }
            // For want of descriptors, mostly.
            Err(error) => {
                if let Some(left_out) = accept_errors.next_line() {
                    tracing::warn!(%error, left_out, "cannot accept a connection");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // Nobody else is let in while these end.
    drop(accept);
    let all = async { while connections.join_next().await.is_some() {} };
    // What has not ended by then is dropped.
    let _ = timeout(STOP_WAIT, all).await;
}

/// Writes to the log, if that may be, that `peer` was closed because its share of the places is used up.
pub fn tell_of_no_place(limit: &LogLimit, peer: &Peer) {
    if let Some(left_out) = limit.next_line() {
        let (from, user) = (peer.address(), peer.user());
        tracing::warn!(%from, ?user, left_out, "closed a connection: others of its kind have all places that they may");
    }
}

async fn serve_stream<M, B>(
    mut stream: TcpStream,
    service: Service<M, B>,
    stop: CancellationToken,
) -> ConnectionEnd
where
    M: Machine,
    B: BackendFor<M>,
{
    // A request and its reply are one packet each; waiting for more would only be slow. A peer that
    // vanished without a word is found out sooner or later.
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
    let Service { machine, backend, arrived, rest, memory } = service;
    let (has_hung_up, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let (input, chunks) = mpsc::channel(INCOMING_CHUNKS);
    // That the peer has hung up is seen behind all that it sent: who closes one side still wants answers.
    let incoming = Incoming { chunks, hung_up: oneshot::channel().1, refuses_foreign: true };
    let (outgoing, outlet) = outgoing_within(memory.clone());
    let is_written = {
        let (from_peer, to_peer) = stream.split();
        let mut reading = pin!(read(from_peer, input, &has_hung_up));
        let mut writing = pin!(write(to_peer, outlet, rest, &written, || {
            if !has_hung_up.load(Ordering::Relaxed) {
                arrived();
            }
        }));
        let serving = serve_within(&memory, machine, backend, incoming, outgoing, stop.cancelled());
        let mut serving = pin!(serving);
        let (mut is_read, mut is_written) = (false, None);
        let end = loop {
            // In this order, so that one waking is enough for a request and its reply.
            tokio::select! {
                biased;
                () = &mut reading, if !is_read => is_read = true,
                end = &mut serving => break end,
                done = &mut writing, if is_written.is_none() => is_written = Some(done),
            }
        };
        if let ConnectionEnd::Foreign(_) | ConnectionEnd::Unread = end {
            // Dropped with all that it still sends, or has not taken.
            return end;
        }
        while is_written.is_none() {
            let before = written.load(Ordering::Relaxed);
            match timeout(PARTING_WAIT, &mut writing).await {
                Ok(done) => is_written = Some(done),
                Err(_) if written.load(Ordering::Relaxed) > before => {}
                Err(_) => is_written = Some(false),
            }
        }
        is_written == Some(true)
    };
    if is_written {
        part(stream, &has_hung_up, &arrived, &stop).await;
    }
    ConnectionEnd::Closed
}

/// Passes on what arrives until the peer hangs up.
async fn read(mut from: ReadHalf<'_>, to: mpsc::Sender<Vec<u8>>, has_hung_up: &AtomicBool) {
    let mut buffer = vec![0; INPUT_PIECE_BYTES];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let piece = buffer.get(..count).unwrap_or_default();
        if to.send(piece.to_vec()).await.is_err() {
            return;
        }
    }
    has_hung_up.store(true, Ordering::Relaxed);
}

/// Writes what is to be sent, and calls `on_empty` whenever all of it is gone. Tells whether it came to the
/// end.
async fn write(
    mut to: WriteHalf<'_>,
    mut outlet: Outlet,
    rest: Duration,
    written: &AtomicU64,
    on_empty: impl Fn(),
) -> bool {
    while let Some(mut bytes) = outlet.next().await {
        let mut is_all = false;
        while bytes.len() < WRITE_BYTES {
            let Some(frame) = outlet.try_next() else {
                is_all = true;
                break;
            };
            bytes.extend_from_slice(&frame);
        }
        let size = bytes.len();
        if write_all(&mut to, &bytes, written).await.is_err() {
            return false;
        }
        drop(bytes);
        outlet.written(size);
        // A peer that is gone has said so by now, if it is on this machine.
        if !matches!(to.as_ref().take_error(), Ok(None)) {
            return false;
        }
        if is_all {
            on_empty();
        }
        if !rest.is_zero() {
            sleep(rest).await;
        }
    }
    true
}

async fn write_all(to: &mut WriteHalf<'_>, mut bytes: &[u8], written: &AtomicU64) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = to.write(bytes).await?;
        written.fetch_add(count as u64, Ordering::Relaxed);
        bytes = bytes.get(count..).unwrap_or_default();
    }
    Ok(())
}

/// Says goodbye such that the last words arrive: a connection that is closed while something unread is in it
/// takes them back. Once the server ends, it is not waited for peers that say nothing.
async fn part(
    mut stream: TcpStream,
    has_hung_up: &AtomicBool,
    arrived: &(dyn Fn() + Send + Sync),
    stop: &CancellationToken,
) {
    if has_hung_up.load(Ordering::Relaxed) {
        if !objects(&stream).await {
            arrived();
        }
        let _ = stream.shutdown().await;
        return;
    }
    if stream.shutdown().await.is_err() {
        return;
    }
    let mut buffer = vec![0; INPUT_PIECE_BYTES];
    let drop_the_rest = async {
        let mut dropped = 0;
        while dropped < PARTING_BYTES {
            let read = tokio::select! {
                biased;
                read = stream.read(&mut buffer) => read,
                () = stop.cancelled() => return,
            };
            match read {
                Ok(count @ 1..) => dropped += count,
                Ok(_) | Err(_) => return,
            }
        }
    };
    let _ = timeout(PARTING_WAIT, drop_the_rest).await;
}

/// Whether a peer that has hung up says that it takes nothing any more. One that only has no more to say looks
/// just the same until something is sent to it.
async fn objects(stream: &TcpStream) -> bool {
    match stream.peer_addr() {
        // It would have done so while we wrote.
        Ok(peer) if peer.ip().is_loopback() => false,
        Ok(_) => {
            sleep(OBJECTION_WAIT).await;
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

    use super::*;

    /// Answers the first line with so many bytes, and closes.
    struct Talker {
        bytes: usize,
        longest: usize,
        has_spoken: bool,
        wants: Vec<Output<()>>,
    }

    impl Machine for Talker {
        type Request = ();
        type Reply = ();
        type Event = ();
        type Error = SessionRefusal;

        fn handle(&mut self, _now: Instant, input: InputOf<'_, Self>) {
            if matches!(input, Input::Frame(_) | Input::Oversize { .. }) {
                self.has_spoken = true;
                self.wants = vec![Output::Close, Output::Send(vec![b'x'; self.bytes])];
            }
        }

        fn poll(&mut self) -> Option<Output<()>> {
            self.wants.pop()
        }

        fn wants_frame(&self) -> bool {
            !self.has_spoken
        }

        fn max_line_bytes(&self) -> usize {
            self.longest
        }
    }

    struct Nothing;

    impl Backend for Nothing {
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

    fn service(bytes: usize) -> Service<Talker, Nothing> {
        let machine = Talker { bytes, longest: 1024, has_spoken: false, wants: Vec::new() };
        let (arrived, memory) = (Box::new(|| {}), FrameMemory::default());
        Service { machine, backend: Nothing, arrived, rest: Duration::ZERO, memory }
    }

    /// A connection that `bytes` are said to, served by a task until `stop`, and the other end of it.
    async fn served(
        bytes: usize,
        stop: &CancellationToken,
    ) -> (tokio::task::JoinHandle<ConnectionEnd>, TcpStream) {
        let listener = Listeners::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        (tokio::spawn(serve_stream(stream, service(bytes), stop.clone())), client)
    }

    #[tokio::test]
    async fn last_words_arrive_although_the_peer_still_speaks() {
        let (task, mut client) = served(100, &CancellationToken::new()).await;
        let sent = tokio::spawn(async move {
            client.write_all(&vec![b'y'; PARTING_BYTES / 2]).await.unwrap();
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).await.unwrap();
            heard
        });
        assert_eq!(sent.await.unwrap().len(), 101);
        task.await.unwrap();
    }

    #[tokio::test]
    async fn a_peer_that_does_not_stop_speaking_is_cut_off() {
        let (task, mut client) = served(100, &CancellationToken::new()).await;
        let endless = tokio::spawn(async move { while client.write_all(&[b'y'; 65536]).await.is_ok() {} });
        task.await.unwrap();
        endless.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_system_that_refuses_connections_is_not_asked_without_pause() {
        let (stop, begun) = (CancellationToken::new(), tokio::time::Instant::now());
        let mut refused = 0;
        let accept = async || {
            assert_eq!(begun.elapsed(), refused * ACCEPT_PAUSE);
            refused += 1;
            if refused == 5 {
                stop.cancel();
            }
            Err(io::Error::from(io::ErrorKind::Other))
        };
        serve_accepted(accept, |_| service(0), stop.clone()).await;
        assert_eq!(refused, 5);
    }

    #[tokio::test]
    async fn a_server_that_ends_does_not_wait_for_peers_that_say_nothing() {
        let stop = CancellationToken::new();
        let (task, mut client) = served(100, &stop).await;
        stop.cancel();
        tokio::time::pause();
        let begun = tokio::time::Instant::now();
        task.await.unwrap();
        assert!(begun.elapsed() < PARTING_WAIT);
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        assert!(heard.is_empty(), "{heard:?}");
    }

    /// Panics over what it hears.
    struct Fragile;

    impl Machine for Fragile {
        type Request = ();
        type Reply = ();
        type Event = ();
        type Error = SessionRefusal;

        fn handle(&mut self, _now: Instant, _input: InputOf<'_, Self>) {
            panic!("a machine that breaks");
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
    async fn a_panic_over_one_connection_ends_it_alone() {
        let listener = Listeners::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let make = |_: &Peer| {
            let Service { backend, arrived, rest, memory, .. } = service(0);
            Service { machine: Fragile, backend, arrived, rest, memory }
        };
        let server = tokio::spawn(serve_tcp(listener, make, CancellationToken::new()));
        let quiet = TcpStream::connect(address).await.unwrap();
        for _ in 0..2 * MAX_CONNECTIONS {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(b"go\n").await.unwrap();
            // It is closed, in one way or the other.
            let _ = client.read(&mut [0]).await;
        }
        assert!(!server.is_finished());
        let mut nothing = [0];
        let heard = quiet.try_read(&mut nothing).map_err(|error| error.kind());
        assert_eq!(heard, Err(io::ErrorKind::WouldBlock), "the other is still there");
    }

    #[tokio::test]
    async fn half_lines_that_stall_are_closed_while_others_wait() {
        let memory = FrameMemory::new(crate::MIN_FRAME_MEMORY);
        let listener = Listeners::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = memory.clone();
        let make = move |_: &Peer| {
            let Service { mut machine, backend, arrived, rest, .. } = service(2);
            machine.longest = 4 << 20;
            Service { machine, backend, arrived, rest, memory: shared.clone() }
        };
        tokio::spawn(serve_tcp(listener, make, CancellationToken::new()));
        let mut stalled = JoinSet::new();
        for _ in 0..3 {
            let mut client = TcpStream::connect(address).await.unwrap();
            stalled.spawn(async move {
                let _ = client.write_all(&vec![b'x'; 1 << 20]).await;
                // Its end is the end of the connection; nothing was answered.
                client.read(&mut [0]).await.unwrap_or(0)
            });
        }
        while memory.used() < crate::MIN_FRAME_MEMORY {
            tokio::task::yield_now().await;
        }
        let mut small = TcpStream::connect(address).await.unwrap();
        small.write_all(b"go\n").await.unwrap();
        let mut heard = Vec::new();
        small.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"xx\n", "short lines always go on");
        tokio::time::pause();
        for _ in 0..2 {
            assert_eq!(stalled.join_next().await.unwrap().unwrap(), 0);
        }
        let rest = timeout(100 * crate::FRAME_WAIT, stalled.join_next()).await;
        assert!(rest.is_err(), "the last is in nobody's way: {rest:?}");
    }

    #[tokio::test]
    async fn connections_have_little_time_when_the_server_ends() {
        let listener = Listeners::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve_tcp(listener, |_| service(64 << 20), stop.clone()));
        let mut deaf = TcpStream::connect(address).await.unwrap();
        deaf.write_all(b"go\n").await.unwrap();
        deaf.readable().await.unwrap();
        // From here on whoever waits for nothing but time does not wait.
        tokio::time::pause();
        let begun = tokio::time::Instant::now();
        stop.cancel();
        server.await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), STOP_WAIT.as_secs());
        assert!(TcpStream::connect(address).await.is_err(), "nobody is let in any more");
    }

    #[tokio::test]
    async fn a_peer_that_does_not_read_is_not_waited_for_in_the_end() {
        let stop = CancellationToken::new();
        let (task, mut client) = served(64 << 20, &stop).await;
        client.write_all(b"go\n").await.unwrap();
        client.readable().await.unwrap();
        stop.cancel();
        // From here on whoever waits for nothing but time does not wait.
        tokio::time::pause();
        task.await.unwrap();
    }
}
