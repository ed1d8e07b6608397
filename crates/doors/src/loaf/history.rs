//! The `history.*` methods: lists, returns and resumes saved chats.

use std::collections::HashMap;

use parlor_vocab::{
    ChatSelector, ChatSummary, FailureCode, FrontendReply, FrontendRequest, HistoryItem, MediaId,
    RegistryReply, RegistryRequest, Role, RunEnding, SavedChat, SessionRefusal,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::chat::{Kind, ModelMessage};
use super::code::{self, FrameError};
use super::image::Image;
use super::machine::{LoafMachine, answer_error, registry_reply};
use super::params::Params;
use super::pending::{AfterSave, ChatPurpose, ChatQuery, Pending, ReplyTo};
use super::{MAX_CHATS_PAGE, MAX_HISTORY_IMAGE_BYTES};
use crate::history::media_ids;

/// The number of chats in a list if the client gives no limit.
pub(super) const DEFAULT_PAGE: usize = 100;

/// The most characters of a title.
const TITLE_CHARS: usize = 80;

/// The title of a chat without a title.
const UNTITLED: &str = "untitled chat";

impl LoafMachine {
    pub(super) fn list_history(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let params = Params::optional("history.list", params)?;
        let limit = params.optional_number("limit")?.map_or(0.0, f64::floor);
        let cursor = params.optional_number("cursor")?.map_or(0.0, f64::floor);
        // The cast turns a float above `usize::MAX` into `usize::MAX`.
        let limit = if limit == 0.0 { DEFAULT_PAGE } else { (limit.max(1.0) as usize).min(MAX_CHATS_PAGE) };
        self.request_chats(reply_to, cursor.max(0.0) as usize, limit);
        Ok(())
    }

    pub(super) fn request_chats(&mut self, reply_to: &ReplyTo, skip: usize, limit: usize) {
        self.out.submit(
            FrontendRequest::ListChats { skip, limit },
            Pending::Chats(reply_to.clone(), skip, limit),
        );
    }

    pub(super) fn on_chats(
        &mut self,
        reply_to: &ReplyTo,
        cursor: usize,
        limit: usize,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        match answer {
            Ok(FrontendReply::Chats { total, chats }) => {
                let next = cursor.saturating_add(chats.len());
                let next = Some(next).filter(|next| *next < total && !chats.is_empty());
                let sessions: Value = chats.iter().map(|chat| self.chat_json(chat)).collect();
                let result = json!({"total": total, "cursor": cursor, "limit": limit,
                                    "sessions": sessions, "next_cursor": next});
                self.out.send_result(reply_to, result);
            }
            other => self.out.send_error(&reply_to.id, &answer_error(other)),
        }
    }

    /// A saved chat in a list.
    fn chat_json(&self, chat: &ChatSummary) -> Value {
        let (model, provider, level) = self.state.describe_choice(&chat.choice);
        let mut summary = json!({
            "id": chat.id.as_str(),
            "title": title_of(chat),
            "provider": provider,
            "model": model,
            "thinkingLevel": level,
            "createdAt": chat.created.rfc3339(),
            "updatedAt": chat.updated.rfc3339(),
            "messageCount": chat.messages,
            "rolloutPath": format!("{}#{}", self.state.params.chats_path.display(), chat.id),
        });
        if provider == "openrouter" {
            summary["openRouterProvider"] = Value::from(self.state.preferences.route.as_str());
        }
        summary
    }

    pub(super) fn get_history(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let params = Params::optional("history.get", params)?;
        let (id, is_last) = (params.optional_text("id")?, params.optional_flag("last")?);
        let path = params.optional_text("rollout_path")?;
        let query = match (is_last, path, id) {
            (true, _, _) => ChatQuery::Last,
            (false, Some(path), _) => ChatQuery::Path(path),
            (false, None, Some(id)) => ChatQuery::Id(id),
            (false, None, None) => return Err(code::no_history_named()),
        };
        self.request_chat(reply_to, ChatPurpose::Send(query));
        Ok(())
    }

    /// Requests a saved chat from the backend.
    pub(super) fn request_chat(&mut self, reply_to: &ReplyTo, purpose: ChatPurpose) {
        let (ChatPurpose::Send(query) | ChatPurpose::Resume(query, _)) = &purpose;
        let selector = match query {
            ChatQuery::Last => ChatSelector::Last,
            ChatQuery::Id(id) => ChatSelector::Id(id.clone()),
            ChatQuery::Path(path) => match self.id_from_path(path) {
                Some(id) => ChatSelector::Id(id.to_owned()),
                None => return self.out.send_error(&reply_to.id, &code::no_rollout(path)),
            },
        };
        self.out.submit(FrontendRequest::ReadChat(selector), Pending::Chat(reply_to.clone(), purpose));
    }

    /// The chat id in a `rolloutPath`.
    fn id_from_path<'a>(&self, path: &'a str) -> Option<&'a str> {
        let chats = self.state.params.chats_path.to_str()?;
        path.strip_prefix(chats)?.strip_prefix('#').filter(|id| !id.is_empty())
    }

    pub(super) fn on_chat(
        &mut self,
        reply_to: &ReplyTo,
        purpose: ChatPurpose,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        let found = match answer {
            Ok(FrontendReply::Chat(found)) => found,
            other => return self.out.send_error(&reply_to.id, &answer_error(other)),
        };
        let (ChatPurpose::Send(query) | ChatPurpose::Resume(query, _)) = &purpose;
        let found = found.filter(|chat| match query {
            // The backend accepts the beginning of an id; a path must have the whole id.
            ChatQuery::Path(path) => self.id_from_path(path) == Some(chat.summary.id.as_str()),
            ChatQuery::Last | ChatQuery::Id(_) => true,
        });
        let Some(chat) = found else {
            let error = match query {
                ChatQuery::Last => code::no_history(),
                ChatQuery::Path(path) => code::no_rollout(path),
                ChatQuery::Id(id) => code::no_chat(id),
            };
            return self.out.send_error(&reply_to.id, &error);
        };
        let ids = media_ids(&chat.overview.history);
        if ids.is_empty() {
            return self.send_or_resume(reply_to, purpose, &chat, &HashMap::new());
        }
        let request = RegistryRequest::ReadMedia { ids: ids.clone(), max_bytes: MAX_HISTORY_IMAGE_BYTES };
        self.out.submit(
            FrontendRequest::Registry(request),
            Pending::ChatMedia(reply_to.clone(), purpose, chat, ids),
        );
    }

    pub(super) fn on_chat_media(
        &mut self,
        reply_to: &ReplyTo,
        purpose: ChatPurpose,
        chat: SavedChat,
        ids: Vec<MediaId>,
        answer: Result<FrontendReply, SessionRefusal>,
    ) {
        let contents = match registry_reply(answer) {
            Ok(RegistryReply::Contents(contents)) => contents,
            // Without its images the chat is still useful.
            Ok(_) | Err(_) => Vec::new(),
        };
        let contents = ids.into_iter().zip(contents).filter_map(|(id, content)| Some((id, content?)));
        self.send_or_resume(reply_to, purpose, &chat, &contents.collect());
    }

    fn send_or_resume(
        &mut self,
        reply_to: &ReplyTo,
        purpose: ChatPurpose,
        chat: &SavedChat,
        contents: &Contents,
    ) {
        let messages = model_messages(&chat.overview.history, contents);
        match purpose {
            ChatPurpose::Send(_) => {
                let mut record = self.chat_json(&chat.summary);
                record["messages"] = messages.iter().map(ModelMessage::to_json).collect();
                record["messageCount"] = Value::from(messages.len());
                self.out.send_result(reply_to, record);
            }
            ChatPurpose::Resume(_, session) => self.resume(reply_to, &session, chat, messages),
        }
    }

    /// Loads a saved chat into a session.
    fn resume(
        &mut self,
        reply_to: &ReplyTo,
        session: &str,
        saved_chat: &SavedChat,
        messages: Vec<ModelMessage>,
    ) {
        let choice = &saved_chat.overview.choice;
        let (mut model, mut provider, level) = self.state.describe_choice(choice);
        let mut notice = None;
        if let (None, Some(other)) = (self.state.model_of(choice), self.state.replacement(choice)) {
            let agent = choice.agent.as_ref().map(ToString::to_string);
            let missing = choice.model.clone().or(agent).unwrap_or_default();
            notice = Some(code::model_replaced(&missing, &other.id));
            (model, provider) = (other.id.clone(), other.provider.clone());
        }
        let now = self.out.now();
        let Some(chat) = self.chats.get_mut(session) else {
            return self.out.send_error(&reply_to.id, &code::unknown_session(session));
        };
        if chat.is_pending() {
            return self.out.send_error(&reply_to.id, &code::busy_for_resume());
        }
        let old_session = chat.saved_session.take();
        chat.clear(now);
        chat.resume(&mut self.out, messages);
        if let Some(notice) = notice {
            chat.append(&mut self.out, Kind::System, &notice, &[]);
        }
        chat.saved_session = Some(saved_chat.summary.id.clone());
        chat.last_seq = saved_chat.overview.head;
        chat.agent_choice = Some(saved_chat.overview.choice.clone());
        chat.provider = Some(provider.clone());
        if let Some(old_session) = old_session {
            self.end_idle_watch(&old_session);
        }
        self.join_chat(session, saved_chat);
        let preferences = &mut self.state.preferences;
        (preferences.model, preferences.provider, preferences.reasoning) =
            (model, provider, level.to_owned());
        let then = AfterSave::Resumed(saved_chat.summary.id.clone());
        self.out.submit(
            FrontendRequest::SavePreferences(preferences.clone()),
            Pending::SavePreferences(reply_to.clone(), then),
        );
    }

    /// Watches the chat that a session has resumed: another client may have a turn running there.
    fn join_chat(&mut self, session: &str, saved_chat: &SavedChat) {
        let saved = &saved_chat.summary.id;
        self.watch_idle(saved, saved_chat.overview.head);
        if let Some(run) = &saved_chat.overview.active
            && !self.running_turns.contains_key(saved)
            && !self.orphans.contains_key(saved)
        {
            self.begin_other_turn(session, saved.clone(), run.clone(), None);
        }
    }

    pub(super) fn clear_session(
        &mut self,
        reply_to: &ReplyTo,
        params: Option<&RawValue>,
    ) -> Result<(), FrameError> {
        let id = Params::required("history.clear_session", params)?.text("session_id")?;
        self.chat(&id)?.queue.clear();
        self.clear_chat(&id);
        self.out.send_result(reply_to, json!({"session_id": id, "cleared": true}));
        Ok(())
    }

    /// Stops the work of a session and forgets its messages. Its queue stays.
    pub(super) fn clear_chat(&mut self, id: &str) {
        self.cancel_work(id);
        let now = self.out.now();
        let Some(chat) = self.chats.get_mut(id) else { return };
        let session = chat.saved_session.take();
        chat.clear(now);
        if let Some(session) = session {
            self.end_idle_watch(&session);
        }
    }
}

