//! Runs turns without a runtime. An agent that awaits anything but the context makes the test panic.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use parlor_model::{Agent, Turn, TurnError};

use super::common::{RecordingContext, turn};

/// Runs `agent` with this prompt.
pub(crate) fn run_prompt(
    agent: &dyn Agent,
    prompt: &str,
    context: &mut RecordingContext,
) -> Result<(), TurnError> {
    run_turn(agent, &turn(prompt), context)
}

/// Runs `agent` with this turn.
pub(crate) fn run_turn(
    agent: &dyn Agent,
    turn: &Turn,
    context: &mut RecordingContext,
) -> Result<(), TurnError> {
    let future = pin!(agent.answer(turn, context));
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(end) => end,
        Poll::Pending => panic!("the agent awaits something other than the context"),
    }
}

/// Runs a prompt to its end, then again for each action, stopped before that action. The stop must be passed on, no
/// action may follow it, and the actions before it must be the same. Returns the complete run.
pub(crate) fn run_and_stop_everywhere(
    agent: &dyn Agent,
    prompt: &str,
) -> (RecordingContext, Result<(), TurnError>) {
    let mut whole = RecordingContext::default();
    let end = run_prompt(agent, prompt, &mut whole);
    for actions in 0..whole.actions.len() {
        let mut context = RecordingContext { stop_after: Some(actions), ..RecordingContext::default() };
        assert_eq!(
            run_prompt(agent, prompt, &mut context),
            Err(TurnError::Stopped),
            "stopped after {actions} actions"
        );
        assert_eq!(context.actions, whole.actions[..actions]);
    }
    (whole, end)
}
