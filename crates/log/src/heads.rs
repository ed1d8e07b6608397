//! Who waits for which session to go on.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use parlor_vocab::{Seq, SessionId};
use tokio::sync::watch;

/// How many sessions may be listed before those that nobody waits for are looked for.
const PRUNE_AT_LEAST: usize = 64;

/// The sessions that somebody waits for, with the heads that were seen last.
#[derive(Default)]
pub(crate) struct Heads(Mutex<Listed>);

#[derive(Default)]
struct Listed {
    senders: HashMap<SessionId, watch::Sender<Seq>>,
    /// The size at which to prune next: a multiple of what was left last time, so that pruning
    /// costs each newcomer the same on average.
    prune_at: usize,
}

impl Heads {
    /// Wakes when `of` goes on.
    pub(crate) fn subscribe(&self, of: &SessionId) -> watch::Receiver<Seq> {
        let mut listed = self.lock();
        if let Some(sender) = listed.senders.get(of) {
            return sender.subscribe();
        }
        if listed.senders.len() >= listed.prune_at.max(PRUNE_AT_LEAST) {
            listed.senders.retain(|_, sender| sender.receiver_count() > 0);
            listed.prune_at = 2 * listed.senders.len();
        }
        let (sender, receiver) = watch::channel(Seq::START);
        listed.senders.insert(of.clone(), sender);
        receiver
    }

    /// Wakes those who wait for `session`.
    pub(crate) fn moved(&self, session: &SessionId, head: Seq) {
        let mut listed = self.lock();
        if let Some(sender) = listed.senders.get(session) {
            if sender.receiver_count() == 0 {
                listed.senders.remove(session);
            } else {
                sender.send_replace(head);
            }
        }
    }

    /// The sessions that somebody waits for right now, with the heads that were seen last.
    pub(crate) fn followed(&self) -> Vec<(SessionId, Seq)> {
        let mut listed = self.lock();
        listed.senders.retain(|_, sender| sender.receiver_count() > 0);
        listed.senders.iter().map(|(session, sender)| (session.clone(), *sender.borrow())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Listed> {
        // A panic cannot leave the list half changed: each change is a single call.
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
    fn sessions_that_nobody_waits_for_are_forgotten() {
        let heads = Heads::default();
        let kept = heads.subscribe(&session(0));
        for number in 1..10 * PRUNE_AT_LEAST {
            drop(heads.subscribe(&session(number)));
        }
        assert!(heads.lock().senders.len() <= PRUNE_AT_LEAST);
        assert_eq!(heads.followed(), [(session(0), Seq::START)]);
        drop(kept);
        heads.moved(&session(0), Seq(1));
        assert!(heads.lock().senders.is_empty());
    }

    #[test]
    fn all_who_wait_are_woken_and_see_the_head() {
        let heads = Heads::default();
        let mut receivers = [heads.subscribe(&session(1)), heads.subscribe(&session(1))];
        let other = heads.subscribe(&session(2));
        heads.moved(&session(1), Seq(3));
        for receiver in &mut receivers {
            assert!(receiver.has_changed().unwrap());
            assert_eq!(*receiver.borrow_and_update(), Seq(3));
        }
        assert!(!other.has_changed().unwrap());
    }
}
