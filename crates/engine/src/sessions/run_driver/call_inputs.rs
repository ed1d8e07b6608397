//! Shows the inputs of tool calls while the agent writes them. They are recorded only when the call is made.

use std::sync::Arc;

use parlor_model::ToolCall;
use parlor_tools::{Redact, StreamRedactor, clean, clean_long};
use parlor_vocab::{RunId, StreamKind, ToolCallId, UniqueNumber};

use crate::sessions::live::LiveSession;

/// How many inputs of one answer are shown while they are written. The others are shown when the calls are made.
const MAX_SHOWN_INPUTS: usize = 64;

/// The calls of one answer whose inputs the agent is writing.
#[derive(Default)]
pub(super) struct CallInputs(Vec<CallInput>);

struct CallInput {
    /// [`ToolCall::streamed_id`]: the agent's id for the call, which the log does not know.
    streamed_id: String,
    /// The id in the log, once the call is made.
    call: ToolCallId,
    tool: String,
    /// Removes secrets from the input.
    redactor: StreamRedactor,
    /// Whether the agent has made the call.
    is_called: bool,
}

/// A piece of the input of a call.
pub(super) struct InputPiece<'a> {
    pub(super) run: &'a RunId,
    pub(super) streamed_id: &'a str,
    pub(super) tool: String,
    pub(super) text: &'a str,
}

impl CallInput {
    fn stream(&self) -> StreamKind {
        StreamKind::ToolInput { call: self.call.clone(), tool: self.tool.clone() }
    }
}

impl CallInputs {
    /// Shows a piece. The first piece of a call gives the call an id from the number that `next` returns.
    pub(super) async fn write(
        &mut self,
        live: &LiveSession,
        piece: InputPiece<'_>,
        redact: &Arc<dyn Redact>,
        next: impl FnOnce() -> UniqueNumber,
    ) {
        let InputPiece { run, streamed_id, tool, text } = piece;
        let known = self.0.iter().position(|input| input.streamed_id == streamed_id);
        let index = match known {
            Some(index) => index,
            None if self.0.len() == MAX_SHOWN_INPUTS => return,
            None => {
                let call = ToolCallId::generate(next());
                let input = CallInput {
                    streamed_id: streamed_id.to_owned(),
                    call,
                    tool,
                    redactor: StreamRedactor::new(redact),
                    is_called: false,
                };
                live.open(run, input.stream());
                self.0.push(input);
                self.0.len() - 1
            }
        };
        let input = &mut self.0[index];
        let stream = input.stream();
        input.redactor.push_in_slices(text, |shown| live.push(&stream, shown)).await;
    }

    /// The id under which the input of `call` was shown. `None` if it was not shown, if the shown text is not its
    /// beginning, or if another call took the id.
    pub(super) async fn take_id(
        &mut self,
        live: &LiveSession,
        call: &ToolCall,
        redact: &Arc<dyn Redact>,
    ) -> Option<ToolCallId> {
        let tool = clean(&**redact, call.tool.clone());
        let whole = clean_long(redact, call.input.clone()).await;
        let mut same =
            self.0.iter_mut().filter(|input| input.streamed_id == call.streamed_id && input.tool == tool);
        let input =
            same.next().filter(|input| !input.is_called && live.is_prefix_of(&input.stream(), &whole))?;
        input.is_called = true;
        Some(input.call.clone())
    }

    /// Closes the texts of all inputs whose calls were not made. The event of a call closes the text of that call.
    pub(super) fn close_all(&mut self, live: &LiveSession) {
        self.0.drain(..).filter(|input| !input.is_called).for_each(|input| live.close(&input.stream()));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use parlor_tools::NoSecrets;

    use super::*;

    #[tokio::test]
    async fn a_limited_number_of_inputs_is_shown_and_all_are_closed() {
        let (live, redact) = (LiveSession::default(), Arc::new(NoSecrets) as Arc<dyn Redact>);
        let run = RunId::parse("run").unwrap();
        let mut inputs = CallInputs::default();
        for number in 0..2 * MAX_SHOWN_INPUTS {
            let piece =
                InputPiece { run: &run, streamed_id: &number.to_string(), tool: "x".to_owned(), text: "{" };
            inputs.write(&live, piece, &redact, || UniqueNumber(number as u128)).await;
        }
        let mut shown = HashMap::new();
        assert_eq!(live.take_new_text(&mut shown, usize::MAX).len(), MAX_SHOWN_INPUTS);
        inputs.close_all(&live);
        assert!(live.take_new_text(&mut HashMap::new(), usize::MAX).is_empty());
    }
}
