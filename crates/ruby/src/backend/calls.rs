//! The table of calls: those that run, and answers that their clients have not received yet.
//!
//! A client that gets no answer repeats its request on another connection. The repeat has the same key, so it gets
//! the answer of the first call and nothing runs twice.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_vocab::{CallKey, RubyReply};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{KEEP_ANSWER, KEPT_ANSWER_BYTES, MAX_CALLS};

/// Receives the answer to a call.
pub(super) type PendingReply = watch::Receiver<Option<Arc<RubyReply>>>;

/// The table of calls, shared by all connections.
#[derive(Debug, Default)]
pub(super) struct Calls {
    table: Mutex<CallTable>,
}

#[derive(Debug, Default)]
struct CallTable {
    calls: HashMap<CallKey, Call>,
    /// Answered calls with the time until which they are kept, the oldest first. Some may have been forgotten
    /// already.
    kept: VecDeque<(Instant, CallId)>,
    kept_bytes: usize,
    next_number: u64,
}

#[derive(Debug)]
struct Call {
    number: u64,
    answer: PendingReply,
    /// The size of the answer; `None` while the call runs.
    bytes: Option<usize>,
}

/// Identifies a call: its key, and a number, because several calls may have the same key one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallId {
    key: CallKey,
    number: u64,
}

/// The result of [`Calls::enter`].
pub(super) enum Entered {
    /// The call is new: run it, and send the answer here.
    New(CallId, watch::Sender<Option<Arc<RubyReply>>>, PendingReply),
    /// The call runs already or is answered.
    Known(CallId, PendingReply),
    /// The table is full of running calls.
    Full,
}

impl Calls {
    /// Finds the call with this key, or adds it.
    pub(super) fn enter(&self, key: CallKey) -> Entered {
        let mut table = self.lock();
        table.drop_expired();
        if let Some(call) = table.calls.get(&key) {
            return Entered::Known(CallId { key, number: call.number }, call.answer.clone());
        }
        if table.calls.len() >= MAX_CALLS && !table.drop_oldest() {
            return Entered::Full;
        }
        table.next_number += 1;
        let number = table.next_number;
        let (sender, answer) = watch::channel(None);
        table.calls.insert(key, Call { number, answer: answer.clone(), bytes: None });
        Entered::New(CallId { key, number }, sender, answer)
    }

    /// Marks a call as answered, with an answer of `bytes`, which is kept from now on.
    pub(super) fn keep_answer(&self, call_id: CallId, bytes: usize) {
        let mut table = self.lock();
        table.drop_expired();
        let Some(call) = table.calls.get_mut(&call_id.key).filter(|call| call.number == call_id.number)
        else {
            return;
        };
        call.bytes = Some(bytes);
        table.kept_bytes += bytes;
        table.kept.push_back((Instant::now() + KEEP_ANSWER, call_id));
        while table.kept_bytes > KEPT_ANSWER_BYTES && table.drop_oldest() {}
    }

    /// Removes an answered call, because its client has received the answer. A running call stays.
    pub(super) fn forget(&self, call_id: CallId) {
        self.lock().forget(call_id);
    }

