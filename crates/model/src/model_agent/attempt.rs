//! One request to a model, whose answer is streamed to the context.

use futures_util::StreamExt;
use tokio::time::{Instant, sleep_until};

use super::Model;
use crate::provider::{Completion, Piece, ProviderError, Request};
use crate::{AgentContext, TurnError};

/// The outcome of a request.
pub(super) enum Attempt {
    /// A complete answer: its text, which clients have seen, and its total size in bytes.
    Answered { text: String, done: Completion, bytes: usize },
    /// The request failed, or the answer was interrupted.
    Failed {
        error: ProviderError,
        /// The text that clients have seen.
        text: String,
        /// Whether clients have seen any part of the answer: text, reasoning or the input of a call.
        shown: bool,
        /// How many bytes of the answer received.
        bytes: usize,
    },
    /// The deadline passed.
    TimedOut,
}

/// Sends a request and streams the answer to `context`. A stop of the run ends it immediately.
pub(super) async fn attempt(
    model: &Model,
    request: &Request,
    deadline: Option<Instant>,
    context: &mut dyn AgentContext,
) -> Result<Attempt, TurnError> {
    let mut stopped = context.stopped();
    let mut timed_out = std::pin::pin!(async {
        match deadline {
            Some(deadline) => sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    });
    let (mut text, mut shown, mut received) = (String::new(), false, AnswerBytes::default());
    let answered = tokio::select! {
        biased;
        () = &mut stopped => return Err(TurnError::Stopped),
        () = &mut timed_out => return Ok(Attempt::TimedOut),
        answered = model.provider.stream(request) => answered,
    };
    let mut pieces = match answered {
        Ok(pieces) => pieces,
        Err(error) => return Ok(Attempt::Failed { error, text, shown, bytes: 0 }),
    };
    loop {
        let piece = tokio::select! {
            biased;
            () = &mut stopped => return Err(TurnError::Stopped),
            () = &mut timed_out => return Ok(Attempt::TimedOut),
            piece = pieces.next() => piece,
        };
        match piece {
            Some(Ok(Piece::Text(more))) => {
                received.text += more.len();
                context.write_text(&more).await?;
                text.push_str(&more);
                shown = true;
            }
            Some(Ok(Piece::Reasoning(more))) => {
                received.reasoning += more.len();
                context.write_reasoning(&more).await?;
                shown = true;
            }
            Some(Ok(Piece::CallInput { id, tool, text })) => {
                received.inputs += text.len();
                context.write_call_input(&id, &tool, &text).await?;
                shown = true;
            }
            Some(Ok(Piece::Done(done))) => {
                let bytes = received.with_completion(&done).total();
                return Ok(Attempt::Answered { text, done, bytes });
            }
            Some(Err(error)) => {
                return Ok(Attempt::Failed { error, text, shown, bytes: received.total() });
            }
            None => {
                let error =
                    ProviderError::Broken { message: "the answer broke off".to_owned(), retry_after: None };
                return Ok(Attempt::Failed { error, text, shown, bytes: received.total() });
            }
        }
    }
}

/// The size of an answer so far, in bytes.
#[derive(Clone, Copy, Default)]
struct AnswerBytes {
    text: usize,
    reasoning: usize,
    inputs: usize,
}

impl AnswerBytes {
    /// Adds the completion. It repeats the inputs and reasoning that were streamed, or has them for the first time.
    fn with_completion(self, done: &Completion) -> Self {
        let inputs = done.calls.iter().map(|call| call.tool.len() + call.input.len()).sum();
        Self {
            reasoning: self.reasoning.max(done.provider_state.bytes()),
            inputs: self.inputs.max(inputs),
            ..self
        }
    }

    fn total(self) -> usize {
        self.text + self.reasoning + self.inputs
    }
}
