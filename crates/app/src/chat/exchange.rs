//! One thing said, and its answer shown to the end.

use std::io;
use std::time::Duration;

use anyhow::bail;
use parlor_engine::Sessions;
use parlor_vocab::{
    AgentChoice, NewSession, RunEnding, RunId, Seq, SessionCommand, SessionId, SessionReply, UserInput,
    WhenBusy,
};
use tokio::time::{sleep, timeout};

use super::interrupts::{InterruptPress, Interrupts};
use super::view::{View, ending};

/// How long a stop may take before it is said that it is under way.
const STOP_NOTE: Duration = Duration::from_millis(300);
/// After so long without news it is asked whether the session still answers.
const SILENCE: Duration = Duration::from_secs(2);
/// A session that does not answer for so long cannot record what happens: its log waits for another
/// process no longer than this.
const ANSWER_WAIT: Duration = Duration::from_secs(12);

/// How a run ended, for an exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Completed,
    Failed,
    Stopped,
}

/// What came of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) ended: Ended,
    /// How often the user asked for it to end.
    pub(super) presses: usize,
    /// Whether the program is to end as well.
    pub(super) leave: bool,
}

/// A conversation: a session, once there is one, and who answers in it.
pub(super) struct Conversation<'a> {
    pub(super) sessions: &'a Sessions,
    pub(super) session: Option<SessionId>,
    pub(super) choice: AgentChoice,
}

impl Conversation<'_> {
    /// Says one thing and shows the answer to its end. One press stops the run, another gives up
    /// waiting for that.
    pub(super) async fn exchange(
        &mut self,
        text: String,
        view: &mut dyn View,
        interrupts: &mut Interrupts,
    ) -> anyhow::Result<Outcome> {
        // A session that is made here is shown from its first event on.
        let (id, head) = match &self.session {
            Some(id) => (id.clone(), self.sessions.view(id).await?.head()),
            None => (self.sessions.create(None, new_session(&self.choice)?).await?, Seq::START),
        };
        self.session = Some(id.clone());
        let mut watcher = self.sessions.watch(&id, head).await;
        let input = UserInput { text, choice: self.choice.clone(), ..UserInput::default() };
        let sent =
            self.sessions.ask(&id, SessionCommand::Send { input, when_busy: WhenBusy::Refuse }).await?;
        let SessionReply::Started(run) = sent else { bail!("the session did something else: {sent:?}") };
        let mut outcome = Outcome { ended: Ended::Stopped, presses: 0, leave: false };
        let mut noted = false;
        loop {
            tokio::select! {
                seen = watcher.next() => {
                    let seen = seen?;
                    view.see(&id, &run, &seen)?;
                    if let Some(ending) = ending(&run, &seen) {
                        outcome.ended = match ending {
                            RunEnding::Completed { .. } => Ended::Completed,
                            RunEnding::Failed(_) => Ended::Failed,
                            RunEnding::Stopped { .. } => Ended::Stopped,
                        };
                        return Ok(outcome);
                    }
                }
                press = interrupts.next() => {
                    outcome.presses += 1;
                    if press == InterruptPress::Interrupt {
                        view.pressed();
                    }
                    outcome.leave |= press == InterruptPress::End || outcome.presses > 1;
                    if outcome.presses > 2 {
                        return Ok(outcome);
                    }
                    self.stop(&id, &run).await;
                }
                () = sleep(STOP_NOTE), if outcome.presses > 0 && !noted => {
                    noted = true;
                    view.note("Stopping: what was started is being ended.")?;
                }
                trouble = self.trouble(&id) => if let Some(trouble) = trouble {
                    bail!(
                        "what happens cannot be recorded, so nothing more is shown: {trouble}; \
                         parlor doctor says more"
                    );
                },
            }
        }
    }

    async fn stop(&self, id: &SessionId, run: &RunId) {
        let stop = SessionCommand::Stop { run: Some(run.clone()), reason: None };
        // It may have ended at this very moment; then there is nothing to stop. One that cannot
        // record anything does not answer, which is noticed elsewhere.
        let _ = timeout(SILENCE, self.sessions.ask(id, stop)).await;
    }

    /// After a while, why nothing is to be seen, if something is wrong.
    async fn trouble(&self, id: &SessionId) -> Option<String> {
        sleep(SILENCE).await;
        match timeout(ANSWER_WAIT, self.sessions.trouble(id)).await {
            Ok(Ok(trouble)) => trouble,
            Ok(Err(refusal)) => Some(refusal.to_string()),
            Err(_) => Some("the session does not answer".to_owned()),
        }
    }
}

/// A session of the current folder. The engine calls it by what is said first.
fn new_session(choice: &AgentChoice) -> io::Result<NewSession> {
    Ok(NewSession {
        title: None,
        door: "chat".to_owned(),
        folder: std::env::current_dir()?,
        choice: choice.clone(),
        system: None,
        forked_from: None,
    })
}
