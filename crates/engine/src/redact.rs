//! Removes secrets from what agents, tools and providers write, before it is recorded or shown.
//!
//! The program that creates the registry provides the [`Redact`] that knows the secrets. Input of users is not
//! changed.

use std::sync::Arc;

use parlor_tools::{REDACT_SLICE_BYTES, Redact, clean};
use parlor_vocab::{
    Failure, Media, MessageEvent, Question, QuestionEvent, RunEnding, RunEvent, StepEvent, SubagentEvent,
    ToolDetails, ToolDiff, ToolEvent, ToolResource,
};

/// The mark that other code leaves where it cut a text. It does not know the secrets, so it may cut one in half.
const ELLIPSIS: char = '…';

/// Removes secrets from a text that other code may have cut, and the first part of a secret right before a cut.
pub(crate) fn clean_excerpt(redact: &dyn Redact, text: String) -> String {
    let Some((mut cut, rest)) = text.rsplit_once(ELLIPSIS) else { return clean(redact, text) };
    let mut shown = vec![redact.redact(rest)];
    while let Some((before, part)) = cut.rsplit_once(ELLIPSIS) {
        shown.push(redact.redact_truncated(part));
        cut = before;
    }
    shown.push(redact.redact_truncated(cut));
    shown.reverse();
    shown.join("…")
}

/// Removes secrets from the message of a failure.
pub(crate) fn clean_failure(redact: &dyn Redact, failure: Failure) -> Failure {
    Failure { message: clean_excerpt(redact, failure.message), ..failure }
}

/// Removes secrets from the texts of events. Long texts do not occupy an async thread. `None` if the program is ending.
pub(crate) async fn clean_events(redact: &Arc<dyn Redact>, events: Vec<RunEvent>) -> Option<Vec<RunEvent>> {
    let is_long = events.iter().map(text_bytes).sum::<usize>() > REDACT_SLICE_BYTES;
    let redact = Arc::clone(redact);
    let work = move || events.into_iter().map(|event| clean_event(&*redact, event)).collect();
    if is_long { tokio::task::spawn_blocking(work).await.ok() } else { Some(work()) }
}

/// The length of the texts of an event that may be long.
fn text_bytes(event: &RunEvent) -> usize {
    match event {
        RunEvent::Message(MessageEvent::Completed { text, .. })
        | RunEvent::Step(StepEvent::Reasoned { text, .. }) => text.len(),
        RunEvent::Tool(ToolEvent::Called { tool, input, .. }) => tool.len() + input.len(),
        RunEvent::Tool(ToolEvent::Completed { output, details, .. }) => {
            output.len() + details.as_ref().map_or(0, |details| details.text_bytes())
        }
        RunEvent::Tool(ToolEvent::Failed { failure, .. })
        | RunEvent::Step(StepEvent::Failed { failure, .. })
        | RunEvent::Subagent(SubagentEvent::Done { result: Err(failure), .. })
        | RunEvent::ErrorRaised { failure, .. }
        | RunEvent::Ended { ending: RunEnding::Failed(failure), .. } => failure.message.len(),
        RunEvent::Question(QuestionEvent::Asked(question)) => question.title.len() + question.detail.len(),
        RunEvent::Subagent(SubagentEvent::Started { name, task, .. }) => name.len() + task.len(),
        RunEvent::Subagent(SubagentEvent::Done { result: Ok(text), .. }) => text.len(),
        RunEvent::Subagent(SubagentEvent::Updated { status, .. }) => status.len(),
        RunEvent::Step(StepEvent::Started { title, .. }) => title.len(),
        RunEvent::Step(StepEvent::Updated { headline, .. }) => headline.len(),
        RunEvent::Step(StepEvent::Completed { summary, .. }) => summary.len(),
        RunEvent::Tool(ToolEvent::Progressed { message, .. }) => message.len(),
        RunEvent::Started { .. }
        | RunEvent::Steered { .. }
        | RunEvent::Message(MessageEvent::Started { .. })
        | RunEvent::Question(QuestionEvent::Settled { .. })
        | RunEvent::UsageAdded { .. }
        | RunEvent::Ended { .. } => 0,
    }
}

/// Removes secrets from all texts of a result.
fn clean_details(redact: &dyn Redact, details: ToolDetails) -> ToolDetails {
    let text = |text: String| clean(redact, text);
    ToolDetails {
        structured: details.structured.map(text),
        resources: details
            .resources
            .into_iter()
            .map(|ToolResource { uri, name, mime }| ToolResource {
                uri: text(uri),
                name: name.map(text),
                mime: mime.map(text),
            })
            .collect(),
        diffs: details
            .diffs
            .into_iter()
            .map(|ToolDiff { path, text: diff }| ToolDiff { path: text(path), text: text(diff) })
            .collect(),
        images: details
            .images
            .into_iter()
            .map(|image| Media { name: text(image.name.clone()), ..image })
            .collect(),
        annotations: details.annotations,
    }
}

