//! Performing without a runtime: an agent that awaits anything but the stage is caught.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use parlor_model::{Agent, Turn, TurnError};

use super::common::{Recorder, turn};

/// Lets `agent` answer `prompt` on `stage`.
pub(crate) fn perform(agent: &dyn Agent, prompt: &str, stage: &mut Recorder) -> Result<(), TurnError> {
    perform_turn(agent, &turn(prompt), stage)
}

/// Lets `agent` perform `turn` on `stage`.
pub(crate) fn perform_turn(agent: &dyn Agent, turn: &Turn, stage: &mut Recorder) -> Result<(), TurnError> {
    let future = pin!(agent.answer(turn, stage));
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(end) => end,
        Poll::Pending => panic!("the agent waits for something that is not the stage"),
    }
}

/// Performs `prompt` to its end, then again and again, stopped before each act: the stop must be
/// passed on, nothing may follow it, and what came before must be the same. Gives back the whole.
pub(crate) fn perform_and_stop_everywhere(
    agent: &dyn Agent,
    prompt: &str,
) -> (Recorder, Result<(), TurnError>) {
    let mut whole = Recorder::default();
    let end = perform(agent, prompt, &mut whole);
    for acts in 0..whole.acts.len() {
        let mut stage = Recorder { stop_after: Some(acts), ..Recorder::default() };
        assert_eq!(perform(agent, prompt, &mut stage), Err(TurnError::Stopped), "stopped after {acts} acts");
        assert_eq!(stage.acts, whole.acts[..acts]);
    }
    (whole, end)
}
