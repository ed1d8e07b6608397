//! A turn of the conversation, as a handle.

use std::fmt;
use std::sync::Arc;

use parlor_doors::synaps::{AssistantEvent, RpcCommand, TurnUsage};

use super::SynapsError;
use super::answer::SynapsState;
use super::backlog::{Backlog, Taken};
use super::connection::Connection;

/// Something that happens in a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnEvent {
    /// The agent says, thinks or does something.
    Assistant(AssistantEvent),
    /// Another agent begins to work for the turn.
    SubagentStarted {
        /// Its number.
        id: u64,
        /// Its name.
        name: String,
        /// The beginning of what it is to do.
        task: String,
    },
    /// It is at work.
    SubagentUpdated {
        /// Its number.
        id: u64,
        /// Its name.
        name: String,
        /// A few words.
        status: String,
    },
    /// It is done.
    SubagentDone {
        /// Its number.
        id: u64,
        /// Its name.
        name: String,
        /// The beginning of what came of it.
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
    /// Somebody aborted it.
    Cancelled,
    /// It failed, and this is why.
    Failed(String),
}

/// The end of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnEnd {
    /// How it ended.
    pub outcome: TurnOutcome,
    /// What it consumed.
    pub usage: TurnUsage,
}

/// A turn that was begun.
///
/// Dropping the handle does not end the turn: it runs on, and what happens in it is discarded. To end
/// it, [`abort`](Self::abort) it.
pub struct SynapsTurn {
    /// Also keeps the child alive for as long as there is a handle on a turn.
    connection: Arc<Connection>,
    backlog: Arc<Backlog>,
}

impl SynapsTurn {
    pub(super) fn new(connection: Arc<Connection>, backlog: Arc<Backlog>) -> Self {
        Self { connection, backlog }
    }

    /// Waits for what happens next. `None` once the turn is over and all was handed out.
    ///
    /// A turn that the child refused, and one that the child did not live to end, are errors.
    ///
    /// Cancel safe: if the future is dropped, nothing is lost.
    pub async fn next_event(&mut self) -> Result<Option<TurnEvent>, SynapsError> {
        // A child that is as fast as its reader would otherwise keep this task from ever yielding.
        tokio::task::coop::consume_budget().await;
        loop {
            match self.backlog.take() {
                Taken::Event(event) => return Ok(Some(event)),
                Taken::End(end) => return end.map(|_| None),
                Taken::InDoubt => self.find_out().await?,
                Taken::Nothing => self.backlog.arrived().await,
            }
        }
    }

    /// Waits for the end of the turn. **Discards the events** that were not taken before;
    /// [`text`](Self::text) keeps what was said.
    pub async fn end(&mut self) -> Result<TurnEnd, SynapsError> {
        while self.next_event().await?.is_some() {}
        match self.backlog.take() {
            Taken::End(end) => end,
            Taken::Event(_) | Taken::InDoubt | Taken::Nothing => Err(SynapsError::CLOSED),
        }
    }

    /// Waits for the end of the turn, and gives along what was said and not taken before, however
    /// much it is.
    pub async fn text(mut self) -> Result<(String, TurnEnd), SynapsError> {
        let mut text = String::new();
        while let Some(event) = self.next_event().await? {
            if let TurnEvent::Assistant(AssistantEvent::TextDelta { delta }) = event {
                text.push_str(&delta);
            }
        }
        Ok((text, self.end().await?))
    }

    /// Asks the child to end the turn, and waits until it has. Its [`end`](Self::end) is told as always.
    ///
    /// The future does not borrow the handle. If, while it waits, more happens than the backlog has
    /// room for, the rest is cut off: nobody could take it, and the answer is behind it.
    pub fn abort(&self) -> impl Future<Output = Result<(), SynapsError>> + Send + use<> {
        let connection = Arc::clone(&self.connection);
        async move { connection.abort().await }
    }

    /// The child has said `error`. Whether the turn was refused or has failed is known once more
    /// arrives; if it was refused nothing does, so the child is asked for something that it answers
    /// after all that it has to say of a turn that is over.
    async fn find_out(&self) -> Result<(), SynapsError> {
        let asked = self.connection.call(|id| RpcCommand::GetState { id });
        let state: SynapsState = tokio::select! {
            biased;
            () = self.backlog.arrived() => return Ok(()),
            state = asked => state?,
        };
        if state.streaming {
            self.backlog.arrived().await;
        } else {
            self.connection.never_began(&self.backlog);
        }
        Ok(())
    }
}

impl Drop for SynapsTurn {
    fn drop(&mut self) {
        self.connection.abandon(&self.backlog);
    }
}

impl fmt::Debug for SynapsTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its backlog may hold megabytes.
        f.debug_struct("SynapsTurn").field("id", &self.backlog.id).finish()
    }
}
