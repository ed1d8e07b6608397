//! The memory for large replies of one line connection: a request waits until there is memory for its reply.
//!
//! A finished reply cannot wait, so its request waits instead: it goes to the backend once the largest size of its reply is
//! reserved. The memory stays reserved until the client has read the reply. A client that does not read, while others wait
//! for memory, is disconnected.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use parlor_doors::Ticket;
use tokio::time::{Instant, Sleep, sleep};

use crate::frame_memory::{FREE_FRAME_BYTES, FrameAccount, FrameMemory, WAITERS_POLL};

/// How long a client may leave a reply unread while other connections wait for reply memory.
pub const REPLY_WAIT: Duration = Duration::from_secs(10);

/// The reply memory of one connection, and its requests that wait for it.
pub(crate) struct ReplyMemory<Q> {
    memory: FrameMemory,
    account: FrameAccount,
    /// Requests that wait for memory, each with the largest size of its reply in bytes.
    waiting: VecDeque<(Ticket, Q, usize)>,
    /// Requests that were submitted and not answered yet, each with the largest size of its reply.
    submitted: Vec<(Ticket, usize)>,
    /// Bytes of replies that are not written to the client yet.
    unwritten: usize,
    /// Fires when the client has read nothing for too long.
    unread_timer: Option<Pin<Box<Sleep>>>,
}

/// What the connection has to do next.
pub(crate) enum ReplyStep<Q> {
    /// Submit this request: the memory for its reply is reserved.
    Submit(Ticket, Q),
    /// Disconnect the client: it does not read its replies, and other connections wait for their memory.
    Unread,
}

impl<Q> ReplyMemory<Q> {
    pub(crate) fn new(memory: &FrameMemory) -> Self {
        let memory = memory.replies_budget();
        let account = memory.account();
        let (waiting, submitted) = (VecDeque::new(), Vec::new());
        Self { memory, account, waiting, submitted, unwritten: 0, unread_timer: None }
    }

    /// Reserves memory for a request whose reply has at most `reply_bytes` bytes. Returns the request to submit now, which
    /// may be an earlier one; None if it has to wait for [`next`](Self::next).
    pub(crate) fn reserve(&mut self, ticket: Ticket, request: Q, reply_bytes: usize) -> Option<(Ticket, Q)> {
        if reply_bytes == 0 {
            return Some((ticket, request));
        }
        self.waiting.push_back((ticket, request, reply_bytes));
        match self.poll_granted(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(granted) => Some(granted),
            Poll::Pending => None,
        }
    }

    /// Notes that the backend has answered the request of `ticket`.
    pub(crate) fn on_answer(&mut self, ticket: Ticket) {
        self.submitted.retain(|(submitted, _)| *submitted != ticket);
    }

    /// Sets how many bytes of replies are not written to the client yet.
    pub(crate) fn set_unwritten(&mut self, bytes: usize) {
        let has_progress = bytes < self.unwritten;
        self.unwritten = bytes;
        match &mut self.unread_timer {
            _ if bytes <= FREE_FRAME_BYTES => self.unread_timer = None,
            None => self.unread_timer = Some(Box::pin(sleep(REPLY_WAIT))),
            Some(timer) if has_progress => timer.as_mut().reset(Instant::now() + REPLY_WAIT),
            Some(_) => {}
        }
        self.update_account();
    }

    /// Whether memory is reserved or waited for.
    pub(crate) fn is_in_use(&self) -> bool {
        self.account.is_large()
    }

    /// Waits for the next step. Cancel safe.
    pub(crate) async fn next(&mut self) -> ReplyStep<Q> {
        poll_fn(|cx| {
            if let Poll::Ready((ticket, request)) = self.poll_granted(cx) {
                return Poll::Ready(ReplyStep::Submit(ticket, request));
            }
            while self.unread_timer.as_mut().is_some_and(|timer| timer.as_mut().poll(cx).is_ready()) {
                if self.memory.has_waiters() {
                    return Poll::Ready(ReplyStep::Unread);
                }
                self.unread_timer = Some(Box::pin(sleep(WAITERS_POLL)));
            }
            Poll::Pending
        })
        .await
    }

