//! What a driver needs of whatever is behind a door.

use std::sync::Arc;

use parlor_doors::Ticket;
use parlor_engine::{Guest, Happening, Office, OfficeWord, Processes, Word, Workbench};
use parlor_vocab::{
    Command, Event, HouseCommand, HouseEvent, HouseReply, OfficeCommand, OfficeEvent, OfficeReply, Refusal,
    Reply, WorkshopCommand, WorkshopReply,
};

/// What comes back from an engine.
#[derive(Debug)]
pub enum News<R, E> {
    /// The answer to a question.
    Answer(Ticket, Result<R, Refusal>),
    /// Something that happened.
    Event(E),
}

/// The part of the engine that one connection works with.
pub trait Engine {
    /// What it is asked.
    type Ask;
    /// What it answers.
    type Reply;
    /// What it tells.
    type Event;

    /// Puts a question. An answer that has to wait comes from [`next`](Engine::next).
    fn ask(&mut self, ticket: Ticket, ask: Self::Ask) -> Option<(Ticket, Result<Self::Reply, Refusal>)>;

    /// Waits for news; none when, after [`begin_end`](Engine::begin_end), there is nothing more to
    /// hear. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Option<News<Self::Reply, Self::Event>>> + Send;

    /// Begins to end what this connection started. [`next`](Engine::next) goes on to tell of it.
    fn begin_end(&mut self);

    /// Waits until nothing is left of what this connection started, whether or not anybody hears
    /// of it.
    fn gone(self) -> impl Future<Output = ()> + Send;
}

impl Engine for Processes<Ticket> {
    type Ask = Command;
    type Reply = Reply;
    type Event = Event;

    fn ask(&mut self, ticket: Ticket, command: Command) -> Option<(Ticket, Result<Reply, Refusal>)> {
        self.perform(ticket, command)
    }

    async fn next(&mut self) -> Option<News<Reply, Event>> {
        Some(match self.next().await? {
            Happening::Answer(ticket, answer) => News::Answer(ticket, answer),
            Happening::Event(event) => News::Event(event),
        })
    }

    fn begin_end(&mut self) {
        self.end_all();
    }

    async fn gone(self) {
        self.gone().await;
    }
}

impl Engine for Guest<Ticket> {
    type Ask = HouseCommand;
    type Reply = HouseReply;
    type Event = HouseEvent;

    fn ask(
        &mut self,
        ticket: Ticket,
        command: HouseCommand,
    ) -> Option<(Ticket, Result<HouseReply, Refusal>)> {
        self.ask(ticket, command)
    }

    async fn next(&mut self) -> Option<News<HouseReply, HouseEvent>> {
        Some(match self.next().await? {
            Word::Answer(ticket, answer) => News::Answer(ticket, answer),
            Word::Event(event) => News::Event(event),
        })
    }

    fn begin_end(&mut self) {
        self.leave();
    }

    async fn gone(self) {
        self.gone().await;
    }
}

impl Engine for Office<Ticket> {
    type Ask = OfficeCommand;
    type Reply = OfficeReply;
    type Event = OfficeEvent;

    fn ask(
        &mut self,
        ticket: Ticket,
        command: OfficeCommand,
    ) -> Option<(Ticket, Result<OfficeReply, Refusal>)> {
        self.ask(ticket, command)
    }

    async fn next(&mut self) -> Option<News<OfficeReply, OfficeEvent>> {
        Some(match self.next().await? {
            OfficeWord::Answer(ticket, answer) => News::Answer(ticket, answer),
            OfficeWord::Event(event) => News::Event(event),
        })
    }

    fn begin_end(&mut self) {
        self.leave();
    }

    async fn gone(self) {
        self.gone().await;
    }
}

impl Engine for Workbench<Ticket> {
    type Ask = WorkshopCommand;
    type Reply = Arc<WorkshopReply>;
    type Event = ();

    fn ask(
        &mut self,
        ticket: Ticket,
        command: WorkshopCommand,
    ) -> Option<(Ticket, Result<Arc<WorkshopReply>, Refusal>)> {
        self.ask(ticket, command)
    }

    async fn next(&mut self) -> Option<News<Arc<WorkshopReply>, ()>> {
        let (ticket, answer) = self.next().await?;
        Some(News::Answer(ticket, answer))
    }

    fn begin_end(&mut self) {
        self.leave();
    }

    // A call goes on without whoever made it: it belongs to all.
    async fn gone(self) {}
}
