//! What every door's machine has in common: what goes in and what comes out.

use std::time::Instant;

use parlor_vocab::{Backend, Ticket};

use crate::lines::Lines;

/// All that can happen to one connection.
#[derive(Debug)]
pub enum Input<'a, R, E, X> {
    /// A line, without its newline.
    Frame(&'a [u8]),
    /// A line that was longer than this limit. Its bytes are gone; the next frame is whole again.
    Oversize {
        /// The limit in bytes.
        limit: usize,
    },
    /// The backend's answer to a request.
    Answer(Ticket, Result<R, X>),
    /// Something that the backend reports.
    Event(&'a E),
    /// The moment has come that was asked for with [`Output::WakeAt`].
    Deadline,
}

/// All that one connection can want.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<Q> {
    /// Send this frame to the peer. It holds no newline and ends without one.
    Send(Vec<u8>),
    /// Submit this request to the backend.
    Request(Ticket, Q),
    /// Hand over a [`Input::Deadline`] at this moment. Replaces an earlier wish.
    WakeAt(Instant),
    /// End the connection: what was sent still goes out, nothing more is read.
    Close,
}

/// [`Input`] with the types of one machine.
pub type InputOf<'a, M> = Input<'a, <M as Machine>::Reply, <M as Machine>::Event, <M as Machine>::Error>;

/// A backend whose requests, replies, events and errors are those of the machine `M`.
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

/// One connection of one dialect.
pub trait Machine {
    /// What it asks of its backend.
    type Request;
    /// The answer to an accepted request.
    type Reply;
    /// What its backend reports.
    type Event;
    /// The answer to a refused request.
    type Error;

    /// Takes in one thing that happened at `now`.
    fn handle(&mut self, now: Instant, input: InputOf<'_, Self>);

    /// The next thing that the machine wants, if any. Drain this before the first and after every
    /// [`handle`].
    ///
    /// [`handle`]: Machine::handle
    fn poll(&mut self) -> Option<Output<Self::Request>>;

    /// Whether the next frame may come. A machine that serves requests one after another says no
    /// while an answer is outstanding; answers and events are always welcome.
    fn wants_frame(&self) -> bool;

    /// Whether something that the peer asked for is being carried out, which takes answers to be done. Asked
    /// where peers come and go: what they asked for is done without them.
    fn is_at_work(&self) -> bool {
        false
    }

    /// Whether everything that the peer asked for is answered, but for what may take minutes. Asked when the
    /// peer has said its last word: it is waited for.
    fn is_settled(&self) -> bool {
        self.wants_frame()
    }

    /// How many bytes the answer to `ask` may have, if it may be large. There has to be memory for it before the question is
    /// put.
    fn max_reply_bytes(&self, _request: &Self::Request) -> usize {
        0
    }

    /// Whether the next line has to begin as a JSON object does: the peer has not shown yet that it speaks this dialect. Who
    /// begins otherwise is hung up on at its first byte, and nothing behind it is read.
    fn wants_object(&self) -> bool {
        false
    }

    /// The longest line that this dialect accepts next, in bytes, without its newline.
    fn max_line_bytes(&self) -> usize;

    /// What cuts the peer's bytes into lines.
    fn lines(&self) -> Lines {
        Lines::new(self.max_line_bytes())
    }
}
