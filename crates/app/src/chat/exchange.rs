//! Sends one message and shows the run that answers it; Ctrl-C stops the run.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use parlor_engine::Sessions;
use parlor_vocab::{
    AgentChoice, NewSession, PolicyMode, RunEnding, RunId, Sender, Seq, SessionCommand, SessionEvent,
    SessionId, SessionRefusal, SessionReply, SessionUpdate, UserInput, WhenBusy,
};
use tokio::time::{sleep, timeout};

use super::interrupts::{Interrupt, Interrupts};
use super::other_runs::{OtherMessages, steer_in};
use super::questions::Asker;
use super::view::{View, ending};

/// The name of the terminal among the doors of sessions.
pub(super) const DOOR: &str = "chat";
/// If a stop takes longer than this, the user is told that it is in progress.
const STOP_NOTICE_DELAY: Duration = Duration::from_millis(300);
/// After this time without an update, the session is asked whether it can still record events.
const HEALTH_CHECK_DELAY: Duration = Duration::from_secs(2);
/// A session that does not answer within this time cannot record events: its log waits for another process no longer
/// than this.
const HEALTH_CHECK_TIMEOUT: Duration = Duration::from_secs(12);

/// How a run ended; decides the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Completed,
    Failed,
    Stopped,
}

/// The result of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExchangeOutcome {
    pub(super) ended: Ended,
    /// How many times the user pressed Ctrl-C, or a signal came.
    pub(super) interrupts: usize,
    /// Whether the program should end too.
    pub(super) should_exit: bool,
}

/// Who answers the questions of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answerer {
    /// The user at this terminal.
    Terminal,
    /// The program that reads the events, by another command.
    Program,
    /// Nobody.
    Nobody,
}

/// What the user sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) text: String,
    /// What happens while another client's run is active.
    pub(super) when_busy: WhenBusy,
}

/// A conversation: its session, which the first message creates, and the agent that answers.
pub(super) struct Conversation<'a> {
    pub(super) sessions: &'a Arc<Sessions>,
    pub(super) session: Option<SessionId>,
    pub(super) choice: AgentChoice,
    /// The mode to choose for the session before the next message.
    pub(super) mode: Option<PolicyMode>,
    /// Who answers questions.
    pub(super) answerer: Answerer,
    /// The last event that was shown; `None` if nothing was shown so far.
    pub(super) seen: Option<Seq>,
}

