//! Asks the policy about tool calls, and people where the policy says so.

use std::sync::Arc;
use std::time::Duration;

use parlor_model::{ToolCall, TurnError};
use parlor_tools::ToolAccess;
use parlor_vocab::{
    Failure, FailureCode, Question, QuestionAnswer, QuestionId, QuestionKind, QuestionOutcome, RuleAction,
    Timestamp, ToolCallId, truncate_chars, truncate_middle,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::RunDriver;
use crate::called_paths::called_paths;
use crate::policy::{ToolRequest, WhenUnattended};
use crate::sessions::handle::ActorMessage;
use crate::sessions::policy_source::RunRules;
use crate::visible::escaped;

/// The longest detail of a question, in bytes. The input of the call has all of it.
pub const QUESTION_DETAIL_BYTES: usize = 16 << 10;

/// How many characters of a command or a path the title of a question shows.
const TITLE_CHARS: usize = 120;

/// What happens to a call before it is made.
pub(super) enum Permission {
    /// It is made. The text, if any, is reported first.
    Granted(Option<String>),
    /// It is made without the sandbox.
    GrantedInFull,
    /// It fails with this instead.
    Refused(Failure),
    /// A person is asked.
    Ask(Box<Question>),
}

/// The time that a run has waited for answers, which does not count as time of the run.
#[derive(Default)]
pub(super) struct AnswerWaits {
    total: Duration,
    since: Option<Instant>,
}

impl AnswerWaits {
    /// The time until now.
    pub(super) fn so_far(&self) -> Duration {
        self.total + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Adds time that a subagent has waited.
    pub(super) fn add(&mut self, waited: Duration) {
        self.total += waited;
    }

    /// The time until now, from zero again.
    pub(super) fn take(&mut self) -> Duration {
        let waited = self.so_far();
        *self = Self { total: Duration::ZERO, since: self.since.map(|_| Instant::now()) };
        waited
    }
}

impl RunDriver {
    /// What the policy says about a call.
    pub(super) async fn permission(&self, call: &ToolCall, id: &ToolCallId) -> Permission {
        let Some(rules) = &self.rules else { return Permission::Granted(None) };
        let toolbox = self.tools.with_tool(&call.tool, &self.context.folder).await;
        // A tool that the policy does not find now could exist when the call is made.
        let tool = match toolbox.find(&call.tool) {
            Ok(tool) => Arc::clone(tool),
            Err(failure) => return Permission::Refused(failure),
        };
        let access = tool.access(&call.input);
        let mut judged = (call.tool.clone(), access);
        let request = self.request(rules, &judged.0, &judged.1).await;
        let (mut verdict, mut remembered) = rules.verdict(&request);
        // Rules name the tool that does the work, so a call that is passed on is judged as that tool's. A rule that denies
        // the passing on holds nevertheless.
        match tool.passes_on(&call.input) {
            Ok(None) => {}
            Ok(Some(passed)) if verdict.action != RuleAction::Deny => {
                judged = (passed.tool.name().to_owned(), passed.tool.access(&passed.input));
                let request = self.request(rules, &judged.0, &judged.1).await;
                (verdict, remembered) = rules.verdict(&request);
            }
            Ok(Some(_)) => {}
            Err(failure) => return Permission::Refused(failure),
        }
        let (judged_tool, access) = judged;
        match verdict.action {
            RuleAction::Allow => Permission::Granted(None),
            RuleAction::Deny => {
                Permission::Refused(denied(format!("the policy refuses this call: {}", verdict.reason)))
            }
            RuleAction::Ask if rules.asked.can_answer => {
                let detail = truncate_middle(&access.detail, QUESTION_DETAIL_BYTES).into_owned();
                let input = self.redact.redact(&call.input);
                Permission::Ask(Box::new(Question {
                    id: QuestionId::generate(self.deps.ids.next()),
                    kind: QuestionKind::Call,
                    call: id.clone(),
                    tool: judged_tool.clone(),
                    title: title(&judged_tool, &access),
                    reason: escaped(&verdict.reason),
                    detail,
                    // A secret in a rule would be stored.
                    remembered: remembered.filter(|_| input == call.input),
                    is_repeatable: input == call.input,
                }))
            }
            RuleAction::Ask => match rules.settings().when_unattended {
                WhenUnattended::Allow => Permission::Granted(Some(format!(
                    "Made without a question, because nobody can be asked here (when_unattended = \"allow\"): {}",
                    verdict.reason
                ))),
                WhenUnattended::Deny => Permission::Refused(denied(format!(
                    "a person has to be asked before this call, and nobody can be asked here \
                     (when_unattended = \"deny\"): {}",
                    verdict.reason
                ))),
            },
        }
    }

    /// Waits until the question is settled, which was recorded as asked at `asked_at`. Fails if the run is stopped.
    pub(super) async fn await_answer(
        &self,
        question: &QuestionId,
        asked_at: Timestamp,
    ) -> Result<QuestionOutcome, TurnError> {
        let waited = Duration::from_millis(self.since(asked_at));
        let timeout = self.rules.as_ref().map(|rules| rules.settings().question_timeout);
        let mut left = timeout.unwrap_or(crate::policy::QUESTION_TIMEOUT).saturating_sub(waited);
        self.set_waiting(true);
        let (reply, mut answer) = oneshot::channel();
        let asked = self.actor.send(ActorMessage::AwaitAnswer(question.clone(), reply)).await;
        let outcome = loop {
            if asked.is_err() {
                break Err(TurnError::Stopped);
            }
            tokio::select! {
                biased;
                outcome = &mut answer => break outcome.map_err(|_| TurnError::Stopped),
                () = self.context.cancel.cancelled() => break Err(TurnError::Stopped),
                () = tokio::time::sleep(left) => {
                    let expired = self.actor.send(ActorMessage::ExpireQuestion(question.clone())).await;
                    if expired.is_err() {
                        break Err(TurnError::Stopped);
                    }
                    // Again if the log could not record it.
                    left = Duration::from_secs(1);
                }
            }
        };
        self.set_waiting(false);
        outcome
    }

    /// What an outcome means for the call. Remembers the answer "always".
    pub(super) async fn settled(&self, question: &Question, outcome: QuestionOutcome) -> Permission {
        if let QuestionOutcome::Answered { answer: QuestionAnswer::AllowAlways, .. } = &outcome
            && let (Some(rules), Some(rule)) = (&self.rules, question.remembered.clone())
            && let Err(error) = rules.remember(rule).await
        {
            return Permission::Granted(Some(format!("The answer could not be remembered: {error}")));
        }
        match outcome {
            QuestionOutcome::Answered { answer: QuestionAnswer::Deny { message }, .. } => {
                Permission::Refused(denied(match message {
                    Some(message) => format!("the user refused this call: {message}"),
                    None => "the user refused this call".to_owned(),
                }))
            }
            QuestionOutcome::Answered { .. } => Permission::Granted(None),
            QuestionOutcome::Expired => Permission::Refused(denied(
                "the user was asked before this call and did not answer in time, so it was not made"
                    .to_owned(),
            )),
            QuestionOutcome::Withdrawn => {
                Permission::Refused(denied("the run ended before an answer".to_owned()))
            }
        }
    }

    pub(super) fn set_waiting(&self, is_waiting: bool) {
        let mut waits = self.waits.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(since) = waits.since.take() {
            waits.total += since.elapsed();
        }
        waits.since = is_waiting.then(Instant::now);
    }

    /// A call as the rules see it, with its path as it is written and with all links resolved.
    pub(super) async fn request(&self, rules: &RunRules, tool: &str, access: &ToolAccess) -> ToolRequest {
        ToolRequest::new(tool, access, called_paths(access, &self.context.policy, &rules.folder).await)
    }
}

pub(super) fn denied(message: String) -> Failure {
    Failure { code: FailureCode::PolicyDenied, message, retryable: false }
}

/// What a question is about, in one line.
fn title(tool: &str, access: &ToolAccess) -> String {
    let shown =
        |text: &str| truncate_chars(text.lines().next().unwrap_or_default(), TITLE_CHARS).into_owned();
    let title = match (&access.command, &access.path) {
        (Some(command), _) => format!("Run `{}`", shown(command)),
        (None, Some(path)) => format!("Use {tool} on `{}`", shown(path)),
        (None, None) => format!("Use {tool}"),
    };
    // Clients print it, and escape sequences could make another question of it.
    escaped(&title)
}

#[cfg(test)]
mod tests {
    use parlor_tools::ToolEffect;

    use super::*;

    #[test]
    fn a_title_has_no_escape_sequences() {
        let access = ToolAccess::new(ToolEffect::Confined, "");
        let command = Some("rm -r x \u{1b}[2K\r\u{202e}ls\nmore".to_owned());
        let title = title("shell", &ToolAccess { command, ..access });
        assert_eq!(title, "Run `rm -r x \\u{1b}[2K\\r\\u{202e}ls`");
    }
}
