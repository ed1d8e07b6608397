//! The life of one process, as one task: it passes output on, feeds standard input, ends the
//! group when asked, and reports the end after everything else.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use parlor_vocab::ProcessExit;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, test_kill_process_group, waitid,
};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use crate::process::Shared;
use crate::relatives::living_groups;
use crate::source::{Flow, Phase, Source};
use crate::stdin::WriteId;
use crate::watched::Watched;
use crate::{GROUP_END_WAIT, ProcessNews, ProcessNumber, ProcessReport};

/// How often a killed group is looked at.
const GROUP_END_LOOK: Duration = Duration::from_millis(1);

/// Everything the task owns.
pub(crate) struct Supervisor {
    pub(crate) instance: ProcessNumber,
    pub(crate) pid: Pid,
    pub(crate) pidfd: Watched,
    pub(crate) terminal: Option<Watched>,
    /// The child's side of the terminal, held open until the child is gone: a terminal that nobody
    /// has open is at its end for good, yet the child may close it and open it again.
    pub(crate) theirs: Option<OwnedFd>,
    pub(crate) first: Option<Source>,
    pub(crate) second: Option<Source>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) reports: mpsc::Sender<ProcessReport>,
}

impl Supervisor {
    pub(crate) async fn run(mut self) {
        let mut ending = None;
        let mut kill_at: Option<Instant> = None;
        let mut killed = false;
        let mut answers: Vec<ProcessNews> = Vec::new();

        while ending.is_none() || self.first.is_some() || self.second.is_some() || !answers.is_empty() {
            let phase = match (ending, kill_at) {
                (None, _) => Phase::Live,
                (Some(_), None) => Phase::Draining,
                (Some(_), Some(_)) if killed => Phase::Hurrying,
                (Some(_), Some(_)) => Phase::Ending,
            };
            let terminal = self.terminal.as_deref().filter(|_| self.shared.has_input());
            tokio::select! {
                flow = pass_on(&mut self.first, phase, self.instance, &self.reports),
                    if self.first.is_some() => if flow == Flow::Ended { self.first = None },
                flow = pass_on(&mut self.second, phase, self.instance, &self.reports),
                    if self.second.is_some() => if flow == Flow::Ended { self.second = None },
                () = exited(&self.pidfd), if ending.is_none() => {
                    ending = Some(peek_ending(&self.pidfd, kill_at.is_some()));
                    self.theirs = None;
                    answers.extend(self.shared.close_input().into_iter().map(ProcessNews::WriteLost));
                    // Who was told to end and has nobody left needs no grace.
                    killed |= kill_at.is_some() && self.is_alone();
                }
                accepted = feed(terminal, &self.shared), if terminal.is_some() => {
                    answers.extend(accepted.into_iter().map(ProcessNews::WriteAccepted));
                }
                room = self.reports.reserve(), if !answers.is_empty() => {
                    let news = answers.remove(0);
                    match room {
                        Ok(room) => room.send(ProcessReport { instance: self.instance, news }),
                        Err(_) => answers.clear(),
                    }
                }
                () = self.shared.woken() => {
                    // A second, shorter order overtakes the first: that is how a shutdown hurries.
                    if let Some(by) = self.shared.ordered_end() {
                        if kill_at.is_none() {
                            self.ask_to_end();
                        }
                        kill_at = Some(kill_at.map_or(by, |before| before.min(by)));
                        killed |= ending.is_some() && self.is_alone();
                    }
                }
                () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() && !killed => {
                    self.signal(&[Signal::KILL]);
                    killed = true;
                }
            }
        }
        self.finish(ending.unwrap_or(ProcessExit::Unknown), kill_at.is_some()).await;
    }

