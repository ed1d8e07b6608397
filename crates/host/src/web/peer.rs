//! Who is at the other end of a connection that speaks HTTP: looked up once, and only if somebody asks.

use std::sync::OnceLock;

use crate::{Accepted, PeerUser};

/// The other end of one connection. All of its requests share it.
#[derive(Debug)]
pub(super) struct Peer {
    accepted: Accepted,
    user: OnceLock<PeerUser>,
}

impl Peer {
    pub(super) fn new(accepted: Accepted) -> Self {
        Self { accepted, user: OnceLock::new() }
    }

    /// The user. A request that brings the token does not ask for it.
    pub(super) fn user(&self) -> PeerUser {
        *self.user.get_or_init(|| self.accepted.peer_user())
    }
}
