//! The sessions of the sessions, as the web side shows them.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use async_trait::async_trait;
use parlor_doors::supr::{error_code, event_type};
use parlor_engine::{SessionOwner, Sessions};
use parlor_log::{Erased, MAX_PAGE, PageRequest, SessionRecord, SystemClock};
use parlor_tools::image_type;
use parlor_vocab::{
    Clock, HistoryItem, MediaId, Message, Role, RunEnding, RunEvent, Seq, SessionCommand, SessionEvent,
    SessionId, SessionRefusal, SessionUpdate,
};
use parlor_web::{
    Archive, ArchiveError, EventPage, LastEvent, MAX_SEARCHED, MAX_SESSION_TEXT_BYTES, MessageText,
    SessionInfo, SessionTranscript, StoredFile, UsageReport,
};

use super::history;
use super::readiness::Readiness;
use super::usage::{day_of, report};
use crate::sessions::checked_title;

/// How many characters of a title and of a preview are shown.
const SHOWN_CHARS: usize = 60;

/// Among so many events, the first ones of a session, it is looked for what was said first.
const LOOKED_AT: usize = 64;

/// How much of a file tells whether it is an image.
const IMAGE_HEAD_BYTES: usize = 64;

/// Why a session is not deleted, and what to do.
const RUNNING: &str = "a run is under way in this session: stop it first, then delete the session";

/// The sessions of a sessions.
pub(super) struct SessionArchive {
    sessions: Arc<Sessions>,
    readiness: Arc<Readiness>,
    /// How many are looked at for words.
    searched: usize,
}

