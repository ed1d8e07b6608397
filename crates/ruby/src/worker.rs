//! One worker: a Ruby process that runs `worker.rb`, with the way to it and what it prints.
//!
//! It is given its pipes over an abstract socket, which has no place in the file system, and to which
//! it connects as its first act. Programs that evaluated code starts inherit none of them but the pipe
//! into which all is printed. Standard input is at its end.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener};
use std::time::Duration;

use parlor_process::{
    DEFAULT_PATH, Process, ProcessNews, ProcessNumber, ProcessReport, SpawnError, find_program, spawn,
};
use parlor_vocab::{ProcessExit, ProcessId, StartProcess, StdioKind};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::capture::Secret;
use crate::channel::{Channel, Lost, Outcome};
use crate::printing::Printing;
use crate::{
    EXIT_WAIT, MAX_BACKTRACE_LINES, MAX_MESSAGE_BYTES, MAX_VALUE_BYTES, PrintedOutput, RubyError,
    RubySettings, RubySource, START_LIMIT,
};

const SCRIPT: &str = include_str!("worker.rb");

/// Ruby 3.1 would put hints and snippets of code into messages. Without a locale it would take all
/// files for ASCII.
const FLAGS: [&str; 3] = ["--disable=did_you_mean", "--disable=error_highlight", "-EUTF-8"];

/// Reports of the process that may wait to be looked at.
const REPORTS: usize = 4;

/// A worker that was started.
pub(crate) struct Worker {
    process: Process,
    reports: mpsc::Receiver<ProcessReport>,
    /// Where it is awaited, and its ends of the pipes, until it is up.
    awaited: Option<(UnixListener, [OwnedFd; 3])>,
    channel: Channel,
    printing: Printing,
    secret: Secret,
    memory_limit: u64,
    /// How it ended, once it has.
    ending: Option<ProcessExit>,
}

/// What is left of a lost worker.
pub(crate) struct DeadWorker {
    /// How it was lost.
    pub(crate) reason: String,
    /// What it said last.
    pub(crate) output: PrintedOutput,
    /// Whether a signal killed it, which was none of ours.
    pub(crate) was_killed: bool,
}

impl Worker {
    /// Starts a worker, and does not wait until it is up.
    pub(crate) fn start(settings: &RubySettings) -> Result<Self, RubyError> {
        let refused = |error: std::io::Error| RubyError::NotStarted { reason: error.to_string() };
        let [secret, name] = [random().map_err(refused)?, random().map_err(refused)?];
        let name = format!("parlor-ruby-{:032x}", u128::from_be_bytes(name));
        let listener = listen(&name).map_err(refused)?;
        let (channel, [requests, replies]) = Channel::new().map_err(refused)?;
        let (printing, printed) = Printing::new(secret).map_err(refused)?;
        let (sender, reports) = mpsc::channel(REPORTS);
        let process = spawn(&program(settings, name)?, ProcessNumber(0), sender)
            .map_err(|error| explain(error, &settings.program))?;
        Ok(Self {
            process,
            reports,
            awaited: Some((listener, [requests, replies, printed])),
            channel,
            printing,
            secret,
            memory_limit: settings.memory_limit,
            ending: None,
        })
    }

    /// Whether it was up once.
    pub(crate) fn is_connected(&self) -> bool {
        self.channel.is_open()
    }

    /// Waits until the worker is up. Cancel safe.
    pub(crate) async fn connect(&mut self) -> Result<(), Lost> {
        let Some((listener, pipes)) = &self.awaited else { return Ok(()) };
        let socket = loop {
            tokio::select! {
                accepted = accept(listener) => break accepted?,
                report = self.reports.recv() => note(report, &mut self.printing, &mut self.ending)?,
            }
        };
        let limits =
            format!("{} {MAX_VALUE_BYTES} {MAX_MESSAGE_BYTES} {MAX_BACKTRACE_LINES}", self.memory_limit);
        send(&socket, pipes).map_err(|_| Lost::HungUp)?;
        // From now on only the worker has these, and its end is theirs.
        self.awaited = None;
        self.channel.open(socket, &self.secret, limits.as_bytes())
    }

    /// Has the worker evaluate something. If this is dropped before its end, the worker must be ended.
    pub(crate) async fn evaluate(&mut self, source: &RubySource) -> Result<(Outcome, PrintedOutput), Lost> {
        let request = self.channel.request(source);
        let mut unwritten = request.as_slice();
        let outcome = loop {
            tokio::select! {
                received = self.channel.exchange(&mut unwritten, source) => {
                    if let Some(outcome) = received? {
                        break outcome;
                    }
                }
                () = self.printing.take_in(), if self.printing.is_open() => {}
                report = self.reports.recv() => {
                    if let Err(lost) = note(report, &mut self.printing, &mut self.ending) {
                        break self.channel.last_words(source).ok_or(lost)?;
                    }
                }
            }
        };
        Ok((outcome, self.printing.give_out()))
    }

