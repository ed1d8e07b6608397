//! The table of calls: those that run, and answers that their clients have not received yet.
//!
//! A client that gets no answer hangs up and repeats its request on another connection. The repeat gets the answer of the
//! first call, and nothing runs twice. Two clients may describe themselves in the same way, as two containers do in which
//! every client has the process id 1; so a call is taken for a repeat only if the first client has hung up, or if it
//! proves with its nonce that it is the same client.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use parlor_vocab::{CallKey, RepeatKey, RubyReply};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{HangUpCheck, KEEP_ANSWER, KEPT_ANSWER_BYTES, MAX_CALLS};

/// Receives the answer to a call.
pub(super) type PendingReply = watch::Receiver<Option<Arc<RubyReply>>>;

/// The connection that waits for the answer to a call. It is gone when the connection has ended or its client has hung
/// up.
#[derive(Clone)]
pub(super) struct Asker(Weak<HangUpCheck>);

impl Asker {
    pub(super) fn new(connection: &Arc<HangUpCheck>) -> Self {
        Self(Arc::downgrade(connection))
    }

    fn is_gone(&self) -> bool {
        self.0.upgrade().is_none_or(|has_hung_up| has_hung_up())
    }
}

/// The table of calls, shared by all connections.
#[derive(Default)]
pub(super) struct Calls {
    table: Mutex<CallTable>,
}

#[derive(Default)]
struct CallTable {
    calls: HashMap<CallId, Call>,
    /// The calls of each key, the oldest first. Several clients may have made the same call.
    by_key: HashMap<CallKey, Vec<CallId>>,
    /// Answered calls with the time until which they are kept, the oldest first. Some may have been forgotten
    /// already.
    kept: VecDeque<(Instant, CallId)>,
    kept_bytes: usize,
    last_id: u64,
}

struct Call {
    repeat: Option<RepeatKey>,
    /// The last connection that asked for the answer.
    asker: Asker,
    answer: PendingReply,
    /// The size of the answer; `None` while the call runs.
    bytes: Option<usize>,
}

/// Identifies a call in the table. Ids are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CallId(u64);

/// The result of [`Calls::enter`].
pub(super) enum Entered {
    /// The call is new: run it, and send the answer here.
    New(CallId, watch::Sender<Option<Arc<RubyReply>>>, PendingReply),
    /// The call repeats one that runs already or is answered.
    Known(CallId, PendingReply),
    /// The table is full of running calls.
    Full,
}

impl Calls {
    /// Finds the call that this one repeats, or adds a call.
    pub(super) fn enter(&self, repeat: Option<RepeatKey>, asker: Asker) -> Entered {
        let mut table = self.lock();
        table.drop_expired();
        if let Some(call_id) = repeat.as_ref().and_then(|repeat| table.find_repeated(repeat))
            && let Some(call) = table.calls.get_mut(&call_id)
        {
            call.asker = asker;
            call.repeat = repeat;
            return Entered::Known(call_id, call.answer.clone());
        }
        if table.calls.len() >= MAX_CALLS && !table.drop_oldest() {
            return Entered::Full;
        }
        table.last_id += 1;
        let call_id = CallId(table.last_id);
        let (sender, answer) = watch::channel(None);
        if let Some(repeat) = &repeat {
            table.by_key.entry(repeat.call).or_default().push(call_id);
        }
        table.calls.insert(call_id, Call { repeat, asker, answer: answer.clone(), bytes: None });
        Entered::New(call_id, sender, answer)
    }

    /// Marks a call as answered, with an answer of `bytes`, which is kept from now on if the call can be repeated.
    pub(super) fn keep_answer(&self, call_id: CallId, bytes: usize) {
        let mut table = self.lock();
        table.drop_expired();
        let Some(call) = table.calls.get_mut(&call_id) else { return };
        if call.repeat.is_none() {
            table.remove(call_id);
            return;
        }
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
        if table.calls.get(&call_id).is_some_and(|call| call.bytes.is_none()) {
            table.remove(call_id);
        }
    }

    fn lock(&self) -> MutexGuard<'_, CallTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallTable {
    /// The call that a request with this key repeats: one of the same client by its nonce, or else the oldest one whose
    /// client is gone and did not prove to be another.
    fn find_repeated(&self, repeat: &RepeatKey) -> Option<CallId> {
        let same_key = self.by_key.get(&repeat.call)?;
        let call = |call_id: &CallId| self.calls.get(call_id);
        let has_nonce = |call: &Call| {
            repeat.nonce.is_some() && call.repeat.as_ref().is_some_and(|other| other.nonce == repeat.nonce)
        };
        let by_nonce = same_key.iter().find(|call_id| call(call_id).is_some_and(has_nonce));
        // Two nonces are two clients, whoever has hung up.
        let is_other_client = |call: &Call| {
            let nonce = call.repeat.as_ref().and_then(|other| other.nonce.as_ref());
            nonce.is_some() && repeat.nonce.is_some() && nonce != repeat.nonce.as_ref()
        };
        let is_abandoned = |call: &Call| call.asker.is_gone() && !is_other_client(call);
        let by_hang_up = || same_key.iter().find(|call_id| call(call_id).is_some_and(is_abandoned));
        by_nonce.or_else(by_hang_up).copied()
    }

    fn forget(&mut self, call_id: CallId) -> bool {
        let Some(bytes) = self.calls.get(&call_id).and_then(|call| call.bytes) else { return false };
        self.remove(call_id);
        self.kept_bytes -= bytes;
        // Usually the call is the oldest, so this keeps the list short.
        while self.kept.front().is_some_and(|(_, oldest)| !self.calls.contains_key(oldest)) {
            self.kept.pop_front();
        }
        true
    }

