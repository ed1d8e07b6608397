//! One worker: a Ruby process that runs `worker.rb`, with its pipes.
//!
//! The worker first connects to an abstract socket, which has no path in the file system, and gets its pipes over it. In a
//! sandbox it cannot open a socket, so its standard input is a connected one.
//! Programs that evaluated code starts inherit only the pipe for printed text. Standard input is empty.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener, UnixStream as StdStream};
use std::time::Duration;

use parlor_process::{
    ChildEvent, DEFAULT_PATH, Process, ProcessNumber, ProcessReport, SpawnError, find_program, spawn,
    spawn_with_socket,
};
use parlor_vocab::{PolicyMode, ProcessExit, ProcessId, StartProcess, StdioKind};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::capture::Secret;
use crate::channel::{Channel, Outcome, WorkerLoss};
use crate::output_pipe::OutputPipe;
use crate::{
    EXIT_WAIT, MAX_BACKTRACE_LINES, MAX_MESSAGE_BYTES, MAX_VALUE_BYTES, PrintedOutput, RubyError,
    RubySettings, RubySource, START_LIMIT,
};

const SCRIPT: &str = include_str!("worker.rb");

/// Without the first two flags, Ruby 3.1 puts hints and code snippets into messages. Without the third and without a
/// locale, it reads all files as ASCII.
const FLAGS: [&str; 3] = ["--disable=did_you_mean", "--disable=error_highlight", "-EUTF-8"];

/// The argument of a worker whose standard input is its socket. No name of a socket is so short.
const STDIN_SOCKET: &str = "-";

/// How many reports of the process may wait to be read.
const REPORT_CAPACITY: usize = 4;

/// A worker process, which may still be starting.
pub(crate) struct Worker {
    process: Process,
    reports: mpsc::Receiver<ProcessReport>,
    /// Where the worker is expected, and its ends of the pipes, until it has connected.
    expected: Option<(Meeting, [OwnedFd; 3])>,
    channel: Channel,
    output: OutputPipe,
    secret: Secret,
    memory_limit: u64,
    /// How the process ended; `None` while it runs.
    ending: Option<ProcessExit>,
}

/// Where a worker that starts can be met.
enum Meeting {
    /// It connects to this socket.
    Listener(UnixListener),
    /// It has the other end of this socket as its standard input, and writes a byte when it is up.
    Connected(Option<UnixStream>),
}

/// What is known about a lost worker.
pub(crate) struct DeadWorker {
    /// How the worker was lost.
    pub(crate) reason: String,
    /// What the worker printed last.
    pub(crate) output: PrintedOutput,
    /// Whether a signal that the host did not send killed the worker.
    pub(crate) was_killed: bool,
}

impl Worker {
    /// Starts a worker without waiting until it is up.
    pub(crate) fn start(settings: &RubySettings) -> Result<Self, RubyError> {
        let not_started = |error: std::io::Error| RubyError::NotStarted { reason: error.to_string() };
        let [secret, name] = [random().map_err(not_started)?, random().map_err(not_started)?];
        let name = format!("parlor-ruby-{:032x}", u128::from_be_bytes(name));
        let (channel, [requests, replies]) = Channel::new().map_err(not_started)?;
        let (output, printed) = OutputPipe::new(secret).map_err(not_started)?;
        let (sender, reports) = mpsc::channel(REPORT_CAPACITY);
        let sandbox = settings.sandbox.as_deref().filter(|sandbox| sandbox.mode != PolicyMode::Full);
        let (process, meeting) = match sandbox {
            Some(sandbox) => {
                let (ours, theirs) = StdStream::pair().map_err(not_started)?;
                ours.set_nonblocking(true).map_err(not_started)?;
                let ours = UnixStream::from_std(ours).map_err(not_started)?;
                let start = start_process(settings, STDIN_SOCKET.to_owned())?;
                let process =
                    spawn_with_socket(Some(sandbox), &start, ProcessNumber(0), sender, theirs.into());
                (process, Meeting::Connected(Some(ours)))
            }
            None => {
                let listener = listen(&name).map_err(not_started)?;
                let process = spawn(&start_process(settings, name)?, ProcessNumber(0), sender);
                (process, Meeting::Listener(listener))
            }
        };
        let process = process.map_err(|error| spawn_error(error, &settings.program))?;
        Ok(Self {
            process,
            reports,
            expected: Some((meeting, [requests, replies, printed])),
            channel,
            output,
            secret,
            memory_limit: settings.memory_limit,
            ending: None,
        })
    }

