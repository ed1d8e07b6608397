//! Saved chats: the sessions with at least one message, whichever door they came through.

use parlor_engine::Sessions;
use parlor_log::{MAX_PAGE, PageRequest, SessionRecord};
use parlor_vocab::{
    AgentChoice, ChatSelector, ChatSummary, RunEvent, SavedChat, Seq, SessionEvent, SessionId,
    SessionRefusal, SessionUpdate,
};

/// How many of the first events of a session are read.
const BEGINNING_EVENTS: usize = 16;

/// How many of the last events of a session are searched first for its latest prompt.
const FIRST_PROMPT_EVENTS: u64 = 64;

/// How many of the last events are searched at most.
const LATEST_PROMPT_EVENTS: u64 = 1024;

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
        let beginning = Beginning::read(sessions, &record.id).await;
        let title = beginning.title(sessions, &record).await;
        chats.push(summary(record, beginning.choice, title));
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
    let mut overview = session.overview(record.id.clone());
    // A run whose process has died is not active any more, though its end is recorded only when the chat is next used.
    if sessions.is_interrupted(&record).await {
        overview.active = None;
    }
    let title = Beginning::read(sessions, &record.id).await.title(sessions, &record).await;
    Ok(Some(SavedChat { summary: summary(record, overview.choice.clone(), title), overview }))
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

/// The first events of a session.
#[derive(Default)]
struct Beginning {
    /// The agent and model that the session was created with.
    choice: AgentChoice,
    /// The title that the engine made of the first prompt.
    derived_title: Option<String>,
}

impl Beginning {
    async fn read(sessions: &Sessions, id: &SessionId) -> Self {
        let mut beginning = Self::default();
        let mut watcher = sessions.watch(id, Seq::START).await;
        let mut renamed = None;
        for _ in 0..BEGINNING_EVENTS {
            let Ok(Some(SessionUpdate::Entry(entry))) = watcher.try_next().await else { break };
            let mut title = None;
            match &entry.event {
                SessionEvent::Created(new_session) => beginning.choice = new_session.choice.clone(),
                SessionEvent::Renamed { title: given } => title = Some(given.clone()),
                // The engine names a session right before the first run.
                SessionEvent::Run { .. } => {
                    beginning.derived_title = renamed;
                    break;
                }
                SessionEvent::AgentChosen(_)
                | SessionEvent::ModeChosen { .. }
                | SessionEvent::Queued(_)
                | SessionEvent::Unqueued { .. }
                | SessionEvent::Cleared
                | SessionEvent::Compacted { .. }
                | SessionEvent::MessageAdded(_) => {}
            }
            renamed = title;
        }
        beginning
    }

    /// The title that somebody gave the session, or else its latest prompt.
    async fn title(&self, sessions: &Sessions, record: &SessionRecord) -> Option<String> {
        if record.title != self.derived_title {
            return record.title.clone();
        }
        latest_prompt(sessions, record).await.or_else(|| record.title.clone())
    }
}

/// The prompt of the last run, if it is among the last [`LATEST_PROMPT_EVENTS`] events.
async fn latest_prompt(sessions: &Sessions, record: &SessionRecord) -> Option<String> {
    for count in [FIRST_PROMPT_EVENTS, LATEST_PROMPT_EVENTS] {
        let from = Seq(record.head.0.saturating_sub(count));
        let (mut watcher, mut prompt) = (sessions.watch(&record.id, from).await, None);
        while let Ok(Some(update)) = watcher.try_next().await {
            let SessionUpdate::Entry(entry) = update else { continue };
            if let SessionEvent::Run { event: RunEvent::Started { parent: None, input, .. }, .. } =
                &entry.event
            {
                prompt = Some(input.text.clone());
            }
            if entry.seq >= record.head {
                break;
            }
        }
        if prompt.is_some() || from == Seq::START {
            return prompt;
        }
    }
    None
}

fn summary(record: SessionRecord, choice: AgentChoice, title: Option<String>) -> ChatSummary {
    // The record has the agent that was chosen last.
    let agent = record.agent.or(choice.agent);
    ChatSummary {
        id: record.id,
        title,
        choice: AgentChoice { agent, ..choice },
        created: record.created,
        updated: record.updated,
        messages: record.messages,
    }
}
