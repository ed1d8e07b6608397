//! The supervisor task of one process: it forwards output, writes standard input, ends the process group on request, and
//! reports the exit after everything else.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use parlor_vocab::{OutputStream, ProcessExit};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::async_fd::{RegisteredFd, register};
use crate::drain::Drain;
use crate::output_reader::{Flow, OutputReader, ReadMode};
use crate::process::{RunningSandbox, Shared};
use crate::sandbox::DiskWatch;
use crate::session_groups::{has_living_member, living_groups};
use crate::stdin::WriteId;
use crate::{ChildEvent, GROUP_END_WAIT, ProcessNumber, ProcessReport, SANDBOX_END_WAIT};

/// The first pause between two checks whether a killed group is gone.
const GROUP_END_POLL: Duration = Duration::from_millis(1);

/// How many pieces of output may delay the report of an exit that is reported at once: what the child wrote before its exit
/// should be reported before it, and a background process may write forever.
const PIECES_BEFORE_EXIT: usize = 64;

/// When the exit of the child is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitReport {
    /// Once, after its output, which others may hold open for a limited time.
    AfterOutput,
    /// When it exits, and again after its output, which others may hold open for any time.
    AtOnce,
}

/// The state of the task.
pub(crate) struct Supervisor {
    pub(crate) number: ProcessNumber,
    pub(crate) pid: Pid,
    pub(crate) pidfd: RegisteredFd,
    pub(crate) terminal: Option<RegisteredFd>,
    /// Where input is written: the terminal, or a pipe.
    pub(crate) input: Option<RegisteredFd>,
    /// The child's side of the terminal, kept open until the child exits. Otherwise, a child that closes the terminal and
    /// opens it again would find it dead.
    pub(crate) child_side: Option<OwnedFd>,
    pub(crate) exit_report: ExitReport,
    pub(crate) sandbox: Option<RunningSandbox>,
    pub(crate) first: Option<OutputReader>,
    pub(crate) second: Option<OutputReader>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) reports: mpsc::Sender<ProcessReport>,
}

/// What is known of the child while its output is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The child is alive.
    Live,
    /// The child was told to end and has exited; others in its group have time until the deadline.
    Ending,
    /// The child has exited by itself. Others may keep its output open forever, and nobody waits for its end.
    Following,
    /// The child has exited by itself. Others may keep its output open forever.
    Draining,
    /// The child has exited and its group was killed.
    Killed,
}

impl Phase {
    /// The time limits of output; `None` without limits.
    fn drain(self) -> Option<Drain> {
        match self {
            Self::Live | Self::Ending | Self::Following => None,
            Self::Draining => Some(Drain::after_exit()),
            Self::Killed => Some(Drain::after_kill()),
        }
    }
}

impl Supervisor {
    pub(crate) async fn run(mut self) {
        let mut ending = None;
        let mut kill_at: Option<Instant> = None;
        let mut is_killed = false;
        let mut phase = Phase::Live;
        let mut drain: Option<Drain> = None;
        let mut write_results: Vec<ChildEvent> = Vec::new();
        // The exit that is to be reported at once, and how many pieces of output may still come before it.
        let mut early_exit: Option<(ProcessExit, usize)> = None;

        while ending.is_none() || self.first.is_some() || self.second.is_some() || !write_results.is_empty() {
            if let Some((exit, pieces)) = early_exit
                && (pieces == 0 || !self.has_output())
            {
                early_exit = None;
                write_results.push(ChildEvent::LeaderExited(exit));
            }
            let before = phase;
            phase = match (ending, kill_at) {
                (None, _) => Phase::Live,
                (Some(_), None) if self.exit_report == ExitReport::AtOnce => Phase::Following,
                (Some(_), None) => Phase::Draining,
                (Some(_), Some(_)) if is_killed => Phase::Killed,
                (Some(_), Some(_)) => Phase::Ending,
            };
            if phase != before {
                drain = phase.drain();
            }
            let mode = drain.as_ref().map_or(ReadMode::Everything, Drain::mode);
            let drain_timer = drain.as_ref().and_then(Drain::timer);
            let input = self.input.as_deref().filter(|_| self.shared.has_input());
            tokio::select! {
                flow = forward(&mut self.first, mode, self.number, &self.reports), if self.first.is_some() => {
                    on_flow(flow, &mut self.first, &mut drain);
                    early_exit = early_exit.map(|(exit, pieces)| (exit, pieces.saturating_sub(1)));
                }
                flow = forward(&mut self.second, mode, self.number, &self.reports), if self.second.is_some() => {
                    on_flow(flow, &mut self.second, &mut drain);
                    early_exit = early_exit.map(|(exit, pieces)| (exit, pieces.saturating_sub(1)));
                }
                () = sleep_until(drain_timer.unwrap_or_else(Instant::now)), if drain_timer.is_some() => {
                    let has_output = self.has_output();
                    if drain.as_mut().is_some_and(|drain| drain.on_timer(has_output)) {
                        (self.first, self.second) = (None, None);
                    }
                }
                () = exited(&self.pidfd), if ending.is_none() => {
                    let exit = exit_of(&self.pidfd, kill_at.is_some());
                    ending = Some(exit);
                    if self.exit_report == ExitReport::AtOnce {
                        early_exit = Some((exit, PIECES_BEFORE_EXIT));
                    }
                    self.child_side = None;
                    write_results.extend(self.shared.close_input().into_iter().map(ChildEvent::WriteLost));
                    // Told to end, and nobody is left in the session: no need to wait for the deadline.
                    is_killed |= kill_at.is_some() && self.session_is_empty();
                }
                accepted = write_input(input, &self.shared), if input.is_some() => {
                    write_results.extend(accepted.into_iter().map(ChildEvent::WriteAccepted));
                }
                permit = self.reports.reserve(), if !write_results.is_empty() => {
                    let event = write_results.remove(0);
                    match permit {
                        Ok(permit) => permit.send(ProcessReport { process: self.number, event }),
                        Err(_) => write_results.clear(),
                    }
                }
                () = self.shared.woken() => {
                    // A second call of `terminate` can bring the deadline forward, as a shutdown does.
                    if let Some(deadline) = self.shared.kill_deadline() {
                        if kill_at.is_none() {
                            self.ask_to_end();
                        }
                        kill_at = Some(kill_at.map_or(deadline, |before| before.min(deadline)));
                        is_killed |= ending.is_some() && self.session_is_empty();
                    }
                }
                () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() && !is_killed => {
                    self.signal(&[Signal::KILL]);
                    is_killed = true;
                }
            }
        }
        if let Some((exit, _)) = early_exit {
            let event = ChildEvent::LeaderExited(exit);
            // Fails if the consumer is gone, which does not matter here.
            let _ = self.reports.send(ProcessReport { process: self.number, event }).await;
        }
        self.finish(ending.unwrap_or(ProcessExit::Unknown), kill_at.is_some()).await;
    }