    /// Whether the worker has connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.channel.is_open()
    }

    /// Waits until the worker is up. Cancel safe.
    pub(crate) async fn connect(&mut self) -> Result<(), WorkerLoss> {
        let Some((meeting, pipes)) = &mut self.expected else { return Ok(()) };
        let socket = loop {
            tokio::select! {
                met = meet(meeting) => break met?,
                report = self.reports.recv() => on_report(report, &mut self.output, &mut self.ending)?,
            }
        };
        let limits =
            format!("{} {MAX_VALUE_BYTES} {MAX_MESSAGE_BYTES} {MAX_BACKTRACE_LINES}", self.memory_limit);
        send_pipes(&socket, pipes).map_err(|_| WorkerLoss::Disconnected)?;
        // Drops the host's copies, so that the pipes close when the worker ends.
        self.expected = None;
        self.channel.open(socket, &self.secret, limits.as_bytes())
    }

    /// Evaluates `source`. If the returned future is dropped early, the caller must end the worker.
    pub(crate) async fn evaluate(
        &mut self,
        source: &RubySource,
    ) -> Result<(Outcome, PrintedOutput), WorkerLoss> {
        let request = self.channel.request(source);
        let mut unwritten = request.as_slice();
        let outcome = loop {
            tokio::select! {
                received = self.channel.exchange(&mut unwritten, source) => {
                    if let Some(outcome) = received? {
                        break outcome;
                    }
                }
                () = self.output.read_to_end(), if self.output.is_open() => {}
                report = self.reports.recv() => {
                    if let Err(loss) = on_report(report, &mut self.output, &mut self.ending) {
                        break self.channel.read_final_reply(source).ok_or(loss)?;
                    }
                }
            }
        };
        Ok((outcome, self.output.take_output()))
    }

    /// Reads what the worker prints between calls. Returns when the worker is lost. Cancel safe.
    pub(crate) async fn idle(&mut self) -> WorkerLoss {
        if self.ending.is_some() {
            return WorkerLoss::Exited;
        }
        loop {
            tokio::select! {
                () = self.output.read_to_end(), if self.output.is_open() => {}
                report = self.reports.recv() => {
                    if let Err(loss) = on_report(report, &mut self.output, &mut self.ending) {
                        return loss;
                    }
                }
            }
        }
    }

    /// Ends the worker with all processes that it started. Returns what it printed last.
    pub(crate) async fn end(mut self) -> PrintedOutput {
        self.process.terminate(Duration::ZERO);
        self.wait_for_exit().await;
        self.output.take_output()
    }

    /// Ends a lost worker and tells how it was lost.
    pub(crate) async fn reap(mut self, loss: WorkerLoss) -> DeadWorker {
        let reason = match loss {
            WorkerLoss::Invalid(what) => what,
            WorkerLoss::Disconnected | WorkerLoss::Exited => {
                self.wait_for_exit().await;
                self.ending.map_or_else(|| "it hung up".to_owned(), describe)
            }
        };
        let was_killed = matches!(self.ending, Some(ProcessExit::Signal(_)));
        DeadWorker { reason, was_killed, output: self.end().await }
    }

    /// Waits up to [`EXIT_WAIT`] for the worker to exit.
    async fn wait_for_exit(&mut self) {
        if self.ending.is_none() {
            // After that, the process supervisor still ends the worker, but nobody waits for it.
            let _ = timeout(EXIT_WAIT, self.idle()).await;
        }
    }
}

/// Waits up to [`START_LIMIT`] until a worker is up.
pub(crate) async fn connect_in_time(worker: &mut Worker) -> Result<(), WorkerLoss> {
    match timeout(START_LIMIT, worker.connect()).await {
        Ok(connected) => connected,
        Err(_) => Err(WorkerLoss::Invalid(format!("it was not up after {} s", START_LIMIT.as_secs()))),
    }
}

