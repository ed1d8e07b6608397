//! A link that lets somebody in once: whoever opens it is told the token.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::chance::{RandomSource, hex};
use crate::token::Token;

/// How long after the start of the server the link works.
pub const INVITATION_LIFE: Duration = Duration::from_secs(600);

/// The code of a link that works once.
#[derive(Debug)]
pub struct OneTimeLink {
    code: String,
    /// None once somebody has come.
    open: Mutex<Option<(Token, Instant)>>,
}

impl OneTimeLink {
    /// A code that nobody can guess, which works from now on.
    pub fn new(chance: &RandomSource) -> Self {
        let code = hex(chance());
        let token = Token::parse(&code).expect("digits are fit for a token");
        Self { code, open: Mutex::new(Some((token, Instant::now()))) }
    }

    /// The code, for whoever is invited.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Whether `given` is the code, for the first time and soon enough.
    pub(crate) fn accepts(&self, given: &str) -> bool {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let is_right = open
            .as_ref()
            .is_some_and(|(code, since)| code.is(given.as_bytes()) && since.elapsed() < INVITATION_LIFE);
        if is_right {
            *open = None;
        }
        is_right
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn invitation() -> OneTimeLink {
        OneTimeLink::new(&(Arc::new(|| [7_u8; 16]) as RandomSource))
    }

    #[tokio::test(start_paused = true)]
    async fn a_code_works_once_and_not_for_long() {
        let used = invitation();
        assert!(!used.accepts("") && !used.accepts("07070707"));
        assert!(used.accepts(used.code()) && !used.accepts(used.code()));
        let late = invitation();
        tokio::time::advance(INVITATION_LIFE - Duration::from_secs(1)).await;
        assert!(invitation().accepts(late.code()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!late.accepts(late.code()));
    }
}
