//! Wakes the readers that follow a session.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use parlor_vocab::{Seq, SessionId};
use tokio::sync::watch;

/// The map is never pruned while it has fewer sessions than this.
const PRUNE_AT_LEAST: usize = 64;

/// One watch channel for each followed session, with the last head that this process saw.
#[derive(Default)]
pub(crate) struct Heads(Mutex<State>);

#[derive(Default)]
struct State {
    senders: HashMap<SessionId, watch::Sender<Seq>>,
    /// The size at which to remove sessions without followers: twice the size after the last pruning, so that the cost
    /// of pruning per subscription is constant on average.
    prune_at: usize,
}

impl Heads {
    /// Returns a receiver that wakes when the head of `session` changes.
    pub(crate) fn subscribe(&self, session: &SessionId) -> watch::Receiver<Seq> {
        let mut state = self.lock();
        if let Some(sender) = state.senders.get(session) {
            return sender.subscribe();
        }
        if state.senders.len() >= state.prune_at.max(PRUNE_AT_LEAST) {
            state.senders.retain(|_, sender| sender.receiver_count() > 0);
            state.prune_at = 2 * state.senders.len();
        }
        let (sender, receiver) = watch::channel(Seq::START);
        state.senders.insert(session.clone(), sender);
        receiver
    }

    /// Wakes the followers of `session`.
    pub(crate) fn publish(&self, session: &SessionId, head: Seq) {
        let mut state = self.lock();
        if let Some(sender) = state.senders.get(session) {
            if sender.receiver_count() == 0 {
                state.senders.remove(session);
            } else {
                sender.send_replace(head);
            }
        }
    }

    /// The sessions that have followers now, with the last heads that this process saw.
    pub(crate) fn followed(&self) -> Vec<(SessionId, Seq)> {
        let mut state = self.lock();
        state.senders.retain(|_, sender| sender.receiver_count() > 0);
        state.senders.iter().map(|(session, sender)| (session.clone(), *sender.borrow())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave the map half changed: each change is a single call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(number: usize) -> SessionId {
        SessionId::parse(&number.to_string()).unwrap()
    }

    #[test]
    fn sessions_without_followers_are_removed() {
        let heads = Heads::default();
        let follower = heads.subscribe(&session(0));
        for number in 1..10 * PRUNE_AT_LEAST {
            drop(heads.subscribe(&session(number)));
        }
        assert!(heads.lock().senders.len() <= PRUNE_AT_LEAST);
        assert_eq!(heads.followed(), [(session(0), Seq::START)]);
        drop(follower);
        heads.publish(&session(0), Seq(1));
        assert!(heads.lock().senders.is_empty());
    }

    #[test]
    fn all_followers_are_woken_and_see_the_head() {
        let heads = Heads::default();
        let mut receivers = [heads.subscribe(&session(1)), heads.subscribe(&session(1))];
        let other = heads.subscribe(&session(2));
        heads.publish(&session(1), Seq(3));
        for receiver in &mut receivers {
            assert!(receiver.has_changed().unwrap());
            assert_eq!(*receiver.borrow_and_update(), Seq(3));
        }
        assert!(!other.has_changed().unwrap());
    }
}
