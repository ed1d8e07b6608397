//! Starting a process, and the handle to one.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use parlor_vocab::{OutputStream, StartProcess, StdioKind};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::Interest;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::confine::Confinement;
use crate::launch::{Child, LaunchError, Step, Streams, launch};
use crate::program::Program;
use crate::source::Source;
use crate::stdin::{Queue, WriteError, WriteId, Written};
use crate::supervise::{Supervisor, is_alive};
use crate::tail::Tail;
use crate::terminal::{self, TerminalDimensions};
use crate::watched::{Watched, watch};
use crate::{MAX_RETAINED_BYTES, ProcessNumber, ProcessReport, SpawnError};

/// A started process. Dropping the handle leaves it running, supervised and reported.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    shared: Arc<Shared>,
    pidfd: Watched,
    terminal: Option<Watched>,
    tails: Vec<(OutputStream, Arc<Mutex<Tail>>)>,
    task: JoinHandle<()>,
}

/// Starts a process and a task that reports on it to `reports` under `instance`.
///
/// Must be called within a tokio runtime, on a thread that lives as long as the server does: if
/// that thread ends, the child gets SIGTERM.
///
/// The child and all that it starts cannot get more rights than we have (`NO_NEW_PRIVS`), are held to
/// [`ChildLimits`](crate::ChildLimits), and go first when memory is short.
pub fn spawn(
    start: &StartProcess,
    instance: ProcessNumber,
    reports: mpsc::Sender<ProcessReport>,
) -> Result<Process, SpawnError> {
    spawn_with(start, instance, reports, Confinement::Tool)
}

/// The same without limits, for a program of the person at this machine that is going to be theirs, such as a browser:
/// one in a snap, and the sandbox of some others, need rights of their own to start.
pub fn spawn_for_person(
    start: &StartProcess,
    instance: ProcessNumber,
    reports: mpsc::Sender<ProcessReport>,
) -> Result<Process, SpawnError> {
    spawn_with(start, instance, reports, Confinement::None)
}

fn spawn_with(
    start: &StartProcess,
    instance: ProcessNumber,
    reports: mpsc::Sender<ProcessReport>,
    confinement: Confinement,
) -> Result<Process, SpawnError> {
    let mut program = Program::new(start)?;
    let tail = || Arc::new(Mutex::new(Tail::new(start.retain_bytes.min(MAX_RETAINED_BYTES))));
    let (child, terminal, sources) = match start.stdio {
        StdioKind::Terminal => {
            let (ours, theirs) = terminal::open(TerminalDimensions::default())?;
            let streams = Streams {
                stdin: theirs.as_fd(),
                stdout: theirs.as_fd(),
                stderr: theirs.as_fd(),
                terminal: true,
            };
            let ours = watch(ours, Interest::READABLE | Interest::WRITABLE)?;
            let child = start_watched(&mut program, &streams, start, confinement)?;
            let sources = vec![(Arc::clone(&ours), OutputStream::Terminal, tail())];
            (child, Some((ours, theirs)), sources)
        }
        StdioKind::Pipes => {
            let (stdout, their_stdout) = output_pipe()?;
            let (stderr, their_stderr) = output_pipe()?;
            let nothing = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .map_err(SpawnError::system("open /dev/null"))?;
            let streams = Streams {
                stdin: nothing.as_fd(),
                stdout: their_stdout.as_fd(),
                stderr: their_stderr.as_fd(),
                terminal: false,
            };
            let (stdout, stderr) = (watch(stdout, Interest::READABLE)?, watch(stderr, Interest::READABLE)?);
            let child = start_watched(&mut program, &streams, start, confinement)?;
            (
                child,
                None,
                vec![(stdout, OutputStream::Stdout, tail()), (stderr, OutputStream::Stderr, tail())],
            )
        }
    };
    Ok(supervise(child, terminal, sources, instance, reports))
}

type OpenStream = (Watched, OutputStream, Arc<Mutex<Tail>>);

fn supervise(
    child: (Pid, Watched),
    terminal: Option<(Watched, OwnedFd)>,
    streams: Vec<OpenStream>,
    instance: ProcessNumber,
    reports: mpsc::Sender<ProcessReport>,
) -> Process {
    let (pid, pidfd) = child;
    let (terminal, theirs) = terminal.unzip();
    let input = if terminal.is_some() { Input::Open(Queue::default()) } else { Input::None };
    let shared = Arc::new(Shared {
        state: Mutex::new(State { input, end_by: None, dead: false }),
        wake: Notify::new(),
    });
    let tails = streams.iter().map(|(_, stream, tail)| (*stream, Arc::clone(tail))).collect();
    let mut sources = streams.into_iter().map(|(fd, stream, tail)| Source::new(fd, stream, tail));
    let supervisor = Supervisor {
        instance,
        pid,
        pidfd: Arc::clone(&pidfd),
        terminal: terminal.clone(),
        theirs,
        first: sources.next(),
        second: sources.next(),
        shared: Arc::clone(&shared),
        reports,
    };
    let task = tokio::spawn(supervisor.run());
    Process { pid, shared, pidfd, terminal, tails, task }
}

impl Process {
    /// Its number, for people: it may be another's once the process is over.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Queues `bytes` for the process to read.
    pub fn write(&self, id: WriteId, bytes: Vec<u8>) -> Result<Written, WriteError> {
        let written = match &mut self.shared.lock().input {
            Input::None => return Err(WriteError::Closed),
            Input::Ended => return Err(WriteError::Gone),
            Input::Open(queue) => queue.push(id, bytes)?,
        };
        self.shared.wake.notify_one();
        Ok(written)
    }

