//! Questions of runs to people: who may settle them, and when. A question is settled exactly once.

use parlor_vocab::{
    Question, QuestionAnswer, QuestionEvent, QuestionId, QuestionKind, QuestionOutcome, RunEvent, RunId,
    Sender, SessionEvent, SessionRefusal, SessionReply, Timestamp,
};

use super::{Decision, Effect, OpenRun, Session};
use crate::policy::PROJECT_SERVERS_TRUST;
use crate::visible::is_blank;

/// How many settled questions a session remembers, to tell a late answer what became of its question.
pub const MAX_SETTLED_QUESTIONS: usize = 64;

/// The longest message with which a person refuses a call, in bytes. The agent reads it.
pub const MAX_ANSWER_BYTES: usize = 4096;

/// A question that nobody has settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingQuestion {
    /// The question.
    pub question: Question,
    /// When it was asked.
    pub asked_at: Timestamp,
}

impl Session {
    /// The question that a run of this session waits for.
    pub fn pending_question(&self) -> Option<&PendingQuestion> {
        self.open.values().find_map(|run| run.question.as_ref())
    }

    /// How a question was settled. `None` if it is pending, or settled long ago.
    pub(crate) fn outcome_of(&self, question: &QuestionId) -> Option<&QuestionOutcome> {
        self.settled.iter().rev().find(|(id, _)| id == question).map(|(_, outcome)| outcome)
    }

    /// Whether `run` does nothing but wait for an answer, and can go on after its process died: no tool is at work, no
    /// message is being written, and the log has the whole call.
    pub(crate) fn only_waits(&self, run: &RunId) -> bool {
        let Some(OpenRun { question: Some(pending), calls, message: None, .. }) = self.open.get(run) else {
            return false;
        };
        let is_only_call = match pending.question.kind {
            QuestionKind::Call | QuestionKind::WiderRights => {
                matches!(&calls[..], [(call, _)] if *call == pending.question.call)
            }
            // Its command is at work.
            QuestionKind::Host => false,
            QuestionKind::ProjectTrust => calls.is_empty(),
        };
        self.open.len() == 1 && is_only_call && pending.question.is_repeatable
    }

    /// What a person answered in this session about the trust of its project. "Always" is not among it: it is remembered as a
    /// rule, which the user can remove.
    pub(crate) fn trust_answer(&self) -> Option<bool> {
        self.trust_answer
    }

    pub(super) fn answer(
        &self,
        question: QuestionId,
        answer: QuestionAnswer,
        by: Option<Sender>,
    ) -> Result<Decision, SessionRefusal> {
        let Some(pending) = self.pending_question().filter(|pending| pending.question.id == question) else {
            return Err(match self.outcome_of(&question) {
                Some(outcome) => {
                    SessionRefusal::QuestionSettled { question, outcome: outcome.as_str().to_owned() }
                }
                None => SessionRefusal::UnknownQuestion(question),
            });
        };
        let invalid = |reason: String| Err(SessionRefusal::InvalidAnswer { reason });
        let answer = match answer {
            QuestionAnswer::AllowAlways if pending.question.remembered.is_none() => {
                return invalid("no rule can name this call, so answer once or deny".to_owned());
            }
            QuestionAnswer::Deny { message: Some(message) } if message.len() > MAX_ANSWER_BYTES => {
                return invalid(format!(
                    "its message is longer than {MAX_ANSWER_BYTES} bytes, which is the limit; send a shorter one"
                ));
            }
            QuestionAnswer::Deny { message } => {
                QuestionAnswer::Deny { message: message.filter(|message| !is_blank(message)) }
            }
            answer @ (QuestionAnswer::AllowOnce | QuestionAnswer::AllowAlways) => answer,
        };
        let (events, effects) = self.settle(&question, QuestionOutcome::Answered { answer, by });
        Ok(Decision { events, effects, reply: SessionReply::Done })
    }

    /// Settles a question that nobody answered in time. Nothing happens if it was settled before.
    pub fn expire(&self, question: &QuestionId) -> (Vec<SessionEvent>, Vec<Effect>) {
        self.settle(question, QuestionOutcome::Expired)
    }

    fn settle(&self, question: &QuestionId, outcome: QuestionOutcome) -> (Vec<SessionEvent>, Vec<Effect>) {
        let is_asked =
            |run: &OpenRun| run.question.as_ref().is_some_and(|asked| asked.question.id == *question);
        let Some((run, _)) = self.open.iter().find(|(_, run)| is_asked(run)) else {
            return (Vec::new(), Vec::new());
        };
        let settled = QuestionEvent::Settled { question: question.clone(), outcome: outcome.clone() };
        let events = self.numbered(run, vec![RunEvent::Question(settled)]);
        (events, vec![Effect::Settle(question.clone(), outcome)])
    }

    /// Applies an event of a question.
    pub(super) fn apply_question(&mut self, run: &RunId, event: &QuestionEvent, at: Timestamp) {
        let open = self.open.entry(run.clone()).or_default();
        match event {
            QuestionEvent::Asked(question) => {
                open.question = Some(PendingQuestion { question: question.clone(), asked_at: at });
            }
            QuestionEvent::Settled { question, outcome } => {
                let asked = open.question.take_if(|asked| asked.question.id == *question);
                let is_about_project = |asked: PendingQuestion| {
                    asked.question.kind == QuestionKind::ProjectTrust
                        && asked.question.tool != PROJECT_SERVERS_TRUST
                };
                if asked.is_some_and(is_about_project)
                    && let QuestionOutcome::Answered { answer, .. } = outcome
                {
                    self.trust_answer = match answer {
                        QuestionAnswer::AllowOnce => Some(true),
                        QuestionAnswer::AllowAlways => None,
                        QuestionAnswer::Deny { .. } => Some(false),
                    };
                }
                self.settled.push_back((question.clone(), outcome.clone()));
                if self.settled.len() > MAX_SETTLED_QUESTIONS {
                    self.settled.pop_front();
                }
            }
        }
    }
}

/// The event that withdraws the question of a run that ends.
pub(super) fn withdrawn(open: &OpenRun) -> Option<RunEvent> {
    let question = open.question.as_ref()?.question.id.clone();
    Some(RunEvent::Question(QuestionEvent::Settled { question, outcome: QuestionOutcome::Withdrawn }))
}
