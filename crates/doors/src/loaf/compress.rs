//! Replaces conversations with summaries, on request or because an agent has made one.

use parlor_vocab::{
    FrontendReply, FrontendRequest, RegistryReply, RegistryRequest, SessionCommand, SessionRefusal,
    SessionReply,
};
use serde_json::{Value, json};

use super::chat::{Chat, Kind, ModelHistory, ModelMessage, READY, Summary, SummaryTrigger, Work};
use super::code;
use super::estimate::TARGET_PERCENT;
use super::machine::{LoafMachine, Outgoing, registry_reply};
use super::model::high_watermark;
use super::pending::{Pending, ReplyTo, TurnKey};
use super::state::State;

/// The heading that every summary begins with.
const HEADING: &str = "## Conversation Summary";

impl LoafMachine {
    /// Starts to summarize an idle session. A busy or empty session is not summarized; the answer says so.
    pub(super) fn start_compression(&mut self, reply_to: ReplyTo, id: &str, trigger: SummaryTrigger) {
        let window = self.state.context_window();
        let Some(chat) = self.chats.get_mut(id) else {
            return self.out.send_error(&reply_to.id, &code::unknown_session(id));
        };
        let saved = chat.saved_session.clone().filter(|_| !chat.history.is_empty() && !chat.is_pending());
        let Some(saved) = saved.filter(|saved| !self.running_turns.contains_key(saved)) else {
            let outcome = SummaryOutcome { applied: false, before: 0, after: 0, window };
            self.send_outcome(&reply_to, trigger, &outcome);
            return self.start_next_turn(id);
        };
        chat.set_status(&mut self.out, "compressing context...", None);
        let before = chat.estimate(&self.state, &[]).total();
        let turn_key = TurnKey { chat: id.to_owned(), turn: self.out.new_id() };
        let payload = json!({
            "session_id": id, "reason": reason(&trigger), "anchor_event_index_before": 0,
            "event_count": chat.history.len(), "context_window_tokens": window,
        });
        self.out.send_event("compaction.started", &payload);
        chat.work = Work::Summary(Box::new(Summary { id: turn_key.turn.clone(), reply_to, trigger, before }));
        let request = RegistryRequest::Session(saved, SessionCommand::Compact { keep: 0 });
        self.out.submit(FrontendRequest::Registry(request), Pending::Summary(turn_key));
    }

    pub(super) fn on_summary(&mut self, turn_key: &TurnKey, answer: Result<FrontendReply, SessionRefusal>) {
        let Some(chat) = self.chats.get_mut(&turn_key.chat) else { return };
        let summary = match std::mem::take(&mut chat.work) {
            Work::Summary(summary) if summary.id == turn_key.turn => *summary,
            other @ (Work::Idle | Work::Turn(_) | Work::Summary(_)) => return chat.work = other,
        };
        let Summary { reply_to, trigger, before, .. } = summary;
        let text = match registry_reply(answer) {
            Ok(RegistryReply::Session(SessionReply::Compacted(message))) => Ok(message.text),
            Ok(_) => Err("the session returned no summary".to_owned()),
            Err(SessionRefusal::NotCompacted { reason }) => Err(reason),
            Err(refusal) => Err(refusal.to_string()),
        };
        match text {
            Ok(text) => {
                apply_summary(chat, &mut self.out, &self.state, reason(&trigger), None, &text);
                let after = chat.estimate(&self.state, &[]).total();
                chat.send_estimate(&mut self.out, &self.state, &[]);
                chat.append(&mut self.out, Kind::System, &code::compressed(before as u64, after as u64), &[]);
                chat.set_status(&mut self.out, READY, None);
                self.start_next_turn(&turn_key.chat);
                let outcome =
                    SummaryOutcome { applied: true, before, after, window: self.state.context_window() };
                self.send_outcome(&reply_to, trigger, &outcome);
            }
            Err(message) => {
                let payload =
                    json!({"session_id": turn_key.chat, "reason": reason(&trigger), "message": message});
                self.out.send_event("compaction.failed", &payload);
                chat.set_status(&mut self.out, READY, None);
                self.start_next_turn(&turn_key.chat);
                self.out.send_error(&reply_to.id, &code::not_compressed(&message));
            }
        }
    }

