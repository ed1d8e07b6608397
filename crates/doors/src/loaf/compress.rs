//! Summaries in the place of a conversation: those that somebody asks for, and those that an agent makes.

use parlor_vocab::{
    FrontendReply, FrontendRequest, RegistryReply, RegistryRequest, SessionCommand, SessionRefusal,
    SessionReply,
};
use serde_json::{Value, json};

use super::chat::{Chat, Kind, ModelHistory, READY, SaidText, Summary, SummaryFor, Work};
use super::code;
use super::estimate::TARGET_PERCENT;
use super::machine::{LoafMachine, Out, of_house};
use super::model::high_watermark;
use super::pending::{Pending, Place, To};
use super::state::State;

/// What a summary begins with.
const HEADING: &str = "## Conversation Summary";

impl LoafMachine {
    /// Begins to summarize a session that has nothing to do; one that has is left alone.
    pub(super) fn compress(&mut self, to: To, id: &str, why: SummaryFor) {
        let window = self.state.window();
        let Some(chat) = self.chats.get_mut(id) else {
            return self.out.refuse(&to.id, &code::unknown_session(id));
        };
        let saved = chat.saved.clone().filter(|_| !chat.history.is_empty() && !chat.is_pending());
        let Some(saved) = saved.filter(|saved| !self.running.contains_key(saved)) else {
            let outcome = Outcome { applied: false, before: 0, after: 0, window };
            self.tell_outcome(&to, why, &outcome);
            return self.start_next(id);
        };
        chat.status(&mut self.out, "compressing context...", None);
        let before = chat.estimate(&self.state, &[]).total();
        let place = Place { chat: id.to_owned(), turn: self.out.id() };
        let payload = json!({
            "session_id": id, "reason": reason(&why), "anchor_event_index_before": 0,
            "event_count": chat.history.len(), "context_window_tokens": window,
        });
        self.out.event("compaction.started", &payload);
        chat.work = Work::Summary(Box::new(Summary { id: place.turn.clone(), to, why, before }));
        let command = RegistryRequest::Session(saved, SessionCommand::Compact { keep: 0 });
        self.out.ask(FrontendRequest::Registry(command), Pending::Summary(place));
    }

    pub(super) fn on_summary(&mut self, place: &Place, answer: Result<FrontendReply, SessionRefusal>) {
        let Some(chat) = self.chats.get_mut(&place.chat) else { return };
        let summary = match std::mem::take(&mut chat.work) {
            Work::Summary(summary) if summary.id == place.turn => *summary,
            other @ (Work::Idle | Work::Turn(_) | Work::Summary(_)) => return chat.work = other,
        };
        let Summary { to, why, before, .. } = summary;
        let text = match of_house(answer) {
            Ok(RegistryReply::Session(SessionReply::Compacted(message))) => Ok(message.text),
            Ok(_) => Err("there was no summary".to_owned()),
            Err(SessionRefusal::NotCompacted { reason }) => Err(reason),
            Err(refusal) => Err(refusal.to_string()),
        };
        match text {
            Ok(text) => {
                finish(chat, &mut self.out, &self.state, reason(&why), None, &text);
                let after = chat.estimate(&self.state, &[]).total();
                chat.tell_estimate(&mut self.out, &self.state, &[]);
                chat.append(&mut self.out, Kind::System, &code::compressed(before as u64, after as u64), &[]);
                chat.status(&mut self.out, READY, None);
                self.start_next(&place.chat);
                let outcome = Outcome { applied: true, before, after, window: self.state.window() };
                self.tell_outcome(&to, why, &outcome);
            }
            Err(message) => {
                let payload = json!({"session_id": place.chat, "reason": reason(&why), "message": message});
                self.out.event("compaction.failed", &payload);
                chat.status(&mut self.out, READY, None);
                self.start_next(&place.chat);
                self.out.refuse(&to.id, &code::not_compressed(&message));
            }
        }
    }

