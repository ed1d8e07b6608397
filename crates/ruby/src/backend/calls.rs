//! The calls that are known: those under way, and answers that have not arrived.
//!
//! A client that hears nothing asks again, on another connection, with the same words. What is known
//! under its key is then not begun again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use parlor_vocab::{CallKey, RubyReply};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{KEEP_ANSWER, KEPT_BYTES, MAX_CALLS};

/// What will be, or is, the answer to a call.
pub(super) type PendingReply = watch::Receiver<Option<Arc<RubyReply>>>;

/// All calls that are known.
#[derive(Debug, Default)]
pub(super) struct Calls {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    calls: HashMap<CallKey, Call>,
    /// Those that are answered, the oldest first, and until when. Some may be forgotten by now.
    kept: VecDeque<(Instant, CallId)>,
    kept_bytes: usize,
    next_number: u64,
}

#[derive(Debug)]
struct Call {
    number: u64,
    answer: PendingReply,
    /// How large the answer is, once it is kept.
    bytes: Option<usize>,
}

/// One call: its key, and which of those that had the key over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallId {
    key: CallKey,
    number: u64,
}

/// What comes of a request.
pub(super) enum Entered {
    /// It is new: carry it out, and put the answer in here.
    New(CallId, watch::Sender<Option<Arc<RubyReply>>>, PendingReply),
    /// It is known.
    Known(CallId, PendingReply),
    /// There are too many.
    Full,
}

impl Calls {
    /// Enters a request.
    pub(super) fn enter(&self, key: CallKey) -> Entered {
        let mut known = self.lock();
        known.drop_expired();
        if let Some(call) = known.calls.get(&key) {
            return Entered::Known(CallId { key, number: call.number }, call.answer.clone());
        }
        if known.calls.len() >= MAX_CALLS && !known.drop_oldest() {
            return Entered::Full;
        }
        known.next_number += 1;
        let number = known.next_number;
        let (sender, answer) = watch::channel(None);
        known.calls.insert(key, Call { number, answer: answer.clone(), bytes: None });
        Entered::New(CallId { key, number }, sender, answer)
    }

    /// Notes that a call has an answer of so many bytes, which is kept from now on.
    pub(super) fn keep(&self, call_id: CallId, bytes: usize) {
        let mut known = self.lock();
        known.drop_expired();
        let Some(call) = known.calls.get_mut(&call_id.key).filter(|call| call.number == call_id.number)
        else {
            return;
        };
        call.bytes = Some(bytes);
        known.kept_bytes += bytes;
        known.kept.push_back((Instant::now() + KEEP_ANSWER, call_id));
        while known.kept_bytes > KEPT_BYTES && known.drop_oldest() {}
    }

    /// Forgets a call that is answered.
    pub(super) fn forget(&self, call_id: CallId) {
        self.lock().forget(call_id);
    }

    /// Forgets a call that broke off without an answer.
    pub(super) fn abandon(&self, call_id: CallId) {
        let mut known = self.lock();
        if known
            .calls
            .get(&call_id.key)
            .is_some_and(|call| call.number == call_id.number && call.bytes.is_none())
        {
            known.calls.remove(&call_id.key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn forget(&mut self, call_id: CallId) -> bool {
        let is_it = |call: &Call| call.number == call_id.number;
        let Some(bytes) = self.calls.get(&call_id.key).filter(|call| is_it(call)).and_then(|call| call.bytes)
        else {
            return false;
        };
        self.calls.remove(&call_id.key);
        self.kept_bytes -= bytes;
        // Mostly it is the oldest, and the list stays short.
        while let Some((_, oldest)) = self.kept.front()
            && self.calls.get(&oldest.key).is_none_or(|call| call.number != oldest.number)
        {
            self.kept.pop_front();
        }
        true
    }

    /// Forgets what was kept for long enough. Looked at with each call: a timer would cost each of them more
    /// than what little is kept between two.
    fn drop_expired(&mut self) {
        let now = Instant::now();
        while let Some((until, call_id)) = self.kept.front().copied()
            && until <= now
        {
            self.kept.pop_front();
            self.forget(call_id);
        }
    }

    /// Forgets the answer that was kept for longest, if there is one.
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
    fn a_call_is_known_until_its_answer_has_arrived() {
        let calls = Calls::default();
        let call_id = enter_new(&calls, 1);
        assert!(matches!(calls.enter(key(1)), Entered::Known(known, _) if known == call_id));
        calls.forget(call_id);
        assert!(is_known(&calls, 1), "it is still running");
        calls.keep(call_id, 10);
        assert!(matches!(calls.enter(key(1)), Entered::Known(..)));
        calls.forget(call_id);
        let again = enter_new(&calls, 1);
        calls.keep(again, 10);
        calls.forget(call_id);
        assert!(is_known(&calls, 1), "a late word about the call before means nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_kept_for_a_while() {
        let calls = Calls::default();
        let call_id = enter_new(&calls, 1);
        tokio::time::advance(2 * KEEP_ANSWER).await;
        assert!(matches!(calls.enter(key(1)), Entered::Known(..)), "it is still running");
        calls.keep(call_id, 10);
        tokio::time::advance(KEEP_ANSWER - std::time::Duration::from_secs(1)).await;
        assert!(matches!(calls.enter(key(1)), Entered::Known(..)));
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        enter_new(&calls, 1);
        assert_eq!(calls.lock().kept_bytes, 0);
    }

    #[test]
    fn a_call_that_breaks_off_can_be_made_again() {
        let calls = Calls::default();
        let call_id = enter_new(&calls, 1);
        calls.abandon(call_id);
        let again = enter_new(&calls, 1);
        calls.abandon(call_id);
        assert!(is_known(&calls, 1));
        calls.keep(again, 1);
        calls.abandon(again);
        assert!(is_known(&calls, 1), "it has an answer");
    }

    #[test]
    fn answers_beyond_the_bytes_that_are_kept_go_the_oldest_first() {
        let calls = Calls::default();
        for number in 0..3 {
            let call_id = enter_new(&calls, number);
            calls.keep(call_id, KEPT_BYTES / 2);
        }
        assert_eq!([0, 1, 2].map(|number| is_known(&calls, number)), [false, true, true]);
        assert_eq!(calls.lock().kept_bytes, KEPT_BYTES / 2 * 2);
    }

    #[test]
    fn a_full_table_drops_answers_and_never_what_runs() {
        let calls = Calls::default();
        let first = enter_new(&calls, 0);
        for number in 1..MAX_CALLS as u16 {
            enter_new(&calls, number);
        }
        assert!(matches!(calls.enter(key(5000)), Entered::Full));
        calls.keep(first, 1);
        enter_new(&calls, 5000);
        assert!(!is_known(&calls, 0));
        assert!(calls.lock().kept.is_empty());
    }
}
