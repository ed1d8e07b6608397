//! What is recorded and shown of a run is without secrets, whoever wrote them into it: a tool, an agent or an error.
//!
//! Which secrets there are is known to whoever opens the sessions. What people say themselves is left as it is.

use parlor_tools::{Redact, clean};
use parlor_vocab::{Failure, MessageEvent, RunEnding, RunEvent, StepEvent, SubagentEvent, ToolEvent};

/// The mark with which a text is cut by those who do not know the secrets.
const ELLIPSIS: char = '…';

/// A text of which others may have cut off parts, without secrets and without the beginning of one before such a cut.
pub(crate) fn clean_excerpt(redact: &dyn Redact, text: String) -> String {
    let Some((mut cut, rest)) = text.rsplit_once(ELLIPSIS) else { return clean(redact, text) };
    let mut shown = vec![redact.redact(rest)];
    while let Some((before, part)) = cut.rsplit_once(ELLIPSIS) {
        shown.push(redact.redact_cut(part));
        cut = before;
    }
    shown.push(redact.redact_cut(cut));
    shown.reverse();
    shown.join("…")
}

/// What went wrong, without secrets.
pub(crate) fn clean_failure(redact: &dyn Redact, failure: Failure) -> Failure {
    Failure { message: clean_excerpt(redact, failure.message), ..failure }
}

/// A fact about a run, without secrets in what agents, tools and providers wrote.
pub(crate) fn clean_event(redact: &dyn Redact, event: RunEvent) -> RunEvent {
    let text = |text: String| clean(redact, text);
    let failed = |failure: Failure| clean_failure(redact, failure);
    match event {
        RunEvent::Message(MessageEvent::Completed { message, text: said, media }) => {
            RunEvent::Message(MessageEvent::Completed { message, text: text(said), media })
        }
        RunEvent::Step(StepEvent::Started { step, kind, title }) => {
            RunEvent::Step(StepEvent::Started { step, kind, title: text(title) })
        }
        RunEvent::Step(StepEvent::Updated { step, headline, percent }) => {
            RunEvent::Step(StepEvent::Updated { step, headline: text(headline), percent })
        }
        RunEvent::Step(StepEvent::Completed { step, summary, duration_ms }) => {
            RunEvent::Step(StepEvent::Completed { step, summary: text(summary), duration_ms })
        }
        RunEvent::Step(StepEvent::Failed { step, failure, duration_ms }) => {
            RunEvent::Step(StepEvent::Failed { step, failure: failed(failure), duration_ms })
        }
        RunEvent::Step(StepEvent::Reasoned { step, text: thought }) => {
            RunEvent::Step(StepEvent::Reasoned { step, text: text(thought) })
        }
        RunEvent::Tool(ToolEvent::Called { step, call, tool, input }) => {
            RunEvent::Tool(ToolEvent::Called { step, call, tool: text(tool), input: text(input) })
        }
        RunEvent::Tool(ToolEvent::Progressed { call, message, percent }) => {
            RunEvent::Tool(ToolEvent::Progressed { call, message: text(message), percent })
        }
        RunEvent::Tool(ToolEvent::Completed { call, output, duration_ms }) => {
            RunEvent::Tool(ToolEvent::Completed { call, output: text(output), duration_ms })
        }
        RunEvent::Tool(ToolEvent::Failed { call, failure, duration_ms }) => {
            RunEvent::Tool(ToolEvent::Failed { call, failure: failed(failure), duration_ms })
        }
        RunEvent::Subagent(SubagentEvent::Started { child, name, task }) => {
            RunEvent::Subagent(SubagentEvent::Started { child, name: text(name), task: text(task) })
        }
        RunEvent::Subagent(SubagentEvent::Updated { child, status }) => {
            RunEvent::Subagent(SubagentEvent::Updated { child, status: text(status) })
        }
        RunEvent::Subagent(SubagentEvent::Done { child, result, duration_ms }) => {
            RunEvent::Subagent(SubagentEvent::Done {
                child,
                result: result.map(text).map_err(failed),
                duration_ms,
            })
        }
        RunEvent::ErrorRaised { scope, failure } => RunEvent::ErrorRaised { scope, failure: failed(failure) },
        RunEvent::Ended { ending: RunEnding::Failed(failure), duration_ms } => {
            RunEvent::Ended { ending: RunEnding::Failed(failed(failure)), duration_ms }
        }
        // What people said, and what holds no text.
        event @ (RunEvent::Started { .. }
        | RunEvent::Steered { .. }
        | RunEvent::Message(MessageEvent::Started { .. })
        | RunEvent::Consumed { .. }
        | RunEvent::Ended { .. }) => event,
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    /// Knows one secret.
    struct One(&'static str);

    impl Redact for One {
        fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
            Cow::Owned(text.replace(self.0, "[secret]"))
        }

        fn sift<'t>(&self, text: &'t str) -> (Cow<'t, str>, usize) {
            let mut lengths = (1..self.0.len()).rev();
            let held = lengths.find(|length| text.ends_with(self.0.split_at(*length).0)).unwrap_or(0);
            (self.redact(text.split_at(text.len() - held).0), held)
        }

        fn finds(&self, bytes: &[u8]) -> bool {
            bytes.windows(self.0.len()).any(|part| part == self.0.as_bytes())
        }
    }

    #[test]
    fn what_others_have_cut_ends_before_a_secret() {
        let clean = |text: &str| clean_excerpt(&One("s3cret-key"), text.to_owned());
        assert_eq!(clean("no s3cret-key here"), "no [secret] here");
        assert_eq!(clean("wrong key s3cret-k… (status 401)"), "wrong key … (status 401)");
        assert_eq!(clean("s3cret-key … s3cret… s3cr"), "[secret] … … s3cr");
    }
}
