//! Prompts from their acceptance to their answers, and their cancellation.
//!
//! Each prompt is sent under a key of its own, by which its run is recognized among those of other clients. A prompt is
//! answered when the watch of its session reports the end of its run, so every update of the turn comes before.

use agent_client_protocol_schema::v1::{RequestId, StopReason};
use parlor_vocab::{
    FrontendRequest, Media, NamedFile, RegistryRequest, RunId, SessionCommand, SessionId, UserInput,
};

use super::open_session::{Effect, OpenSession};

/// An unanswered prompt.
#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) id: RequestId,
    /// The key of its input.
    pub(super) key: String,
    pub(super) stage: PromptStage,
    /// Whether the client has cancelled it.
    pub(super) is_cancelled: bool,
    /// Set once the session was told to stop the run: whether the run had started then.
    pub(super) stopped_as_started: Option<bool>,
}

/// How far a prompt has come.
#[derive(Debug)]
pub(super) enum PromptStage {
    /// An earlier prompt must be sent first.
    Waiting { input: UserInput, files: Vec<NamedFile> },
    /// Its files are being stored.
    Storing { input: UserInput },
    /// It was sent, and the session has not replied.
    Sent,
    /// The session will start this run, or has started it.
    Accepted { run: RunId, has_started: bool },
}

impl OpenSession {
    /// The prompt with this key.
    pub(super) fn prompt(&mut self, key: &str) -> Option<&mut Prompt> {
        self.prompts.iter_mut().find(|prompt| prompt.key == key)
    }

    /// The first prompt that waits, if nothing is before it that must be sent first.
    pub(super) fn next_to_send(&mut self) -> Option<&mut Prompt> {
        let mut unsent = self.prompts.iter_mut().filter(|prompt| {
            let is_unsent = matches!(prompt.stage, PromptStage::Waiting { .. } | PromptStage::Storing { .. });
            is_unsent && !prompt.is_cancelled
        });
        unsent.next().filter(|prompt| matches!(prompt.stage, PromptStage::Waiting { .. }))
    }

    /// Records which run a prompt starts.
    pub(super) fn accept(&mut self, key: &str, run: &RunId, has_started: bool) {
        let Some(prompt) = self.prompt(key) else { return };
        let had_started = matches!(prompt.stage, PromptStage::Accepted { has_started: true, .. });
        prompt.stage = PromptStage::Accepted { run: run.clone(), has_started: has_started || had_started };
    }

    /// Cancels all prompts of the client, or the one with this id.
    pub(super) fn cancel(&mut self, only: Option<&RequestId>, effects: &mut Vec<Effect>) {
        for prompt in &mut self.prompts {
            prompt.is_cancelled |= only.is_none_or(|id| *id == prompt.id);
        }
        self.answer_unsent(effects);
    }

    /// The requests that stop the runs of cancelled prompts, each of them once. The last prompt comes first, so that none
    /// of them starts when the one before it ends. For the same reason, nothing stops before all of them are accepted.
    pub(super) fn take_stops(&mut self, session: &SessionId) -> Vec<FrontendRequest> {
        let is_sent = |prompt: &Prompt| prompt.is_cancelled && matches!(prompt.stage, PromptStage::Sent);
        if self.prompts.iter().any(is_sent) {
            return Vec::new();
        }
        let mut requests = Vec::new();
        for prompt in self.prompts.iter_mut().rev().filter(|prompt| prompt.is_cancelled) {
            // A queued input that started before it was removed from the queue is stopped as a run.
            if let PromptStage::Accepted { run, has_started } = &prompt.stage
                && prompt.stopped_as_started != Some(*has_started)
            {
                prompt.stopped_as_started = Some(*has_started);
                requests.push(stop_request(session, run, *has_started));
            }
        }
        requests
    }

    /// Answers the cancelled prompts that were not sent to the session, if no earlier one is unanswered.
    pub(super) fn answer_unsent(&mut self, effects: &mut Vec<Effect>) {
        while let Some(first) = self.prompts.front()
            && first.is_cancelled
            && matches!(first.stage, PromptStage::Waiting { .. } | PromptStage::Storing { .. })
            && let Some(prompt) = self.prompts.pop_front()
        {
            effects.push(Effect::Answer(prompt.id, Ok(StopReason::Cancelled)));
        }
    }

    /// Removes the prompt whose run has ended or will not start.
    pub(super) fn take_prompt_of(&mut self, run: &RunId) -> Option<Prompt> {
        let is_of_run =
            |prompt: &Prompt| matches!(&prompt.stage, PromptStage::Accepted { run: own, .. } if own == run);
        let index = self.prompts.iter().position(is_of_run)?;
        self.prompts.remove(index)
    }
}

/// Stops a run, or removes its input from the queue.
pub(super) fn stop_request(session: &SessionId, run: &RunId, has_started: bool) -> FrontendRequest {
    let command = if has_started {
        SessionCommand::Stop { run: Some(run.clone()), reason: None }
    } else {
        SessionCommand::Unqueue(run.clone())
    };
    FrontendRequest::Registry(RegistryRequest::Session(session.clone(), command))
}

/// The input with its stored files.
pub(super) fn with_media(input: UserInput, media: Vec<Media>) -> UserInput {
    UserInput { media, ..input }
}
