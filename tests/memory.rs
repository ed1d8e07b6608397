//! Every transcript on the machine in memory: the driver's loop and the engine, but no transport
//! and no second process.

use std::path::{Path, PathBuf};

use parlor_doors::exec::ExecMachine;
use parlor_doors::lines::{Line, Lines};
use parlor_engine::Processes;
use parlor_host::{INCOMING_CHUNKS, Incoming, Outlet, outgoing, serve};
use parlor_testkit::{Exec, Peer, play_folder};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

fn transcripts(door: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts").join(door)
}

#[test]
fn exec_in_memory() {
    play_folder(&transcripts("exec"), &Exec, || Ok(Memory::start()));
}

/// A connection whose two directions are channels.
struct Memory {
    input: Option<mpsc::Sender<Vec<u8>>>,
    outlet: Outlet,
    task: JoinHandle<()>,
}

impl Memory {
    fn start() -> Self {
        let (input, chunks) = mpsc::channel(INCOMING_CHUNKS);
        let incoming = Incoming { chunks, hung_up: oneshot::channel().1 };
        let (outgoing, outlet) = outgoing();
        let never = std::future::pending();
        let task =
            tokio::spawn(serve(ExecMachine::default(), Processes::default(), incoming, outgoing, never));
        Self { input: Some(input), outlet, task }
    }
}

impl Peer for Memory {
    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let input = self.input.as_ref().ok_or("sent after the end")?;
        input.send(bytes.to_vec()).await.map_err(|_| "the connection is gone".to_owned())
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

    async fn finish(&mut self) -> Result<(), String> {
        (&mut self.task).await.map_err(|error| error.to_string())
    }
}
