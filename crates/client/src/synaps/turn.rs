//! The handle on a turn of the conversation.

use std::fmt;
use std::sync::Arc;

use parlor_doors::synaps::{AssistantEvent, RpcCommand, TurnUsage};

use super::SynapsError;
use super::answer::SynapsState;
use super::connection::SynapsConnection;
use super::turn_events::{NextEvent, TurnEvents};

/// An event of a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnEvent {
    /// A piece of the agent's text or thinking, or a step of a tool call.
    Assistant(AssistantEvent),
    /// A subagent has begun to work for the turn.
    SubagentStarted {
        /// The number of the subagent within the turn.
        id: u64,
        /// The name of the subagent's definition.
        name: String,
        /// The beginning of its task.
        task: String,
    },
    /// A subagent is at work.
    SubagentUpdated {
        /// The number of the subagent within the turn.
        id: u64,
        /// The name of the subagent's definition.
        name: String,
        /// A short text on what it does.
        status: String,
    },
    /// A subagent has finished.
    SubagentDone {
        /// The number of the subagent within the turn.
        id: u64,
        /// The name of the subagent's definition.
        name: String,
        /// The beginning of its result.
        result: String,
        /// How long it took.
        seconds: f64,
    },
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnOutcome {
    /// The agent has answered.
    Completed,
    /// A client aborted the turn.
    Cancelled,
    /// The turn failed with this error message.
    Failed(String),
}

/// The end of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnEnd {
    /// Whether the turn completed, was cancelled or failed.
    pub outcome: TurnOutcome,
    /// The tokens that the turn used.
    pub usage: TurnUsage,
}

/// A handle on a turn that was begun.
///
/// Dropping the handle does not end the turn: the turn runs on, and its events are discarded. To end the turn, call
/// [`abort`](Self::abort).
pub struct SynapsTurn {
    /// Keeps the child alive as long as there is a handle on a turn.
    connection: Arc<SynapsConnection>,
    events: Arc<TurnEvents>,
}

impl SynapsTurn {
    pub(super) fn new(connection: Arc<SynapsConnection>, events: Arc<TurnEvents>) -> Self {
        Self { connection, events }
    }

    /// Waits for the next event. `None` once the turn has ended and all its events were returned.
    ///
    /// Fails if the child has refused the turn, or if the connection ended before the turn.
    ///
    /// Cancel safe: if the future is dropped, no event is lost.
    pub async fn next_event(&mut self) -> Result<Option<TurnEvent>, SynapsError> {
        // Without this, a child that is as fast as its reader would keep the reader's task from ever yielding.
        tokio::task::coop::consume_budget().await;
        loop {
            match self.events.take() {
                NextEvent::Event(event) => return Ok(Some(event)),
                NextEvent::End(end) => return end.map(|_| None),
                NextEvent::RefusedOrFailed => self.check_refusal().await?,
                NextEvent::Nothing => self.events.arrived().await,
            }
        }
    }

    /// Waits for the end of the turn. **Discards the events** that were not taken before;
    /// [`text`](Self::text) keeps the text of the answer.
    pub async fn end(&mut self) -> Result<TurnEnd, SynapsError> {
        while self.next_event().await?.is_some() {}
        match self.events.take() {
            NextEvent::End(end) => end,
            NextEvent::Event(_) | NextEvent::RefusedOrFailed | NextEvent::Nothing => Err(SynapsError::CLOSED),
        }
    }

    /// Waits for the end of the turn, and returns the text that was not taken before, without a limit.
    pub async fn text(mut self) -> Result<(String, TurnEnd), SynapsError> {
        let mut text = String::new();
        while let Some(event) = self.next_event().await? {
            if let TurnEvent::Assistant(AssistantEvent::TextDelta { delta }) = event {
                text.push_str(&delta);
            }
        }
        Ok((text, self.end().await?))
    }

    /// Asks the child to end the turn, and waits until it has. The handle gets the [`end`](Self::end) as usual.
    ///
    /// The future does not borrow the handle. If more events arrive than the backlog has room for while it waits, the rest
    /// of the events is dropped, because the answer comes after them.
    pub fn abort(&self) -> impl Future<Output = Result<(), SynapsError>> + Send + use<> {
        let connection = Arc::clone(&self.connection);
        async move { connection.abort().await }
    }

    /// Finds out whether an `error` of the child has refused the turn. If the turn has failed, its answer arrives next. If
    /// it was refused nothing arrives, so this also asks for the child's state: the child answers that after everything it
    /// sends about a turn that has ended.
    async fn check_refusal(&self) -> Result<(), SynapsError> {
        let state_request = self.connection.call(|id| RpcCommand::GetState { id });
        let state: SynapsState = tokio::select! {
            biased;
            () = self.events.arrived() => return Ok(()),
            state = state_request => state?,
        };
        if state.streaming {
            self.events.arrived().await;
        } else {
            self.connection.refuse_turn(&self.events);
        }
        Ok(())
    }
}

impl Drop for SynapsTurn {
    fn drop(&mut self) {
        self.connection.abandon_turn(&self.events);
    }
}

impl fmt::Debug for SynapsTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Leaves out the events, which may be megabytes.
        f.debug_struct("SynapsTurn").field("id", &self.events.id).finish()
    }
}
