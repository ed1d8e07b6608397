//! `history.*`: saved chats, told and gone on with.

use std::collections::HashMap;

use parlor_vocab::{
    ChatSelector, ChatSummary as SavedLine, FailureCode, FrontendReply, FrontendRequest, HistoryItem,
    MediaId, RegistryReply, RegistryRequest, Role, RunEnding, SavedChat, SessionRefusal,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::chat::SaidText;
use super::code::{self, FrameError};
use super::image::Image;
use super::machine::{LoafMachine, flaw_of, of_house};
use super::params::Params;
use super::pending::{AfterSave, ChatFor, ChatQuery, Pending, To};
use super::{MAX_CHATS_PAGE, MAX_HISTORY_IMAGE_BYTES};

/// How many chats are told where nobody says how many.
pub(super) const DEFAULT_PAGE: usize = 100;

/// What a chat without a title is called.
const UNTITLED: &str = "untitled chat";

impl LoafMachine {
    pub(super) fn list_history(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let params = Params::optional("history.list", params)?;
        let limit = params.maybe_number("limit")?.map_or(0.0, f64::floor);
        let cursor = params.maybe_number("cursor")?.map_or(0.0, f64::floor);
        // A float beyond what an integer holds becomes the largest one.
        let limit = if limit == 0.0 { DEFAULT_PAGE } else { (limit.max(1.0) as usize).min(MAX_CHATS_PAGE) };
        self.ask_chats(to, cursor.max(0.0) as usize, limit);
        Ok(())
    }

    pub(super) fn ask_chats(&mut self, to: &To, skip: usize, limit: usize) {
        self.out.ask(FrontendRequest::ListChats { skip, limit }, Pending::Chats(to.clone(), skip, limit));
    }

    pub(super) fn on_chats(
        &mut self,
        to: &To,
        cursor: usize,
        limit: usize,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        match answer {
            Ok(FrontendReply::Chats { total, chats }) => {
                let next = cursor.saturating_add(chats.len());
                let next = Some(next).filter(|next| *next < total && !chats.is_empty());
                let sessions: Value = chats.iter().map(|chat| self.summary(chat)).collect();
                let result = json!({"total": total, "cursor": cursor, "limit": limit,
                                    "sessions": sessions, "next_cursor": next});
                self.out.answer(to, result);
            }
            other => self.out.refuse(&to.id, &flaw_of(other)),
        }
    }

    /// A line about a saved chat.
    fn summary(&self, chat: &SavedLine) -> Value {
        let (model, provider, level) = self.state.meaning(&chat.choice);
        let mut summary = json!({
            "id": chat.id.as_str(),
            "title": chat.title.as_deref().unwrap_or(UNTITLED),
            "provider": provider,
            "model": model,
            "thinkingLevel": level,
            "createdAt": chat.created.rfc3339(),
            "updatedAt": chat.updated.rfc3339(),
            "messageCount": chat.messages,
            "rolloutPath": format!("{}#{}", self.state.server.chats.display(), chat.id),
        });
        if provider == "openrouter" {
            summary["openRouterProvider"] = Value::from(self.state.kept.route.as_str());
        }
        summary
    }

    pub(super) fn get_history(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let params = Params::optional("history.get", params)?;
        let (id, is_last) = (params.maybe_text("id")?, params.maybe_flag("last")?);
        let path = params.maybe_text("rollout_path")?;
        let sought = match (is_last, path, id) {
            (true, _, _) => ChatQuery::Last,
            (false, Some(path), _) => ChatQuery::Path(path),
            (false, None, Some(id)) => ChatQuery::Id(id),
            (false, None, None) => return Err(code::no_history_named()),
        };
        self.seek(to, ChatFor::Tell(sought));
        Ok(())
    }

    /// Reads a saved chat.
    pub(super) fn seek(&mut self, to: &To, why: ChatFor) {
        let (ChatFor::Tell(sought) | ChatFor::Resume(sought, _)) = &why;
        let wanted = match sought {
            ChatQuery::Last => ChatSelector::Last,
            ChatQuery::Id(id) => ChatSelector::Id(id.clone()),
            ChatQuery::Path(path) => match self.id_in(path) {
                Some(id) => ChatSelector::Id(id.to_owned()),
                None => return self.out.refuse(&to.id, &code::no_rollout(path)),
            },
        };
        self.out.ask(FrontendRequest::ReadChat(wanted), Pending::Chat(to.clone(), why));
    }

    /// The chat that a path of ours leads to.
    fn id_in<'a>(&self, path: &'a str) -> Option<&'a str> {
        let chats = self.state.server.chats.to_str()?;
        path.strip_prefix(chats)?.strip_prefix('#').filter(|id| !id.is_empty())
    }

    pub(super) fn on_chat(&mut self, to: &To, why: ChatFor, answer: Result<FrontendReply, SessionRefusal>) {
        let found = match answer {
            Ok(FrontendReply::Chat(found)) => found,
            other => return self.out.refuse(&to.id, &flaw_of(other)),
        };
        let (ChatFor::Tell(sought) | ChatFor::Resume(sought, _)) = &why;
        let found = found.filter(|chat| match sought {
            // A path is a whole one.
            ChatQuery::Path(path) => self.id_in(path) == Some(chat.about.id.as_str()),
            ChatQuery::Last | ChatQuery::Id(_) => true,
        });
        let Some(chat) = found else {
            let flaw = match sought {
                ChatQuery::Last => code::no_history(),
                ChatQuery::Path(path) => code::no_rollout(path),
                ChatQuery::Id(id) => code::no_chat(id),
            };
            return self.out.refuse(&to.id, &flaw);
        };
        let ids = media(&chat.overview.history);
        if ids.is_empty() {
            return self.tell_or_resume(to, why, &chat, &HashMap::new());
        }
        let command = RegistryRequest::ReadMedia { ids: ids.clone(), max_bytes: MAX_HISTORY_IMAGE_BYTES };
        self.out.ask(FrontendRequest::Registry(command), Pending::ChatMedia(to.clone(), why, chat, ids));
    }

    pub(super) fn on_chat_media(
        &mut self,
        to: &To,
        why: ChatFor,
        chat: SavedChat,
        ids: Vec<MediaId>,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        let contents = match of_house(answer) {
            Ok(RegistryReply::Contents(contents)) => contents,
            // Without its images it is a chat all the same.
            Ok(_) | Err(_) => Vec::new(),
        };
        let contents = ids.into_iter().zip(contents).filter_map(|(id, content)| Some((id, content?)));
        self.tell_or_resume(to, why, &chat, &contents.collect());
    }

    fn tell_or_resume(&mut self, to: &To, why: ChatFor, chat: &SavedChat, contents: &Contents) {
        let said = said(&chat.overview.history, contents);
        match why {
            ChatFor::Tell(_) => {
                let mut record = self.summary(&chat.about);
                record["messages"] = said.iter().map(SaidText::to_json).collect();
                record["messageCount"] = Value::from(said.len());
                self.out.answer(to, record);
            }
            ChatFor::Resume(_, session) => self.resume(to, &session, chat, said),
        }
    }

    /// Takes a saved chat into a session.
    fn resume(&mut self, to: &To, session: &str, saved: &SavedChat, said: Vec<SaidText>) {
        let (model, provider, level) = self.state.meaning(&saved.overview.choice);
        let now = self.out.now();
        let Some(chat) = self.chats.get_mut(session) else {
            return self.out.refuse(&to.id, &code::unknown_session(session));
        };
        if chat.is_pending() {
            return self.out.refuse(&to.id, &code::busy_for_resume());
        }
        chat.clear(now);
        chat.resume(&mut self.out, said);
        chat.saved = Some(saved.about.id.clone());
        chat.seen = saved.overview.head;
        chat.chosen = Some(saved.overview.choice.clone());
        chat.provider = Some(provider.clone());
        let kept = &mut self.state.kept;
        (kept.model, kept.provider, kept.reasoning) = (model, provider, level.to_owned());
        let then = AfterSave::Resumed(saved.about.id.clone());
        self.out.ask(FrontendRequest::SavePreferences(kept.clone()), Pending::Kept(to.clone(), then));
    }

    pub(super) fn clear_session(&mut self, to: &To, params: Option<&RawValue>) -> Result<(), FrameError> {
        let id = Params::needed("history.clear_session", params)?.text("session_id")?;
        self.chat(&id)?.queue.clear();
        self.forget_chat(&id);
        self.out.answer(to, json!({"session_id": id, "cleared": true}));
        Ok(())
    }

    /// Stops what is at work in a session, and forgets what was said there. What waits stays.
    pub(super) fn forget_chat(&mut self, id: &str) {
        self.detach(id);
        let now = self.out.now();
        if let Some(chat) = self.chats.get_mut(id) {
            chat.clear(now);
        }
    }
}