/// The title in one line of at most [`TITLE_CHARS`] characters.
fn title_of(chat: &ChatSummary) -> String {
    let words: Vec<&str> = chat.title.as_deref().unwrap_or_default().split_whitespace().collect();
    let title = words.join(" ");
    if title.is_empty() {
        UNTITLED.to_owned()
    } else if title.chars().count() > TITLE_CHARS {
        title.chars().take(TITLE_CHARS - 3).chain("...".chars()).collect()
    } else {
        title
    }
}

type Contents = HashMap<MediaId, Vec<u8>>;

/// A history as this protocol shows it to models: the texts of one turn are one message, and failed turns are omitted.
fn model_messages(history: &[HistoryItem], contents: &Contents) -> Vec<ModelMessage> {
    let mut messages: Vec<ModelMessage> = Vec::new();
    for item in history {
        match item {
            HistoryItem::Message(message) => match message.role {
                Role::User => {
                    let images = message.media.iter().filter_map(|media| {
                        let bytes = contents.get(&media.id)?;
                        Some(Image::new(media.name.clone(), media.mime.clone(), bytes))
                    });
                    messages.push(ModelMessage::user(message.text.as_str(), images.collect()));
                }
                Role::Assistant => match messages.last_mut().filter(|last| !last.is_user) {
                    Some(last) => last.text.push_str(&message.text),
                    None => messages.push(ModelMessage::assistant(message.text.as_str())),
                },
                Role::System => {}
            },
            HistoryItem::UnfinishedRun { ending: RunEnding::Failed(failure), .. }
                if failure.code != FailureCode::RunInterrupted =>
            {
                let last_prompt = messages.iter().rposition(|messages| messages.is_user);
                messages.truncate(last_prompt.unwrap_or(messages.len()));
            }
            HistoryItem::ToolUse(_) | HistoryItem::UnfinishedRun { .. } => {}
        }
    }
    messages
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
        let ending = RunEnding::Failed(Failure { code, message, retryable: false });
        HistoryItem::UnfinishedRun { input: None, ending }
    }

    #[test]
    fn a_turn_is_a_prompt_and_one_answer_and_failed_turns_are_omitted() {
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
        let texts: Vec<String> =
            model_messages(&history, &Contents::new()).into_iter().map(|messages| messages.text).collect();
        assert_eq!(texts, ["one", "ab", "cut off"]);
    }
}
