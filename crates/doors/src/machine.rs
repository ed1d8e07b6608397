//! What every door's machine has in common: what goes in and what comes out.

use std::time::Instant;

use parlor_vocab::Refusal;

use crate::lines::Lines;

/// One question to the engine. Its answer comes back under the same ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// All that can happen to one connection.
#[derive(Debug)]
pub enum Input<'a, R, E> {
    /// A line, without its newline.
    Frame(&'a [u8]),
    /// A line that was longer than this limit. Its bytes are gone; the next frame is whole again.
    Oversize {
        /// The limit in bytes.
        limit: usize,
    },
    /// What the engine says to a question.
    Answer(Ticket, Result<R, Refusal>),
    /// Something that happened.
    Event(&'a E),
    /// The moment has come that was asked for with [`Output::WakeAt`].
    Deadline,
}

/// All that one connection can want.
#[derive(Debug, PartialEq, Eq)]
pub enum Output<A> {
    /// Send this frame to the peer. It holds no newline and ends without one.
    Send(Vec<u8>),
    /// Put this question to the engine.
    Ask(Ticket, A),
    /// Hand over a [`Input::Deadline`] at this moment. Replaces an earlier wish.
    WakeAt(Instant),
    /// End the connection: what was sent still goes out, nothing more is read.
    Close,
}

/// One connection of one dialect.
pub trait Machine {
    /// What it asks of the engine.
    type Ask;
    /// What it is answered.
    type Reply;
    /// What it hears of.
    type Event;

    /// Takes in one thing that happened at `now`.
    fn handle(&mut self, now: Instant, input: Input<'_, Self::Reply, Self::Event>);

    /// The next thing that the machine wants, if any. Drain this before the first and after every
    /// [`handle`].
    ///
    /// [`handle`]: Machine::handle
    fn poll(&mut self) -> Option<Output<Self::Ask>>;

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
    fn max_reply_bytes(&self, _ask: &Self::Ask) -> usize {
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
