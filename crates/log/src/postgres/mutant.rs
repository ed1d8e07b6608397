//! Faults that can be put into the log, to prove that tests of the cluster find them: the variable `PARLOR_MUTANT` of a node
//! names one. Only debug builds for tests look at it; in all other builds it is always [`Mutant::None`].

use std::borrow::Cow;

/// A fault of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(all(feature = "test-util", debug_assertions)),
    allow(dead_code, reason = "only debug builds for tests have faults")
)]
pub(super) enum Mutant {
    None,
    /// Nothing refuses the appends of a process that lost its leases: neither its own clock, nor the token, nor the
    /// expected head.
    NoFencing,
    /// A process believes that its leases last, and no append proves the token. The expected head is compared.
    NoTokenProof,
    /// Appends do not prove the token; everything else is as it should be.
    OnlyNoTokenProof,
    /// Heartbeats have the time of a node whose clock is ahead of the database's.
    OwnClock,
}

/// The fault of this process.
#[cfg(all(feature = "test-util", debug_assertions))]
pub(super) fn mutant() -> Mutant {
    static MUTANT: std::sync::OnceLock<Mutant> = std::sync::OnceLock::new();
    *MUTANT.get_or_init(|| {
        #[expect(clippy::disallowed_methods, reason = "a fault is no setting")]
        let name = std::env::var("PARLOR_MUTANT").unwrap_or_default();
        match name.as_str() {
            "" => Mutant::None,
            "no-fencing" => Mutant::NoFencing,
            "no-token-proof" => Mutant::NoTokenProof,
            "only-no-token-proof" => Mutant::OnlyNoTokenProof,
            "own-clock" => Mutant::OwnClock,
            other => panic!("PARLOR_MUTANT has no value {other:?}"),
        }
    })
}

/// No fault.
#[cfg(not(all(feature = "test-util", debug_assertions)))]
pub(super) const fn mutant() -> Mutant {
    Mutant::None
}

impl Mutant {
    /// Whether appends prove the tokens of their leases.
    pub(super) fn proves_tokens(self) -> bool {
        matches!(self, Self::None | Self::OwnClock)
    }

    /// Whether a process gives its leases up when its heartbeat is too old.
    pub(super) fn gives_up(self) -> bool {
        matches!(self, Self::None | Self::OnlyNoTokenProof | Self::OwnClock)
    }

    /// Whether appends compare the head that their writer saw.
    pub(super) fn compares_heads(self) -> bool {
        self != Self::NoFencing
    }

    /// A statement that appends, as this process sends it.
    pub(super) fn append_sql<'s>(self, sql: &'s str) -> Cow<'s, str> {
        if self.proves_tokens() { sql.into() } else { sql.replace(" AND l.token = a.token", "").into() }
    }

    /// A statement of the heartbeat, as this process sends it.
    pub(super) fn heartbeat_sql<'s>(self, sql: &'s str) -> Cow<'s, str> {
        if self == Self::OwnClock {
            sql.replace("heartbeat = clock_timestamp()", "heartbeat = clock_timestamp() + interval '30 s'")
                .into()
        } else {
            sql.into()
        }
    }
}
