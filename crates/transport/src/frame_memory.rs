//! One budget for the bytes of all large frames that connections hold.
//!
//! Each connection has [`FREE_FRAME_BYTES`] without asking, so small frames always go on. What it holds beyond that is
//! reserved in steps before more is read; while nothing is left, it is not read from. Frames are served in the order in which
//! they became large, and the oldest may grow although the budget is used up. So one frame can always be completed, two
//! halves never wait for each other, and not more is held than the budget and one frame. What parlor itself writes
//! is counted and never waits. A frame that does not become complete while others wait is given up after [`FRAME_WAIT`].

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// What each connection holds without reserving it: enough for chat messages, stops and pings.
pub const FREE_FRAME_BYTES: usize = 64 * 1024;

/// How much all connections hold beyond that, if nobody says otherwise: four of the largest frames.
pub const DEFAULT_FRAME_MEMORY: usize = 256 << 20;

/// The least that can be set: one of the largest lines of the supex doors.
pub const MIN_FRAME_MEMORY: usize = 1 << 20;

/// How long a large frame may take to arrive while others wait for memory. Time in which it waits itself does not count.
pub const FRAME_WAIT: Duration = Duration::from_secs(20);

/// What part of it answers of the line doors may have beside it, from their questions on: one half.
const REPLY_SHARE: usize = 2;

/// How much is reserved at a time.
const STEP_BYTES: usize = 256 * 1024;

/// How often a frame that took too long looks whether others wait now.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The budget. Clones share it.
#[derive(Clone, Debug)]
pub struct FrameMemory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: usize,
    state: Mutex<State>,
    /// A budget of its own for answers that are still to be made, see `replies.rs`. It has none itself.
    replies: Option<FrameMemory>,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    last_ticket: u64,
    /// All accounts with large frames, the oldest first.
    tickets: BTreeSet<u64>,
    /// Those of them that wait for memory.
    waiting: BTreeMap<u64, Waker>,
}

impl Default for FrameMemory {
    fn default() -> Self {
        Self::new(DEFAULT_FRAME_MEMORY)
    }
}

impl FrameMemory {
    /// A budget of so many bytes.
    pub fn new(limit: usize) -> Self {
        let limit = limit.max(MIN_FRAME_MEMORY);
        let of_replies = Shared { limit: limit / REPLY_SHARE, state: Mutex::default(), replies: None };
        let replies = Some(Self(Arc::new(of_replies)));
        Self(Arc::new(Shared { limit, state: Mutex::default(), replies }))
    }

    /// The budget of answers that are still to be made. It is apart from that of frames: an answer may have to be waited for
    /// as long as an evaluation takes, and frames go on meanwhile.
    pub(crate) fn of_replies(&self) -> Self {
        self.0.replies.clone().unwrap_or_else(|| self.clone())
    }

    /// One that is never used up, for a door with a single peer.
    pub fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// The largest frame there can be, of those of at most `largest` bytes.
    pub fn cap(&self, largest: usize) -> usize {
        largest.min(self.0.limit)
    }

    /// How many bytes are reserved or written at the moment, the free ones not counted.
    pub fn used(&self) -> usize {
        self.lock().used
    }

    /// The account of one more connection.
    pub fn account(&self) -> FrameAccount {
        FrameAccount {
            memory: self.clone(),
            arriving: 0,
            kept: 0,
            reserved: 0,
            ticket: None,
            alarm: None,
            waits_since: None,
        }
    }

    /// Counts bytes that parlor itself holds, whether or not there is room, until they are
    /// [`uncount`](Self::uncount)ed.
    pub fn count(&self, bytes: usize) {
        let mut state = self.lock();
        state.used = state.used.saturating_add(bytes);
    }