    fn tell_outcome(&mut self, to: &To, why: SummaryFor, outcome: &Outcome) {
        match why {
            SummaryFor::Command => {
                let mut output = outcome.to_json();
                output["compressed"] = Value::Bool(outcome.applied);
                output["reason"] = Value::from("manual");
                self.out.answer(to, output);
            }
            SummaryFor::Choice { mut answer, is_switch } => {
                let mut compression = outcome.to_json();
                compression["requested"] = Value::Bool(true);
                compression["applied"] = Value::Bool(outcome.applied);
                compression["reason"] = Value::from(match (outcome.applied, is_switch) {
                    (false, _) => "none",
                    (true, true) => "provider_switch",
                    (true, false) => "auto",
                });
                answer.insert("compression".to_owned(), compression);
                self.out.answer(to, Value::Object(answer));
            }
        }
    }
}

/// What came of a summary.
struct Outcome {
    applied: bool,
    before: usize,
    after: usize,
    window: u64,
}

impl Outcome {
    fn to_json(&self) -> Value {
        json!({
            "estimated_tokens_before": self.before,
            "estimated_tokens_after": self.after,
            "model_context_window": self.window,
            "target_limit": if self.applied { target(self.window) } else { high_watermark(self.window) },
            "anchor_event_index_before": 0,
            "anchor_event_index_after": 0,
        })
    }
}

fn target(window: u64) -> u64 {
    window * TARGET_PERCENT / 100
}

fn reason(why: &SummaryFor) -> &'static str {
    match why {
        SummaryFor::Command => "manual",
        SummaryFor::Choice { is_switch: true, .. } => "provider_switch",
        SummaryFor::Choice { is_switch: false, .. } => "auto",
    }
}

/// Tells of a summary that was made by whoever was at work, from its beginning on.
pub(super) fn tell(
    chat: &mut Chat,
    out: &mut Out,
    state: &State,
    reason: &str,
    turn: Option<&str>,
    text: &str,
) {
    let payload = json!({
        "anchor_event_index_before": 0, "event_count": chat.history.len(),
        "context_window_tokens": state.window(),
    });
    event(chat, out, "compaction.started", reason, turn, payload);
    finish(chat, out, state, reason, turn, text);
}

/// Puts a summary in the place of the conversation, and tells so.
fn finish(chat: &mut Chat, out: &mut Out, state: &State, reason: &str, turn: Option<&str>, text: &str) {
    let count = chat.history.len();
    let before = chat.estimate(state, &[]).total();
    let text = if text.starts_with(HEADING) { text.to_owned() } else { format!("{HEADING}\n\n{text}") };
    chat.history = ModelHistory::default();
    chat.history.add(SaidText::assistant(text));
    let after = chat.estimate(state, &[]).total();
    let anchors =
        json!({"anchor_event_index_before": 0, "anchor_event_index_after": 0, "delta_event_count": count});
    event(chat, out, "compaction.anchor_selected", reason, turn, anchors);
    let mut merged = json!({"session_id": chat.id, "summary_updated_at": out.now().rfc3339(),
                            "anchor_event_index_after": 0});
    if let Some(turn) = turn {
        merged["turn_id"] = Value::from(turn);
    }
    out.event("compaction.summary_merged", &merged);
    let window = state.window();
    let payload = json!({
        "compressed": true,
        "estimated_tokens_before": before,
        "estimated_tokens_after": after,
        "model_context_window": window,
        "target_limit": target(window),
        "high_watermark_limit": high_watermark(window),
        "anchor_event_index_before": 0,
        "anchor_event_index_after": 0,
    });
    event(chat, out, "compaction.completed", reason, turn, payload);
}

fn event(chat: &Chat, out: &mut Out, kind: &str, reason: &str, turn: Option<&str>, more: Value) {
    let mut payload = json!({"session_id": chat.id, "reason": reason});
    if let Some(turn) = turn {
        payload["turn_id"] = Value::from(turn);
    }
    if let (Value::Object(payload), Value::Object(more)) = (&mut payload, more) {
        payload.extend(more);
    }
    out.event(kind, &payload);
}