    /// Whether a stream has output that was not read yet.
    fn has_output(&self) -> bool {
        [&self.first, &self.second].into_iter().flatten().any(OutputReader::has_output)
    }

    /// Called after the child has exited and all output was read: kills the rest of its group, reaps the child and reports
    /// the exit. Until the child is reaped, the kernel cannot give its pid to another group or session.
    async fn finish(self, ending: ProcessExit, was_terminated: bool) {
        if was_terminated {
            self.signal(&[Signal::KILL]);
            let deadline = Instant::now() + GROUP_END_WAIT;
            while self.terminal.is_some() && !self.session_is_empty() && Instant::now() < deadline {
                sleep(GROUP_END_POLL).await;
            }
        } else {
            // An error means that the group is empty.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        // Marked first: whoever signals the group checks the mark under the same lock, and the kernel may reuse the pid
        // after it was reaped.
        self.shared.mark_ended();
        reap(&self.pidfd);
        wait_until_gone(self.pid).await;
        let mut ending = ending;
        if let Some(sandbox) = self.sandbox
            && let Err(left) = sandbox.end().await
        {
            // Whatever its status is: the caller must not take this for a success.
            if ending == ProcessExit::Code(0) {
                ending = ProcessExit::Code(1);
            }
            let stream = if self.terminal.is_some() { OutputStream::Terminal } else { OutputStream::Stderr };
            let text = format!("\nparlor: {left}\n");
            let event = ChildEvent::Output { stream, bytes: text.into_bytes() };
            let _ = self.reports.send(ProcessReport { process: self.number, event }).await;
        }
        let report = ProcessReport { process: self.number, event: ChildEvent::Exited(ending) };
        // Fails if the consumer is gone, which does not matter here.
        let _ = self.reports.send(report).await;
    }

    /// Asks the process to end. On a terminal also with SIGHUP, because interactive shells ignore SIGTERM; and with SIGCONT,
    /// because a stopped process handles no signal.
    fn ask_to_end(&self) {
        if self.terminal.is_some() {
            self.signal(&[Signal::HUP, Signal::TERM, Signal::CONT]);
        } else {
            self.signal(&[Signal::TERM, Signal::CONT]);
        }
    }

    /// Signals the child's group; on a terminal, all groups of its session, because shells give each job a group of its
    /// own.
    fn signal(&self, signals: &[Signal]) {
        let groups = if self.terminal.is_some() { living_groups(self.pid) } else { HashSet::new() };
        for signal in signals {
            // An error means that the group is empty.
            let _ = kill_process_group(self.pid, *signal);
            for group in groups.iter().filter(|group| **group != self.pid) {
                let _ = kill_process_group(*group, *signal);
            }
        }
    }

    /// Whether no living process is left in the session. Always false without a terminal.
    fn session_is_empty(&self) -> bool {
        self.terminal.is_some() && living_groups(self.pid).is_empty()
    }
}

/// Waits until no member of a killed group is alive, at most for [`GROUP_END_WAIT`]: grandchildren cannot be waited for.
/// Mostly the group is empty at the first check.
async fn wait_until_gone(group: Pid) {
    let deadline = Instant::now() + GROUP_END_WAIT;
    let mut pause = GROUP_END_POLL;
    while has_living_member(group) && Instant::now() < deadline {
        sleep_until(deadline.min(Instant::now() + pause)).await;
        // A check reads all of `/proc`, so a group that is slow to end is checked less and less often.
        pause *= 2;
    }
}

impl RunningSandbox {
    /// Ends what is left in the sandbox, and undoes what the command must not leave behind. The child was reaped. The error
    /// names what is left, and why parlor has ended the command.
    pub(crate) async fn end(mut self) -> Result<(), String> {
        let mounts = self.holder.take_mounts();
        self.holder.kill();
        // A process that the kernel cannot end now, such as one that waits for a broken disk, must not delay the report
        // forever. What it holds is cleaned up when it ends.
        let pidfd =
            self.holder.pidfd().try_clone().ok().and_then(|pidfd| register(pidfd, Interest::READABLE).ok());
        if let Some(pidfd) = pidfd {
            let _ = timeout(SANDBOX_END_WAIT, exited(&pidfd)).await;
        }
        tokio::task::spawn_blocking(move || drop(mounts));
        let left = self.guard.check();
        match (self.disk_watch.as_ref().and_then(DiskWatch::reason), left) {
            (None, left) => left,
            (Some(reason), Ok(())) => Err(reason),
            (Some(reason), Err(left)) => Err(format!("{reason}; {left}")),
        }
    }
}

async fn forward(
    reader: &mut Option<OutputReader>,
    mode: ReadMode,
    number: ProcessNumber,
    to: &mpsc::Sender<ProcessReport>,
) -> Flow {
    match reader {
        Some(reader) => reader.forward(mode, number, to).await,
        None => Flow::Ended,
    }
}

fn on_flow(flow: Flow, reader: &mut Option<OutputReader>, drain: &mut Option<Drain>) {
    match flow {
        Flow::Ended => *reader = None,
        Flow::Open => drain.iter_mut().for_each(Drain::on_output),
    }
}

/// Waits until the child has exited. Does not reap it.
pub(crate) async fn exited(pidfd: &AsyncFd<OwnedFd>) {
    // A pidfd stays readable after the exit, so its readiness is never cleared. An error means that the runtime is
    // shutting down.
    if pidfd.readable().await.is_err() {
        std::future::pending::<()>().await;
    }
}

pub(crate) fn exit_of(pidfd: &AsyncFd<OwnedFd>, was_terminated: bool) -> ProcessExit {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    match wait(pidfd.get_ref(), options) {
        Some(status) => match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => ProcessExit::Code((code & 0xff) as u8),
            (None, Some(_)) if was_terminated => ProcessExit::Terminated,
            (None, Some(signal)) => ProcessExit::Signal(signal),
            (None, None) => ProcessExit::Unknown,
        },
        None => ProcessExit::Unknown,
    }
}