type Contents = HashMap<MediaId, Vec<u8>>;

/// The files that a history speaks of.
fn media(history: &[HistoryItem]) -> Vec<MediaId> {
    let mut ids: Vec<MediaId> = Vec::new();
    for passage in history {
        if let HistoryItem::Message(message) = passage {
            for media in &message.media {
                if !ids.contains(&media.id) {
                    ids.push(media.id.clone());
                }
            }
        }
    }
    ids
}

/// A history as a model of this dialect has it: what an agent said in one turn is one message, and a turn
/// that failed is none.
fn said(history: &[HistoryItem], contents: &Contents) -> Vec<SaidText> {
    let mut all: Vec<SaidText> = Vec::new();
    for passage in history {
        match passage {
            HistoryItem::Message(message) => match message.role {
                Role::User => {
                    let images = message.media.iter().filter_map(|media| {
                        let bytes = contents.get(&media.id)?;
                        Some(Image::new(media.name.clone(), media.mime.clone(), bytes))
                    });
                    all.push(SaidText::user(message.text.as_str(), images.collect()));
                }
                Role::Assistant => match all.last_mut().filter(|last| !last.is_user) {
                    Some(last) => last.text.push_str(&message.text),
                    None => all.push(SaidText::assistant(message.text.as_str())),
                },
                Role::System => {}
            },
            HistoryItem::BrokenOff(RunEnding::Failed(failure))
                if failure.code != FailureCode::RunInterrupted =>
            {
                let last_prompt = all.iter().rposition(|said| said.is_user);
                all.truncate(last_prompt.unwrap_or(all.len()));
            }
            HistoryItem::ToolUse(_) | HistoryItem::BrokenOff(_) => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use parlor_vocab::{Failure, Message, MessageId};

    use super::*;

    fn message(role: Role, text: &str) -> HistoryItem {
        let id = MessageId::parse("m").unwrap();
        HistoryItem::Message(Message { id, role, text: text.to_owned(), media: Vec::new() })
    }

    fn failed(code: &str) -> HistoryItem {
        let (code, message) = (code.into(), String::new());
        HistoryItem::BrokenOff(RunEnding::Failed(Failure { code, message, retryable: false }))
    }

    #[test]
    fn a_turn_is_a_prompt_and_one_answer_and_a_failed_one_is_none() {
        let history = [
            message(Role::User, "one"),
            message(Role::Assistant, "a"),
            message(Role::Assistant, "b"),
            message(Role::User, "fails"),
            message(Role::Assistant, "half"),
            failed("FAILED"),
            message(Role::System, "line"),
            message(Role::User, "cut off"),
            failed(FailureCode::RunInterrupted.as_str()),
        ];
        let texts: Vec<String> = said(&history, &Contents::new()).into_iter().map(|said| said.text).collect();
        assert_eq!(texts, ["one", "ab", "cut off"]);
    }
}
