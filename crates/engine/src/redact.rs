//! What is recorded and shown of a run is without secrets, whoever wrote them into it: a tool, an agent or an error.
//!
//! Which secrets there are is known to whoever opens the house. What people say themselves is left as it is.

use std::borrow::Cow;
use std::sync::Arc;

use parlor_vocab::{Failure, RunEnding, RunEvent};

/// How much of a text that is being written is held back at most, because it may be the beginning of a secret. More
/// than the longest secret in any of its forms.
pub const MAX_HELD_BYTES: usize = 256 << 10;

/// Takes secrets out of texts.
pub trait Redact: Send + Sync {
    /// `text` without secrets.
    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str>;

    /// How many bytes at the end of `text` may be the beginning of a secret, if more text follows.
    fn held(&self, text: &str) -> usize;
}

/// For a house without secrets.
pub(crate) struct NoSecrets;

impl Redact for NoSecrets {
    fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        Cow::Borrowed(text)
    }

    fn held(&self, _: &str) -> usize {
        0
    }
}

/// A text that comes in pieces. What may be the beginning of a secret is held back until that is known.
pub(crate) struct Sieve {
    redact: Arc<dyn Redact>,
    held: String,
}

impl Sieve {
    pub(crate) fn new(redact: &Arc<dyn Redact>) -> Self {
        Self { redact: Arc::clone(redact), held: String::new() }
    }

    /// Takes a piece, and gives what can be shown.
    pub(crate) fn push<'t>(&mut self, piece: &'t str) -> Cow<'t, str> {
        let text = if self.held.is_empty() {
            self.redact.redact(piece)
        } else {
            self.held.push_str(piece);
            Cow::Owned(self.rest())
        };
        let held = self.redact.held(&text);
        if held == 0 || held > MAX_HELD_BYTES {
            return text;
        }
        let (shown, held) = text.split_at(text.len() - held);
        held.clone_into(&mut self.held);
        Cow::Owned(shown.to_owned())
    }

    /// Forgets what was held back, and says how many bytes that is.
    pub(crate) fn forget(&mut self) -> usize {
        std::mem::take(&mut self.held).len()
    }

    /// Gives what was held back: nothing more follows.
    pub(crate) fn rest(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        clean(&*self.redact, held)
    }
}

/// A text without secrets.
pub(crate) fn clean(redact: &dyn Redact, text: String) -> String {
    match redact.redact(&text) {
        Cow::Owned(clean) => clean,
        Cow::Borrowed(_) => text,
    }
}

/// What went wrong, without secrets.
pub(crate) fn clean_failure(redact: &dyn Redact, failure: Failure) -> Failure {
    Failure { message: clean(redact, failure.message), ..failure }
}

/// A fact about a run, without secrets in what agents, tools and providers wrote.
pub(crate) fn clean_event(redact: &dyn Redact, event: RunEvent) -> RunEvent {
    let text = |text: String| clean(redact, text);
    let failed = |failure: Failure| clean_failure(redact, failure);
    match event {
        RunEvent::MessageCompleted { message, text: said, media } => {
            RunEvent::MessageCompleted { message, text: text(said), media }
        }
        RunEvent::StepStarted { step, kind, title } => {
            RunEvent::StepStarted { step, kind, title: text(title) }
        }
        RunEvent::StepUpdated { step, headline, percent } => {
            RunEvent::StepUpdated { step, headline: text(headline), percent }
        }
        RunEvent::StepCompleted { step, summary, duration_ms } => {
            RunEvent::StepCompleted { step, summary: text(summary), duration_ms }
        }
        RunEvent::StepFailed { step, failure, duration_ms } => {
            RunEvent::StepFailed { step, failure: failed(failure), duration_ms }
        }
        RunEvent::Reasoned { step, text: thought } => RunEvent::Reasoned { step, text: text(thought) },
        RunEvent::ToolCalled { step, call, tool, input } => {
            RunEvent::ToolCalled { step, call, tool: text(tool), input: text(input) }
        }
        RunEvent::ToolProgressed { call, message, percent } => {
            RunEvent::ToolProgressed { call, message: text(message), percent }
        }
        RunEvent::ToolCompleted { call, output, duration_ms } => {
            RunEvent::ToolCompleted { call, output: text(output), duration_ms }
        }
        RunEvent::ToolFailed { call, failure, duration_ms } => {
            RunEvent::ToolFailed { call, failure: failed(failure), duration_ms }
        }
        RunEvent::SubagentStarted { child, name, task } => {
            RunEvent::SubagentStarted { child, name: text(name), task: text(task) }
        }
        RunEvent::SubagentUpdated { child, status } => {
            RunEvent::SubagentUpdated { child, status: text(status) }
        }
        RunEvent::SubagentDone { child, result, duration_ms } => {
            RunEvent::SubagentDone { child, result: result.map(text).map_err(failed), duration_ms }
        }
        RunEvent::ErrorRaised { scope, failure } => RunEvent::ErrorRaised { scope, failure: failed(failure) },
        RunEvent::Ended { ending: RunEnding::Failed(failure), duration_ms } => {
            RunEvent::Ended { ending: RunEnding::Failed(failed(failure)), duration_ms }
        }
        // What people said, and what holds no text.
        event @ (RunEvent::Started { .. }
        | RunEvent::Steered { .. }
        | RunEvent::MessageStarted { .. }
        | RunEvent::Consumed { .. }
        | RunEvent::Ended { .. }) => event,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Knows one secret.
    struct One(&'static str);

    impl Redact for One {
        fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
            if text.contains(self.0) {
                Cow::Owned(text.replace(self.0, "[secret]"))
            } else {
                Cow::Borrowed(text)
            }
        }

        fn held(&self, text: &str) -> usize {
            (1..self.0.len()).rev().find(|length| text.ends_with(self.0.split_at(*length).0)).unwrap_or(0)
        }
    }

    fn sieve(secret: &'static str) -> Sieve {
        Sieve::new(&(Arc::new(One(secret)) as Arc<dyn Redact>))
    }

    #[test]
    fn a_secret_in_pieces_is_held_back_and_taken_out() {
        let mut sieve = sieve("s3cret");
        let shown: Vec<String> = ["a s3", "cr", "et and ", "s3c", "ond", " s"]
            .map(|piece| sieve.push(piece).into_owned())
            .to_vec();
        assert_eq!(shown, ["a ", "", "[secret] and ", "", "s3cond", " "]);
        assert_eq!(sieve.rest(), "s");
        assert_eq!(sieve.rest(), "");
    }

    #[test]
    fn text_without_secrets_passes_as_it_is() {
        assert!(matches!(sieve("s3cret").push("nothing"), Cow::Borrowed("nothing")));
    }

    #[test]
    fn no_more_is_held_back_than_is_allowed() {
        let long: &'static str = Box::leak("x".repeat(MAX_HELD_BYTES + 2).into_boxed_str());
        let mut sieve = sieve(long);
        let most = "x".repeat(MAX_HELD_BYTES);
        assert_eq!(sieve.push(&most), "");
        assert_eq!(sieve.push("x").len(), MAX_HELD_BYTES + 1);
        assert_eq!(sieve.rest(), "");
    }
}
