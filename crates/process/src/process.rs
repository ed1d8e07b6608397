//! Starts processes; the handle of a started process.

use std::borrow::Cow;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use parlor_vocab::{OutputStream, StartProcess, StdioKind};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use rustix::pty::ptsname;
use tokio::io::Interest;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::async_fd::{RegisteredFd, register};
use crate::confine::{Confinement, limits};
use crate::launch::{Child, LaunchError, Step, Streams, launch};
use crate::output_reader::OutputReader;
use crate::program::Program;
use crate::sandbox::{DiskWatch, Disks, Guard, NamespaceHolder, Plan, ProxyTask, Sandbox};
use crate::stdin::{Queue, WriteError, WriteId, WriteStatus};
use crate::supervise::{ExitReport, Supervisor, is_alive};
use crate::tail::{RetainedOutput, Tail};
use crate::terminal::{self, TerminalDimensions};
use crate::{MAX_RETAINED_BYTES, ProcessNumber, ProcessReport, STDIN_BACKLOG_BYTES, SpawnError};

/// The handle of a started process. Dropping it does not affect the process, nor the reports on it.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    shared: Arc<Shared>,
    pidfd: RegisteredFd,
    terminal: Option<RegisteredFd>,
    tail: Arc<Mutex<Tail>>,
    task: JoinHandle<()>,
}

/// Starts a process, and a task that sends reports on it, under `number`, to `reports`.
///
/// Call it within a tokio runtime, on a thread that lives as long as the server: when that thread ends, the child gets
/// SIGTERM.
///
/// The child and its descendants cannot gain privileges (`NO_NEW_PRIVS`), have the limits of
/// [`ChildLimits`](crate::ChildLimits), and are the first that the kernel kills when memory is short.
pub fn spawn(
    start: &StartProcess,
    number: ProcessNumber,
    reports: mpsc::Sender<ProcessReport>,
) -> Result<Process, SpawnError> {
    spawn_in(None, start, number, reports)
}

/// Like [`spawn`], in a sandbox. Where the kernel cannot enforce it, nothing is started.
pub fn spawn_in(
    sandbox: Option<&Sandbox>,
    start: &StartProcess,
    number: ProcessNumber,
    reports: mpsc::Sender<ProcessReport>,
) -> Result<Process, SpawnError> {
    spawn_with(start, number, reports, Confinement::of(sandbox), ExitReport::AfterOutput, None)
}

/// Like [`spawn`], but the exit is reported twice: [`ChildEvent::LeaderExited`](crate::ChildEvent::LeaderExited) when the child
/// exits, and `Exited` when all its output has ended, however long other processes hold it open.
pub fn spawn_sequenced(
    start: &StartProcess,
    number: ProcessNumber,
    reports: mpsc::Sender<ProcessReport>,
) -> Result<Process, SpawnError> {
    spawn_sequenced_in(None, start, number, reports)
}

/// Like [`spawn_sequenced`], in a sandbox. Where the kernel cannot enforce it, nothing is started.
pub fn spawn_sequenced_in(
    sandbox: Option<&Sandbox>,
    start: &StartProcess,
    number: ProcessNumber,
    reports: mpsc::Sender<ProcessReport>,
) -> Result<Process, SpawnError> {
    spawn_with(start, number, reports, Confinement::of(sandbox), ExitReport::AtOnce, None)
}

/// Like [`spawn`], but without limits, for a program that the user goes on to use, such as a browser. Browsers in a snap,
/// and some with a sandbox, have to gain privileges to start.
pub fn spawn_unconfined(
    start: &StartProcess,
    number: ProcessNumber,
    reports: mpsc::Sender<ProcessReport>,
) -> Result<Process, SpawnError> {
    spawn_with(start, number, reports, Confinement::None, ExitReport::AfterOutput, None)
}

/// Like [`spawn_in`], with a connected socket as the standard input: a sandboxed program cannot open one.
///
/// The child must not get a socket of whose other end anybody else makes use.
pub fn spawn_with_socket(
    sandbox: Option<&Sandbox>,
    start: &StartProcess,
    number: ProcessNumber,
    reports: mpsc::Sender<ProcessReport>,
    socket: OwnedFd,
) -> Result<Process, SpawnError> {
    let confinement = Confinement::of(sandbox);
    spawn_with(start, number, reports, confinement, ExitReport::AfterOutput, Some(socket))
}