    /// Asks the process group to end, and kills it if it has not within `grace`. Says whether the
    /// process was alive. A shorter grace than before hurries; a longer one changes nothing.
    pub fn terminate(&self, grace: Duration) -> bool {
        let mut state = self.shared.lock();
        if state.dead {
            return false;
        }
        // Also for a process that is gone: its relatives may still hold its output open.
        let by = Instant::now() + grace;
        state.end_by = Some(state.end_by.map_or(by, |before| before.min(by)));
        drop(state);
        self.shared.wake.notify_one();
        is_alive(self.pidfd.get_ref())
    }

    /// Gives the terminal of the process another size. Without a terminal nothing happens.
    pub fn resize(&self, size: TerminalDimensions) -> std::io::Result<()> {
        match &self.terminal {
            Some(terminal) => Ok(terminal::resize(terminal.get_ref(), size)?),
            None => Ok(()),
        }
    }

    /// The last bytes that the process wrote to `stream`, as many as it was told to retain.
    pub fn retained(&self, stream: OutputStream) -> Vec<u8> {
        let of_stream = self.tails.iter().find(|(name, _)| *name == stream);
        of_stream
            .map_or_else(Vec::new, |(_, tail)| tail.lock().unwrap_or_else(PoisonError::into_inner).to_vec())
    }

    /// The same for whoever reads on from time to time, also when the process is over.
    pub fn retains(&self) -> Retained {
        Retained(self.tails.iter().map(|(_, tail)| Arc::clone(tail)).collect())
    }

    /// Waits until nothing is left of the process and its supervisor.
    pub async fn gone(self) {
        // The supervisor does not panic, and is not cancelled while the runtime lives.
        let _ = self.task.await;
    }
}

/// What is retained of all outputs of a process.
#[derive(Clone, Debug)]
pub struct Retained(Vec<Arc<Mutex<Tail>>>);

/// How far somebody has read.
#[derive(Clone, Debug)]
pub struct ReadSoFar(Vec<u64>);

impl Retained {
    /// The place before all output.
    pub fn from_the_start(&self) -> ReadSoFar {
        ReadSoFar(vec![0; self.0.len()])
    }

    /// What was written since, one stream after another, as far as it is retained.
    pub fn since(&self, place: &mut ReadSoFar) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (tail, place) in self.0.iter().zip(&mut place.0) {
            bytes.extend(tail.lock().unwrap_or_else(PoisonError::into_inner).since(place));
        }
        bytes
    }
}

/// What the handle and the supervisor both see.
#[derive(Debug)]
pub(crate) struct Shared {
    /// A plain mutex: it is held for moments, never across a wait.
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug)]
struct State {
    input: Input,
    end_by: Option<Instant>,
    dead: bool,
}

#[derive(Debug)]
enum Input {
    None,
    Open(Queue),
    Ended,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the handle was used.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// By when the process is to end, if it was told to.
    pub(crate) fn ordered_end(&self) -> Option<Instant> {
        self.lock().end_by
    }

    pub(crate) fn mark_dead(&self) {
        self.lock().dead = true;
    }

    /// Whether something waits to be written.
    pub(crate) fn has_input(&self) -> bool {
        matches!(&self.lock().input, Input::Open(queue) if queue.front().is_some())
    }

    /// Writes to `fd` what it takes at once. Returns the writes that are accepted because of it.
    pub(crate) fn write_input(&self, fd: &OwnedFd) -> Result<Vec<WriteId>, Errno> {
        let mut state = self.lock();
        let Input::Open(queue) = &mut state.input else { return Ok(Vec::new()) };
        let Some(front) = queue.front() else { return Ok(Vec::new()) };
        let count = rustix::io::write(fd, front)?;
        Ok(queue.advance(count))
    }

    /// Ends the input. Returns the writes that were never accepted.
    pub(crate) fn close_input(&self) -> Vec<WriteId> {
        let mut state = self.lock();
        match std::mem::replace(&mut state.input, Input::Ended) {
            Input::Open(queue) => queue.abandon(),
            Input::Ended => Vec::new(),
            Input::None => {
                state.input = Input::None;
                Vec::new()
            }
        }
    }
}

fn output_pipe() -> Result<(OwnedFd, OwnedFd), SpawnError> {
    let refused = "open a pipe";
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(SpawnError::system(refused))?;
    rustix::io::ioctl_fionbio(&ours, true).map_err(SpawnError::system(refused))?;
    Ok((ours, theirs))
}

/// Starts the child and has the runtime watch for its end.
fn start_watched(
    program: &mut Program,
    streams: &Streams<'_>,
    start: &StartProcess,
    confinement: Confinement,
) -> Result<(Pid, Watched), SpawnError> {
    let Child { pid, pidfd } =
        launch(program, streams, confinement).map_err(|error| explain(error, start))?;
    match watch(pidfd, Interest::READABLE) {
        Ok(pidfd) => Ok((pid, pidfd)),
        Err(error) => {
            // Nobody would ever learn of its end, so it must not live.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
            Err(error)
        }
    }
}

fn explain(error: LaunchError, start: &StartProcess) -> SpawnError {
    let LaunchError { step, errno } = error;
    match step {
        Step::Create => SpawnError::System { attempt: "create a process", errno },
        Step::Prepare => SpawnError::System { attempt: "prepare the process", errno },
        Step::EnterFolder => SpawnError::Folder { folder: start.folder.clone(), errno },
        Step::Execute => SpawnError::Program { program: start.program.clone(), errno },
    }
}
