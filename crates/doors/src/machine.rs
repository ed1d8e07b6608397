//! The interface of every door's state machine: what goes in and what comes out.

use std::time::Instant;

use bytes::Bytes;
use parlor_vocab::{Backend, Ticket};

use crate::lines::Lines;

/// Everything that can happen to one connection.
#[derive(Debug)]
pub enum Input<'a, R, E, X> {
    /// A line, without its newline.
    Frame(&'a [u8]),
    /// The client sent a line above the limit. Its bytes were dropped; the next frame is complete again.
    Oversize {
        /// The limit in bytes, without the newline.
        limit: usize,
    },
    /// The backend's answer to the request with this ticket.
    Answer(Ticket, Result<R, X>),
    /// The backend reports an event without being asked.
    Event(&'a E),
    /// The moment of the last [`Output::WakeAt`] has come.
    Deadline,
}

/// Everything that a machine can ask of its driver.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<Q> {
    /// Send this frame to the client. It contains no newline; the driver adds one where the transport needs it.
    Send(Vec<u8>),
    /// Like [`Send`](Output::Send), for a frame that other connections send too.
    SendShared(Bytes),
    /// Submit this request to the backend.
    Request(Ticket, Q),
    /// Pass in [`Input::Deadline`] at this moment. Replaces an earlier `WakeAt`.
    WakeAt(Instant),
    /// Close the connection: write the frames that were sent, and read nothing more.
    Close,
}

/// [`Input`] with the types of one machine.
pub type InputOf<'a, M> = Input<'a, <M as Machine>::Reply, <M as Machine>::Event, <M as Machine>::Error>;

/// A backend that has the request, reply, event and error types of the machine `M`.
pub trait BackendFor<M: Machine>:
    Backend<Request = M::Request, Reply = M::Reply, Event = M::Event, Error = M::Error>
{
}

impl<M, B> BackendFor<M> for B
where
    M: Machine,
    B: Backend<Request = M::Request, Reply = M::Reply, Event = M::Event, Error = M::Error>,
{
}

/// The server's side of one connection, as a pure state machine.
pub trait Machine {
    /// What the machine asks of its backend.
    type Request;
    /// The backend's answer to a request that it carried out.
    type Reply;
    /// What the backend reports without being asked.
    type Event;
    /// The backend's answer to a request that it refused.
    type Error;

    /// Handles one input that happened at `now`.
    fn handle(&mut self, now: Instant, input: InputOf<'_, Self>);

    /// The next output, if there is one. A driver drains this before the first and after every [`handle`].
    ///
    /// [`handle`]: Machine::handle
    fn poll(&mut self) -> Option<Output<Self::Request>>;

    /// Whether the driver may pass in the next frame. A machine that serves requests one after another returns `false`
    /// while an answer is outstanding. The driver may pass in answers and events at any time.
    fn wants_frame(&self) -> bool;

    /// Whether a request of the client is being carried out and needs further answers of the backend. The WebSocket
    /// driver asks when a client has disconnected: it keeps driving the machine until the work is done.
    fn has_work_in_progress(&self) -> bool {
        false
    }

    /// Whether every request of the client is answered, except those that may take minutes. A driver asks when the
    /// client has closed its sending side: it waits until this is `true`.
    fn has_answered_all(&self) -> bool {
        self.wants_frame()
    }

    /// The most bytes that the answer to `request` may have, or 0 if answers of this kind are small. The driver
    /// reserves this much memory before it submits the request.
    fn max_reply_bytes(&self, _request: &Self::Request) -> usize {
        0
    }

    /// Whether the next line has to begin with `{`, because the client has not proved yet that it speaks this protocol.
    /// The driver closes a connection whose next line begins otherwise, and reads nothing after the first byte.
    fn requires_object(&self) -> bool {
        false
    }

    /// The longest next line that the machine accepts, in bytes, without its newline.
    fn max_line_bytes(&self) -> usize;

    /// The decoder that splits the client's bytes into lines.
    fn lines(&self) -> Lines {
        Lines::new(self.max_line_bytes())
    }
}
