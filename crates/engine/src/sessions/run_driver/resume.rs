//! Goes on with a run that waited for an answer when its process ended.
//!
//! The log has all that the run did before. The driver counts its steps, waits for the answer, makes the call that was asked
//! about, and then has the agent go on from there.

use std::sync::Arc;

use parlor_log::LogError;
use parlor_model::{Agent, ToolCall, Turn, TurnError};
use parlor_vocab::{
    HistoryItem, MessageEvent, QuestionKind, RunEvent, Seq, SessionEvent, SessionId, StepEvent, ToolEvent,
};

use super::tool_calls::LoggedCall;
use super::{RunDriver, log_failure};
use crate::session::PendingQuestion;
use crate::sessions::history_loader::HistorySource;

/// How many events are read at a time.
const READ_EVENTS: usize = 1024;

/// A run that waits for an answer.
pub(in crate::sessions) struct ResumedRun {
    pub(in crate::sessions) session: SessionId,
    /// The log position before the run's first event.
    pub(in crate::sessions) origin: Seq,
    /// The log position of the last event.
    pub(in crate::sessions) head: Seq,
    /// The question that it waits for.
    pub(in crate::sessions) pending: PendingQuestion,
}

impl RunDriver {
    /// Waits for the answer, makes or refuses the call, and runs the agent to its end.
    pub(in crate::sessions) async fn resume(
        mut self,
        agent: Arc<dyn Agent>,
        turn: Turn,
        history: HistorySource,
        resumed: ResumedRun,
    ) {
        let result = self.go_on(&*agent, turn, history, resumed).await;
        self.report_end(result).await;
    }

    async fn go_on(
        &mut self,
        agent: &dyn Agent,
        mut turn: Turn,
        history: HistorySource,
        resumed: ResumedRun,
    ) -> Result<(), TurnError> {
        let unreadable = |error: LogError| TurnError::Failed(log_failure(&error));
        let PendingQuestion { question, asked_at } = &resumed.pending;
        let call = self.restore(&resumed).await.map_err(unreadable)?;
        let items = history.load_all(&*self.deps.log).await.map_err(unreadable)?;
        let outcome = self.await_answer(&question.id, *asked_at).await?;
        (turn.history, turn.resumed) = split(items, &turn);
        match (question.kind, call) {
            (QuestionKind::ProjectTrust, _) => self.trust_settled(question, &outcome).await?,
            (QuestionKind::Call | QuestionKind::WiderRights | QuestionKind::Host, None) => {
                return Err(unreadable(LogError::UnknownSession(resumed.session.clone())));
            }
            (kind, Some(call)) => {
                let permission = match (kind, self.settled(question, outcome).await) {
                    (QuestionKind::WiderRights, permission) => self.widened(question, permission),
                    (_, permission) => permission,
                };
                let cancel = self.context.cancel.child_token();
                let made = self.make_call(&call, permission, Vec::new(), *asked_at, &cancel).await?;
                for item in &mut turn.resumed {
                    if let HistoryItem::ToolUse(tool_use) = item
                        && tool_use.call == question.call
                    {
                        tool_use.result = Some(made.clone().map(|output| output.text));
                    }
                }
            }
        }
        if !agent.needs_history() {
            turn.history = Vec::new();
        }
        self.run_agent(agent, &turn, None).await
    }

    /// Reads what the run did, and returns the call that waits, if it is one that waits.
    async fn restore(&mut self, resumed: &ResumedRun) -> Result<Option<LoggedCall>, LogError> {
        let (mut position, mut call) = (resumed.origin, None);
        while position < resumed.head {
            let entries = self.deps.log.read(&resumed.session, position, READ_EVENTS).await?;
            let Some(last) = entries.last() else { break };
            position = last.seq;
            for entry in entries {
                let SessionEvent::Run { run, event, .. } = entry.event else { continue };
                if run != self.run {
                    continue;
                }
                match event {
                    RunEvent::Started { .. } => self.started_at = entry.at,
                    RunEvent::Step(StepEvent::Started { .. }) => self.step_count += 1,
                    RunEvent::Message(MessageEvent::Completed { message, text, .. }) => {
                        (self.last_message, self.last_text) = (Some(message), text);
                    }
                    RunEvent::Tool(ToolEvent::Called { step, call: id, tool, input })
                        if id == resumed.pending.question.call =>
                    {
                        let called = ToolCall { streamed_id: String::new(), tool, input, refusal: None };
                        call = Some(LoggedCall { call: called, id, step });
                    }
                    RunEvent::Steered { .. }
                    | RunEvent::Message(_)
                    | RunEvent::Step(_)
                    | RunEvent::Tool(_)
                    | RunEvent::Question(_)
                    | RunEvent::Subagent(_)
                    | RunEvent::ErrorRaised { .. }
                    | RunEvent::UsageAdded { .. }
                    | RunEvent::Ended { .. } => {}
                }
            }
        }
        Ok(call)
    }
}

/// The items before the input of the turn, and those after it.
fn split(mut items: Vec<HistoryItem>, turn: &Turn) -> (Vec<HistoryItem>, Vec<HistoryItem>) {
    let is_input = |item: &HistoryItem| match item {
        HistoryItem::Message(message) => turn.message.as_ref() == Some(&message.id),
        HistoryItem::ToolUse(_) | HistoryItem::UnfinishedRun { .. } => false,
    };
    match items.iter().position(is_input) {
        Some(input) => {
            let resumed = items.split_off(input + 1);
            items.pop();
            (items, resumed)
        }
        // A summary has replaced the input: all that is left belongs to the run or is the summary.
        None => (items, Vec::new()),
    }
}
