//! The inputs of calls that an agent is going to make: shown while they are written, and not recorded.

use std::sync::Arc;

use parlor_model::Call;
use parlor_tools::{Redact, StreamRedactor, clean};
use parlor_vocab::{RunId, StreamKind, ToolCallId, UniqueNumber};

use crate::sessions::live::Live;

/// How many inputs of one answer are shown while they are written. The others are seen when they are called.
const MAX_WRITTEN_INPUTS: usize = 64;

/// The calls of one answer whose inputs are being written.
#[derive(Default)]
pub(super) struct Inputs(Vec<Input>);

struct Input {
    /// The agent's name for the call.
    name: String,
    call: ToolCallId,
    tool: String,
    /// What is written passes here.
    sieve: StreamRedactor,
    /// Whether the call was made.
    is_made: bool,
}

/// A piece of an input.
pub(super) struct Written<'a> {
    pub(super) run: &'a RunId,
    /// The agent's name for the call.
    pub(super) name: &'a str,
    pub(super) tool: String,
    pub(super) text: &'a str,
}

impl Input {
    fn subject(&self) -> StreamKind {
        StreamKind::Input { call: self.call.clone(), tool: self.tool.clone() }
    }
}

impl Inputs {
    /// Shows a piece. A call that begins with it gets an id of the next number.
    pub(super) fn write(
        &mut self,
        live: &Live,
        piece: Written<'_>,
        redact: &Arc<dyn Redact>,
        next: impl FnOnce() -> UniqueNumber,
    ) {
        let Written { run, name, tool, text } = piece;
        let known = self.0.iter().position(|input| input.name == name);
        let place = match known {
            Some(place) => place,
            None if self.0.len() == MAX_WRITTEN_INPUTS => return,
            None => {
                let call = ToolCallId::generate(next());
                let input = Input {
                    name: name.to_owned(),
                    call,
                    tool,
                    sieve: StreamRedactor::new(redact),
                    is_made: false,
                };
                live.open(run, input.subject());
                self.0.push(input);
                self.0.len() - 1
            }
        };
        let input = &mut self.0[place];
        let shown = input.sieve.push(text);
        live.push(&input.subject(), &shown);
    }

    /// The id under which the input of `call` was shown, if it was, that was its beginning, and no other call has it.
    pub(super) fn made(&mut self, live: &Live, call: &Call, redact: &dyn Redact) -> Option<ToolCallId> {
        let (tool, whole) = (clean(redact, call.tool.clone()), clean(redact, call.input.clone()));
        let mut same = self.0.iter_mut().filter(|input| input.name == call.name && input.tool == tool);
        let input = same.next().filter(|input| !input.is_made && live.begins(&input.subject(), &whole))?;
        input.is_made = true;
        Some(input.call.clone())
    }

    /// Nothing more is written. What is called ends with the event that says so, the rest here.
    pub(super) fn let_go(&mut self, live: &Live) {
        self.0.drain(..).filter(|input| !input.is_made).for_each(|input| live.close(&input.subject()));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use parlor_tools::NoSecrets;

    use super::*;

    #[test]
    fn so_many_inputs_are_shown_and_all_are_let_go() {
        let (live, redact) = (Live::default(), Arc::new(NoSecrets) as Arc<dyn Redact>);
        let run = RunId::parse("run").unwrap();
        let mut inputs = Inputs::default();
        for number in 0..2 * MAX_WRITTEN_INPUTS {
            let piece = Written { run: &run, name: &number.to_string(), tool: "x".to_owned(), text: "{" };
            inputs.write(&live, piece, &redact, || UniqueNumber(number as u128));
        }
        let mut shown = HashMap::new();
        assert_eq!(live.news(&mut shown).len(), MAX_WRITTEN_INPUTS);
        inputs.let_go(&live);
        assert!(live.news(&mut HashMap::new()).is_empty());
    }
}