#[async_trait]
impl Archive for SessionArchive {
    async fn list(&self, words: &str, offset: usize, limit: usize) -> Result<Vec<SessionInfo>, ArchiveError> {
        let words = words.to_lowercase();
        let mut lines = Vec::new();
        let (mut skip, mut after, mut looked_at) = (offset, None, 0);
        while lines.len() < limit && (words.is_empty() || looked_at < self.searched) {
            let wanted = match words.is_empty() {
                true => skip.saturating_add(limit - lines.len()),
                false => self.searched - looked_at,
            };
            let page =
                self.sessions.list(PageRequest { after, limit: wanted.min(MAX_PAGE) }).await.map_err(flaw)?;
            looked_at += page.records.len();
            for record in &page.records {
                if lines.len() == limit {
                    break;
                }
                let is_meant = words.is_empty() || self.has_words(record, &words).await;
                match skip {
                    _ if !is_meant => {}
                    0 => lines.push(self.line(record).await),
                    _ => skip -= 1,
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        Ok(lines)
    }

    async fn rename(&self, id: &str, title: &str) -> Result<SessionInfo, ArchiveError> {
        let id = SessionId::parse(id).map_err(|_| ArchiveError::Unknown)?;
        let title = checked_title(title).map_err(|error| ArchiveError::Wrong(error.to_string()))?;
        let was_open = matches!(self.sessions.owner(&id).await, Ok(SessionOwner::ThisProcess { .. }));
        self.sessions.ask(&id, SessionCommand::Rename { title }).await.map_err(flaw)?;
        if !was_open {
            // So that others can have it; one that has found something to do stays open.
            let _ = self.sessions.leave(&id).await;
        }
        Ok(self.line(&self.sessions.record(&id).await.map_err(flaw)?).await)
    }

    async fn read(&self, id: &str) -> Result<SessionTranscript, ArchiveError> {
        let id = SessionId::parse(id).map_err(|_| ArchiveError::Unknown)?;
        let record = self.sessions.record(&id).await.map_err(flaw)?;
        let session = self.sessions.read_newest(&id, MAX_SESSION_TEXT_BYTES).await.map_err(flaw)?;
        let (mut messages, mut bytes, mut truncated) = (Vec::new(), 0, session.history_is_cut());
        for message in session.history().iter().rev().filter_map(said) {
            bytes += json_bytes(&message);
            if bytes > MAX_SESSION_TEXT_BYTES {
                truncated = true;
                break;
            }
            messages.push(message);
        }
        messages.reverse();
        Ok(SessionTranscript {
            id: id.as_str().to_owned(),
            messages,
            truncated,
            summary: String::new(),
            created: record.created.rfc3339(),
            updated: record.updated.rfc3339(),
        })
    }

    async fn events(&self, id: &str, before: Option<u64>, limit: usize) -> Result<EventPage, ArchiveError> {
        let id = SessionId::parse(id).map_err(|_| ArchiveError::Unknown)?;
        history::events(&self.sessions, &id, before, limit).await
    }

    async fn usage(&self, days: usize) -> Result<UsageReport, ArchiveError> {
        let last = day_of(SystemClock.now());
        let first = last - days as i64 + 1;
        Ok(report(first, last, &self.sessions.usage(first).await.map_err(flaw)?))
    }

    async fn media(&self, id: &str) -> Result<StoredFile, ArchiveError> {
        let id = MediaId::parse(id).map_err(|_| ArchiveError::Unknown)?;
        let (file, size) = self.sessions.open_media(&id).await.ok_or(ArchiveError::Unknown)?;
        let mut head = [0; IMAGE_HEAD_BYTES];
        let trouble = |error: std::io::Error| ArchiveError::Trouble(error.to_string());
        let count = file.read_at(&mut head, 0).map_err(trouble)?;
        let image = image_type(head.get(..count).unwrap_or_default());
        Ok(StoredFile { file, size, image })
    }

    async fn delete(&self, id: &str) -> Result<(), ArchiveError> {
        let id = SessionId::parse(id).map_err(|_| ArchiveError::Unknown)?;
        match self.sessions.delete(&id).await {
            Err(SessionRefusal::Busy { .. }) => Err(ArchiveError::Busy(RUNNING.to_owned())),
            Ok(Erased::Later) => {
                tracing::warn!(
                    session = id.as_str(),
                    "deleted; what was said stays in parlor.db-wal until readers are done"
                );
                Ok(())
            }
            deleted => deleted.map(|_| ()).map_err(flaw),
        }
    }

    async fn readiness(&self) -> Result<(), String> {
        self.readiness.ask().await
    }
}

impl SessionArchive {
    /// All of them.
    pub(super) fn of(sessions: Arc<Sessions>, readiness: Arc<Readiness>) -> Self {
        Self { sessions, readiness, searched: MAX_SEARCHED }
    }

    async fn line(&self, record: &SessionRecord) -> SessionInfo {
        // What cannot be read is listed all the same, so that it can be deleted.
        let first = if record.messages > 0 { self.first_words(&record.id).await } else { None };
        let preview = cut(&first.unwrap_or_default());
        let owner = self.sessions.owner(&record.id).await.unwrap_or(SessionOwner::OtherProcess);
        let queued = match owner {
            SessionOwner::ThisProcess { waiting } => waiting,
            SessionOwner::Nobody => self.sessions.left_waiting(record).await.unwrap_or(0),
            SessionOwner::OtherProcess => 0,
        };
        SessionInfo {
            id: record.id.as_str().to_owned(),
            title: record.title.as_deref().map_or_else(|| preview.clone(), cut),
            full_title: record.title.clone(),
            preview,
            message_count: record.messages,
            created: record.created.rfc3339(),
            updated: record.updated.rfc3339(),
            door: record.door.clone(),
            agent_id: record.agent.as_ref().map(ToString::to_string).unwrap_or_default(),
            // What nobody has open has been cut off.
            running: record.running.is_some() && owner != SessionOwner::Nobody,
            queued,
            here: owner != SessionOwner::OtherProcess,
            last_event: self.last_event(record).await,
        }
    }

    /// Whether a session has these words, in lower case, where a list shows them.
    async fn has_words(&self, record: &SessionRecord, words: &str) -> bool {
        let is_in = |text: &str| text.to_lowercase().contains(words);
        is_in(record.id.as_str())
            || record.title.as_deref().is_some_and(is_in)
            || record.messages > 0 && self.first_words(&record.id).await.as_deref().is_some_and(is_in)
    }

    async fn last_event(&self, record: &SessionRecord) -> Option<LastEvent> {
        let mut watcher = self.sessions.watch(&record.id, Seq(record.head.0.saturating_sub(1))).await;
        match watcher.look().await.ok()?? {
            SessionUpdate::Entry(entry) => Some(LastEvent {
                event_type: event_type(&entry),
                error_code: error_code(&entry).map(str::to_owned),
                timestamp: entry.at.rfc3339(),
            }),
            SessionUpdate::Delta { .. } => None,
        }
    }

    /// What somebody said first, without reading the whole session.
    async fn first_words(&self, id: &SessionId) -> Option<String> {
        let mut watcher = self.sessions.watch(id, Seq::START).await;
        for _ in 0..LOOKED_AT {
            let SessionUpdate::Entry(entry) = watcher.look().await.ok()?? else { continue };
            if let SessionEvent::Run { event: RunEvent::Started { input, .. }, .. } = &entry.event {
                return Some(input.text.clone());
            }
            if let SessionEvent::MessageAdded(Message { role: Role::User, text, .. }) = &entry.event {
                return Some(text.clone());
            }
        }
        None
    }
}

/// What was said: messages, and the last words of what was stopped. What parlor itself said is left out.
fn said(passage: &HistoryItem) -> Option<MessageText> {
    let (role, content) = match passage {
        HistoryItem::Message(Message { role: Role::User, text, .. }) => ("user", text.as_str()),
        HistoryItem::Message(Message { role: Role::Assistant, text, .. }) => ("assistant", text.as_str()),
        HistoryItem::BrokenOff(RunEnding::Stopped { cause, .. }) => ("assistant", cause.reason()),
        HistoryItem::Message(Message { role: Role::System, .. })
        | HistoryItem::ToolUse(_)
        | HistoryItem::BrokenOff(RunEnding::Completed { .. } | RunEnding::Failed(_)) => return None,
    };
    Some(MessageText { role, content: content.to_owned() })
}

/// What a message takes in an answer.
fn json_bytes(MessageText { role, content }: &MessageText) -> usize {
    const AROUND: usize = r#"{"role":"","content":""},"#.len();
    let escaped = |byte: u8| match byte {
        b'"' | b'\\' => 2,
        ..0x20 => r"\u0000".len(),
        _ => 1,
    };
    AROUND + role.len() + content.bytes().map(escaped).sum::<usize>()
}

fn cut(text: &str) -> String {
    let text = text.trim();
    if text.chars().count() <= SHOWN_CHARS {
        return text.to_owned();
    }
    text.chars().take(SHOWN_CHARS).chain("...".chars()).collect()
}

pub(super) fn flaw(refusal: SessionRefusal) -> ArchiveError {
    if matches!(refusal, SessionRefusal::UnknownSession(_)) {
        return ArchiveError::Unknown;
    }
    if matches!(
        refusal,
        SessionRefusal::Busy { .. }
            | SessionRefusal::SessionHeld { .. }
            | SessionRefusal::QueueFull { .. }
            | SessionRefusal::Compacting
            | SessionRefusal::BackgroundProcesses
    ) {
        return ArchiveError::Busy(refusal.to_string());
    }
    ArchiveError::Trouble(refusal.to_string())
}

#[cfg(test)]
mod tests {
    use parlor_vocab::{AgentChoice, NewSession, SessionCommand, UserInput, WhenBusy};

    use super::*;
    use crate::environment::Environment;
    use crate::home::Home;

    #[test]
    fn what_a_message_takes_is_never_less_than_it_takes() {
        for text in ["", "plain", "quotes \" and \\ and \n\t\u{1}\u{1f}", "\u{e4}\u{1f600}\u{7f}"] {
            let message = MessageText { role: "assistant", content: text.to_owned() };
            let real = serde_json::to_string(&message).unwrap().len();
            assert!((real..=real + 12).contains(&json_bytes(&message)), "{text:?}");
        }
    }

    #[test]
    fn long_texts_are_cut_by_characters() {
        assert_eq!(cut(" short "), "short");
        assert_eq!(cut(&"é".repeat(SHOWN_CHARS)), "é".repeat(SHOWN_CHARS));
        assert_eq!(cut(&"é".repeat(SHOWN_CHARS + 1)), format!("{}...", "é".repeat(SHOWN_CHARS)));
    }

    /// Says something in a session of that name and waits for the answer.
    async fn talk(sessions: &Sessions, name: &str, text: &str) {
        let id = SessionId::parse(name).unwrap();
        let new_session = NewSession {
            title: None,
            door: "supr".to_owned(),
            folder: "/".into(),
            choice: AgentChoice::default(),
            system: None,
            forked_from: None,
        };
        sessions.create(Some(id.clone()), new_session).await.unwrap();
        let input = UserInput { text: text.to_owned(), ..UserInput::default() };
        sessions.ask(&id, SessionCommand::Send { input, when_busy: WhenBusy::Refuse }).await.unwrap();
        let mut watcher = sessions.watch(&id, Seq::START).await;
        loop {
            if let SessionUpdate::Entry(entry) = watcher.next().await.unwrap()
                && let SessionEvent::Run { event: RunEvent::Ended { .. }, .. } = &entry.event
            {
                return;
            }
        }
    }

    #[tokio::test]
    async fn sessions_are_listed_told_and_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let environment = Environment::read();
        let home = Home::at(&environment, folder.path().to_owned()).unwrap();
        let mut readiness = None;
        let sessions = home.sessions_over(&environment, |log| {
            readiness = Some(Readiness::of(Arc::clone(&log), home.path()));
            log
        });
        let (sessions, readiness) = (Arc::new(sessions.unwrap()), readiness.unwrap());
        for (name, text) in [("first", "/say one"), ("second", "/say two"), ("third", "/say three")] {
            talk(&sessions, name, text).await;
        }
        let archive = SessionArchive::of(Arc::clone(&sessions), Arc::clone(&readiness));
        let ids = async |offset, limit| {
            let lines = archive.list("", offset, limit).await.unwrap();
            lines.into_iter().map(|line| line.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(0, 10).await, ["third", "second", "first"]);
        assert_eq!(ids(1, 1).await, ["second"]);
        assert!(
            ids(3, 10).await.is_empty() && ids(usize::MAX, 10).await.is_empty() && ids(0, 0).await.is_empty()
        );
        let line = archive.list("", 2, 1).await.unwrap().remove(0);
        assert_eq!(
            (line.title.as_str(), line.preview.as_str(), line.message_count),
            ("/say one", "/say one", 2)
        );
        // Words are looked for in so many, the last used first.
        let found = async |searched| {
            let archive = SessionArchive {
                sessions: Arc::clone(&sessions),
                readiness: Arc::clone(&readiness),
                searched,
            };
            let lines = archive.list("/say", 0, 10).await.unwrap();
            lines.into_iter().map(|line| line.id).collect::<Vec<_>>()
        };
        assert_eq!(found(2).await, ["third", "second"]);
        assert_eq!(found(MAX_SEARCHED).await, ["third", "second", "first"]);
        let said = archive.read("first").await.unwrap();
        let said: Vec<_> = said.messages.iter().map(|said| (said.role, said.content.as_str())).collect();
        assert_eq!(said, [("user", "/say one"), ("assistant", "one")]);
        archive.delete("first").await.unwrap();
        assert_eq!(archive.read("first").await, Err(ArchiveError::Unknown));
        assert_eq!(archive.delete("first").await, Err(ArchiveError::Unknown));
        assert_eq!(archive.readiness().await, Ok(()));
        sessions.close().await;
    }
}
