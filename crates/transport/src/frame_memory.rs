//! The memory budget that the large frames of all connections share.
//!
//! Each connection may hold [`FREE_FRAME_BYTES`] without a reservation, so small frames always get through. Beyond that, a
//! connection reserves memory in steps before it reads more, and stops reading while the budget is used up. Reservations are
//! granted in the order in which the frames became large, and the oldest large frame may grow beyond the budget. So one
//! frame can always be completed, two half-read frames never wait for each other, and the memory in use is at most the
//! budget plus one frame. What parlor itself writes is counted and never waits. A frame that is still incomplete after
//! [`FRAME_WAIT`] while others wait for memory is given up.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// What each connection may hold without a reservation: enough for chat messages, stops and pings.
pub const FREE_FRAME_BYTES: usize = 64 * 1024;

/// The default budget in bytes: four of the largest frames.
pub const DEFAULT_FRAME_MEMORY: usize = 256 << 20;

/// The smallest budget in bytes: one of the longest lines of the supex doors.
pub const MIN_FRAME_MEMORY: usize = 1 << 20;

/// How long a large frame may take to arrive while others wait for memory. Time in which the frame itself waits for memory
/// does not count.
pub const FRAME_WAIT: Duration = Duration::from_secs(20);

/// The replies of the line doors have a budget of their own, of this fraction of the frame budget: one half.
const REPLY_SHARE: usize = 2;

/// How much is reserved at a time.
const STEP_BYTES: usize = 256 * 1024;

/// How often an overdue frame or reply checks whether others wait for memory now.
pub(crate) const WAITERS_POLL: Duration = Duration::from_secs(1);

/// The shared budget. A clone is a handle on the same budget.
#[derive(Clone, Debug)]
pub struct FrameMemory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: usize,
    state: Mutex<State>,
    /// The separate budget for replies, see `reply_memory.rs`. None in that budget itself.
    replies: Option<FrameMemory>,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    last_ticket: u64,
    /// The tickets of all accounts with large frames. The smallest belongs to the oldest frame.
    tickets: BTreeSet<u64>,
    /// The tickets of accounts that wait for memory.
    waiting: BTreeMap<u64, Waker>,
}

impl Default for FrameMemory {
    fn default() -> Self {
        Self::new(DEFAULT_FRAME_MEMORY)
    }
}

impl FrameMemory {
    /// A budget of `limit` bytes, and of at least [`MIN_FRAME_MEMORY`].
    pub fn new(limit: usize) -> Self {
        let limit = limit.max(MIN_FRAME_MEMORY);
        let for_replies = Shared { limit: limit / REPLY_SHARE, state: Mutex::default(), replies: None };
        let replies = Some(Self(Arc::new(for_replies)));
        Self(Arc::new(Shared { limit, state: Mutex::default(), replies }))
    }

    /// The budget for replies. It is separate from that of frames, because a reply holds its reservation for as long as the
    /// backend works on the request, and other frames must get through meanwhile.
    pub(crate) fn replies_budget(&self) -> Self {
        self.0.replies.clone().unwrap_or_else(|| self.clone())
    }

    /// A budget without a limit, for a door with a single peer.
    pub fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// The largest frame that the budget allows, and at most `max_frame_bytes`.
    pub fn cap(&self, max_frame_bytes: usize) -> usize {
        max_frame_bytes.min(self.0.limit)
    }

    /// How many bytes are reserved or counted now, without the free bytes of each connection.
    pub fn used(&self) -> usize {
        self.lock().used
    }

    /// Opens an account for one more connection.
    pub fn account(&self) -> FrameAccount {
        FrameAccount {
            memory: self.clone(),
            arriving: 0,
            held: 0,
            reserved: 0,
            ticket: None,
            deadline: None,
            waits_since: None,
        }
    }

    /// Counts bytes that parlor itself holds, even beyond the limit, until [`uncount`](Self::uncount).
    pub fn count(&self, bytes: usize) {
        let mut state = self.lock();
        state.used = state.used.saturating_add(bytes);
    }

    /// Stops counting bytes that were counted before.
    pub fn uncount(&self, bytes: usize) {
        self.update_and_wake(|state| state.used = state.used.saturating_sub(bytes));
    }