    /// Bytes that were counted are gone.
    pub fn uncount(&self, bytes: usize) {
        self.change(|state| state.used = state.used.saturating_sub(bytes));
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Does something after which somebody may go on.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        wake_next(state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes whoever is next in turn, who looks for itself whether there is room.
fn wake_next(state: MutexGuard<'_, State>) {
    let next = state.waiting.values().next().cloned();
    drop(state);
    if let Some(next) = next {
        next.wake();
    }
}

/// What one connection holds. What it has reserved goes back when this is dropped.
#[derive(Debug)]
pub struct FrameAccount {
    memory: FrameMemory,
    /// Bytes of the frame that is arriving.
    arriving: usize,
    /// Bytes of frames that are being carried out, of answers, and of buffers that have become large.
    kept: usize,
    reserved: usize,
    ticket: Option<u64>,
    /// Rings when the frame that is arriving has taken too long.
    alarm: Option<Pin<Box<Sleep>>>,
    waits_since: Option<Instant>,
}

impl FrameAccount {
    /// Ready once more may be read.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let needed = self.needed();
        if needed <= self.reserved {
            return Poll::Ready(());
        }
        let step = needed - self.reserved;
        let (memory, ticket) = (self.memory.clone(), self.take_ticket());
        let mut state = memory.lock();
        let is_oldest = state.tickets.first() == Some(&ticket);
        let is_next = state.waiting.keys().next().is_none_or(|first| *first >= ticket);
        let fits = state.used.saturating_add(step) <= memory.0.limit;
        let is_granted = is_oldest || is_next && fits;
        if !is_granted {
            state.waiting.insert(ticket, cx.waker().clone());
            self.waits_since.get_or_insert_with(Instant::now);
            return Poll::Pending;
        }
        state.waiting.remove(&ticket);
        state.used = state.used.saturating_add(step);
        wake_next(state);
        self.reserved = needed;
        if let (Some(since), Some(alarm)) = (self.waits_since.take(), &mut self.alarm) {
            let deadline = alarm.deadline() + since.elapsed();
            alarm.as_mut().reset(deadline);
        }
        Poll::Ready(())
    }

    /// Ready if the frame that is arriving takes too long, and others wait.
    pub fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(alarm) = self.alarm.as_mut().filter(|_| self.waits_since.is_none()) else {
            return Poll::Pending;
        };
        loop {
            ready!(alarm.as_mut().poll(cx));
            if self.memory.is_waited_for() {
                return Poll::Ready(());
            }
            alarm.as_mut().reset(Instant::now() + LOOK_AGAIN);
        }
    }

    /// Whether it is not read from for want of memory.
    pub fn is_waiting(&self) -> bool {
        self.waits_since.is_some()
    }

    /// Whether more is held than is free.
    pub fn is_large(&self) -> bool {
        self.arriving + self.kept > FREE_FRAME_BYTES
    }

    /// So many bytes of the frame that is arriving are here now.
    pub fn set_arriving(&mut self, bytes: usize) {
        self.arriving = bytes;
        if bytes <= FREE_FRAME_BYTES {
            self.alarm = None;
        } else if self.alarm.is_none() {
            self.alarm = Some(Box::pin(sleep(FRAME_WAIT)));
        }
        self.give_back();
    }

    /// More of the frame that is arriving is here.
    pub fn add_arriving(&mut self, bytes: usize) {
        self.set_arriving(self.arriving + bytes);
    }

    /// It is not the peer that is waited for: nothing is overdue.
    pub fn stop_clock(&mut self) {
        self.alarm = None;
    }

    /// The frame is complete, and kept while it is carried out.
    pub fn keep_arrived(&mut self) {
        self.kept += self.arriving;
        self.set_arriving(0);
    }

    /// Something of so many bytes was left out of the frame that is arriving.
    pub fn leave_out(&mut self, bytes: usize) {
        self.set_arriving(self.arriving.saturating_sub(bytes));
    }

    /// Holds something of parlor's own, whether or not there is room.
    pub fn keep(&mut self, bytes: usize) {
        self.kept += bytes;
        let needed = self.needed();
        if needed > self.reserved {
            let ticket = self.take_ticket();
            let more = needed - self.reserved;
            self.memory.change(|state| {
                state.waiting.remove(&ticket);
                state.used = state.used.saturating_add(more);
            });
            self.reserved = needed;
            self.waits_since = None;
        }
    }

    /// Nothing is kept any more but what is arriving.
    pub fn let_go(&mut self) {
        self.kept = 0;
        self.give_back();
    }

    /// What has to be reserved for what is held.
    fn needed(&self) -> usize {
        (self.arriving + self.kept).saturating_sub(FREE_FRAME_BYTES).next_multiple_of(STEP_BYTES)
    }

    fn take_ticket(&mut self) -> u64 {
        *self.ticket.get_or_insert_with(|| {
            let mut state = self.memory.lock();
            state.last_ticket += 1;
            let ticket = state.last_ticket;
            state.tickets.insert(ticket);
            ticket
        })
    }

    fn give_back(&mut self) {
        let needed = self.needed();
        let Some(ticket) = self.ticket.filter(|_| needed < self.reserved || needed == 0) else { return };
        let unneeded = self.reserved.saturating_sub(needed);
        self.memory.change(|state| {
            state.used = state.used.saturating_sub(unneeded);
            if needed == 0 {
                state.tickets.remove(&ticket);
                state.waiting.remove(&ticket);
            }
        });
        self.reserved = self.reserved.min(needed);
        if needed == 0 {
            self.ticket = None;
            self.waits_since = None;
        }
    }
}

impl Drop for FrameAccount {
    fn drop(&mut self) {
        self.arriving = 0;
        self.let_go();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::FutureExt;

    use super::*;

    const MIB: usize = 1 << 20;

    /// Whether an account may be read from, now that it holds so much.
    fn has_room(account: &mut FrameAccount, arriving: usize) -> bool {
        account.set_arriving(arriving);
        poll_fn(|cx| account.poll_room(cx)).now_or_never().is_some()
    }

    async fn overdue(account: &mut FrameAccount) {
        poll_fn(|cx| account.poll_overdue(cx)).await;
    }

    #[tokio::test]
    async fn small_frames_need_nothing_and_what_is_reserved_comes_back() {
        let memory = FrameMemory::new(MIB);
        let (mut large, mut small) = (memory.account(), memory.account());
        assert!(has_room(&mut large, MIB) && memory.used() >= MIB - FREE_FRAME_BYTES);
        assert!(has_room(&mut small, FREE_FRAME_BYTES));
        assert!(!has_room(&mut small, 4 * FREE_FRAME_BYTES), "the budget is used up");
        assert!(small.is_waiting());
        drop(large);
        assert!(has_room(&mut small, 4 * FREE_FRAME_BYTES) && !small.is_waiting());
        small.keep_arrived();
        assert!(memory.used() > 0, "it is being carried out");
        small.let_go();
        assert_eq!(memory.used(), 0);
    }

    #[tokio::test]
    async fn the_oldest_frame_can_be_completed_and_not_two_are() {
        let memory = FrameMemory::new(4 * MIB);
        let mut accounts: Vec<FrameAccount> = (0..8).map(|_| memory.account()).collect();
        for account in &mut accounts {
            has_room(account, MIB / 2);
        }
        // Halves fill it; each asks for its other half, and one may have it.
        let grown: Vec<bool> = accounts.iter_mut().map(|account| has_room(account, 4 * MIB)).collect();
        assert_eq!(grown, [true, false, false, false, false, false, false, false]);
        assert!(memory.used() <= 8 * MIB, "{}", memory.used());
        // The next in turn is whoever came next, also if another asks first.
        accounts.remove(0);
        assert!(!has_room(&mut accounts[3], 4 * MIB));
        assert!(has_room(&mut accounts[0], 4 * MIB));
        accounts.clear();
        assert_eq!(memory.used(), 0);
    }

    #[tokio::test]
    async fn whoever_waits_is_woken_when_something_comes_back() {
        let memory = FrameMemory::new(MIB);
        let (mut first, mut second) = (memory.account(), memory.account());
        assert!(has_room(&mut first, MIB));
        let waiting = tokio::spawn(async move {
            second.set_arriving(MIB);
            poll_fn(|cx| second.poll_room(cx)).await;
        });
        tokio::task::yield_now().await;
        first.set_arriving(0);
        waiting.await.unwrap();
        assert_eq!(memory.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_that_does_not_arrive_is_given_up_only_when_others_wait() {
        let memory = FrameMemory::new(MIB);
        let (mut stalled, mut waiting) = (memory.account(), memory.account());
        let begun = Instant::now();
        assert!(has_room(&mut stalled, MIB));
        assert!(tokio::time::timeout(10 * FRAME_WAIT, overdue(&mut stalled)).await.is_err());
        assert!(!has_room(&mut waiting, MIB));
        overdue(&mut stalled).await;
        assert!(begun.elapsed() <= 10 * FRAME_WAIT + 2 * LOOK_AGAIN, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_a_frame_waits_itself_does_not_count() {
        let memory = FrameMemory::new(MIB);
        let (mut first, mut second, mut third) = (memory.account(), memory.account(), memory.account());
        assert!(has_room(&mut first, MIB) && !has_room(&mut second, MIB));
        tokio::time::sleep(2 * FRAME_WAIT).await;
        assert!(overdue(&mut second).now_or_never().is_none(), "it is not its peer that is waited for");
        drop(first);
        assert!(has_room(&mut second, MIB) && !has_room(&mut third, MIB));
        let begun = Instant::now();
        overdue(&mut second).await;
        assert_eq!(begun.elapsed().as_secs(), FRAME_WAIT.as_secs());
    }

    #[test]
    fn what_parlor_writes_is_counted_and_never_waits() {
        let memory = FrameMemory::new(MIB);
        let mut account = memory.account();
        account.keep(4 * MIB);
        memory.count(MIB);
        assert!(memory.used() >= 5 * MIB - FREE_FRAME_BYTES);
        account.let_go();
        memory.uncount(MIB);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn a_frame_cannot_be_larger_than_the_budget() {
        assert_eq!(FrameMemory::new(16 * MIB).cap(64 * MIB), 16 * MIB);
        assert_eq!(FrameMemory::unlimited().cap(64 * MIB), 64 * MIB);
    }
}
