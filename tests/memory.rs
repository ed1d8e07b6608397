//! Every transcript in memory: the door's machine, the driver's loop and the backend, without a transport or a second
//! process.

mod peer_sessions;
mod sessions_in_memory;

use std::path::{Path, PathBuf};
use std::time::Duration;

use parlor_doors::exec::ExecMachine;
use parlor_doors::lines::{Line, Lines};
use parlor_doors::{BackendFor, Machine};
use parlor_process::{Executor, Processes};
use parlor_testkit::{Acp, Exec, Loaf, Mcp, Peer, PeerDialect, PlayedIn, Synaps, advance_time, play_cases};
use parlor_transport::{ConnectionEnd, INCOMING_CHUNKS, Incoming, OutgoingReceiver, outgoing, serve};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

fn transcripts(door: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts").join(door)
}

#[test]
fn exec_in_memory() {
    play_cases(&transcripts("exec"), &Exec, PlayedIn::Memory, |_| {
        Ok(Memory::start(async { (ExecMachine::default(), Executor::new(Processes::default())) }))
    });
}

#[test]
fn synaps_in_memory() {
    play_cases(&transcripts("synaps"), &Synaps, PlayedIn::Memory, |case| {
        let sessions = sessions_in_memory::SessionsInMemory::for_case(case)?;
        Ok(Memory::start(sessions.child()))
    });
}

#[test]
fn loaf_in_memory() {
    play_cases(&transcripts("loaf"), &Loaf, PlayedIn::Memory, |case| {
        let server = sessions_in_memory::loaf::Loaf::for_case(case)?;
        Ok(Memory::start(server.serve()))
    });
}

#[test]
fn acp_in_memory() {
    play_cases(&transcripts("acp"), &Acp, PlayedIn::Memory, |case| {
        Ok(Memory::start(sessions_in_memory::acp::connection(case)?))
    });
}

#[test]
fn mcp_in_memory() {
    play_cases(&transcripts("mcp"), &Mcp, PlayedIn::Memory, |case| {
        Ok(Memory::start(sessions_in_memory::mcp::connection(case)?))
    });
}

#[test]
fn peer_in_memory() {
    play_cases(&transcripts("peer"), &PeerDialect, PlayedIn::Memory, |case| {
        let sessions = sessions_in_memory::SessionsInMemory::for_case(case)?;
        Ok(Memory::start(sessions.peer()))
    });
}

/// A connection over channels.
struct Memory {
    input: Option<mpsc::Sender<Vec<u8>>>,
    /// Until the connection is served. The clock must not advance before that: the deadlines of a connection count from
    /// its start, and creating its sessions waits for other threads, which take real time.
    starting: Option<oneshot::Receiver<()>>,
    outlet: OutgoingReceiver,
    task: JoinHandle<ConnectionEnd>,
}

impl Memory {
    /// Serves the machine and the backend that `create` returns.
    fn start<M, B>(create: impl Future<Output = (M, B)> + Send + 'static) -> Self
    where
        M: Machine<Request: Send, Reply: Send, Event: Send, Error: Send> + Send + 'static,
        B: BackendFor<M> + Send + 'static,
    {
        let (input, chunks) = mpsc::channel(INCOMING_CHUNKS);
        let incoming = Incoming { chunks, hung_up: oneshot::channel().1, refuses_foreign: false };
        let (outgoing, outlet) = outgoing();
        let (started, starting) = oneshot::channel();
        let task = tokio::spawn(async {
            let (machine, backend) = create.await;
            // An error means that the transcript ended before the connection began.
            let _ = started.send(());
            serve(machine, backend, incoming, outgoing, std::future::pending()).await
        });
        Self { input: Some(input), starting: Some(starting), outlet, task }
    }
}

impl Peer for Memory {
    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let input = self.input.as_ref().ok_or("sent after the input was closed")?;
        input.send(bytes.to_vec()).await.map_err(|_| "the connection is closed".to_owned())
    }

    async fn close(&mut self) -> Result<(), String> {
        self.input = None;
        Ok(())
    }

    async fn frame(&mut self) -> Option<Vec<u8>> {
        let bytes = self.outlet.next().await?;
        self.outlet.written(bytes.len());
        let mut lines = Lines::new(bytes.len());
        lines.push(&bytes);
        match lines.next_line() {
            Some(Line::Whole(frame)) => Some(frame.to_vec()),
            Some(Line::Oversize) | None => panic!("not one line: {bytes:?}"),
        }
    }

    async fn advance(&mut self, time: Duration) -> Result<(), String> {
        if let Some(starting) = self.starting.take() {
            starting.await.map_err(|_| "the connection did not start".to_owned())?;
        }
        advance_time(time).await;
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), String> {
        (&mut self.task).await.map(|_| ()).map_err(|error| error.to_string())
    }
}
