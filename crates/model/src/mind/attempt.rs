//! One question to a model, and its answer as it comes.

use futures_util::StreamExt;
use tokio::time::{Instant, sleep_until};

use super::Model;
use crate::provider::{Completion, Piece, ProviderError, Request};
use crate::{Halt, Stage};

/// What came of a question.
pub(super) enum Attempt {
    /// An answer, with its text, which was shown.
    Answered { text: String, done: Completion },
    /// None, or not all of one.
    Broken {
        error: ProviderError,
        /// The text that was shown before.
        text: String,
        /// Whether anything was shown, a thought maybe, or the input of a call.
        shown: bool,
    },
    /// The time is over.
    Late,
}

/// Asks, and shows what comes. A stop ends it at once, wherever it is.
pub(super) async fn attempt(
    model: &Model,
    request: &Request,
    deadline: Option<Instant>,
    stage: &mut dyn Stage,
) -> Result<Attempt, Halt> {
    let mut stopped = stage.stopped();
    let mut late = std::pin::pin!(async {
        match deadline {
            Some(deadline) => sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    });
    let (mut text, mut shown) = (String::new(), false);
    let asked = tokio::select! {
        biased;
        () = &mut stopped => return Err(Halt::Stopped),
        () = &mut late => return Ok(Attempt::Late),
        asked = model.provider.ask(request) => asked,
    };
    let mut pieces = match asked {
        Ok(pieces) => pieces,
        Err(error) => return Ok(Attempt::Broken { error, text, shown }),
    };
    loop {
        let piece = tokio::select! {
            biased;
            () = &mut stopped => return Err(Halt::Stopped),
            () = &mut late => return Ok(Attempt::Late),
            piece = pieces.next() => piece,
        };
        match piece {
            Some(Ok(Piece::Text(more))) => {
                stage.say(&more).await?;
                text.push_str(&more);
                shown = true;
            }
            Some(Ok(Piece::Thought(more))) => {
                stage.think(&more).await?;
                shown = true;
            }
            Some(Ok(Piece::CallInput { id, tool, text })) => {
                stage.write_input(&id, &tool, &text).await?;
                shown = true;
            }
            Some(Ok(Piece::Done(done))) => return Ok(Attempt::Answered { text, done }),
            Some(Err(error)) => return Ok(Attempt::Broken { error, text, shown }),
            None => {
                let error =
                    ProviderError::Broken { said: "the answer broke off".to_owned(), retry_after: None };
                return Ok(Attempt::Broken { error, text, shown });
            }
        }
    }
}