fn spawn_with(
    start: &StartProcess,
    number: ProcessNumber,
    reports: mpsc::Sender<ProcessReport>,
    confinement: Confinement<'_>,
    exit_report: ExitReport,
    socket: Option<OwnedFd>,
) -> Result<Process, SpawnError> {
    let tail = Tail::new(start.retain_bytes.min(MAX_RETAINED_BYTES));
    let (child, terminal, input, outputs) = match start.stdio {
        StdioKind::Terminal => {
            let (our_side, child_side) = terminal::open(TerminalDimensions::default())?;
            let streams = Streams {
                stdin: child_side.as_fd(),
                stdout: child_side.as_fd(),
                stderr: child_side.as_fd(),
                terminal: true,
            };
            let our_side = register(our_side, Interest::READABLE | Interest::WRITABLE)?;
            let name =
                ptsname(our_side.get_ref(), Vec::new()).map_err(SpawnError::system("open a terminal"))?;
            let child = start_child(start, &streams, confinement, Some(&name))?;
            let outputs = vec![(Arc::clone(&our_side), OutputStream::Terminal)];
            let input = Some(Arc::clone(&our_side));
            (child, Some((our_side, child_side)), input, outputs)
        }
        StdioKind::Pipes | StdioKind::PipesWithInput => {
            let (stdout, child_stdout) = output_pipe()?;
            let (stderr, child_stderr) = output_pipe()?;
            let (child_stdin, input) = match (start.stdio, socket) {
                (_, Some(socket)) => (socket, None),
                (StdioKind::PipesWithInput, None) => input_pipe().map(|(child, ours)| (child, Some(ours)))?,
                (StdioKind::Pipes | StdioKind::Terminal, None) => (null_input()?, None),
            };
            let streams = Streams {
                stdin: child_stdin.as_fd(),
                stdout: child_stdout.as_fd(),
                stderr: child_stderr.as_fd(),
                terminal: false,
            };
            let (stdout, stderr) =
                (register(stdout, Interest::READABLE)?, register(stderr, Interest::READABLE)?);
            let input = input.map(|ours| register(ours, Interest::WRITABLE)).transpose()?;
            let child = start_child(start, &streams, confinement, None)?;
            (child, None, input, vec![(stdout, OutputStream::Stdout), (stderr, OutputStream::Stderr)])
        }
    };
    let streams = OpenStreams { terminal, input, outputs };
    Ok(supervise(child, streams, tail, number, reports, exit_report))
}

/// Our sides of the streams of a child.
struct OpenStreams {
    /// Both sides of a terminal.
    terminal: Option<(RegisteredFd, OwnedFd)>,
    /// The terminal, or a pipe.
    input: Option<RegisteredFd>,
    outputs: Vec<(RegisteredFd, OutputStream)>,
}

fn supervise(
    child: StartedChild,
    streams: OpenStreams,
    tail: Tail,
    number: ProcessNumber,
    reports: mpsc::Sender<ProcessReport>,
    exit_report: ExitReport,
) -> Process {
    let StartedChild { pid, pidfd, sandbox } = child;
    let OpenStreams { terminal, input, outputs } = streams;
    let (terminal, child_side) = terminal.unzip();
    let queue = if input.is_some() { Input::Open(Queue::default()) } else { Input::None };
    let shared = Arc::new(Shared {
        state: Mutex::new(State { input: queue, kill_at: None, has_ended: false }),
        wake: Notify::new(),
    });
    let tail = Arc::new(Mutex::new(tail));
    let mut readers =
        outputs.into_iter().map(|(fd, stream)| OutputReader::new(fd, stream, Arc::clone(&tail)));
    let supervisor = Supervisor {
        number,
        pid,
        pidfd: Arc::clone(&pidfd),
        terminal: terminal.clone(),
        input,
        child_side,
        exit_report,
        sandbox,
        first: readers.next(),
        second: readers.next(),
        shared: Arc::clone(&shared),
        reports,
    };
    let task = tokio::spawn(supervisor.run());
    Process { pid, shared, pidfd, terminal, tail, task }
}

impl Process {
    /// The pid, for display. After the exit, the kernel may give it to another process.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Queues `bytes` for the standard input of the process, up to [`STDIN_BACKLOG_BYTES`].
    pub fn write(&self, id: WriteId, bytes: Vec<u8>) -> Result<WriteStatus, WriteError> {
        self.write_within(id, bytes, STDIN_BACKLOG_BYTES)
    }

