//! Saved chats: the sessions of the log in which somebody has spoken, whichever door they came through.

use parlor_engine::Sessions;
use parlor_engine::session::Session;
use parlor_log::{MAX_PAGE, PageRequest, SessionRecord};
use parlor_vocab::{
    AgentChoice, ChatSelector, ChatSummary, SavedChat, Seq, SessionEvent, SessionId, SessionOverview,
    SessionRefusal, SessionUpdate,
};

/// How many there are, and those of a page.
pub(super) async fn list(
    sessions: &Sessions,
    skip: usize,
    limit: usize,
) -> Result<(usize, Vec<ChatSummary>), SessionRefusal> {
    let (mut total, mut wanted) = (0, Vec::new());
    walk(sessions, |record| {
        if total >= skip && wanted.len() < limit {
            wanted.push(record);
        }
        total += 1;
        true
    })
    .await?;
    let mut chats = Vec::with_capacity(wanted.len());
    for record in wanted {
        let choice = first_choice(sessions, &record.id).await;
        chats.push(line(record, choice));
    }
    Ok((total, chats))
}

/// The chat that is meant, if there is one.
pub(super) async fn find(
    sessions: &Sessions,
    wanted: &ChatSelector,
) -> Result<Option<SavedChat>, SessionRefusal> {
    let (mut exact, mut beginning) = (None, Vec::new());
    let prefix = match wanted {
        ChatSelector::Last => String::new(),
        ChatSelector::Id(id) => id.to_lowercase(),
    };
    walk(sessions, |record| {
        let id = record.id.as_str().to_lowercase();
        let is_last = *wanted == ChatSelector::Last;
        if is_last || id == prefix {
            exact = Some(record);
            return false;
        }
        if id.starts_with(&prefix) && beginning.len() < 2 {
            beginning.push(record);
        }
        true
    })
    .await?;
    let only = if beginning.len() == 1 { beginning.pop() } else { None };
    let Some(record) = exact.or(only) else { return Ok(None) };
    let session = match sessions.read(&record.id).await {
        Ok(session) => session,
        // Deleted in between.
        Err(SessionRefusal::UnknownSession(_)) => return Ok(None),
        Err(refusal) => return Err(refusal),
    };
    let overview = overview(record.id.clone(), &session);
    Ok(Some(SavedChat { about: line(record, overview.choice.clone()), overview }))
}

/// Shows all chats to `look`, the last updated first, until it has seen enough.
async fn walk(
    sessions: &Sessions,
    mut look: impl FnMut(SessionRecord) -> bool,
) -> Result<(), SessionRefusal> {
    let mut request = PageRequest::first(MAX_PAGE);
    loop {
        let page = sessions.list(request.clone()).await?;
        for record in page.records {
            // One in which nobody has spoken is no chat yet.
            if record.messages > 0 && !look(record) {
                return Ok(());
            }
        }
        match page.next {
            Some(next) => request.after = Some(next),
            None => return Ok(()),
        }
    }
}

/// What a session was created to be answered by.
async fn first_choice(sessions: &Sessions, id: &SessionId) -> AgentChoice {
    let first = sessions.watch(id, Seq::START).await.look().await;
    let Ok(Some(SessionUpdate::Entry(entry))) = first else { return AgentChoice::default() };
    if let SessionEvent::Created(new_session) = &entry.event {
        new_session.choice.clone()
    } else {
        AgentChoice::default()
    }
}

fn line(record: SessionRecord, choice: AgentChoice) -> ChatSummary {
    // A record knows the agent that was chosen last.
    let agent = record.agent.or(choice.agent);
    ChatSummary {
        id: record.id,
        title: record.title,
        choice: AgentChoice { agent, ..choice },
        created: record.created,
        updated: record.updated,
        messages: record.messages,
    }
}

fn overview(id: SessionId, session: &Session) -> SessionOverview {
    SessionOverview {
        id,
        head: session.head(),
        title: session.title().map(str::to_owned),
        choice: session.choice().clone(),
        history: session.history().to_vec(),
        usage: session.usage(),
        queue: session.queue().cloned().collect(),
        active: session.active().cloned(),
    }
}
