//! The backend of the peer door: it answers requests in any order, and reports updates of watched sessions.

use std::collections::{BTreeSet, VecDeque};

use parlor_vocab::{
    AgentId, ClosingPart, Message, MessageId, PeerEvent, PeerReply, PeerRequest, PeerUpdate, QueuedInput,
    Role, RunId, Seq, SessionCommand, SessionId, SessionRefusal, SessionReply, StepId, StreamKind,
    ToolCallId, UserInput,
};

use super::choices::Choices;
use crate::Ticket;

pub(super) enum Update {
    Answer(Ticket, Result<PeerReply, SessionRefusal>),
    Event(PeerEvent),
}

pub(super) struct FakeOwner<'a> {
    choices: Choices<'a>,
    pending: VecDeque<(Ticket, PeerRequest)>,
    watched: BTreeSet<SessionId>,
    /// The number of the last event in all sessions.
    head: u64,
}

impl<'a> FakeOwner<'a> {
    pub(super) fn new(choices: &'a [u8]) -> Self {
        let (pending, watched) = (VecDeque::new(), BTreeSet::new());
        Self { choices: Choices::new(choices), pending, watched, head: 0 }
    }

    pub(super) fn submit(&mut self, ticket: Ticket, request: PeerRequest) {
        self.pending.push_back((ticket, request));
    }

    /// How many actions come before the next line.
    pub(super) fn burst(&mut self) -> u8 {
        self.choices.burst()
    }

    /// Whether the deadline passes before the next line.
    pub(super) fn is_deadline_over(&mut self) -> bool {
        self.choices.next() == 255
    }

    /// Answers a request or reports an update.
    pub(super) fn act(&mut self) -> Option<Update> {
        match self.choices.next() % 2 {
            0 => self.answer(),
            _ => self.report(),
        }
    }

    /// Answers any of the pending requests.
    pub(super) fn answer(&mut self) -> Option<Update> {
        let index = self.choices.index(self.pending.len())?;
        let (ticket, request) = self.pending.remove(index).expect("an index below the length");
        let choice = self.choices.next();
        if choice % 4 == 3 {
            return Some(Update::Answer(ticket, Err(refusal(choice / 4))));
        }
        let reply = match request {
            PeerRequest::Session(_, command) => PeerReply::Session(reply(choice / 4, *command)),
            PeerRequest::Delete(_) => PeerReply::Done,
            PeerRequest::Watch(session) => {
                self.watched.insert(session);
                PeerReply::Done
            }
            PeerRequest::Unwatch(session) => {
                self.watched.remove(&session);
                PeerReply::Done
            }
        };
        Some(Update::Answer(ticket, Ok(reply)))
    }

    fn report(&mut self) -> Option<Update> {
        let index = self.choices.index(self.watched.len())?;
        let session = self.watched.iter().nth(index).expect("an index below the length").clone();
        let choice = self.choices.next();
        let text = ["a", "\u{e4}\u{1f600}", "\n\"", "\u{2028}"][usize::from(choice >> 6)].to_owned();
        let update = match choice % 8 {
            0 => {
                self.watched.remove(&session);
                PeerUpdate::Closed
            }
            1..=4 => {
                let call = ToolCallId::parse(&text).expect("a short text");
                let stream = match choice % 4 {
                    0 => StreamKind::Message(MessageId::parse(&text).expect("a short text")),
                    1 => StreamKind::Reasoning(StepId::parse(&text).expect("a short text")),
                    2 => StreamKind::ToolOutput(call),
                    _ => StreamKind::ToolInput { call, tool: text.clone() },
                };
                PeerUpdate::Delta { run: run(), stream, text }
            }
            _ => {
                self.head += 1;
                PeerUpdate::Head(Seq(self.head))
            }
        };
        Some(Update::Event(PeerEvent { session, update }))
    }
}

fn run() -> RunId {
    RunId::parse("run_1").expect("a short text")
}

/// A reply that fits to the command.
fn reply(choice: u8, command: SessionCommand) -> SessionReply {
    match command {
        SessionCommand::Send { .. } => match choice % 3 {
            0 => SessionReply::Started(run()),
            1 => SessionReply::Queued { run: run(), waiting: usize::from(choice) },
            _ => SessionReply::Steered(run()),
        },
        SessionCommand::Stop { .. } => SessionReply::Stopping(run()),
        SessionCommand::ClearQueue | SessionCommand::Unqueue(_) => {
            let input = UserInput { text: "\n".to_owned(), ..UserInput::default() };
            let waiting = QueuedInput { run: run(), input };
            SessionReply::Unqueued(vec![waiting; usize::from(choice % 3)])
        }
        SessionCommand::Compact { .. } => {
            let id = MessageId::parse("m").expect("a short text");
            SessionReply::Compacted(Message {
                id,
                role: Role::System,
                text: String::new(),
                media: Vec::new(),
            })
        }
        SessionCommand::ClearHistory
        | SessionCommand::Rename { .. }
        | SessionCommand::ChooseAgent(_)
        | SessionCommand::ChooseMode(_)
        | SessionCommand::AnswerQuestion { .. } => SessionReply::Done,
    }
}

fn refusal(choice: u8) -> SessionRefusal {
    let session = SessionId::parse("s").expect("a short text");
    match choice % 8 {
        0 => SessionRefusal::SessionHeld { session, holder: "process 1".to_owned() },
        1 => SessionRefusal::UnknownSession(session),
        2 => SessionRefusal::Busy { active: run() },
        3 => SessionRefusal::WrongRun { asked: run(), active: run() },
        4 => SessionRefusal::Closing { part: ClosingPart::Session(session) },
        5 => SessionRefusal::UnknownAgent(AgentId::parse("a").expect("a short text")),
        6 => SessionRefusal::LogUnavailable { reason: "\"\n".to_owned() },
        _ => SessionRefusal::NoActiveRun,
    }
}