    /// Queues `bytes` for the standard input of the process, up to `backlog_bytes`.
    pub(crate) fn write_within(
        &self,
        id: WriteId,
        bytes: Vec<u8>,
        backlog_bytes: usize,
    ) -> Result<WriteStatus, WriteError> {
        let written = match &mut self.shared.lock().input {
            Input::None => return Err(WriteError::Closed),
            Input::Ended => return Err(WriteError::Gone),
            Input::Open(queue) => queue.push(id, bytes, backlog_bytes)?,
        };
        self.shared.wake.notify_one();
        Ok(written)
    }

    /// Asks the process group to end, and kills it after `grace`. Returns whether the process was alive. A second call can
    /// shorten the grace of the first, but not extend it.
    pub fn terminate(&self, grace: Duration) -> bool {
        let mut state = self.shared.lock();
        if state.has_ended {
            return false;
        }
        // Also after the exit of the process: others in its group may still have its output open.
        let kill_at = Instant::now() + grace;
        state.kill_at = Some(state.kill_at.map_or(kill_at, |before| before.min(kill_at)));
        drop(state);
        self.shared.wake.notify_one();
        is_alive(self.pidfd.get_ref())
    }

    /// Sends SIGINT to the process group. Does nothing after the end of the process.
    pub fn interrupt(&self) {
        // Locked, so that the child is not reaped meanwhile: then the kernel could give its pid to another group.
        let state = self.shared.lock();
        if !state.has_ended {
            // An error means that the group is empty.
            let _ = kill_process_group(self.pid, Signal::INT);
        }
    }

    /// Resizes the terminal of the process. Does nothing if it has none.
    pub fn resize(&self, size: TerminalDimensions) -> std::io::Result<()> {
        match &self.terminal {
            Some(terminal) => Ok(terminal::resize(terminal.get_ref(), size)?),
            None => Ok(()),
        }
    }

    /// The last bytes that the process wrote to `stream`: at most `retain_bytes` of its `StartProcess`.
    pub fn retained(&self, stream: OutputStream) -> Vec<u8> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).stream_bytes(stream)
    }

    /// The retained output of all streams, for readers that poll it; usable after the exit too.
    pub fn retained_output(&self) -> RetainedOutput {
        RetainedOutput::new(Arc::clone(&self.tail))
    }

    /// Waits until the process and its supervisor task have ended.
    pub async fn gone(self) {
        // An error means that the runtime is shutting down.
        let _ = self.task.await;
    }
}

/// The data that the handle and the supervisor share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// A plain mutex, because nobody holds it across an await.
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug)]
struct State {
    input: Input,
    kill_at: Option<Instant>,
    has_ended: bool,
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

    /// Waits until the handle has changed something.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// When to kill the process, if it was told to end.
    pub(crate) fn kill_deadline(&self) -> Option<Instant> {
        self.lock().kill_at
    }

    pub(crate) fn mark_ended(&self) {
        self.lock().has_ended = true;
    }

    /// Whether bytes wait to be written.
    pub(crate) fn has_input(&self) -> bool {
        matches!(&self.lock().input, Input::Open(queue) if queue.front().is_some())
    }

    /// Writes as much to `fd` as it takes without blocking. Returns the waiting writes that are accepted now.
    pub(crate) fn write_input(&self, fd: &OwnedFd) -> Result<Vec<WriteId>, Errno> {
        let mut state = self.lock();
        let Input::Open(queue) = &mut state.input else { return Ok(Vec::new()) };
        let Some(front) = queue.front() else { return Ok(Vec::new()) };
        let count = rustix::io::write(fd, front)?;
        Ok(queue.advance(count))
    }

