//! The right to write a session.

use std::fmt;
use std::sync::Arc;

use parlor_vocab::SessionId;

/// The right to write a session, as long as this value lives. Dropped, it is given back; when its
/// process dies, others can take it.
///
/// A lease can be lost all the same, if its session is deleted or if somebody removes the file
/// that shows that this process lives. A lost lease is refused by the log, not trusted.
pub struct Lease {
    session: SessionId,
    token: Token,
    keeper: Option<Arc<dyn LeaseReleaser>>,
}

/// Tells the leases of one store apart. Used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) u64);

/// A store, as its leases see it.
pub(crate) trait LeaseReleaser: Send + Sync {
    /// Lets others have the session, soon. Waits for nothing.
    fn give_back(&self, session: &SessionId, token: Token);
}

impl Lease {
    pub(crate) fn new(session: SessionId, token: Token, keeper: Arc<dyn LeaseReleaser>) -> Self {
        Self { session, token, keeper: Some(keeper) }
    }

    /// What may be written.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// Whether `keeper` gave it: a lease is worth nothing in another store.
    pub(crate) fn is_of<K: LeaseReleaser>(&self, keeper: &Arc<K>) -> bool {
        self.keeper.as_ref().is_some_and(|own| std::ptr::addr_eq(Arc::as_ptr(own), Arc::as_ptr(keeper)))
    }

    /// Takes it apart, for a store that gives it back itself.
    pub(crate) fn into_parts(mut self) -> (SessionId, Token) {
        self.keeper = None;
        (self.session.clone(), self.token)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            keeper.give_back(&self.session, self.token);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("session", &self.session).field("token", &self.token).finish()
    }
}
