//! The driver for line protocols on a Unix socket, for processes of the same user.

use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use parlor_doors::{BackendFor, Machine};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::accept::{STOP_WAIT, SendMachine, accept_connections};
use crate::connection::{INCOMING_CHUNKS, Incoming, serve_within};
use crate::frame_memory::FrameMemory;
use crate::outgoing::{OutgoingReceiver, outgoing_within};
use crate::socket_file::{SocketFile, is_same_user};

/// How many connections one socket serves at a time. Further connections are closed at once.
pub const MAX_SOCKET_CONNECTIONS: usize = 256;

/// The most bytes that one read takes.
const INPUT_PIECE_BYTES: usize = 64 * 1024;

/// A listening socket. Dropping it removes the file.
#[derive(Debug)]
pub struct SocketServer {
    listener: UnixListener,
    file: SocketFile,
}

impl SocketServer {
    /// Listens on the socket `name` in `folder`, which is created if it is missing. Must be called within a tokio runtime.
    pub fn bind(folder: &Path, name: &str) -> io::Result<Self> {
        let (listener, file) = SocketFile::bind(folder, name)?;
        Ok(Self { listener, file })
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Serves each connection of this user with the result of `make`, or closes it if that is `None`, until `stop` is
    /// cancelled. All connections have ended when this returns.
    pub async fn serve<M, B>(
        self,
        memory: FrameMemory,
        make: impl Fn() -> Option<(M, B)>,
        stop: CancellationToken,
    ) where
        M: SendMachine,
        B: BackendFor<M> + Send + 'static,
    {
        let Self { listener, file } = self;
        let permits = Arc::new(Semaphore::new(MAX_SOCKET_CONNECTIONS));
        let serve = |stream: UnixStream| {
            let permit = Arc::clone(&permits).try_acquire_owned().ok()?;
            let (machine, backend) = is_same_user(&stream).then(&make)??;
            let (memory, stop) = (memory.clone(), stop.clone());
            Some(async move {
                let (from_peer, to_peer) = stream.into_split();
                serve_stream(from_peer, to_peer, machine, backend, &memory, stop).await;
                drop(permit);
            })
        };
        let accept = async move || {
            let (stream, _) = listener.accept().await?;
            Ok(stream)
        };
        accept_connections(accept, serve, stop.clone()).await;
        drop(file);
    }
}

/// Serves one connection of a process or node that may use it.
pub(crate) async fn serve_stream<M, B>(
    from_peer: impl AsyncRead + Unpin,
    to_peer: impl AsyncWrite + Unpin,
    machine: M,
    backend: B,
    memory: &FrameMemory,
    stop: CancellationToken,
) where
    M: Machine,
    B: BackendFor<M>,
{
    let (input, chunks) = mpsc::channel(INCOMING_CHUNKS);
    let incoming = Incoming { chunks, hung_up: oneshot::channel().1, refuses_foreign: false };
    let (sender, receiver) = outgoing_within(memory.clone());
    let mut reading = pin!(read(from_peer, input));
    let mut writing = pin!(write(to_peer, receiver));
    let mut serving = pin!(serve_within(memory, machine, backend, incoming, sender, stop.cancelled()));
    let (mut is_read, mut is_written) = (false, false);
    loop {
        // In this order, so that one wake-up is enough to read a request and write its reply.
        tokio::select! {
            biased;
            () = &mut reading, if !is_read => is_read = true,
            _ = &mut serving => break,
            () = &mut writing, if !is_written => is_written = true,
        }
    }
    if !is_written {
        // The last frame says why the connection ends.
        let _ = timeout(STOP_WAIT, writing).await;
    }
}

/// Forwards input to the connection until the peer hangs up.
async fn read(mut from: impl AsyncRead + Unpin, to: mpsc::Sender<Vec<u8>>) {
    let mut buffer = vec![0; INPUT_PIECE_BYTES];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if to.send(buffer.get(..count).unwrap_or_default().to_vec()).await.is_err() {
            return;
        }
    }
}

