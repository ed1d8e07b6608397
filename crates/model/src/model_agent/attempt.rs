//! One question to a model, and its answer as it comes.

use futures_util::StreamExt;
use tokio::time::{Instant, sleep_until};

use super::Model;
use crate::provider::{Completion, Piece, ProviderError, Request};
use crate::{AgentContext, TurnError};

/// What came of a question.
pub(super) enum Attempt {
    /// An answer, with its text, which was shown, and how many bytes of text it has in all.
    Answered { text: String, done: Completion, bytes: usize },
    /// None, or not all of one.
    Broken {
        error: ProviderError,
        /// The text that was shown before.
        text: String,
        /// Whether anything was shown, a thought maybe, or the input of a call.
        shown: bool,
        /// How many bytes of text arrived.
        bytes: usize,
    },
    /// The time is over.
    Late,
}

/// Asks, and shows what comes. A stop ends it at once, wherever it is.
pub(super) async fn attempt(
    model: &Model,
    request: &Request,
    deadline: Option<Instant>,
    stage: &mut dyn AgentContext,
) -> Result<Attempt, TurnError> {
    let mut stopped = stage.stopped();
    let mut late = std::pin::pin!(async {
        match deadline {
            Some(deadline) => sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    });
    let (mut text, mut shown, mut arrived) = (String::new(), false, Arrived::default());
    let asked = tokio::select! {
        biased;
        () = &mut stopped => return Err(TurnError::Stopped),
        () = &mut late => return Ok(Attempt::Late),
        asked = model.provider.stream(request) => asked,
    };
    let mut pieces = match asked {
        Ok(pieces) => pieces,
        Err(error) => return Ok(Attempt::Broken { error, text, shown, bytes: 0 }),
    };
    loop {
        let piece = tokio::select! {
            biased;
            () = &mut stopped => return Err(TurnError::Stopped),
            () = &mut late => return Ok(Attempt::Late),
            piece = pieces.next() => piece,
        };
        match piece {
            Some(Ok(Piece::Text(more))) => {
                arrived.said += more.len();
                stage.write_text(&more).await?;
                text.push_str(&more);
                shown = true;
            }
            Some(Ok(Piece::Reasoning(more))) => {
                arrived.thought += more.len();
                stage.write_reasoning(&more).await?;
                shown = true;
            }
            Some(Ok(Piece::CallInput { id, tool, text })) => {
                arrived.inputs += text.len();
                stage.write_call_input(&id, &tool, &text).await?;
                shown = true;
            }
            Some(Ok(Piece::Done(done))) => {
                let bytes = arrived.with(&done).bytes();
                return Ok(Attempt::Answered { text, done, bytes });
            }
            Some(Err(error)) => {
                return Ok(Attempt::Broken { error, text, shown, bytes: arrived.bytes() });
            }
            None => {
                let error =
                    ProviderError::Broken { said: "the answer broke off".to_owned(), retry_after: None };
                return Ok(Attempt::Broken { error, text, shown, bytes: arrived.bytes() });
            }
        }
    }
}

/// How many bytes of text have come.
#[derive(Clone, Copy, Default)]
struct Arrived {
    said: usize,
    thought: usize,
    inputs: usize,
}

impl Arrived {
    /// With the end of the answer. Inputs and thoughts that came in pieces come once more there, or only there.
    fn with(self, done: &Completion) -> Self {
        let inputs = done.calls.iter().map(|call| call.tool.len() + call.input.len()).sum();
        Self { thought: self.thought.max(done.thread.bytes()), inputs: self.inputs.max(inputs), ..self }
    }

    fn bytes(self) -> usize {
        self.said + self.thought + self.inputs
    }
}
