//! Questions about tool calls: `session/request_permission`.
//!
//! The client is asked once for each question. Whoever answers first counts: if that is another client, this one is told
//! to take its dialog away (`$/cancel_request`), and a late answer changes nothing.

use agent_client_protocol_schema::v1::{
    CancelRequestNotification, PermissionOption, PermissionOptionKind, RequestId, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, SessionUpdate, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields,
};
use parlor_vocab::{Question, QuestionAnswer, QuestionEvent, QuestionId, Sender, SessionCommand, SessionId};
use serde_json::value::RawValue;

use super::machine::AcpMachine;
use super::open_session::{Effect, OpenSession};
use super::pending::Pending;
use super::updates::push;
use super::{DOOR, encode, tool_call};

/// A question that the client has not answered.
#[derive(Debug)]
pub(super) struct AskedQuestion {
    session: SessionId,
    question: QuestionId,
    /// Whether the client may choose that a rule remembers its answer.
    can_remember: bool,
}

impl OpenSession {
    /// Asks the client, or tells it that the question is settled.
    pub(super) fn on_question_event(&mut self, event: &QuestionEvent, effects: &mut Vec<Effect>) {
        match event {
            QuestionEvent::Asked(question) => {
                self.question = Some(question.clone());
                if !self.is_replaying() {
                    self.ask_pending(effects);
                }
            }
            QuestionEvent::Settled { question, outcome } => {
                let asked = self.question.take_if(|asked| asked.id == *question);
                // In the history no call was shown as waiting.
                let is_shown = outcome.is_allowed() && !self.is_replaying();
                if let Some(asked) = asked.filter(|_| is_shown) {
                    self.push_status(effects, &asked, ToolCallStatus::InProgress);
                }
                effects.push(Effect::Settled(question.clone()));
            }
        }
    }

    /// Asks the pending question, if there is one.
    pub(super) fn ask_pending(&mut self, effects: &mut Vec<Effect>) {
        if let Some(question) = self.question.clone() {
            // The call was shown as begun, and waits now.
            self.push_status(effects, &question, ToolCallStatus::Pending);
            effects.push(Effect::Ask(Box::new(question)));
        }
    }

    fn push_status(&self, effects: &mut Vec<Effect>, question: &Question, status: ToolCallStatus) {
        // The calls of subagents are not shown.
        if self.calls.contains_key(&question.call) {
            let fields = ToolCallUpdateFields::new().status(status);
            let update = ToolCallUpdate::new(question.call.as_str().to_owned(), fields);
            push(effects, SessionUpdate::ToolCallUpdate(update));
        }
    }
}

impl AcpMachine {
    /// Sends a question to the client, unless it has it already.
    pub(super) fn ask(&mut self, session: &SessionId, question: &Question) {
        if self.questions.values().any(|asked| asked.question == question.id) {
            return;
        }
        self.next_asked += 1;
        let fields = ToolCallUpdateFields::new()
            .title(tool_call::one_line(&question.title))
            .status(ToolCallStatus::Pending)
            .content(vec![tool_call::plain(&question.reason), tool_call::fenced(&question.detail)]);
        let call = ToolCallUpdate::new(question.call.as_str().to_owned(), fields);
        let always = question.remembered.as_ref().map(|_| {
            PermissionOption::new("always", "Always in this project", PermissionOptionKind::AllowAlways)
        });
        let once = PermissionOption::new("once", "Allow once", PermissionOptionKind::AllowOnce);
        let deny = PermissionOption::new("deny", "Deny", PermissionOptionKind::RejectOnce);
        let options = [once].into_iter().chain(always).chain([deny]).collect();
        let request = RequestPermissionRequest::new(session.as_str().to_owned(), call, options);
        let id = RequestId::Number(self.next_asked);
        self.out.send(encode::request(&id, "session/request_permission", &request));
        let can_remember = question.remembered.is_some();
        let asked = AskedQuestion { session: session.clone(), question: question.id.clone(), can_remember };
        self.questions.insert(self.next_asked, asked);
    }

    /// Takes a question back that is settled, if the client has not answered it.
    pub(super) fn take_back(&mut self, question: &QuestionId) {
        self.take_back_if(|asked| asked.question == *question);
    }

    /// Takes all questions of a session back that the client closes.
    pub(super) fn take_back_all(&mut self, session: &SessionId) {
        self.take_back_if(|asked| asked.session == *session);
    }

    fn take_back_if(&mut self, is_taken_back: impl Fn(&AskedQuestion) -> bool) {
        let asked = self.questions.extract_if(|_, asked| is_taken_back(asked));
        let numbers: Vec<i64> = asked.map(|(number, _)| number).collect();
        for number in numbers {
            let cancel = CancelRequestNotification::new(RequestId::Number(number));
            self.out.send(encode::notification("$/cancel_request", &cancel));
        }
    }

    /// The client's answer to a question. What cannot be read is a refusal. False if the request asked no question.
    pub(super) fn on_permission(&mut self, number: i64, result: Option<&RawValue>) -> bool {
        let Some(AskedQuestion { session, question, can_remember }) = self.questions.remove(&number) else {
            return false;
        };
        let response =
            result.and_then(|raw| serde_json::from_str::<RequestPermissionResponse>(raw.get()).ok());
        let answer = match response.map(|response| response.outcome) {
            Some(RequestPermissionOutcome::Selected(selected)) => {
                QuestionAnswer::parse(&selected.option_id.to_string(), None)
            }
            Some(_) | None => None,
        };
        // The engine refuses an answer that it did not offer, and would go on waiting.
        let is_offered = |answer: &QuestionAnswer| can_remember || *answer != QuestionAnswer::AllowAlways;
        let answer = answer.filter(is_offered).unwrap_or(QuestionAnswer::Deny { message: None });
        let by = Some(Sender { client: self.client.clone(), ..Sender::at(DOOR) });
        let command = SessionCommand::AnswerQuestion { question, answer, by };
        // If somebody else was faster, the watch has told the client what the answer was.
        self.out.command(&session, command, Pending::Ignored);
        true
    }
}