    /// Removes a call whose task ended without an answer.
    pub(super) fn abandon(&self, call_id: CallId) {
        let mut table = self.lock();
        if table
            .calls
            .get(&call_id.key)
            .is_some_and(|call| call.number == call_id.number && call.bytes.is_none())
        {
            table.calls.remove(&call_id.key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, CallTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallTable {
    fn forget(&mut self, call_id: CallId) -> bool {
        let is_same = |call: &Call| call.number == call_id.number;
        let Some(bytes) =
            self.calls.get(&call_id.key).filter(|call| is_same(call)).and_then(|call| call.bytes)
        else {
            return false;
        };
        self.calls.remove(&call_id.key);
        self.kept_bytes -= bytes;
        // Usually the call is the oldest, so this keeps the list short.
        while let Some((_, oldest)) = self.kept.front()
            && self.calls.get(&oldest.key).is_none_or(|call| call.number != oldest.number)
        {
            self.kept.pop_front();
        }
        true
    }

    /// Removes answers whose time is over. Checked with each call, because a timer would cost every call more than
    /// the memory of the few answers that are kept too long.
    fn drop_expired(&mut self) {
        let now = Instant::now();
        while let Some((until, call_id)) = self.kept.front().copied()
            && until <= now
        {
            self.kept.pop_front();
            self.forget(call_id);
        }
    }

    /// Removes the oldest answer. Returns whether there was one.
    fn drop_oldest(&mut self) -> bool {
        while let Some((_, oldest)) = self.kept.pop_front() {
            if self.forget(oldest) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u16) -> CallKey {
        let mut key = [0; 32];
        key[..2].copy_from_slice(&number.to_le_bytes());
        CallKey(key)
    }

    fn enter_new(calls: &Calls, number: u16) -> CallId {
        match calls.enter(key(number)) {
            Entered::New(call_id, ..) => call_id,
            Entered::Known(..) | Entered::Full => panic!("{number} is not new"),
        }
    }

    fn is_known(calls: &Calls, number: u16) -> bool {
        calls.lock().calls.contains_key(&key(number))
    }

    #[test]
    fn a_call_stays_in_the_table_until_its_answer_is_received() {
        let calls = Calls::default();
        let call_id = enter_new(&calls, 1);
        assert!(matches!(calls.enter(key(1)), Entered::Known(known, _) if known == call_id));
        calls.forget(call_id);
        assert!(is_known(&calls, 1), "it is still running");
        calls.keep_answer(call_id, 10);
        assert!(matches!(calls.enter(key(1)), Entered::Known(..)));
        calls.forget(call_id);
        let again = enter_new(&calls, 1);
        calls.keep_answer(again, 10);
        calls.forget(call_id);
        assert!(is_known(&calls, 1), "a late confirmation of the previous call has no effect");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_kept_for_a_limited_time() {
        let calls = Calls::default();
        let call_id = enter_new(&calls, 1);
        tokio::time::advance(2 * KEEP_ANSWER).await;
        assert!(matches!(calls.enter(key(1)), Entered::Known(..)), "it is still running");
        calls.keep_answer(call_id, 10);
        tokio::time::advance(KEEP_ANSWER - std::time::Duration::from_secs(1)).await;
        assert!(matches!(calls.enter(key(1)), Entered::Known(..)));
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        enter_new(&calls, 1);
        assert_eq!(calls.lock().kept_bytes, 0);
    }

    #[test]
    fn an_abandoned_call_can_be_made_again() {
        let calls = Calls::default();
        let call_id = enter_new(&calls, 1);
        calls.abandon(call_id);
        let again = enter_new(&calls, 1);
        calls.abandon(call_id);
        assert!(is_known(&calls, 1));
        calls.keep_answer(again, 1);
        calls.abandon(again);
        assert!(is_known(&calls, 1), "it has an answer");
    }

    #[test]
    fn beyond_the_byte_limit_the_oldest_answers_are_removed() {
        let calls = Calls::default();
        for number in 0..3 {
            let call_id = enter_new(&calls, number);
            calls.keep_answer(call_id, KEPT_ANSWER_BYTES / 2);
        }
        assert_eq!([0, 1, 2].map(|number| is_known(&calls, number)), [false, true, true]);
        assert_eq!(calls.lock().kept_bytes, KEPT_ANSWER_BYTES / 2 * 2);
    }

    #[test]
    fn a_full_table_drops_answers_but_no_running_calls() {
        let calls = Calls::default();
        let first = enter_new(&calls, 0);
        for number in 1..MAX_CALLS as u16 {
            enter_new(&calls, number);
        }
        assert!(matches!(calls.enter(key(5000)), Entered::Full));
        calls.keep_answer(first, 1);
        enter_new(&calls, 5000);
        assert!(!is_known(&calls, 0));
        assert!(calls.lock().kept.is_empty());
    }
}
