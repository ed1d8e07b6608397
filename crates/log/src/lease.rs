//! Leases: the right to write a session.

use std::fmt;
use std::sync::Arc;

use parlor_vocab::SessionId;

/// The right to write a session while this value exists. Dropping it releases the session; when the process dies, other
/// processes can take the session over. On a log that nodes share, they then look whether the session has work left.
///
/// A lease can be lost: if its session is deleted, if somebody removes the lock file of this process, or if this process
/// could not reach a shared log for too long. The log checks the lease at every write and refuses a lost one.
pub struct Lease {
    session: SessionId,
    token: Token,
    releaser: Option<Arc<dyn LeaseReleaser>>,
}

/// Identifies one lease of a store. A store never uses a token twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Token(pub(crate) u64);

/// The store that gave a lease and takes it back.
pub(crate) trait LeaseReleaser: Send + Sync {
    /// Begins to release the session, and returns at once.
    fn release(&self, session: &SessionId, token: Token);
}

impl Lease {
    pub(crate) fn new(session: SessionId, token: Token, releaser: Arc<dyn LeaseReleaser>) -> Self {
        Self { session, token, releaser: Some(releaser) }
    }

    /// The session that the holder may write.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// Whether `store` gave this lease. Other stores refuse it.
    pub(crate) fn is_from<S: LeaseReleaser>(&self, store: &Arc<S>) -> bool {
        self.releaser.as_ref().is_some_and(|own| std::ptr::addr_eq(Arc::as_ptr(own), Arc::as_ptr(store)))
    }

    /// Takes the lease apart without releasing it, for a store that releases it itself.
    pub(crate) fn into_parts(mut self) -> (SessionId, Token) {
        self.releaser = None;
        (self.session.clone(), self.token)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(releaser) = self.releaser.take() {
            releaser.release(&self.session, self.token);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("session", &self.session).field("token", &self.token).finish()
    }
}
