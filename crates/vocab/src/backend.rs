//! The interface between a door's protocol machine and the backend that does the work.
//!
//! A machine submits requests under tickets. The backend answers each ticket once and reports events in between. There
//! is one backend for sessions, one for processes, one for Ruby and one for whole front ends.

/// Identifies one request of a connection; its answer carries the same ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// The reply to one request, or why the backend refused it.
pub type Answer<R, X> = (Ticket, Result<R, X>);

/// What a backend reports to its connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Update<R, E, X> {
    /// The reply to the request with this ticket, or why the backend refused it.
    Answer(Ticket, Result<R, X>),
    /// Something happened that no request asked for.
    Event(E),
}

/// [`Update`] with the types of one backend.
pub type UpdateOf<B> = Update<<B as Backend>::Reply, <B as Backend>::Event, <B as Backend>::Error>;

/// Does the work for one connection.
pub trait Backend {
    /// What a connection can ask for.
    type Request;
    /// The answer to an accepted request.
    type Reply;
    /// What the backend reports without a request.
    type Event;
    /// Why the backend refuses a request.
    type Error;

    /// Submits a request. Returns the answer if it is known at once; otherwise [`next`](Backend::next) brings it.
    fn submit(&mut self, ticket: Ticket, request: Self::Request) -> Option<Answer<Self::Reply, Self::Error>>;

    /// Waits for the next answer or event. Returns `None` after [`begin_close`](Backend::begin_close), when everything
    /// has been reported. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Option<UpdateOf<Self>>> + Send;

    /// Begins to end everything that this connection started. [`next`](Backend::next) reports the endings.
    fn begin_close(&mut self);

    /// Waits until everything that this connection started has ended. Nobody needs to call [`next`](Backend::next)
    /// meanwhile.
    fn closed(self) -> impl Future<Output = ()> + Send;
}
