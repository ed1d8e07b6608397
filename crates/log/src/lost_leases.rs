//! Tells the holders of leases that a lease is lost.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use parlor_vocab::SessionId;
use tokio::sync::watch;

use crate::lease::Token;

/// The leases whose loss somebody waits for. Most leases are not among them: an idle session has nothing to stop.
#[derive(Default)]
pub(crate) struct LostLeases(Mutex<HashMap<Token, Waiter>>);

struct Waiter {
    session: SessionId,
    is_lost: watch::Sender<bool>,
}

impl LostLeases {
    /// Returns a receiver that becomes true when the lease is lost.
    pub(crate) fn subscribe(&self, session: &SessionId, token: Token) -> watch::Receiver<bool> {
        let new_waiter = || Waiter { session: session.clone(), is_lost: watch::Sender::new(false) };
        self.lock().entry(token).or_insert_with(new_waiter).is_lost.subscribe()
    }

    /// The leases whose loss somebody waits for now.
    pub(crate) fn watched(&self) -> Vec<(SessionId, Token)> {
        let mut waiters = self.lock();
        waiters.retain(|_, waiter| waiter.is_lost.receiver_count() > 0);
        waiters.iter().map(|(token, waiter)| (waiter.session.clone(), *token)).collect()
    }

    /// Wakes those who wait for the loss of this lease.
    pub(crate) fn report(&self, token: Token) {
        if let Some(waiter) = self.lock().remove(&token) {
            waiter.is_lost.send_replace(true);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Token, Waiter>> {
        // A panic cannot leave the map half changed: each change is a single call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