/// Removes secrets from the texts of an event that agents, tools and providers wrote.
pub(crate) fn clean_event(redact: &dyn Redact, event: RunEvent) -> RunEvent {
    let text = |text: String| clean(redact, text);
    let failed = |failure: Failure| clean_failure(redact, failure);
    match event {
        RunEvent::Message(MessageEvent::Completed { message, text: message_text, media }) => {
            RunEvent::Message(MessageEvent::Completed { message, text: text(message_text), media })
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
        RunEvent::Step(StepEvent::Reasoned { step, text: reasoning }) => {
            RunEvent::Step(StepEvent::Reasoned { step, text: text(reasoning) })
        }
        RunEvent::Tool(ToolEvent::Called { step, call, tool, input }) => {
            RunEvent::Tool(ToolEvent::Called { step, call, tool: text(tool), input: text(input) })
        }
        RunEvent::Tool(ToolEvent::Progressed { call, message, percent }) => {
            RunEvent::Tool(ToolEvent::Progressed { call, message: text(message), percent })
        }
        RunEvent::Tool(ToolEvent::Completed { call, output, details, duration_ms }) => {
            let details = details.map(|details| Box::new(clean_details(redact, *details)));
            RunEvent::Tool(ToolEvent::Completed { call, output: text(output), details, duration_ms })
        }
        RunEvent::Tool(ToolEvent::Failed { call, failure, duration_ms }) => {
            RunEvent::Tool(ToolEvent::Failed { call, failure: failed(failure), duration_ms })
        }
        RunEvent::Question(QuestionEvent::Asked(question)) => {
            RunEvent::Question(QuestionEvent::Asked(Question {
                tool: text(question.tool),
                title: text(question.title),
                detail: text(question.detail),
                ..question
            }))
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
        // Events with input of users, and events without text.
        event @ (RunEvent::Started { .. }
        | RunEvent::Steered { .. }
        | RunEvent::Message(MessageEvent::Started { .. })
        | RunEvent::Question(QuestionEvent::Settled { .. })
        | RunEvent::UsageAdded { .. }
        | RunEvent::Ended { .. }) => event,
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    /// Knows one secret.
    struct OneSecret(&'static str);

    impl Redact for OneSecret {
        fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
            Cow::Owned(text.replace(self.0, "[secret]"))
        }

        fn redact_prefix<'t>(&self, text: &'t str) -> (Cow<'t, str>, usize) {
            let mut lengths = (1..self.0.len()).rev();
            let held = lengths.find(|length| text.ends_with(self.0.split_at(*length).0)).unwrap_or(0);
            (self.redact(text.split_at(text.len() - held).0), held)
        }

        fn contains_secret(&self, bytes: &[u8]) -> bool {
            bytes.windows(self.0.len()).any(|part| part == self.0.as_bytes())
        }
    }

    #[tokio::test]
    async fn long_events_are_redacted_on_another_thread() {
        /// Replaces each text by the name of the thread.
        struct ThreadName;

        impl Redact for ThreadName {
            fn redact<'t>(&self, _: &'t str) -> Cow<'t, str> {
                Cow::Owned(format!("{:?}", std::thread::current().id()))
            }

            fn redact_prefix<'t>(&self, text: &'t str) -> (Cow<'t, str>, usize) {
                (self.redact(text), 0)
            }

            fn contains_secret(&self, _: &[u8]) -> bool {
                false
            }
        }

        let (redact, here) = (Arc::new(ThreadName) as Arc<dyn Redact>, ThreadName.redact("").into_owned());
        for (length, is_here) in [(REDACT_SLICE_BYTES, true), (REDACT_SLICE_BYTES + 1, false)] {
            let step = parlor_vocab::StepId::parse("step").unwrap();
            let event = RunEvent::Step(StepEvent::Reasoned { step, text: "x".repeat(length) });
            let events = clean_events(&redact, vec![event]).await.unwrap();
            let [RunEvent::Step(StepEvent::Reasoned { text, .. })] = events.as_slice() else { panic!() };
            assert_eq!(*text == here, is_here, "{length}");
        }
    }

    #[test]
    fn the_first_part_of_a_secret_before_a_cut_is_removed() {
        let clean = |text: &str| clean_excerpt(&OneSecret("s3cret-key"), text.to_owned());
        assert_eq!(clean("no s3cret-key here"), "no [secret] here");
        assert_eq!(clean("wrong key s3cret-k… (status 401)"), "wrong key … (status 401)");
        assert_eq!(clean("s3cret-key … s3cret… s3cr"), "[secret] … … s3cr");
    }
}
