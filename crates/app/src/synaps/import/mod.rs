//! Imports a session that the program `synaps` saved, so that a parent which knows its id can go on with it.
//!
//! The files are only read. `folder` finds a session, `saved` parses its files, `blocks` the messages in them, and `events`
//! turns these into events of the log.

mod blocks;
mod events;
mod folder;
mod saved;

use anyhow::Context;
use parlor_engine::Sessions;
use parlor_log::{SystemClock, TimeOrderedIds};
use parlor_vocab::{
    Clock, IdSource, Media, Message, MessageId, NewSession, Role, SessionEvent, SessionId, SessionRefusal,
    Timestamp,
};
use std::sync::Arc;

use self::blocks::Part;
use self::events::Converter;
pub(super) use self::folder::SavedSessions;
pub(super) use self::saved::SavedSession;
use crate::settings::models::reasoning;

/// The longest title that is taken over, in characters.
const TITLE_CHARS: usize = 80;

/// Imports a saved session under its id, which is returned. `new_session` makes the template from the name of the model; the
/// reasoning effort and the title come from the file. Another process may import the session at the same time; one of the
/// two records it.
pub(super) async fn import(
    sessions: &Sessions,
    saved: &SavedSessions,
    file: SavedSession,
    new_session: impl FnOnce(&str) -> NewSession,
) -> anyhow::Result<SessionId> {
    saved.check_not_in_use(&file.id)?;
    let id = SessionId::parse(&file.id)?;
    let (created, new_session, events) = convert(sessions, saved, file, new_session).await;
    match sessions.import(id.clone(), created, new_session, events).await {
        Ok(()) | Err(SessionRefusal::SessionExists(_) | SessionRefusal::SessionHeld { .. }) => Ok(id),
        Err(refusal) => Err(refusal).with_context(|| format!("cannot import the session {id}")),
    }
}

async fn convert(
    sessions: &Sessions,
    saved: &SavedSessions,
    file: SavedSession,
    new_session: impl FnOnce(&str) -> NewSession,
) -> (Timestamp, NewSession, Vec<(Timestamp, SessionEvent)>) {
    let now = SystemClock.now();
    let ids = TimeOrderedIds::new(Arc::new(SystemClock));
    // A time in the future would keep the session at the top of all lists.
    let past = |at: Timestamp| at.clamp(Timestamp(0), now);
    let template = new_session(&file.model);
    let new_session = NewSession {
        title: title(&file),
        choice: parlor_vocab::AgentChoice { reasoning: reasoning(&file.thinking_level), ..template.choice },
        ..template
    };
    let (created, updated) = (past(file.created), past(file.updated));
    let agent = new_session.choice.agent.clone();
    let mut converter = Converter::new(&ids, agent, file.model.clone(), file.usage);
    for (index, message) in file.messages.into_iter().enumerate() {
        let at = past(file.times.get(&index).copied().unwrap_or(updated));
        let parts = store_files(sessions, message.parts).await;
        converter.add(at, message.is_user, parts);
    }
    let skipped = file.skipped + converter.skipped();
    let mut events = converter.finish(file.interrupted_text.as_deref());
    let source = saved.path_of(&file.id).display().to_string();
    let lost = if skipped == 0 { String::new() } else { format!(" {skipped} parts could not be read.") };
    let note = Message {
        id: MessageId::generate(ids.next()),
        role: Role::System,
        text: format!("Imported from {source}.{lost}"),
        media: Vec::new(),
    };
    // The time of this event is the last use of the session, from which its retention counts.
    events.push((now, SessionEvent::MessageAdded(note)));
    (created, new_session, events)
}

fn title(file: &SavedSession) -> Option<String> {
    let title: String = file.title.chars().filter(|c| !c.is_control()).take(TITLE_CHARS).collect();
    Some(title.trim().to_owned()).filter(|title| !title.is_empty())
}

/// Stores the attached files of a message. A file that cannot be stored becomes a text with its name.
async fn store_files(sessions: &Sessions, parts: Vec<Part>) -> Vec<Part> {
    let mut stored = Vec::with_capacity(parts.len());
    for part in parts {
        stored.push(match part {
            Part::File(file) => {
                let name = file.name.clone();
                let media: Option<Media> = match sessions.store_media(vec![file]).await {
                    Ok(media) => media.into_iter().next(),
                    Err(_) => None,
                };
                media.map_or_else(|| Part::Text(format!("[attached file {name:?}]")), Part::Media)
            }
            other @ (Part::Text(_)
            | Part::Thinking(_)
            | Part::Media(_)
            | Part::Call { .. }
            | Part::CallResult { .. }) => other,
        });
    }
    stored
}
