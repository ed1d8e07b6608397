//! Admits connections within the limits. A connection for which others have to make room waits in a task of its own, so that
//! the server accepts the next ones meanwhile.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parlor_transport::{ConnectionLimiter, ConnectionLimits, ConnectionPermit, PeerGroup};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::waiting_heads::WaitingHeads;

/// How long a client waits for a connection of its group to make room for it. Then the owner waits for another one, and
/// other clients are refused. A connection that has to make room is cut after this time, if its client does not read.
pub(crate) const ROOM_WAIT: Duration = Duration::from_millis(100);

/// How many connections of the owner, and how many of all others, may wait for room. Further ones are refused at once.
pub const MAX_WAITING_CONNECTIONS: usize = 256;

/// Admits the connections of one server.
pub(crate) struct Admission {
    limiter: Arc<ConnectionLimiter>,
    heads: Arc<WaitingHeads>,
    owner_waits: Arc<Semaphore>,
    other_waits: Arc<Semaphore>,
}

/// A connection that is being admitted.
pub(crate) enum PendingAdmission {
    Admitted(ConnectionPermit),
    Waiting {
        limiter: Arc<ConnectionLimiter>,
        heads: Arc<WaitingHeads>,
        group: PeerGroup,
        slot: OwnedSemaphorePermit,
    },
}

impl Admission {
    pub(crate) fn new(limits: ConnectionLimits, heads: Arc<WaitingHeads>) -> Self {
        let [owner_waits, other_waits] = [(); 2].map(|()| Arc::new(Semaphore::new(MAX_WAITING_CONNECTIONS)));
        Self { limiter: Arc::new(ConnectionLimiter::new(limits)), heads, owner_waits, other_waits }
    }

    /// Begins to admit a connection of `group`. `None` if too many wait already.
    pub(crate) fn begin(&self, group: PeerGroup) -> Option<PendingAdmission> {
        if let Some(permit) = self.limiter.try_acquire(group) {
            return Some(PendingAdmission::Admitted(permit));
        }
        let waits = if group == PeerGroup::Owner { &self.owner_waits } else { &self.other_waits };
        let slot = Arc::clone(waits).try_acquire_owned().ok()?;
        let (limiter, heads) = (Arc::clone(&self.limiter), Arc::clone(&self.heads));
        Some(PendingAdmission::Waiting { limiter, heads, group, slot })
    }
}

impl PendingAdmission {
    /// Waits for a permit. If there is none, the connection of the group makes room that has waited longest for a request.
    /// `None` if the client has used up its share.
    pub(crate) async fn permit(self) -> Option<ConnectionPermit> {
        match self {
            Self::Admitted(permit) => Some(permit),
            Self::Waiting { limiter, heads, group: PeerGroup::Owner, slot: _slot } => {
                owner_permit(&limiter, &heads).await
            }
            Self::Waiting { limiter, heads, group, slot: _slot } => {
                if let Some(closed) = heads.close_oldest(group) {
                    // On a timeout there may be room nevertheless.
                    let _ = timeout(ROOM_WAIT, closed.cancelled()).await;
                }
                limiter.try_acquire(group)
            }
        }
    }
}

/// The owner waits for as long as it takes.
async fn owner_permit(limiter: &ConnectionLimiter, heads: &WaitingHeads) -> Option<ConnectionPermit> {
    loop {
        let mut next_wait = pin!(heads.next_wait());
        next_wait.as_mut().enable();
        let closed = heads.close_oldest(PeerGroup::Owner);
        let next_try = async {
            match closed {
                // It takes longer if the head of its request has just arrived. Then another one has to close.
                Some(closed) => drop(timeout(ROOM_WAIT, closed.cancelled()).await),
                None => next_wait.await,
            }
        };
        tokio::select! {
            biased;
            permit = limiter.acquire(PeerGroup::Owner) => return permit,
            () = next_try => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::waiting_heads::HeadWait;

    fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test(start_paused = true)]
    async fn one_idle_connection_closes_for_each_new_one() {
        let limits = ConnectionLimits { all: 1, other_users: 1, address: 1, owner_only: 0 };
        let heads = Arc::new(WaitingHeads::default());
        let admission = Admission::new(limits, Arc::clone(&heads));
        let permit = admission.limiter.try_acquire(PeerGroup::Owner).unwrap();
        let [first, second] = [(); 2].map(|()| heads.add_connection(PeerGroup::Owner));
        let has_to_close = |head: &HeadWait| poll_once(head.close_requested()).is_ready();

        let mut acquired = pin!(admission.begin(PeerGroup::Owner).unwrap().permit());
        assert!(poll_once(&mut acquired).is_pending());
        assert!(has_to_close(&first) && !has_to_close(&second));
        // Another connection begins to wait before the first one has closed.
        let third = heads.add_connection(PeerGroup::Owner);
        assert!(poll_once(&mut acquired).is_pending());
        assert!(!has_to_close(&second) && !has_to_close(&third));
        // The first one takes long to close: the next one has to.
        tokio::time::advance(ROOM_WAIT).await;
        assert!(poll_once(&mut acquired).is_pending());
        assert!(has_to_close(&second) && !has_to_close(&third));
        drop((permit, second));
        assert!(matches!(poll_once(&mut acquired), Poll::Ready(Some(_))));
        assert!(!has_to_close(&third));
    }
    #[tokio::test(start_paused = true)]
    async fn a_limited_number_of_connections_waits_for_room() {
        let limits = ConnectionLimits { all: 2, other_users: 1, address: 1, owner_only: 1 };
        let admission = Admission::new(limits, Arc::default());
        let other = PeerGroup::OtherUser(5);
        let _permit = admission.begin(other).unwrap().permit().await.unwrap();
        let waiting: Vec<_> = std::iter::from_fn(|| admission.begin(other)).collect();
        assert_eq!(waiting.len(), MAX_WAITING_CONNECTIONS);
        // Nobody makes room, so all of them are refused; the owner is admitted meanwhile.
        assert!(admission.begin(PeerGroup::Owner).unwrap().permit().await.is_some());
        for waiting in waiting {
            assert!(waiting.permit().await.is_none());
        }
        assert!(admission.begin(other).is_some());
    }
}
