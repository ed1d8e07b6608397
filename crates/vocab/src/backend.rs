//! How a connection's machine talks to what is behind its door.
//!
//! A machine submits requests under tickets. The backend answers each ticket once and reports events in between. There
//! is one backend for sessions, one for processes, one for Ruby and one for whole front ends.

/// Identifies one request of a connection; its answer carries the same ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// The answer to one request.
pub type Answer<R, X> = (Ticket, Result<R, X>);

/// What a backend reports to its connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Update<R, E, X> {
    /// The answer to a request.
    Answer(Ticket, Result<R, X>),
    /// Something happened that no request asked for.
    Event(E),
}

/// [`Update`] with the types of one backend.
pub type UpdateOf<B> = Update<<B as Backend>::Reply, <B as Backend>::Event, <B as Backend>::Error>;

/// What one connection works with behind its door.
pub trait Backend {
    /// What a connection can ask for.
    type Request;
    /// The answer to an accepted request.
    type Reply;
    /// What the backend reports without being asked.
    type Event;
    /// The answer to a refused request.
    type Error;

    /// Submits a request. Returns the answer if it is known at once; otherwise [`next`](Backend::next) brings it.
    fn submit(&mut self, ticket: Ticket, request: Self::Request) -> Option<Answer<Self::Reply, Self::Error>>;

    /// Waits for the next answer or event. Returns `None` when, after [`begin_close`](Backend::begin_close), nothing
    /// more will come. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Option<UpdateOf<Self>>> + Send;

    /// Begins to end what this connection started. [`next`](Backend::next) goes on to report it.
    fn begin_close(&mut self);

    /// Waits until nothing is left of what this connection started, even if nobody reads the reports.
    fn closed(self) -> impl Future<Output = ()> + Send;
}