/// Handles a report of the process. Fails if the process has exited.
fn on_report(
    report: Option<ProcessReport>,
    output: &mut OutputPipe,
    ending: &mut Option<ProcessExit>,
) -> Result<(), WorkerLoss> {
    match report.map_or(ChildEvent::Exited(ProcessExit::Unknown), |report| report.event) {
        ChildEvent::Output { bytes, .. } => output.push(&bytes),
        ChildEvent::WriteAccepted(_) | ChildEvent::WriteLost(_) | ChildEvent::LeaderExited(_) => {}
        ChildEvent::Exited(exit) => {
            ending.get_or_insert(exit);
            return Err(WorkerLoss::Exited);
        }
    }
    Ok(())
}

fn describe(ending: ProcessExit) -> String {
    match ending {
        ProcessExit::Code(code) => format!("it ended with status {code}"),
        ProcessExit::Signal(signal) => format!("killed by signal {signal}"),
        ProcessExit::Terminated => "it hung up and was ended".to_owned(),
        ProcessExit::Unknown => "the system did not say why".to_owned(),
    }
}

fn start_process(settings: &RubySettings, socket: String) -> Result<StartProcess, RubyError> {
    let flags = FLAGS.into_iter().chain(["-e", SCRIPT, "--"]).map(str::to_owned);
    Ok(StartProcess {
        process: ProcessId::parse("ruby").expect("a short id"),
        program: program_path(settings)?,
        args: flags.chain([socket]).collect(),
        arg0: Some(settings.program.clone()),
        folder: settings.folder.clone(),
        env: settings.env.clone(),
        stdio: StdioKind::Pipes,
        retain_bytes: 0,
    })
}

/// The path of the Ruby program.
fn program_path(settings: &RubySettings) -> Result<String, RubyError> {
    let program = &settings.program;
    if program.contains('/') {
        return Ok(program.clone());
    }
    let path = settings.env.iter().find(|(name, _)| name == "PATH").map_or(DEFAULT_PATH, |(_, path)| path);
    let found = find_program(program.as_ref(), path.as_ref())
        .and_then(|path| path.into_os_string().into_string().ok());
    found.ok_or_else(|| RubyError::NoRuby { program: program.clone(), reason: Errno::NOENT.to_string() })
}

fn spawn_error(error: SpawnError, program: &str) -> RubyError {
    match error {
        SpawnError::Program { errno, .. } => {
            RubyError::NoRuby { program: program.to_owned(), reason: errno.to_string() }
        }
        SpawnError::RelativeFolder(_)
        | SpawnError::NulByte(_)
        | SpawnError::Folder { .. }
        | SpawnError::Sandbox(_)
        | SpawnError::System { .. } => RubyError::NotStarted { reason: error.to_string() },
    }
}

fn listen(name: &str) -> std::io::Result<UnixListener> {
    let listener = StdListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Waits until the worker is up. Cancel safe.
async fn meet(meeting: &mut Meeting) -> Result<UnixStream, WorkerLoss> {
    match meeting {
        Meeting::Listener(listener) => accept(listener).await,
        Meeting::Connected(socket) => {
            let open = socket.as_mut().ok_or(WorkerLoss::Disconnected)?;
            match open.read_u8().await {
                Ok(_) => socket.take().ok_or(WorkerLoss::Disconnected),
                Err(_) => Err(WorkerLoss::Disconnected),
            }
        }
    }
}

/// Accepts the worker's connection. Abstract sockets have no permissions, so this rejects connections of other users.
async fn accept(listener: &UnixListener) -> Result<UnixStream, WorkerLoss> {
    let own_uid = rustix::process::geteuid().as_raw();
    loop {
        let accepted = listener.accept().await;
        let (socket, _) =
            accepted.map_err(|error| WorkerLoss::Invalid(format!("it cannot connect: {error}")))?;
        if socket.peer_cred().is_ok_and(|peer| peer.uid() == own_uid) {
            return Ok(socket);
        }
    }
}

/// Sends the worker its pipes. Each is sent with one byte, which the worker reads along with it.
fn send_pipes(socket: &UnixStream, pipes: &[OwnedFd]) -> rustix::io::Result<()> {
    for pipe in pipes {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut attached = SendAncillaryBuffer::new(&mut space);
        let pipe = [pipe.as_fd()];
        attached.push(SendAncillaryMessage::ScmRights(&pipe));
        sendmsg(socket, &[IoSlice::new(&[0])], &mut attached, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

fn random() -> std::io::Result<Secret> {
    let mut bytes = Secret::default();
    // The kernel returns up to 256 bytes at once after boot.
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes)
}