    /// The child is gone and read out: ends what is left of its group, reaps it, says so. As long
    /// as the child is not reaped its number cannot be given to another group or session.
    async fn finish(self, ending: ProcessExit, was_told_to_end: bool) {
        if was_told_to_end {
            self.signal(&[Signal::KILL]);
            let deadline = Instant::now() + GROUP_END_WAIT;
            while self.terminal.is_some() && !self.is_alone() && Instant::now() < deadline {
                sleep(GROUP_END_LOOK).await;
            }
        } else {
            // An error means that nobody is left, which is what the signal is for.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        reap(&self.pidfd);
        self.shared.mark_dead();
        wait_for_the_end_of(self.pid).await;
        let report = ProcessReport { instance: self.instance, news: ProcessNews::Exited(ending) };
        // Nobody to tell is fine: then the consumer has gone and only the work above mattered.
        let _ = self.reports.send(report).await;
    }

    /// The polite way, for all that are used to be told in different ways: shells on a terminal
    /// ignore TERM and obey HUP, and who is stopped must go on to hear either.
    fn ask_to_end(&self) {
        if self.terminal.is_some() {
            self.signal(&[Signal::HUP, Signal::TERM, Signal::CONT]);
        } else {
            self.signal(&[Signal::TERM, Signal::CONT]);
        }
    }

    /// Signals the child's group; on a terminal, where shells give each job a group of its own, all
    /// groups of its session.
    fn signal(&self, signals: &[Signal]) {
        let jobs = if self.terminal.is_some() { living_groups(self.pid) } else { HashSet::new() };
        for signal in signals {
            // An error means that nobody is left in the group, which is what a signal is for.
            let _ = kill_process_group(self.pid, *signal);
            for job in jobs.iter().filter(|job| **job != self.pid) {
                let _ = kill_process_group(*job, *signal);
            }
        }
    }

    /// Whether nobody is left in the session, as far as that is looked at: only on a terminal.
    fn is_alone(&self) -> bool {
        self.terminal.is_some() && living_groups(self.pid).is_empty()
    }
}

/// A killed process takes a moment to be gone, and it is not ours to wait for if the child was its
/// parent. Mostly there is none, and the first look tells. Where nobody reaps orphans they stay as
/// zombies, hence the limit.
async fn wait_for_the_end_of(group: Pid) {
    let deadline = Instant::now() + GROUP_END_WAIT;
    while test_kill_process_group(group).is_ok() && Instant::now() < deadline {
        sleep(GROUP_END_LOOK).await;
    }
}

async fn pass_on(
    source: &mut Option<Source>,
    phase: Phase,
    instance: ProcessNumber,
    to: &mpsc::Sender<ProcessReport>,
) -> Flow {
    match source {
        Some(source) => source.pass_on(phase, instance, to).await,
        None => Flow::Ended,
    }
}

/// Waits until the child has exited. It stays unreaped.
async fn exited(pidfd: &AsyncFd<OwnedFd>) {
    // A pidfd stays readable once its process has exited, so readiness is never cleared. An error
    // means that the runtime is shutting down.
    if pidfd.readable().await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn peek_ending(pidfd: &AsyncFd<OwnedFd>, asked_to_end: bool) -> ProcessExit {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    match wait(pidfd.get_ref(), options) {
        Some(status) => match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => ProcessExit::Code((code & 0xff) as u8),
            (None, Some(_)) if asked_to_end => ProcessExit::Terminated,
            (None, Some(signal)) => ProcessExit::Signal(signal),
            (None, None) => ProcessExit::Unknown,
        },
        None => ProcessExit::Unknown,
    }
}

fn reap(pidfd: &AsyncFd<OwnedFd>) {
    wait(pidfd.get_ref(), WaitIdOptions::EXITED);
}

/// Waits for a child of ours, whatever signal comes in between.
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

/// Writes once to the terminal when it takes something. Cancel safe: what was written is noted.
async fn feed(terminal: Option<&AsyncFd<OwnedFd>>, shared: &Shared) -> Vec<WriteId> {
    let Some(terminal) = terminal else { return std::future::pending().await };
    loop {
        let Ok(mut ready) = terminal.writable().await else { return std::future::pending().await };
        match shared.write_input(terminal.get_ref()) {
            Ok(accepted) => return accepted,
            Err(Errno::AGAIN) => ready.clear_ready(),
            Err(Errno::INTR) => {}
            // The other side is closed; the exit will follow and say what was lost.
            Err(_) => return std::future::pending().await,
        }
    }
}