    /// Closes the input. Returns the writes that were never accepted.
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

/// An empty standard input.
fn null_input() -> Result<OwnedFd, SpawnError> {
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(SpawnError::system("open /dev/null"))
}

/// A pipe to write to: the child's side and ours.
fn input_pipe() -> Result<(OwnedFd, OwnedFd), SpawnError> {
    let attempt = "open a pipe";
    let (child_side, our_side) = pipe_with(PipeFlags::CLOEXEC).map_err(SpawnError::system(attempt))?;
    rustix::io::ioctl_fionbio(&our_side, true).map_err(SpawnError::system(attempt))?;
    Ok((child_side, our_side))
}

fn output_pipe() -> Result<(OwnedFd, OwnedFd), SpawnError> {
    let attempt = "open a pipe";
    let (our_side, child_side) = pipe_with(PipeFlags::CLOEXEC).map_err(SpawnError::system(attempt))?;
    rustix::io::ioctl_fionbio(&our_side, true).map_err(SpawnError::system(attempt))?;
    Ok((our_side, child_side))
}

/// A child whose exit the runtime will notice.
struct StartedChild {
    pid: Pid,
    pidfd: RegisteredFd,
    sandbox: Option<RunningSandbox>,
}

/// What is left to do when a sandboxed child has ended.
#[derive(Debug)]
pub(crate) struct RunningSandbox {
    pub(crate) holder: NamespaceHolder,
    pub(crate) guard: Guard,
    /// The disks that nobody watches yet.
    disks: Option<Disks>,
    pub(crate) disk_watch: Option<DiskWatch>,
    /// Ends the proxy when dropped.
    _proxy: Option<ProxyTask>,
}

impl RunningSandbox {
    /// Ends the sandbox when a disk that it writes gets too full. Call it within a tokio runtime.
    pub(crate) fn watch_disks(&mut self) {
        // Without the descriptor the command runs on: it is the last that the process can open, and the other limits hold.
        if let (Some(disks), Ok(holder)) = (self.disks.take(), self.holder.pidfd().try_clone()) {
            self.disk_watch = Some(DiskWatch::start(disks, holder));
        }
    }
}

impl From<Plan> for RunningSandbox {
    fn from(plan: Plan) -> Self {
        let Plan { holder, guard, disks, proxy, .. } = plan;
        Self { holder, guard, disks, disk_watch: None, _proxy: proxy }
    }
}

/// Starts the child and registers its pidfd with the runtime. `terminal` is the path of the terminal in `streams`.
fn start_child(
    start: &StartProcess,
    streams: &Streams<'_>,
    confinement: Confinement<'_>,
    terminal: Option<&CStr>,
) -> Result<StartedChild, SpawnError> {
    let (Child { pid, pidfd }, mut sandbox) = launch_confined(start, streams, confinement, terminal)?;
    if let Some(sandbox) = &mut sandbox {
        sandbox.watch_disks();
    }
    match register(pidfd, Interest::READABLE) {
        Ok(pidfd) => Ok(StartedChild { pid, pidfd, sandbox }),
        Err(error) => {
            // Without the pidfd nobody would notice its exit, so kill it.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
            Err(error)
        }
    }
}

/// Starts the child. Dropping the second value kills it, if it is sandboxed.
pub(crate) fn launch_confined(
    start: &StartProcess,
    streams: &Streams<'_>,
    confinement: Confinement<'_>,
    terminal: Option<&CStr>,
) -> Result<(Child, Option<RunningSandbox>), SpawnError> {
    let (mut start, mut plan) = (Cow::Borrowed(start), None);
    if let Confinement::Sandbox(sandbox) = confinement {
        plan = Some(Plan::new(sandbox, start.to_mut(), terminal)?);
    }
    let mut program = Program::new(&start)?;
    let limits = (!matches!(confinement, Confinement::None)).then(limits);
    match launch(&mut program, streams, limits, plan.as_mut()) {
        Ok(child) => Ok((child, plan.map(RunningSandbox::from))),
        Err(error) => {
            if let Some(plan) = plan {
                plan.holder.end();
            }
            Err(spawn_error(error, &start))
        }
    }
}

fn spawn_error(error: LaunchError, start: &StartProcess) -> SpawnError {
    let LaunchError { step, errno } = error;
    match step {
        Step::Create => SpawnError::System { attempt: "create a process", errno },
        Step::Prepare => SpawnError::System { attempt: "prepare the process", errno },
        Step::Sandbox(action) => SpawnError::Sandbox(format!("cannot {action}: {errno}")),
        Step::EnterFolder => SpawnError::Folder { folder: start.folder.clone(), errno },
        Step::Execute => SpawnError::Program { program: start.program.clone(), errno },
    }
}

#[cfg(test)]
mod tests {
    use parlor_vocab::ProcessId;

    use super::*;
    use crate::{ChildEvent, DRAIN_SILENCE, DRAIN_WAIT};

    /// The other ends of the output pipes of a child. While they are open, the child's output has no end.
    struct OpenOutput {
        stdout: OwnedFd,
        stderr: OwnedFd,
    }

