//! Items that arrived for one handle and were not taken yet: a queue that is bounded in bytes.
//!
//! The connection's task puts items in, and the one handle takes them out; each side waits for the other.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A queue of items `T`, and a status `S` that says how the stream of items ended.
#[derive(Debug)]
pub(crate) struct Backlog<T, S> {
    max_bytes: usize,
    /// A plain mutex: it is locked for a queue operation and never across an `await`.
    state: Mutex<State<T, S>>,
    /// Notified when there is something to take. One permit is enough, since there is one handle.
    arrived: Notify,
    /// Notified when something was taken. One permit is enough, since one task puts items in.
    room: Notify,
}

#[derive(Debug)]
struct State<T, S> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    status: S,
    /// Whether the handle is gone, so that items are dropped.
    is_abandoned: bool,
    /// Whether items are dropped because one did not fit during [`Backlog::drop_overflow`].
    is_cut: bool,
    /// How many [`DropOverflow`] guards there are.
    drop_overflow: usize,
}

impl<T, S: Default> Backlog<T, S> {
    /// A backlog of at most `max_bytes`, as the costs of its items add up.
    pub(crate) fn new(max_bytes: usize) -> Self {
        let state = State {
            items: VecDeque::new(),
            bytes: 0,
            status: S::default(),
            is_abandoned: false,
            is_cut: false,
            drop_overflow: 0,
        };
        Self { max_bytes, state: Mutex::new(state), arrived: Notify::new(), room: Notify::new() }
    }

    /// Puts an item in, or returns it if there is no room.
    pub(crate) fn try_push(&self, item: T, cost: usize) -> Result<(), T> {
        let mut state = self.state();
        if state.is_abandoned || state.is_cut {
            return Ok(());
        }
        // An item over the limit is accepted into an empty backlog, or it would never be accepted.
        if state.bytes + cost > self.max_bytes && !state.items.is_empty() {
            if state.drop_overflow == 0 {
                return Err(item);
            }
            // What stays in the backlog is a prefix of what arrived.
            state.is_cut = true;
            return Ok(());
        }
        state.bytes += cost;
        state.items.push_back((item, cost));
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Puts an item in once there is room.
    pub(crate) async fn push(&self, mut item: T, cost: usize) {
        while let Err(returned) = self.try_push(item, cost) {
            item = returned;
            self.room.notified().await;
        }
    }

    /// Takes the oldest item. If there is none, returns what `when_empty` makes of the status.
    pub(crate) fn take<R>(&self, when_empty: impl FnOnce(&S) -> R) -> Result<T, R> {
        let mut state = self.state();
        let Some((item, cost)) = state.items.pop_front() else { return Err(when_empty(&state.status)) };
        state.bytes -= cost;
        drop(state);
        self.room.notify_one();
        Ok(item)
    }

    /// Waits until there may be something to take, or the status may have changed.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    pub(crate) fn status<R>(&self, read: impl FnOnce(&S) -> R) -> R {
        read(&self.state().status)
    }

    /// Changes the status, and wakes the handle.
    pub(crate) fn set_status(&self, change: impl FnOnce(&mut S)) {
        change(&mut self.state().status);
        self.arrived.notify_one();
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.state().is_abandoned
    }

    /// Drops all items, now and from now on, because the handle is gone.
    pub(crate) fn abandon(&self) {
        let mut state = self.state();
        state.is_abandoned = true;
        state.bytes = 0;
        let items = std::mem::take(&mut state.items);
        drop(state);
        drop(items);
        self.room.notify_one();
    }

    /// Until the guard is dropped, an item that does not fit is dropped instead of waiting, and so are all items after it.
    ///
    /// For a caller who waits for an answer that comes after the items and cannot take items meanwhile: otherwise the task
    /// and the caller would wait for each other forever.
    pub(crate) fn drop_overflow(&self) -> DropOverflow<'_, T, S> {
        self.state().drop_overflow += 1;
        self.room.notify_one();
        DropOverflow(self)
    }

    fn state(&self) -> MutexGuard<'_, State<T, S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`Backlog::drop_overflow`].
#[derive(Debug)]
pub(crate) struct DropOverflow<'a, T, S: Default>(&'a Backlog<T, S>);

impl<T, S: Default> Drop for DropOverflow<'_, T, S> {
    fn drop(&mut self) {
        self.0.state().drop_overflow -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 100;

    /// A backlog of item numbers.
    fn backlog() -> Backlog<u32, Option<&'static str>> {
        Backlog::new(LIMIT)
    }

    fn take(backlog: &Backlog<u32, Option<&'static str>>) -> Result<u32, Option<&'static str>> {
        backlog.take(|status| *status)
    }

    #[test]
    fn an_item_over_the_limit_is_accepted_alone() {
        let backlog = backlog();
        assert_eq!(backlog.try_push(1, LIMIT + 1), Ok(()));
        assert_eq!(backlog.try_push(2, 1), Err(2));
        assert_eq!(take(&backlog), Ok(1));
        assert_eq!(backlog.try_push(2, 1), Ok(()));
    }

    #[test]
    fn after_an_overflow_the_items_are_a_prefix_of_what_arrived() {
        let backlog = backlog();
        assert_eq!(backlog.try_push(1, LIMIT), Ok(()));
        let guard = backlog.drop_overflow();
        assert_eq!(backlog.try_push(2, 1), Ok(()), "dropped");
        drop(guard);
        assert_eq!(take(&backlog), Ok(1));
        assert_eq!(backlog.try_push(3, 1), Ok(()));
        assert_eq!(take(&backlog), Err(None), "no item follows the dropped one");
    }

    #[test]
    fn the_status_comes_after_the_items() {
        let backlog = backlog();
        assert_eq!(backlog.try_push(1, 1), Ok(()));
        backlog.set_status(|status| *status = Some("ended"));
        assert_eq!(take(&backlog), Ok(1));
        assert_eq!(take(&backlog), Err(Some("ended")));
    }

    #[tokio::test]
    async fn an_abandoned_backlog_accepts_and_drops_everything() {
        let backlog = backlog();
        assert_eq!(backlog.try_push(1, LIMIT), Ok(()));
        let (waiting, abandoned) = (backlog.push(2, 1), async { backlog.abandon() });
        tokio::join!(waiting, abandoned);
        assert_eq!(take(&backlog), Err(None));
    }
}