    pub(crate) fn has_waiters(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Changes the state, and wakes the next waiting account, for which there may be memory now.
    fn update_and_wake(&self, update: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        update(&mut state);
        wake_next(state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the oldest waiting account, which then checks whether there is memory for it.
fn wake_next(state: MutexGuard<'_, State>) {
    let next = state.waiting.values().next().cloned();
    drop(state);
    if let Some(next) = next {
        next.wake();
    }
}

/// The memory that one connection holds. Dropping it returns everything that was reserved.
#[derive(Debug)]
pub struct FrameAccount {
    memory: FrameMemory,
    /// Bytes of the frame that is arriving.
    arriving: usize,
    /// Bytes of frames that are being handled, of replies, and of buffers that have grown large.
    held: usize,
    reserved: usize,
    /// The rank of the connection's large frame; None while it has none.
    ticket: Option<u64>,
    /// Fires when the arriving frame has taken too long.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Since when the account waits for memory.
    waits_since: Option<Instant>,
}

impl FrameAccount {
    /// Reserves memory for what is held. Ready once the connection may read more.
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
        if let (Some(since), Some(deadline)) = (self.waits_since.take(), &mut self.deadline) {
            let extended = deadline.deadline() + since.elapsed();
            deadline.as_mut().reset(extended);
        }
        Poll::Ready(())
    }

    /// Ready when the arriving frame has taken longer than [`FRAME_WAIT`] and other connections wait for memory.
    pub fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.deadline.as_mut().filter(|_| self.waits_since.is_none()) else {
            return Poll::Pending;
        };
        loop {
            ready!(deadline.as_mut().poll(cx));
            if self.memory.has_waiters() {
                return Poll::Ready(());
            }
            deadline.as_mut().reset(Instant::now() + WAITERS_POLL);
        }
    }

    /// Whether any connection waits for memory.
    pub(crate) fn do_others_wait(&self) -> bool {
        self.memory.has_waiters()
    }

    /// Whether the connection has stopped reading until there is memory.
    pub fn is_waiting(&self) -> bool {
        self.waits_since.is_some()
    }

    /// Whether the connection holds more than [`FREE_FRAME_BYTES`].
    pub fn is_large(&self) -> bool {
        self.arriving + self.held > FREE_FRAME_BYTES
    }

    /// Sets how many bytes of the arriving frame are here. A frame that becomes large gets its deadline.
    pub fn set_arriving(&mut self, bytes: usize) {
        self.arriving = bytes;
        if bytes <= FREE_FRAME_BYTES {
            self.deadline = None;
        } else if self.deadline.is_none() {
            self.deadline = Some(Box::pin(sleep(FRAME_WAIT)));
        }
        self.release_unneeded();
    }

    /// Adds bytes to the arriving frame.
    pub fn add_arriving(&mut self, bytes: usize) {
        self.set_arriving(self.arriving + bytes);
    }

    /// Removes the deadline of the arriving frame, because the delay is not the peer's.
    pub fn clear_deadline(&mut self) {
        self.deadline = None;
    }

    /// Notes that the arriving frame is complete. Its bytes are held until [`release_held`](Self::release_held).
    pub fn hold_arrived(&mut self) {
        self.held += self.arriving;
        self.set_arriving(0);
    }

    /// Stops counting bytes that arrived and do not belong to the arriving frame.
    pub fn subtract_arriving(&mut self, bytes: usize) {
        self.set_arriving(self.arriving.saturating_sub(bytes));
    }

    /// Holds bytes of parlor's own, even beyond the limit.
    pub fn hold(&mut self, bytes: usize) {
        self.held += bytes;
        let needed = self.needed();
        if needed > self.reserved {
            let ticket = self.take_ticket();
            let more = needed - self.reserved;
            self.memory.update_and_wake(|state| {
                state.waiting.remove(&ticket);
                state.used = state.used.saturating_add(more);
            });
            self.reserved = needed;
            self.waits_since = None;
        }
    }

    /// Releases everything except the arriving frame.
    pub fn release_held(&mut self) {
        self.held = 0;
        self.release_unneeded();
    }

    /// How many bytes have to be reserved for what the connection holds, in whole steps.
    fn needed(&self) -> usize {
        (self.arriving + self.held).saturating_sub(FREE_FRAME_BYTES).next_multiple_of(STEP_BYTES)
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

    fn release_unneeded(&mut self) {
        let needed = self.needed();
        let Some(ticket) = self.ticket.filter(|_| needed < self.reserved || needed == 0) else { return };
        let unneeded = self.reserved.saturating_sub(needed);
        self.memory.update_and_wake(|state| {
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
        self.release_held();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::FutureExt;

    use super::*;

    const MIB: usize = 1 << 20;

    /// Whether a connection may read more once `arriving` bytes of its frame are here.
    fn has_room(account: &mut FrameAccount, arriving: usize) -> bool {
        account.set_arriving(arriving);
        poll_fn(|cx| account.poll_room(cx)).now_or_never().is_some()
    }

    async fn overdue(account: &mut FrameAccount) {
        poll_fn(|cx| account.poll_overdue(cx)).await;
    }

    #[tokio::test]
    async fn small_frames_reserve_nothing_and_large_ones_return_their_memory() {
        let memory = FrameMemory::new(MIB);
        let (mut large, mut small) = (memory.account(), memory.account());
        assert!(has_room(&mut large, MIB) && memory.used() >= MIB - FREE_FRAME_BYTES);
        assert!(has_room(&mut small, FREE_FRAME_BYTES));
        assert!(!has_room(&mut small, 4 * FREE_FRAME_BYTES), "the budget is used up");
        assert!(small.is_waiting());
        drop(large);
        assert!(has_room(&mut small, 4 * FREE_FRAME_BYTES) && !small.is_waiting());
        small.hold_arrived();
        assert!(memory.used() > 0, "the frame is being handled");
        small.release_held();
        assert_eq!(memory.used(), 0);
    }

    #[tokio::test]
    async fn only_the_oldest_frame_may_grow_beyond_the_budget() {
        let memory = FrameMemory::new(4 * MIB);
        let mut accounts: Vec<FrameAccount> = (0..8).map(|_| memory.account()).collect();
        for account in &mut accounts {
            has_room(account, MIB / 2);
        }
        // Half-read frames fill the budget. Each asks for its other half, and only the oldest gets it.
        let grown: Vec<bool> = accounts.iter_mut().map(|account| has_room(account, 4 * MIB)).collect();
        assert_eq!(grown, [true, false, false, false, false, false, false, false]);
        assert!(memory.used() <= 8 * MIB, "{}", memory.used());
        // The next oldest is granted next, even if another account asks first.
        accounts.remove(0);
        assert!(!has_room(&mut accounts[3], 4 * MIB));
        assert!(has_room(&mut accounts[0], 4 * MIB));
        accounts.clear();
        assert_eq!(memory.used(), 0);
    }

    #[tokio::test]
    async fn a_waiting_account_is_woken_when_memory_is_released() {
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
    async fn a_stalled_frame_is_overdue_only_when_others_wait() {
        let memory = FrameMemory::new(MIB);
        let (mut stalled, mut waiting) = (memory.account(), memory.account());
        let begun = Instant::now();
        assert!(has_room(&mut stalled, MIB));
        assert!(tokio::time::timeout(10 * FRAME_WAIT, overdue(&mut stalled)).await.is_err());
        assert!(!has_room(&mut waiting, MIB));
        overdue(&mut stalled).await;
        assert!(begun.elapsed() <= 10 * FRAME_WAIT + 2 * WAITERS_POLL, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_a_frame_waits_for_memory_does_not_count() {
        let memory = FrameMemory::new(MIB);
        let (mut first, mut second, mut third) = (memory.account(), memory.account(), memory.account());
        assert!(has_room(&mut first, MIB) && !has_room(&mut second, MIB));
        tokio::time::sleep(2 * FRAME_WAIT).await;
        assert!(overdue(&mut second).now_or_never().is_none(), "its peer causes no delay");
        drop(first);
        assert!(has_room(&mut second, MIB) && !has_room(&mut third, MIB));
        let begun = Instant::now();
        overdue(&mut second).await;
        assert_eq!(begun.elapsed().as_secs(), FRAME_WAIT.as_secs());
    }

    #[test]
    fn bytes_that_parlor_writes_are_counted_and_never_wait() {
        let memory = FrameMemory::new(MIB);
        let mut account = memory.account();
        account.hold(4 * MIB);
        memory.count(MIB);
        assert!(memory.used() >= 5 * MIB - FREE_FRAME_BYTES);
        account.release_held();
        memory.uncount(MIB);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn a_frame_cannot_be_larger_than_the_budget() {
        assert_eq!(FrameMemory::new(16 * MIB).cap(64 * MIB), 16 * MIB);
        assert_eq!(FrameMemory::unlimited().cap(64 * MIB), 64 * MIB);
    }
}