    /// Starts a shell on pipes whose other ends the test holds open, as a background process of the shell would.
    fn start_with_open_output(
        text: &str,
        queue: usize,
    ) -> (Process, OpenOutput, mpsc::Receiver<ProcessReport>) {
        let start = StartProcess {
            process: ProcessId::parse("test").unwrap(),
            program: "/bin/sh".to_owned(),
            args: vec!["-c".to_owned(), text.to_owned()],
            arg0: None,
            folder: "/".into(),
            env: Vec::new(),
            stdio: StdioKind::Pipes,
            retain_bytes: 0,
        };
        let ((stdout, child_stdout), (stderr, child_stderr)) =
            (output_pipe().unwrap(), output_pipe().unwrap());
        let streams = Streams {
            stdin: child_stdout.as_fd(),
            stdout: child_stdout.as_fd(),
            stderr: child_stderr.as_fd(),
            terminal: false,
        };
        let child = start_child(&start, &streams, Confinement::None, None).unwrap();
        let output = |fd, stream| (register(fd, Interest::READABLE).unwrap(), stream);
        let outputs = vec![output(stdout, OutputStream::Stdout), output(stderr, OutputStream::Stderr)];
        let (sender, reports) = mpsc::channel(queue);
        let streams = OpenStreams { terminal: None, input: None, outputs };
        let process =
            supervise(child, streams, Tail::new(0), ProcessNumber(1), sender, ExitReport::AfterOutput);
        (process, OpenOutput { stdout: child_stdout, stderr: child_stderr }, reports)
    }

    /// Reads all reports. Returns how many bytes of output there were before the exit.
    async fn bytes_until_exit(reports: &mut mpsc::Receiver<ProcessReport>) -> usize {
        let mut count = 0;
        loop {
            match reports.recv().await.expect("an exit before the end of reports").event {
                ChildEvent::Output { bytes, .. } => count += bytes.len(),
                ChildEvent::Exited(_) => return count,
                ChildEvent::WriteAccepted(_) | ChildEvent::WriteLost(_) | ChildEvent::LeaderExited(_) => {}
            }
        }
    }

    // The clock of these tests stands still while processes run, and moves only when everything waits for a timer. So
    // the measured times are those of the timers, however slow the machine is.

    #[tokio::test(start_paused = true)]
    async fn two_streams_that_are_held_open_are_waited_for_at_the_same_time() {
        let (_process, _open, mut reports) = start_with_open_output("echo out; echo err >&2", 4);
        let begun = Instant::now();
        assert_eq!(bytes_until_exit(&mut reports).await, 8);
        let waited = begun.elapsed();
        assert!(waited >= DRAIN_SILENCE && waited < 2 * DRAIN_SILENCE, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn two_streams_that_are_written_on_have_one_deadline() {
        let (process, open, mut reports) = start_with_open_output("exit 0", 4);
        // No timer may run before the exit: it would move the clock while the shell still starts.
        process.pidfd.readable().await.unwrap().retain_ready();
        let begun = Instant::now();
        let write_forever = async {
            let mut pause = tokio::time::interval(DRAIN_SILENCE * 3 / 4);
            loop {
                for fd in [&open.stdout, &open.stderr] {
                    pause.tick().await;
                    rustix::io::write(fd, b"x").unwrap();
                }
            }
        };
        tokio::select! {
            count = bytes_until_exit(&mut reports) => assert!(count > 0),
            () = write_forever => {}
        }
        let waited = begun.elapsed();
        assert!(waited >= DRAIN_WAIT && waited < DRAIN_WAIT + DRAIN_SILENCE, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn output_of_the_process_is_delivered_to_a_consumer_that_is_slower_than_the_deadline() {
        const SIZE: usize = 60_000;
        let text = format!("head -c {SIZE} /dev/zero; head -c {SIZE} /dev/zero >&2");
        let (_process, _open, mut reports) = start_with_open_output(&text, 1);
        let mut count = 0;
        loop {
            tokio::time::sleep(2 * DRAIN_WAIT).await;
            match reports.recv().await.expect("an exit before the end of reports").event {
                ChildEvent::Output { bytes, .. } => count += bytes.len(),
                ChildEvent::Exited(_) => break,
                ChildEvent::WriteAccepted(_) | ChildEvent::WriteLost(_) | ChildEvent::LeaderExited(_) => {}
            }
        }
        assert_eq!(count, 2 * SIZE);
    }
}