    fn poll_granted(&mut self, cx: &mut Context<'_>) -> Poll<(Ticket, Q)> {
        if self.waiting.is_empty() {
            return Poll::Pending;
        }
        self.update_account();
        ready!(self.account.poll_room(cx));
        let Some((ticket, request, bytes)) = self.waiting.pop_front() else { return Poll::Pending };
        self.submitted.push((ticket, bytes));
        Poll::Ready((ticket, request))
    }

    fn update_account(&mut self) {
        let submitted: usize = self.submitted.iter().map(|(_, bytes)| bytes).sum();
        let next = self.waiting.front().map_or(0, |(_, _, bytes)| *bytes);
        self.account.set_arriving(self.unwritten + submitted + next);
        // The client is not to blame for the time that the backend takes.
        self.account.clear_deadline();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::frame_memory::FRAME_WAIT;

    const MIB: usize = 1 << 20;

    /// A budget with room for two replies of 2 MiB.
    fn memory() -> FrameMemory {
        FrameMemory::new(8 * MIB)
    }

    /// Whether a request with a reply of 2 MiB may be submitted at once.
    fn reserve(replies: &mut ReplyMemory<u64>, ticket: u64) -> bool {
        replies.reserve(Ticket(ticket), ticket, 2 * MIB).is_some()
    }

    #[tokio::test]
    async fn small_replies_reserve_nothing_and_large_ones_wait_for_memory() {
        let memory = memory();
        let [mut first, mut second, mut third] = [(); 3].map(|()| ReplyMemory::new(&memory));
        assert!(reserve(&mut first, 1) && reserve(&mut second, 2) && !reserve(&mut third, 3));
        let small = third.reserve(Ticket(4), 4, 0);
        assert!(small.is_some() && memory.used() == 0, "frames have a budget of their own");
        assert!(third.next().now_or_never().is_none());
        // The backend has answered, and the client has not read the reply yet.
        first.on_answer(Ticket(1));
        first.set_unwritten(2 * MIB);
        assert!(third.next().now_or_never().is_none());
        first.set_unwritten(0);
        assert!(matches!(third.next().await, ReplyStep::Submit(Ticket(3), 3)));
        assert!(!first.is_in_use() && third.is_in_use());
    }

    #[tokio::test]
    async fn a_connection_that_ends_frees_its_reply_memory() {
        let memory = memory();
        let [mut first, mut second, mut third] = [(); 3].map(|()| ReplyMemory::new(&memory));
        assert!(reserve(&mut first, 1) && reserve(&mut second, 2) && !reserve(&mut third, 3));
        drop(second);
        assert!(matches!(third.next().await, ReplyStep::Submit(Ticket(3), 3)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_with_an_unread_reply_is_disconnected_only_when_others_wait() {
        let memory = memory();
        let [mut unread, mut slow, mut waiting] = [(); 3].map(|()| ReplyMemory::new(&memory));
        assert!(reserve(&mut unread, 1) && reserve(&mut slow, 2));
        unread.on_answer(Ticket(1));
        unread.set_unwritten(2 * MIB);
        assert!(tokio::time::timeout(10 * REPLY_WAIT, unread.next()).await.is_err());
        assert!(!reserve(&mut waiting, 3));
        assert!(matches!(unread.next().await, ReplyStep::Unread));
        // A slow backend does not disconnect its client.
        assert!(tokio::time::timeout(10 * FRAME_WAIT, slow.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_some_of_its_reply_restarts_the_time_limit() {
        let memory = memory();
        let [mut reading, mut other, mut waiting] = [(); 3].map(|()| ReplyMemory::new(&memory));
        assert!(reserve(&mut reading, 1) && reserve(&mut other, 2));
        reading.on_answer(Ticket(1));
        reading.set_unwritten(2 * MIB);
        assert!(!reserve(&mut waiting, 3));
        for left in (1..8).rev() {
            tokio::time::sleep(REPLY_WAIT - Duration::from_secs(1)).await;
            assert!(reading.next().now_or_never().is_none());
            reading.set_unwritten(left * MIB / 4);
        }
        assert!(matches!(reading.next().await, ReplyStep::Unread));
    }
}
