//! Saved chats: the sessions with at least one message, whichever door they came through.

use parlor_engine::Sessions;
use parlor_log::{MAX_PAGE, PageRequest, SessionRecord};
use parlor_vocab::{
    AgentChoice, ChatSelector, ChatSummary, SavedChat, Seq, SessionEvent, SessionId, SessionRefusal,
    SessionUpdate,
};

/// The number of all chats, and the summaries of one page of them.
pub(super) async fn list(
    sessions: &Sessions,
    skip: usize,
    limit: usize,
) -> Result<(usize, Vec<ChatSummary>), SessionRefusal> {
    let (mut total, mut page) = (0, Vec::new());
    for_each_chat(sessions, |record| {
        if total >= skip && page.len() < limit {
            page.push(record);
        }
        total += 1;
        true
    })
    .await?;
    let mut chats = Vec::with_capacity(page.len());
    for record in page {
        let choice = first_choice(sessions, &record.id).await;
        chats.push(summary(record, choice));
    }
    Ok((total, chats))
}

/// The chat with the given id, with the only id that begins with it, or the last chat.
pub(super) async fn find(
    sessions: &Sessions,
    selector: &ChatSelector,
) -> Result<Option<SavedChat>, SessionRefusal> {
    let (mut exact, mut with_prefix) = (None, Vec::new());
    let prefix = match selector {
        ChatSelector::Last => String::new(),
        ChatSelector::Id(id) => id.to_lowercase(),
    };
    for_each_chat(sessions, |record| {
        let id = record.id.as_str().to_lowercase();
        let is_last = *selector == ChatSelector::Last;
        if is_last || id == prefix {
            exact = Some(record);
            return false;
        }
        if id.starts_with(&prefix) && with_prefix.len() < 2 {
            with_prefix.push(record);
        }
        true
    })
    .await?;
    let only = if with_prefix.len() == 1 { with_prefix.pop() } else { None };
    let Some(record) = exact.or(only) else { return Ok(None) };
    let session = match sessions.read(&record.id).await {
        Ok(session) => session,
        // The chat was deleted meanwhile.
        Err(SessionRefusal::UnknownSession(_)) => return Ok(None),
        Err(refusal) => return Err(refusal),
    };
    let overview = session.overview(record.id.clone());
    Ok(Some(SavedChat { summary: summary(record, overview.choice.clone()), overview }))
}

/// Passes all chats to `visit`, the last updated first, until it returns false.
async fn for_each_chat(
    sessions: &Sessions,
    mut visit: impl FnMut(SessionRecord) -> bool,
) -> Result<(), SessionRefusal> {
    let mut request = PageRequest::first(MAX_PAGE);
    loop {
        let page = sessions.list(request.clone()).await?;
        for record in page.records {
            // A session without messages is not a chat.
            if record.messages > 0 && !visit(record) {
                return Ok(());
            }
        }
        match page.next {
            Some(next) => request.after = Some(next),
            None => return Ok(()),
        }
    }
}

/// The agent and model that a session was created with.
async fn first_choice(sessions: &Sessions, id: &SessionId) -> AgentChoice {
    let first = sessions.watch(id, Seq::START).await.try_next().await;
    let Ok(Some(SessionUpdate::Entry(entry))) = first else { return AgentChoice::default() };
    if let SessionEvent::Created(new_session) = &entry.event {
        new_session.choice.clone()
    } else {
        AgentChoice::default()
    }
}

fn summary(record: SessionRecord, choice: AgentChoice) -> ChatSummary {
    // The record has the agent that was chosen last.
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