    fn remove(&mut self, call_id: CallId) {
        let Some(repeat) = self.calls.remove(&call_id).and_then(|call| call.repeat) else { return };
        if let Some(same_key) = self.by_key.get_mut(&repeat.call) {
            same_key.retain(|other| *other != call_id);
            if same_key.is_empty() {
                self.by_key.remove(&repeat.call);
            }
        }
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

    fn repeat(number: u16, nonce: Option<&str>) -> Option<RepeatKey> {
        Some(RepeatKey { call: key(number), nonce: nonce.map(str::to_owned) })
    }

    fn connection() -> Arc<HangUpCheck> {
        Arc::new(Box::new(|| false))
    }

    /// A connection that has ended.
    fn gone() -> Asker {
        Asker::new(&connection())
    }

    /// Enters a call of a client that is gone at once.
    fn enter(calls: &Calls, number: u16) -> Entered {
        calls.enter(repeat(number, None), gone())
    }

    fn new_id(entered: Entered) -> CallId {
        match entered {
            Entered::New(call_id, ..) => call_id,
            Entered::Known(..) | Entered::Full => panic!("the call is not new"),
        }
    }

    fn enter_new(calls: &Calls, number: u16) -> CallId {
        new_id(enter(calls, number))
    }

    fn is_known(calls: &Calls, number: u16) -> bool {
        calls.lock().by_key.contains_key(&key(number))
    }

    fn repeats(entered: Entered, call_id: CallId) -> bool {
        matches!(entered, Entered::Known(known, _) if known == call_id)
    }

    #[test]
    fn a_call_is_a_repeat_only_if_the_first_client_is_gone() {
        let calls = Calls::default();
        let [one, two, three] = [(); 3].map(|()| connection());
        let first = new_id(calls.enter(repeat(1, None), Asker::new(&one)));
        let second = new_id(calls.enter(repeat(1, None), Asker::new(&two)));
        assert_ne!(first, second, "two clients that describe themselves alike");
        drop(one);
        assert!(repeats(calls.enter(repeat(1, None), Asker::new(&three)), first));
        // Now the third connection waits for the answer to the first call.
        let fourth = new_id(calls.enter(repeat(1, None), gone()));
        assert_ne!(fourth, second);
        calls.keep_answer(first, 10);
        assert!(repeats(enter(&calls, 1), fourth), "the first answer is on its way to the third connection");
        drop(three);
        assert!(repeats(enter(&calls, 1), first));
        calls.forget(first);
        assert!(repeats(enter(&calls, 1), fourth), "the first answer was received");
    }

    #[test]
    fn a_client_that_has_hung_up_is_gone_although_its_connection_still_exists() {
        let calls = Calls::default();
        let hung_up: Arc<HangUpCheck> = Arc::new(Box::new(|| true));
        let first = new_id(calls.enter(repeat(1, None), Asker::new(&hung_up)));
        assert!(repeats(enter(&calls, 1), first));
    }

    #[test]
    fn a_nonce_proves_a_repeat_although_the_first_connection_is_open() {
        let calls = Calls::default();
        let connections = [(); 4].map(|()| connection());
        let [one, two, three, four] = connections.each_ref().map(Asker::new);
        let first = new_id(calls.enter(repeat(1, Some("a")), one));
        let other = new_id(calls.enter(repeat(1, Some("b")), two));
        assert!(repeats(calls.enter(repeat(1, Some("a")), three), first));
        assert!(repeats(calls.enter(repeat(1, Some("b")), four), other));
        assert!(!repeats(calls.enter(repeat(2, Some("a")), gone()), first), "another call");
    }

    #[test]
    fn a_client_with_a_nonce_does_not_get_the_answer_of_one_with_another_nonce() {
        let calls = Calls::default();
        let first = new_id(calls.enter(repeat(1, Some("a")), gone()));
        assert_ne!(new_id(calls.enter(repeat(1, Some("b")), gone())), first);
        // A client without a nonce may be the first one on a new connection.
        assert!(repeats(calls.enter(repeat(1, None), gone()), first));
    }

    #[test]
    fn a_call_without_a_key_is_never_repeated_and_its_answer_is_not_kept() {
        let calls = Calls::default();
        let [first, second] = [(); 2].map(|()| new_id(calls.enter(None, gone())));
        assert_ne!(first, second);
        calls.keep_answer(first, 10);
        let table = calls.lock();
        assert_eq!((table.calls.len(), table.kept_bytes), (1, 0));
    }

    #[test]
    fn a_call_stays_in_the_table_until_its_answer_is_received() {
        let calls = Calls::default();
        let call_id = enter_new(&calls, 1);
        assert!(repeats(enter(&calls, 1), call_id));
        calls.forget(call_id);
        assert!(is_known(&calls, 1), "it is still running");
        calls.keep_answer(call_id, 10);
        assert!(repeats(enter(&calls, 1), call_id));
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
        assert!(matches!(enter(&calls, 1), Entered::Known(..)), "it is still running");
        calls.keep_answer(call_id, 10);
        tokio::time::advance(KEEP_ANSWER - std::time::Duration::from_secs(1)).await;
        assert!(matches!(enter(&calls, 1), Entered::Known(..)));
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
        assert!(matches!(enter(&calls, 5000), Entered::Full));
        calls.keep_answer(first, 1);
        enter_new(&calls, 5000);
        assert!(!is_known(&calls, 0));
        assert!(calls.lock().kept.is_empty());
    }
}