    /// Takes what the worker prints while it has nothing to do. Returns when it is lost. Cancel safe.
    pub(crate) async fn idle(&mut self) -> Lost {
        if self.ending.is_some() {
            return Lost::Exited;
        }
        loop {
            tokio::select! {
                () = self.printing.take_in(), if self.printing.is_open() => {}
                report = self.reports.recv() => {
                    if let Err(lost) = note(report, &mut self.printing, &mut self.ending) {
                        return lost;
                    }
                }
            }
        }
    }

    /// Ends the worker with all that it has started. What it said last is given out.
    pub(crate) async fn end(mut self) -> PrintedOutput {
        self.process.terminate(Duration::ZERO);
        self.exited().await;
        self.printing.give_out()
    }

    /// Buries a lost worker.
    pub(crate) async fn bury(mut self, lost: Lost) -> DeadWorker {
        let reason = match lost {
            Lost::Nonsense(what) => what,
            Lost::HungUp | Lost::Exited => {
                self.exited().await;
                self.ending.map_or_else(|| "it hung up".to_owned(), describe)
            }
        };
        let was_killed = matches!(self.ending, Some(ProcessExit::Signal(_)));
        DeadWorker { reason, was_killed, output: self.end().await }
    }

    /// Waits a while until the worker is gone.
    async fn exited(&mut self) {
        if self.ending.is_none() {
            // Beyond that its supervisor goes on to the end all the same, and tells nobody.
            let _ = timeout(EXIT_WAIT, self.idle()).await;
        }
    }
}

/// Waits until a worker is up, as long as it may take.
pub(crate) async fn connect_in_time(worker: &mut Worker) -> Result<(), Lost> {
    match timeout(START_LIMIT, worker.connect()).await {
        Ok(connected) => connected,
        Err(_) => Err(Lost::Nonsense(format!("it was not up after {} s", START_LIMIT.as_secs()))),
    }
}

/// Takes note of what the process did.
fn note(
    report: Option<ProcessReport>,
    printing: &mut Printing,
    ending: &mut Option<ProcessExit>,
) -> Result<(), Lost> {
    match report.map_or(ProcessNews::Exited(ProcessExit::Unknown), |report| report.news) {
        ProcessNews::Output { bytes, .. } => printing.push(&bytes),
        ProcessNews::WriteAccepted(_) | ProcessNews::WriteLost(_) => {}
        ProcessNews::Exited(how) => {
            ending.get_or_insert(how);
            return Err(Lost::Exited);
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

fn program(settings: &RubySettings, socket: String) -> Result<StartProcess, RubyError> {
    let flags = FLAGS.into_iter().chain(["-e", SCRIPT, "--"]).map(str::to_owned);
    Ok(StartProcess {
        process: ProcessId::parse("ruby").expect("a short id"),
        program: found(settings)?,
        args: flags.chain([socket]).collect(),
        arg0: Some(settings.program.clone()),
        folder: settings.folder.clone(),
        env: settings.env.clone(),
        stdio: StdioKind::Pipes,
        retain: 0,
    })
}

/// The path of the Ruby program.
fn found(settings: &RubySettings) -> Result<String, RubyError> {
    let program = &settings.program;
    if program.contains('/') {
        return Ok(program.clone());
    }
    let path = settings.env.iter().find(|(name, _)| name == "PATH").map_or(DEFAULT_PATH, |(_, path)| path);
    let found = find_program(program.as_ref(), path.as_ref())
        .and_then(|path| path.into_os_string().into_string().ok());
    found.ok_or_else(|| RubyError::NoRuby { program: program.clone(), reason: Errno::NOENT.to_string() })
}

fn explain(error: SpawnError, program: &str) -> RubyError {
    match error {
        SpawnError::Program { errno, .. } => {
            RubyError::NoRuby { program: program.to_owned(), reason: errno.to_string() }
        }
        SpawnError::RelativeFolder(_)
        | SpawnError::NulByte(_)
        | SpawnError::Folder { .. }
        | SpawnError::System { .. } => RubyError::NotStarted { reason: error.to_string() },
    }
}

fn listen(name: &str) -> std::io::Result<UnixListener> {
    let listener = StdListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// The worker's connection. Abstract sockets have no permissions, so others are turned away here.
async fn accept(listener: &UnixListener) -> Result<UnixStream, Lost> {
    let us = rustix::process::geteuid().as_raw();
    loop {
        let accepted = listener.accept().await;
        let (socket, _) = accepted.map_err(|error| Lost::Nonsense(format!("it cannot connect: {error}")))?;
        if socket.peer_cred().is_ok_and(|peer| peer.uid() == us) {
            return Ok(socket);
        }
    }
}

/// Gives the worker its pipes. Each travels with a byte of its own, which is read along with it.
fn send(socket: &UnixStream, pipes: &[OwnedFd]) -> rustix::io::Result<()> {
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
    // Up to 256 bytes come whole, once the machine is up.
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes)
}