    fn send_outcome(&mut self, reply_to: &ReplyTo, trigger: SummaryTrigger, outcome: &SummaryOutcome) {
        match trigger {
            SummaryTrigger::Command => {
                let mut output = outcome.to_json();
                output["compressed"] = Value::Bool(outcome.applied);
                output["reason"] = Value::from("manual");
                self.out.send_result(reply_to, output);
            }
            SummaryTrigger::ModelSelection { mut answer, is_switch } => {
                let mut compression = outcome.to_json();
                compression["requested"] = Value::Bool(true);
                compression["applied"] = Value::Bool(outcome.applied);
                compression["reason"] = Value::from(match (outcome.applied, is_switch) {
                    (false, _) => "none",
                    (true, true) => "provider_switch",
                    (true, false) => "auto",
                });
                answer.insert("compression".to_owned(), compression);
                self.out.send_result(reply_to, Value::Object(answer));
            }
        }
    }
}

/// The outcome of a summary.
struct SummaryOutcome {
    applied: bool,
    before: usize,
    after: usize,
    window: u64,
}

impl SummaryOutcome {
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

fn reason(trigger: &SummaryTrigger) -> &'static str {
    match trigger {
        SummaryTrigger::Command => "manual",
        SummaryTrigger::ModelSelection { is_switch: true, .. } => "provider_switch",
        SummaryTrigger::ModelSelection { is_switch: false, .. } => "auto",
    }
}

/// Applies a summary that the agent made during a turn, and sends all events of a compaction.
pub(super) fn send_agent_summary(
    chat: &mut Chat,
    out: &mut Outgoing,
    state: &State,
    reason: &str,
    turn: Option<&str>,
    text: &str,
) {
    let payload = json!({
        "anchor_event_index_before": 0, "event_count": chat.history.len(),
        "context_window_tokens": state.context_window(),
    });
    send_compaction_event(chat, out, "compaction.started", reason, turn, payload);
    apply_summary(chat, out, state, reason, turn, text);
}

/// Replaces the conversation with a summary and sends the events.
fn apply_summary(
    chat: &mut Chat,
    out: &mut Outgoing,
    state: &State,
    reason: &str,
    turn: Option<&str>,
    text: &str,
) {
    let count = chat.history.len();
    let before = chat.estimate(state, &[]).total();
    let text = if text.starts_with(HEADING) { text.to_owned() } else { format!("{HEADING}\n\n{text}") };
    chat.history = ModelHistory::default();
    chat.history.add(ModelMessage::assistant(text));
    let after = chat.estimate(state, &[]).total();
    let anchors =
        json!({"anchor_event_index_before": 0, "anchor_event_index_after": 0, "delta_event_count": count});
    send_compaction_event(chat, out, "compaction.anchor_selected", reason, turn, anchors);
    let mut merged = json!({"session_id": chat.id, "summary_updated_at": out.now().rfc3339(),
                            "anchor_event_index_after": 0});
    if let Some(turn) = turn {
        merged["turn_id"] = Value::from(turn);
    }
    out.send_event("compaction.summary_merged", &merged);
    let window = state.context_window();
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
    send_compaction_event(chat, out, "compaction.completed", reason, turn, payload);
}

fn send_compaction_event(
    chat: &Chat,
    out: &mut Outgoing,
    kind: &str,
    reason: &str,
    turn: Option<&str>,
    more: Value,
) {
    let mut payload = json!({"session_id": chat.id, "reason": reason});
    if let Some(turn) = turn {
        payload["turn_id"] = Value::from(turn);
    }
    if let (Value::Object(payload), Value::Object(more)) = (&mut payload, more) {
        payload.extend(more);
    }
    out.send_event(kind, &payload);
}