impl Conversation<'_> {
    /// Sends a message and shows the run until it ends; before that, what `other_messages` find of other clients. The
    /// first interrupt stops the run, the second also ends the program, and the third stops waiting for the run.
    pub(super) async fn exchange(
        &mut self,
        Message { text, when_busy }: Message,
        mut other_messages: OtherMessages,
        view: &mut dyn View,
        interrupts: &mut Interrupts,
    ) -> anyhow::Result<ExchangeOutcome> {
        // A new session is shown from its first event on.
        let (id, head) = match (&self.session, self.seen) {
            (Some(id), Some(seen)) => (id.clone(), seen),
            (Some(id), None) => (id.clone(), self.sessions.view(id).await?.head()),
            (None, _) => (self.sessions.create(None, new_session(&self.choice)?).await?, Seq::START),
        };
        self.session = Some(id.clone());
        self.seen = Some(head);
        let mut watcher = self.sessions.join(&id, head).await;
        if let Some(mode) = self.mode.take() {
            self.sessions.execute(&id, SessionCommand::ChooseMode(mode)).await?;
        }
        let mut asker = (self.answerer == Answerer::Terminal).then(|| Asker::new(self.sessions, &id));
        let (by, can_answer) = (Some(Sender::at(DOOR)), self.answerer != Answerer::Nobody);
        let is_attended = self.answerer == Answerer::Terminal;
        let is_own_steer = when_busy == WhenBusy::Steer;
        let choice = self.choice.clone();
        let input = UserInput { text, choice, by, can_answer, is_attended, ..UserInput::default() };
        let command = SessionCommand::Send { input, when_busy };
        let sent = tokio::select! {
            sent = self.sessions.execute(&id, command) => sent,
            // Only another process can take this long, if it is stopped.
            interrupt = interrupts.next() => {
                view.notice("The process that has the session open does not answer. It may still get the message.")?;
                let should_exit = interrupt == Interrupt::Terminate;
                return Ok(ExchangeOutcome { ended: Ended::Stopped, interrupts: 1, should_exit });
            }
        };
        let sent = match sent {
            Err(SessionRefusal::NoActiveRun) => {
                bail!("no run is active in the session, so there is nothing to steer")
            }
            sent => sent?,
        };
        let (run, mut is_shown) = match sent {
            SessionReply::Started(run) => (run, false),
            SessionReply::Steered(run) => (run, true),
            SessionReply::Queued { run, waiting } => {
                let place = if waiting > 1 { format!("number {waiting}") } else { "next".to_owned() };
                view.notice(&format!("Another client's message is being answered; yours is {place}."))?;
                (run, false)
            }
            sent @ (SessionReply::Stopping(_)
            | SessionReply::Unqueued(_)
            | SessionReply::Compacted(_)
            | SessionReply::Done) => bail!("unexpected reply of the session to a message: {sent:?}"),
        };
        let mut outcome = ExchangeOutcome { ended: Ended::Stopped, interrupts: 0, should_exit: false };
        let mut stop_notice_shown = false;
        loop {
            tokio::select! {
                update = watcher.next() => {
                    let update = update?;
                    if let SessionUpdate::Entry(entry) = &update {
                        self.seen = Some(entry.seq);
                    }
                    if is_dropped(&run, &update) {
                        if outcome.interrupts == 0 {
                            view.notice("Another client removed the message from the queue.")?;
                        }
                        return Ok(outcome);
                    }
                    is_shown |= is_of_run(&run, &update) || view.shows_other_runs();
                    if is_shown {
                        view.update(&id, &run, &update)?;
                        if let Some(notice) = asker.as_mut().and_then(|asker| asker.notice(&update)) {
                            view.notice(&notice)?;
                        }
                        // The sender of a steer knows its text.
                        let is_told = is_own_steer || view.shows_other_runs();
                        if let Some(message) = steer_in(&update).filter(|_| !is_told) {
                            view.notice(&message)?;
                        }
                    } else if let Some(message) = other_messages.message_in(&update) {
                        view.notice(&message)?;
                    }
                    if let Some(ending) = ending(&run, &update) {
                        outcome.ended = match ending {
                            RunEnding::Completed { .. } => Ended::Completed,
                            RunEnding::Failed(_) => Ended::Failed,
                            RunEnding::Stopped { .. } => Ended::Stopped,
                        };
                        return Ok(outcome);
                    }
                }
                interrupt = interrupts.next() => {
                    outcome.interrupts += 1;
                    if interrupt == Interrupt::CtrlC {
                        view.ctrl_c_echoed();
                    }
                    outcome.should_exit |= interrupt == Interrupt::Terminate || outcome.interrupts > 1;
                    if outcome.interrupts > 2 {
                        return Ok(outcome);
                    }
                    self.stop(&run);
                }
                () = sleep(STOP_NOTICE_DELAY), if outcome.interrupts > 0 && !stop_notice_shown => {
                    stop_notice_shown = true;
                    view.notice("Stopping the run and its processes.")?;
                }
                trouble = self.delayed_health_check(&id) => if let Some(trouble) = trouble {
                    bail!(
                        "the session cannot record events, so the run cannot be shown: {trouble}; \
                         run parlor doctor for details"
                    );
                },
            }
        }
    }

    /// Stops a run, or takes its message out of the queue. Does not wait: the session may not answer, and the user can
    /// interrupt again.
    pub(super) fn stop(&self, run: &RunId) {
        let Some(id) = self.session.clone() else { return };
        let (sessions, run) = (Arc::clone(self.sessions), run.clone());
        tokio::spawn(async move {
            let commands =
                [SessionCommand::Unqueue(run.clone()), SessionCommand::Stop { run: Some(run), reason: None }];
            for command in commands {
                // The run may have just ended; then there is nothing to stop. A session that cannot record events does
                // not answer; the health check reports that.
                let _ = timeout(HEALTH_CHECK_DELAY, sessions.execute(&id, command)).await;
            }
        });
    }

    /// Waits a while, then asks the session whether it can record events. Returns the reason if it cannot.
    async fn delayed_health_check(&self, id: &SessionId) -> Option<String> {
        sleep(HEALTH_CHECK_DELAY).await;
        match timeout(HEALTH_CHECK_TIMEOUT, self.sessions.recording_error(id)).await {
            Ok(Ok(trouble)) => trouble,
            Ok(Err(refusal)) => Some(refusal.to_string()),
            Err(_) => Some("the session does not answer".to_owned()),
        }
    }
}

fn is_of_run(run: &RunId, update: &SessionUpdate) -> bool {
    match update {
        SessionUpdate::Delta { run: of, .. } => of == run,
        SessionUpdate::Entry(entry) => matches!(&entry.event, SessionEvent::Run { run: of, .. } if of == run),
    }
}

/// Whether this update drops the input that waits to start `run`.
fn is_dropped(run: &RunId, update: &SessionUpdate) -> bool {
    let SessionUpdate::Entry(entry) = update else { return false };
    matches!(&entry.event, SessionEvent::Unqueued { runs } if runs.contains(run))
}

/// A session for the current folder. The engine takes its title from the first message.
fn new_session(choice: &AgentChoice) -> io::Result<NewSession> {
    Ok(NewSession {
        title: None,
        door: DOOR.to_owned(),
        folder: std::env::current_dir()?,
        choice: choice.clone(),
        system: None,
        forked_from: None,
    })
}