/// Writes queued frames until the driver or the peer is gone.
async fn write(mut to: impl AsyncWrite + Unpin, mut receiver: OutgoingReceiver) {
    while let Some(mut bytes) = receiver.next().await {
        while let Some(frame) = receiver.try_next() {
            bytes.extend_from_slice(&frame);
            if bytes.len() >= INPUT_PIECE_BYTES {
                break;
            }
        }
        // TLS keeps bytes until they are flushed.
        if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
            return;
        }
        receiver.written(bytes.len());
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Instant;

    use parlor_doors::{Input, InputOf, Output, Ticket};
    use parlor_vocab::{Answer, Backend, SessionRefusal, UpdateOf};

    use super::*;
    use crate::socket_file::connect_socket;

    /// Answers each line with the same line.
    #[derive(Default)]
    pub(crate) struct Echo(Vec<Output<()>>);

    impl Machine for Echo {
        type Request = ();
        type Reply = ();
        type Event = ();
        type Error = SessionRefusal;

        fn handle(&mut self, _now: Instant, input: InputOf<'_, Self>) {
            if let Input::Frame(line) = input {
                self.0.push(Output::Send(line.to_vec()));
            }
        }

        fn poll(&mut self) -> Option<Output<()>> {
            self.0.pop()
        }

        fn wants_frame(&self) -> bool {
            true
        }

        fn max_line_bytes(&self) -> usize {
            64
        }
    }

    pub(crate) struct EmptyBackend;

    impl Backend for EmptyBackend {
        type Request = ();
        type Reply = ();
        type Event = ();
        type Error = SessionRefusal;

        fn submit(&mut self, _ticket: Ticket, (): ()) -> Option<Answer<(), SessionRefusal>> {
            None
        }

        async fn next(&mut self) -> Option<UpdateOf<Self>> {
            std::future::pending().await
        }

        fn begin_close(&mut self) {}

        async fn closed(self) {}
    }

    async fn echoes(stream: &mut UnixStream) -> bool {
        let mut reply = [0; 3];
        // A server that has closed the connection takes no more input.
        let _ = stream.write_all(b"hi\n").await;
        stream.read_exact(&mut reply).await.is_ok() && reply == *b"hi\n"
    }

    #[tokio::test]
    async fn connections_over_the_limit_are_closed_and_all_end_with_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let server = SocketServer::bind(folder.path(), "x.peer").unwrap();
        let (path, stop) = (server.path().to_owned(), CancellationToken::new());
        let make = || Some((Echo::default(), EmptyBackend));
        let task = tokio::spawn(server.serve(FrameMemory::default(), make, stop.clone()));
        let mut connections = Vec::new();
        for _ in 0..MAX_SOCKET_CONNECTIONS {
            let mut stream = connect_socket(&path).await.unwrap();
            assert!(echoes(&mut stream).await);
            connections.push(stream);
        }
        assert!(!echoes(&mut connect_socket(&path).await.unwrap()).await, "one too many");
        connections.pop();
        // Retry until the server has noticed that a connection is gone.
        while !echoes(&mut connect_socket(&path).await.unwrap()).await {}
        stop.cancel();
        task.await.unwrap();
        assert!(!path.exists());
        assert_eq!(connections[0].read(&mut [0]).await.unwrap(), 0, "it is closed");
    }

    #[tokio::test]
    async fn a_connection_that_nothing_is_made_for_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let server = SocketServer::bind(folder.path(), "x.peer").unwrap();
        let path = server.path().to_owned();
        let make = || None::<(Echo, EmptyBackend)>;
        tokio::spawn(server.serve(FrameMemory::default(), make, CancellationToken::new()));
        assert!(!echoes(&mut connect_socket(&path).await.unwrap()).await);
    }
}
