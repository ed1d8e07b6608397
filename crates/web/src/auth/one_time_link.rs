//! A link that works once: the first browser that opens it gets the token.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::token::Token;
use crate::random::{RandomSource, hex};

/// How long the link works after the server has started.
pub const ONE_TIME_LINK_LIFE: Duration = Duration::from_secs(600);

/// The code of a link that works once.
#[derive(Debug)]
pub struct OneTimeLink {
    code: String,
    /// The code and when it was made; `None` once it is used.
    unused: Mutex<Option<(Token, Instant)>>,
}

impl OneTimeLink {
    /// A link with a random code, which works from now on.
    pub fn new(random: &RandomSource) -> Self {
        let code = hex(random());
        let token = Token::parse(&code).expect("hexadecimal digits are token characters");
        Self { code, unused: Mutex::new(Some((token, Instant::now()))) }
    }

    /// The code in the link. It is a secret until it is used.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Whether `given` is the code, for the first time and within [`ONE_TIME_LINK_LIFE`]. Uses the link up if so.
    pub(crate) fn accepts(&self, given: &str) -> bool {
        let mut unused = self.unused.lock().unwrap_or_else(PoisonError::into_inner);
        let is_right = unused
            .as_ref()
            .is_some_and(|(code, made)| code.is(given.as_bytes()) && made.elapsed() < ONE_TIME_LINK_LIFE);
        if is_right {
            *unused = None;
        }
        is_right
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn link() -> OneTimeLink {
        OneTimeLink::new(&(Arc::new(|| [7_u8; 16]) as RandomSource))
    }

    #[tokio::test(start_paused = true)]
    async fn a_code_works_once_and_for_a_limited_time() {
        let used = link();
        assert!(!used.accepts("") && !used.accepts("07070707"));
        assert!(used.accepts(used.code()) && !used.accepts(used.code()));
        let late = link();
        tokio::time::advance(ONE_TIME_LINK_LIFE - Duration::from_secs(1)).await;
        assert!(link().accepts(late.code()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!late.accepts(late.code()));
    }
}