pub(crate) fn reap(pidfd: &AsyncFd<OwnedFd>) {
    wait(pidfd.get_ref(), WaitIdOptions::EXITED);
}

/// Calls `waitid`, and repeats it after an interruption by a signal.
pub(crate) fn wait(pidfd: &OwnedFd, options: WaitIdOptions) -> Option<WaitIdStatus> {
    loop {
        match waitid(WaitId::PidFd(pidfd.as_fd()), options) {
            Err(Errno::INTR) => {}
            outcome => return outcome.ok().flatten(),
        }
    }
}

/// Whether the child has not exited yet.
pub(crate) fn is_alive(pidfd: &OwnedFd) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    matches!(waitid(WaitId::PidFd(pidfd.as_fd()), options), Ok(None))
}

/// Waits until the terminal or the pipe accepts input and writes to it once. Returns the waiting writes that are accepted now. Cancel
/// safe.
async fn write_input(input: Option<&AsyncFd<OwnedFd>>, shared: &Shared) -> Vec<WriteId> {
    let Some(input) = input else { return std::future::pending().await };
    loop {
        let Ok(mut ready) = input.writable().await else { return std::future::pending().await };
        match shared.write_input(input.get_ref()) {
            Ok(accepted) => return accepted,
            Err(Errno::AGAIN) => ready.clear_ready(),
            Err(Errno::INTR) => {}
            // The child has closed the terminal or the pipe. Its exit will report the lost writes.
            Err(_) => return std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::session_groups::tests::Grouped;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_group_of_zombies_is_not_waited_for() {
        let (_child, group) = Grouped::start_zombie();
        let begun = Instant::now();
        wait_until_gone(group).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
