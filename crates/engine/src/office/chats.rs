//! Saved chats: the sessions of the log in which somebody has spoken, whichever door they came through.

use parlor_log::{MAX_PAGE, PageRequest, SessionRecord};
use parlor_vocab::{
    Chat, Choice, Overview, Refusal, SavedChat, Seen, Seq, SessionEvent, SessionId, WantedChat,
};

use crate::house::House;
use crate::session::Session;

/// How many there are, and those of a page.
pub(super) async fn list(house: &House, skip: usize, limit: usize) -> Result<(usize, Vec<Chat>), Refusal> {
    let (mut total, mut wanted) = (0, Vec::new());
    walk(house, |record| {
        if total >= skip && wanted.len() < limit {
            wanted.push(record);
        }
        total += 1;
        true
    })
    .await?;
    let mut chats = Vec::with_capacity(wanted.len());
    for record in wanted {
        let choice = first_choice(house, &record.id).await;
        chats.push(line(record, choice));
    }
    Ok((total, chats))
}

/// The chat that is meant, if there is one.
pub(super) async fn find(house: &House, wanted: &WantedChat) -> Result<Option<SavedChat>, Refusal> {
    let (mut exact, mut beginning) = (None, Vec::new());
    let prefix = match wanted {
        WantedChat::Last => String::new(),
        WantedChat::Id(id) => id.to_lowercase(),
    };
    walk(house, |record| {
        let id = record.id.as_str().to_lowercase();
        let is_last = *wanted == WantedChat::Last;
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
    let session = match house.read(&record.id).await {
        Ok(session) => session,
        // Deleted in between.
        Err(Refusal::UnknownSession(_)) => return Ok(None),
        Err(refusal) => return Err(refusal),
    };
    let overview = overview(record.id.clone(), &session);
    Ok(Some(SavedChat { about: line(record, overview.choice.clone()), overview }))
}

/// Shows all chats to `look`, the last updated first, until it has seen enough.
async fn walk(house: &House, mut look: impl FnMut(SessionRecord) -> bool) -> Result<(), Refusal> {
    let mut request = PageRequest::first(MAX_PAGE);
    loop {
        let page = house.list(request.clone()).await?;
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
async fn first_choice(house: &House, id: &SessionId) -> Choice {
    let first = house.watch(id, Seq::START).await.look().await;
    let Ok(Some(Seen::Entry(entry))) = first else { return Choice::default() };
    if let SessionEvent::Created(birth) = &entry.event { birth.choice.clone() } else { Choice::default() }
}

fn line(record: SessionRecord, choice: Choice) -> Chat {
    // A record knows the agent that was chosen last.
    let agent = record.agent.or(choice.agent);
    Chat {
        id: record.id,
        title: record.title,
        choice: Choice { agent, ..choice },
        created: record.created,
        updated: record.updated,
        messages: record.messages,
    }
}

fn overview(id: SessionId, session: &Session) -> Overview {
    Overview {
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
