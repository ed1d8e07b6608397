//! Creates sessions: new ones, forks of others, and those that another program recorded.

use parlor_model::refused_messages;
use parlor_tools::clean;
use parlor_vocab::{
    AgentChoice, ForkOrigin, Message, MessageId, NewSession, Role, SessionEvent, SessionId, SessionRefusal,
    Timestamp,
};

use super::Sessions;
use super::handle::OpenSession;
use super::open_sessions::Route;
use crate::redact::clean_event;
use crate::session::first_title;

impl Sessions {
    /// Creates a session with the id `id`, or with a new id, and returns the id once the session is durable.
    pub async fn create(
        &self,
        id: Option<SessionId>,
        new_session: NewSession,
    ) -> Result<SessionId, SessionRefusal> {
        let choice = self.shared.deps.agents.recorded(&AgentChoice::default(), new_session.choice)?;
        let title = new_session.title.as_deref().and_then(first_title);
        let created = SessionEvent::Created(NewSession { choice, title, ..new_session });
        self.create_with(id, vec![(self.shared.deps.clock.now(), created)]).await
    }

    /// Creates a session that begins with the messages of the session `from`, up to and including `message`, or all
    /// if it is `None`. Tool uses are not copied. `from` need not be open in this process.
    pub async fn fork(
        &self,
        id: Option<SessionId>,
        from: &SessionId,
        message: Option<&MessageId>,
    ) -> Result<SessionId, SessionRefusal> {
        let source = self.read(from).await?;
        // A fork has no failed runs, which would tell that a provider refused a message.
        let refused: Vec<&MessageId> = refused_messages(source.history()).collect();
        let is_asked_for = |id: &MessageId| Some(id) == message;
        let is_copied = |message: &&Message| !refused.contains(&&message.id) || is_asked_for(&message.id);
        let mut messages: Vec<Message> = source.messages().filter(is_copied).cloned().collect();
        if let Some(last) = message {
            let index = messages.iter().position(|message| message.id == *last);
            let index = index.ok_or_else(|| SessionRefusal::UnknownMessage(last.clone()))?;
            messages.truncate(index + 1);
        }
        let new_session =
            source.new_session().cloned().ok_or_else(|| SessionRefusal::UnknownSession(from.clone()))?;
        let last = messages.last().map(|message| message.id.clone());
        let new_session = NewSession {
            title: source.title().map(str::to_owned),
            choice: source.choice().clone(),
            forked_from: last.map(|message| ForkOrigin { session: from.clone(), message }),
            ..new_session
        };
        let now = self.shared.deps.clock.now();
        let copies = messages.into_iter().map(|message| {
            let id = MessageId::generate(self.shared.deps.ids.next());
            (now, SessionEvent::MessageAdded(Message { id, ..message }))
        });
        self.create_with(
            id,
            std::iter::once((now, SessionEvent::Created(new_session))).chain(copies).collect(),
        )
        .await
    }

    /// Creates the session `id` with a history that another program recorded: `events` with their times, oldest first.
    /// All runs in them must have ended. Secrets that are known here are removed. Either the whole session is recorded, or
    /// nothing is.
    pub async fn import(
        &self,
        id: SessionId,
        created: Timestamp,
        new_session: NewSession,
        events: Vec<(Timestamp, SessionEvent)>,
    ) -> Result<(), SessionRefusal> {
        let redact = &*self.shared.redact;
        let redacted = |event| match event {
            SessionEvent::Run { run, sequence, event } => {
                SessionEvent::Run { run, sequence, event: clean_event(redact, event) }
            }
            SessionEvent::MessageAdded(message) if message.role == Role::Assistant => {
                let text = clean(redact, message.text);
                SessionEvent::MessageAdded(Message { text, ..message })
            }
            other @ (SessionEvent::Created(_)
            | SessionEvent::Renamed { .. }
            | SessionEvent::AgentChosen(_)
            | SessionEvent::ModeChosen { .. }
            | SessionEvent::Queued(_)
            | SessionEvent::Unqueued { .. }
            | SessionEvent::Cleared
            | SessionEvent::Compacted { .. }
            | SessionEvent::MessageAdded(_)) => other,
        };
        let events = events.into_iter().map(|(at, event)| (at, redacted(event)));
        let first = (created, SessionEvent::Created(new_session));
        self.create_with(Some(id), std::iter::once(first).chain(events).collect()).await.map(drop)
    }

    /// Creates a session with these events; the first is [`SessionEvent::Created`].
    async fn create_with(
        &self,
        id: Option<SessionId>,
        events: Vec<(Timestamp, SessionEvent)>,
    ) -> Result<SessionId, SessionRefusal> {
        let id = id.unwrap_or_else(|| SessionId::generate(self.shared.deps.ids.next()));
        let mut slot = self.open_sessions.lock(&id).await;
        self.check_not_shutting_down()?;
        if slot.running().is_some() {
            return Err(SessionRefusal::SessionExists(id));
        }
        slot.make_room().await?;
        self.mirrors.stop(&id).await;
        let session = OpenSession::create(&self.shared, id.clone(), events).await?;
        slot.set_route(Route::Here(session));
        Ok(id)
    }
}
