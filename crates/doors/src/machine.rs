//! What every door's machine has in common: what goes in and what comes out.

use parlor_vocab::{Command, Event, Refusal, Reply};

/// One question to the engine. Its answer comes back under the same ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// All that can happen to one connection.
#[derive(Debug)]
pub enum Input<'a> {
    /// A line, without its newline.
    Frame(&'a [u8]),
    /// A line that was longer than this limit. Its bytes are gone; the next frame is whole again.
    Oversize {
        /// The limit in bytes.
        limit: usize,
    },
    /// What the engine says to a question.
    Answer(Ticket, Result<Reply, Refusal>),
    /// Something that happened.
    Event(&'a Event),
}

/// All that one connection can want.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this frame to the peer. It holds no newline and ends without one.
    Send(Vec<u8>),
    /// Put this question to the engine.
    Ask(Ticket, Command),
}

/// One connection of one dialect.
pub trait Machine {
    /// Takes in one thing that happened.
    fn handle(&mut self, input: Input<'_>);

    /// The next thing that the machine wants, if any. Drain this before the next [`handle`].
    ///
    /// [`handle`]: Machine::handle
    fn poll(&mut self) -> Option<Output>;

    /// Whether the next frame may come. A machine that serves requests one after another says no
    /// while an answer is outstanding; answers and events are always welcome.
    fn wants_frame(&self) -> bool;

    /// The longest line that this dialect accepts, in bytes, without its newline.
    fn max_line_bytes(&self) -> usize;
}
