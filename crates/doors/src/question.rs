//! Questions of runs as JSON: the members are the same in the frames of all doors and in the HTTP API.

use parlor_vocab::{Question, QuestionAnswer, QuestionOutcome, Sender};
use serde_json::{Value, json};

/// The question as clients show it, with the answers that it takes.
pub fn question_json(question: &Question) -> Value {
    let always = question.remembered.is_some().then_some("always");
    let options: Vec<&str> = ["once"].into_iter().chain(always).chain(["deny"]).collect();
    json!({"question_id": question.id.as_str(), "tool_call_id": question.call.as_str(), "tool_name": question.tool,
           "title": question.title, "reason": question.reason, "detail": question.detail, "options": options})
}

/// How a question was settled, as clients show it.
pub fn settled_json(question: &str, outcome: &QuestionOutcome) -> Value {
    let mut data = json!({"question_id": question, "answer": outcome.as_str()});
    if let QuestionOutcome::Answered { answer, by } = outcome {
        if let QuestionAnswer::Deny { message: Some(message) } = answer {
            data["message"] = Value::from(message.as_str());
        }
        if let Some(by) = by {
            data["by"] = sender(by);
        }
    }
    data
}

/// The client that an input or an answer came from.
pub(crate) fn sender(Sender { door, client }: &Sender) -> Value {
    match client {
        Some(client) => json!({"door": door, "client": client}),
        None => json!({"door": door}),
    }
}
