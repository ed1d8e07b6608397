//! What the answers of one connection of lines may take: questions with large answers wait until there is room for them.
//!
//! An answer cannot wait once it is there, so its question does: it is put to the engine when as many bytes are reserved as
//! the answer may have. They are held until the client has taken the answer; one that does not, while others wait, is closed.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use parlor_doors::Ticket;
use tokio::time::{Instant, Sleep, sleep};

use crate::frame_memory::{FREE_FRAME_BYTES, FrameAccount, FrameMemory, LOOK_AGAIN};

/// How long a client may leave an answer unread while others wait for the memory of answers.
pub const REPLY_WAIT: Duration = Duration::from_secs(10);

/// The answers of one connection.
pub(crate) struct Replies<A> {
    memory: FrameMemory,
    account: FrameAccount,
    /// Questions that wait for room, with the most bytes of their answers.
    held: VecDeque<(Ticket, A, usize)>,
    /// Those that were put and not answered yet.
    asked: Vec<(Ticket, usize)>,
    /// What is not written yet.
    unwritten: usize,
    /// Rings when the client has taken nothing for too long.
    alarm: Option<Pin<Box<Sleep>>>,
}

/// What happens to answers.
pub(crate) enum Turn<A> {
    /// There is room for the answer to this question.
    Ask(Ticket, A),
    /// The client does not take its answers, and others wait.
    Unread,
}

impl<A> Replies<A> {
    pub(crate) fn new(memory: &FrameMemory) -> Self {
        let memory = memory.of_replies();
        let account = memory.account();
        Self { memory, account, held: VecDeque::new(), asked: Vec::new(), unwritten: 0, alarm: None }
    }

    /// Takes a question whose answer has so many bytes at most, and gives it back if there is room now.
    pub(crate) fn take(&mut self, ticket: Ticket, ask: A, bytes: usize) -> Option<(Ticket, A)> {
        if bytes == 0 {
            return Some((ticket, ask));
        }
        self.held.push_back((ticket, ask, bytes));
        match self.poll_granted(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(granted) => Some(granted),
            Poll::Pending => None,
        }
    }

    /// A question was answered.
    pub(crate) fn answered(&mut self, ticket: Ticket) {
        self.asked.retain(|(asked, _)| *asked != ticket);
    }

    /// So many bytes of answers are not written yet.
    pub(crate) fn set_unwritten(&mut self, bytes: usize) {
        let has_moved = bytes < self.unwritten;
        self.unwritten = bytes;
        match &mut self.alarm {
            _ if bytes <= FREE_FRAME_BYTES => self.alarm = None,
            None => self.alarm = Some(Box::pin(sleep(REPLY_WAIT))),
            Some(alarm) if has_moved => alarm.as_mut().reset(Instant::now() + REPLY_WAIT),
            Some(_) => {}
        }
        self.count();
    }

    /// Whether something is reserved, or waited for.
    pub(crate) fn is_any(&self) -> bool {
        self.account.is_large()
    }

    /// Waits for what happens next. Cancel safe.
    pub(crate) async fn next(&mut self) -> Turn<A> {
        poll_fn(|cx| {
            if let Poll::Ready((ticket, ask)) = self.poll_granted(cx) {
                return Poll::Ready(Turn::Ask(ticket, ask));
            }
            while self.alarm.as_mut().is_some_and(|alarm| alarm.as_mut().poll(cx).is_ready()) {
                if self.memory.is_waited_for() {
                    return Poll::Ready(Turn::Unread);
                }
                self.alarm = Some(Box::pin(sleep(LOOK_AGAIN)));
            }
            Poll::Pending
        })
        .await
    }

    fn poll_granted(&mut self, cx: &mut Context<'_>) -> Poll<(Ticket, A)> {
        if self.held.is_empty() {
            return Poll::Pending;
        }
        self.count();
        ready!(self.account.poll_room(cx));
        let Some((ticket, ask, bytes)) = self.held.pop_front() else { return Poll::Pending };
        self.asked.push((ticket, bytes));
        Poll::Ready((ticket, ask))
    }

    fn count(&mut self) {
        let asked: usize = self.asked.iter().map(|(_, bytes)| bytes).sum();
        let next = self.held.front().map_or(0, |(_, _, bytes)| *bytes);
        self.account.set_arriving(self.unwritten + asked + next);
        // How long an engine takes is not the client's fault.
        self.account.stop_clock();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::frame_memory::FRAME_WAIT;

    const MIB: usize = 1 << 20;

    /// A connection with a budget that has room for two answers of 2 MiB.
    fn memory() -> FrameMemory {
        FrameMemory::new(8 * MIB)
    }

    fn ask(replies: &mut Replies<u64>, ticket: u64) -> bool {
        replies.take(Ticket(ticket), ticket, 2 * MIB).is_some()
    }

    #[tokio::test]
    async fn small_answers_wait_for_nothing_and_large_ones_for_room() {
        let memory = memory();
        let [mut first, mut second, mut third] = [(); 3].map(|()| Replies::new(&memory));
        assert!(ask(&mut first, 1) && ask(&mut second, 2) && !ask(&mut third, 3));
        assert!(third.take(Ticket(4), 4, 0).is_some() && memory.used() == 0, "frames have their own");
        assert!(third.next().now_or_never().is_none());
        // It was answered, and is not read yet.
        first.answered(Ticket(1));
        first.set_unwritten(2 * MIB);
        assert!(third.next().now_or_never().is_none());
        first.set_unwritten(0);
        assert!(matches!(third.next().await, Turn::Ask(Ticket(3), 3)));
        assert!(!first.is_any() && third.is_any());
    }

    #[tokio::test]
    async fn a_connection_that_ends_gives_its_room_to_the_next() {
        let memory = memory();
        let [mut first, mut second, mut third] = [(); 3].map(|()| Replies::new(&memory));
        assert!(ask(&mut first, 1) && ask(&mut second, 2) && !ask(&mut third, 3));
        drop(second);
        assert!(matches!(third.next().await, Turn::Ask(Ticket(3), 3)));
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_an_answer_unread_is_closed_when_others_wait_and_not_before() {
        let memory = memory();
        let [mut unread, mut slow, mut waiting] = [(); 3].map(|()| Replies::new(&memory));
        assert!(ask(&mut unread, 1) && ask(&mut slow, 2));
        unread.answered(Ticket(1));
        unread.set_unwritten(2 * MIB);
        assert!(tokio::time::timeout(10 * REPLY_WAIT, unread.next()).await.is_err());
        assert!(!ask(&mut waiting, 3));
        assert!(matches!(unread.next().await, Turn::Unread));
        // How long an engine takes is another matter.
        assert!(tokio::time::timeout(10 * FRAME_WAIT, slow.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_something_has_time_again() {
        let memory = memory();
        let [mut reading, mut other, mut waiting] = [(); 3].map(|()| Replies::new(&memory));
        assert!(ask(&mut reading, 1) && ask(&mut other, 2));
        reading.answered(Ticket(1));
        reading.set_unwritten(2 * MIB);
        assert!(!ask(&mut waiting, 3));
        for left in (1..8).rev() {
            tokio::time::sleep(REPLY_WAIT - Duration::from_secs(1)).await;
            assert!(reading.next().now_or_never().is_none());
            reading.set_unwritten(left * MIB / 4);
        }
        assert!(matches!(reading.next().await, Turn::Unread));
    }
}
