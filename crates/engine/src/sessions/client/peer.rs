//! The backend of a connection to another process of parlor. It carries out requests in this process only.

use std::collections::HashMap;
use std::sync::Arc;

use parlor_vocab::{
    Answer, Backend, PeerEvent, PeerReply, PeerRequest, PeerUpdate, RegistryReply, RegistryRequest,
    SessionCommand, SessionId, SessionRefusal, SessionUpdate, Ticket, Update, UpdateOf, WatchFrom,
};

use super::{ClientLimits, ClientProgress, OnDisconnect, SessionClient, Watches};
use crate::sessions::peer_watches::PeerUse;
use crate::sessions::{Reach, Sessions};

/// How many requests of one process may be unanswered at a time. It serves many clients through one connection.
pub const MAX_PEER_REQUESTS: usize = 1024;

/// How many sessions one process may watch at a time.
pub const MAX_PEER_WATCHED: usize = 1024;

/// The session backend of another process.
pub struct PeerClient {
    client: SessionClient,
    /// The sessions that the process has sent a message to, until it ends its watch of them: a watch may begin only after
    /// the message.
    sent_to: HashMap<SessionId, PeerUse>,
}

impl PeerClient {
    /// A client with no request and no watch.
    pub fn new(sessions: Arc<Sessions>) -> Self {
        let limits = ClientLimits { requests: MAX_PEER_REQUESTS, watched: MAX_PEER_WATCHED };
        let client = SessionClient::new(sessions, OnDisconnect::Keep);
        let client = SessionClient { reach: Reach::ThisProcess, limits, ..client };
        Self { client, sent_to: HashMap::new() }
    }
}

impl Backend for PeerClient {
    type Request = PeerRequest;
    type Reply = PeerReply;
    type Event = PeerEvent;
    type Error = SessionRefusal;

    /// Must be called within a tokio runtime.
    fn submit(&mut self, ticket: Ticket, request: PeerRequest) -> Option<Answer<PeerReply, SessionRefusal>> {
        match &request {
            PeerRequest::Session(session, command)
                if matches!(**command, SessionCommand::Send { .. })
                    && self.sent_to.len() < MAX_PEER_WATCHED =>
            {
                let uses = &self.client.sessions.peer_watches;
                self.sent_to.entry(session.clone()).or_insert_with(|| uses.count_use(session));
            }
            PeerRequest::Unwatch(session) | PeerRequest::Delete(session) => {
                drop(self.sent_to.remove(session))
            }
            PeerRequest::Session(..) | PeerRequest::Watch(_) => {}
        }
        let request = match request {
            PeerRequest::Session(session, command) => RegistryRequest::Session(session, *command),
            PeerRequest::Delete(session) => RegistryRequest::Delete(session),
            PeerRequest::Watch(session) => {
                RegistryRequest::Watch { session, after: WatchFrom::Now, deltas: true }
            }
            PeerRequest::Unwatch(session) => RegistryRequest::Unwatch(session),
        };
        let (ticket, answer) = self.client.submit(ticket, request)?;
        Some((ticket, answer.map(peer_reply)))
    }

    async fn next(&mut self) -> Option<UpdateOf<Self>> {
        Some(match self.client.next_progress().await? {
            ClientProgress::Update(Update::Answer(ticket, answer)) => {
                Update::Answer(ticket, answer.map(peer_reply))
            }
            ClientProgress::Update(Update::Event(event)) => {
                let update = match event.update {
                    SessionUpdate::Entry(entry) => PeerUpdate::Head(entry.seq),
                    SessionUpdate::Delta { run, stream, text } => PeerUpdate::Delta { run, stream, text },
                };
                Update::Event(PeerEvent { session: event.session, update })
            }
            ClientProgress::WatchEnded(session) => {
                Update::Event(PeerEvent { session, update: PeerUpdate::Closed })
            }
        })
    }

    /// Watches end at once: a process that has hung up reads no more, and an owner that leaves does not wait for it.
    fn begin_close(&mut self) {
        self.client.watches = Watches::default();
        self.sent_to.clear();
        self.client.begin_close();
    }

    async fn closed(self) {
        self.client.closed().await;
    }
}

fn peer_reply(reply: RegistryReply) -> PeerReply {
    match reply {
        RegistryReply::Session(reply) => PeerReply::Session(reply),
        RegistryReply::Created(_)
        | RegistryReply::Overview(_)
        | RegistryReply::Watching { .. }
        | RegistryReply::Totals(_)
        | RegistryReply::Done
        | RegistryReply::Files(_)
        | RegistryReply::Stored(_)
        | RegistryReply::Contents(_) => PeerReply::Done,
    }
}
