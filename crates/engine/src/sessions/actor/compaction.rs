//! Compactions of a session: a summary replaces the older part of its history.

use parlor_log::LogError;
use parlor_tools::catch_panic;
use parlor_vocab::{AgentChoice, Failure, FailureCode, MessageId, SessionCommand, SessionRefusal};
use tokio_util::sync::CancellationToken;

use super::super::agents::Resolution;
use super::super::handle::{ActorMessage, CommandReply};
use super::super::refusal_of;
use super::Actor;
use crate::redact::clean_excerpt;

/// A compaction whose summary the agent is writing.
pub(super) struct Compaction {
    keep: usize,
    pub(super) cancel: CancellationToken,
    pub(super) reply: CommandReply,
}

impl Actor {
    pub(super) async fn compact_before(
        &mut self,
        kept_from: &MessageId,
        summary: String,
    ) -> Result<(), LogError> {
        self.ensure_history().await?;
        let events = self.session.compacted_before(kept_from, summary, &*self.deps.ids);
        self.append(events).await?;
        self.trim_history();
        Ok(())
    }

    pub(super) async fn begin_compaction(&mut self, keep: usize, reply: CommandReply) {
        if self.compaction.is_some() {
            return drop(reply.send(Err(SessionRefusal::Compacting.into())));
        }
        if let Err(error) = self.ensure_history().await {
            return drop(reply.send(Err(refusal_of(error).into())));
        }
        let command = SessionCommand::Compact { keep };
        let resolved = self.deps.agents.resolve_default().choice;
        match self.session.decide(command, &resolved, &*self.deps.ids) {
            Err(refusal) => {
                self.trim_history();
                drop(reply.send(Err(refusal.into())));
            }
            Ok(decision) => {
                self.compaction = Some(Compaction { keep, cancel: CancellationToken::new(), reply });
                self.effects.extend(decision.effects);
            }
        }
    }

    pub(super) async fn on_summary(&mut self, summary: Result<String, Failure>) {
        let Some(Compaction { keep, reply, .. }) = self.compaction.take() else { return };
        let outcome = match summary {
            Err(failure) => {
                Err(SessionRefusal::NotCompacted { reason: clean_excerpt(&*self.redact, failure.message) })
            }
            Ok(summary) => {
                let summary = clean_excerpt(&*self.redact, summary);
                let decision = self.session.compacted(summary, keep, &*self.deps.ids);
                self.append(decision.events).await.map(|()| decision.reply).map_err(refusal_of)
            }
        };
        self.trim_history();
        drop(reply.send(outcome.map_err(|refusal| self.command_error(refusal))));
    }

    /// Has the agent write the summary of a compaction.
    pub(super) fn summarize(&mut self, keep: usize) {
        let Some(compaction) = &self.compaction else { return };
        let resolution = self.deps.agents.resolve(self.session.choice(), &AgentChoice::default());
        let Resolution { choice: resolved, agent } =
            resolution.unwrap_or_else(|_| self.deps.agents.resolve_default());
        let (cancel, mailbox) = (compaction.cancel.clone(), self.mailbox.clone());
        let history = self.session.items_before_last(keep).to_vec();
        let choice = AgentChoice { model: resolved.model, ..self.session.choice().clone() };
        tokio::spawn(async move {
            let stopped = || Failure {
                code: FailureCode::Stopped,
                message: "it was stopped".to_owned(),
                retryable: true,
            };
            let summary = tokio::select! {
                summary = catch_panic(agent.summarize(&history, &choice)) => {
                    summary.unwrap_or_else(|panicked| Err(panicked.failure("The summary")))
                }
                () = cancel.cancelled() => Err(stopped()),
            };
            // The actor runs until its compaction has ended, so it is there to receive this.
            let _ = mailbox.send(ActorMessage::Summarized(Box::new(summary))).await;
        });
    }
}
