//! How far a run may go, and how far it has gone.

use std::time::Duration;

use parlor_vocab::{Failure, FailureCode, Usage};
use tokio::time::Instant;

use crate::SpentSoFar;

/// How many answers of a model one run may have, if nobody says it.
pub const DEFAULT_STEPS: u64 = 300;

/// How many tokens one run may read and write, if nobody says it.
pub const DEFAULT_TOKENS: u64 = 20_000_000;

/// For its limit, a run has used at least a token for so many bytes of text that were sent or arrived, whatever the
/// provider says. The tokens of models have about four bytes.
pub const LIMIT_BYTES_PER_TOKEN: usize = 64;

/// What one run may cost in millionths of a dollar, if nobody says it.
pub const DEFAULT_COST_MICROS: u64 = 25_000_000;

/// How long one run may take, if nobody says it.
pub const DEFAULT_TIME: Duration = Duration::from_secs(2 * 60 * 60);

/// How far a run may go. `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many answers of a model.
    pub steps: Option<u64>,
    /// How many tokens, read and written.
    pub tokens: Option<u64>,
    /// How many millionths of a dollar, where prices are known.
    pub cost_micros: Option<u64>,
    /// How long.
    pub time: Option<Duration>,
    /// How many millionths of a dollar the session may have cost.
    pub session_micros: Option<u64>,
    /// How many millionths of a dollar all sessions may have cost since midnight, UTC.
    pub day_micros: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steps: Some(DEFAULT_STEPS),
            tokens: Some(DEFAULT_TOKENS),
            cost_micros: Some(DEFAULT_COST_MICROS),
            time: Some(DEFAULT_TIME),
            session_micros: None,
            day_micros: None,
        }
    }
}

/// What a run has used up.
pub(super) struct Budget {
    limits: Limits,
    begun: Instant,
    steps: u64,
    used: Usage,
    /// What counts for the limit of tokens.
    tokens: u64,
}

impl Budget {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, begun: Instant::now(), steps: 0, used: Usage::default(), tokens: 0 }
    }

    /// When the time is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.begun.checked_add(self.limits.time?)
    }

    /// Whether what was spent before matters.
    pub(super) fn asks_for_spending(&self) -> bool {
        self.limits.session_micros.is_some() || self.limits.day_micros.is_some()
    }

    /// Adds what a question took: what the provider says, and how many bytes of text were sent and arrived.
    pub(super) fn add(&mut self, usage: Usage, bytes: usize) {
        self.used = self.used.plus(usage);
        let said =
            usage.input_tokens + usage.output_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
        self.tokens = self.tokens.saturating_add(said.max(least_tokens(bytes)));
    }

    /// Takes a step, if there may be one more.
    pub(super) fn step(&mut self, spent: SpentSoFar) -> Result<(), Failure> {
        let (used, tokens) = (&self.used, self.tokens);
        let reached = |used: u64, limit: Option<u64>| limit.filter(|limit| used >= *limit);
        if let Some(limit) = reached(self.steps, self.limits.steps) {
            return Err(failed(
                FailureCode::StepLimit,
                format!("the run has had {limit} steps, its limit (max_steps)"),
            ));
        }
        if let Some(limit) = reached(tokens, self.limits.tokens) {
            let said = format!("the run has used {tokens} tokens; its limit is {limit} (max_tokens)");
            return Err(failed(FailureCode::TokenLimit, said));
        }
        if let Some(limit) = reached(used.cost_micros, self.limits.cost_micros) {
            return Err(failed(FailureCode::CostLimit, over("the run", used.cost_micros, limit, "max_cost")));
        }
        if self.deadline().is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(self.late());
        }
        if let Some(limit) = reached(spent.session_micros, self.limits.session_micros) {
            let said = over("the session", spent.session_micros, limit, "spending.session");
            return Err(failed(FailureCode::SessionSpendLimit, said));
        }
        if let Some(limit) = reached(spent.today_micros, self.limits.day_micros) {
            let said = over("today's sessions together", spent.today_micros, limit, "spending.day");
            return Err(failed(FailureCode::DaySpendLimit, said));
        }
        self.steps += 1;
        Ok(())
    }

    /// The failure of a run whose time is over.
    pub(super) fn late(&self) -> Failure {
        let seconds = self.limits.time.unwrap_or_default().as_secs();
        failed(
            FailureCode::TimeLimit,
            format!("the run has taken {seconds} seconds, its limit (max_seconds)"),
        )
    }
}

/// How many tokens so many bytes of text have at least.
pub(super) fn least_tokens(bytes: usize) -> u64 {
    (bytes / LIMIT_BYTES_PER_TOKEN) as u64
}

fn over(who: &str, micros: u64, limit: u64, setting: &str) -> String {
    let dollars = |micros: u64| format!("${}.{:02}", micros / 1_000_000, micros % 1_000_000 / 10_000);
    format!("{who} cost {}; the limit is {} ({setting})", dollars(micros), dollars(limit))
}

fn failed(code: FailureCode, what: String) -> Failure {
    let message = format!("{what}. Raise it in parlor.toml, or say what to do next in a new message.");
    Failure { code, message, retryable: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Limits {
        Limits {
            steps: None,
            tokens: None,
            cost_micros: None,
            time: None,
            session_micros: None,
            day_micros: None,
        }
    }

    fn code(limits: Limits, used: Usage, spent: SpentSoFar) -> Option<String> {
        let mut budget = Budget::new(limits);
        budget.add(used, 0);
        budget.step(spent).err().map(|failure| failure.code.to_string())
    }

    #[test]
    fn each_limit_has_a_code_of_its_own_and_holds_exactly() {
        let used = Usage { input_tokens: 5, output_tokens: 5, cost_micros: 7, ..Usage::default() };
        let spent = SpentSoFar { session_micros: 100, today_micros: 200 };
        let at = |limits| code(limits, used, spent);
        assert_eq!(at(none()), None);
        assert_eq!(at(Limits { tokens: Some(11), ..none() }), None);
        assert_eq!(at(Limits { tokens: Some(10), ..none() }).as_deref(), Some("TOKEN_LIMIT"));
        assert_eq!(at(Limits { cost_micros: Some(8), ..none() }), None);
        assert_eq!(at(Limits { cost_micros: Some(7), ..none() }).as_deref(), Some("COST_LIMIT"));
        assert_eq!(
            at(Limits { session_micros: Some(100), ..none() }).as_deref(),
            Some("SESSION_SPEND_LIMIT")
        );
        assert_eq!(at(Limits { day_micros: Some(200), ..none() }).as_deref(), Some("DAY_SPEND_LIMIT"));
        assert_eq!(at(Limits { day_micros: Some(201), ..none() }), None);
        assert_eq!(at(Limits { time: Some(Duration::ZERO), ..none() }).as_deref(), Some("TIME_LIMIT"));
    }

    #[test]
    fn bytes_count_where_a_provider_counts_less() {
        let tokens = |usage: Usage, bytes: usize| {
            let mut budget = Budget::new(none());
            budget.add(usage, bytes);
            budget.add(usage, bytes);
            budget.tokens
        };
        let one = Usage { input_tokens: 1, ..Usage::default() };
        assert_eq!(tokens(one, LIMIT_BYTES_PER_TOKEN), 2);
        assert_eq!(tokens(one, 3 * LIMIT_BYTES_PER_TOKEN - 1), 4);
        let many = Usage { output_tokens: 2, cache_read_tokens: 5, ..Usage::default() };
        assert_eq!(tokens(many, 3 * LIMIT_BYTES_PER_TOKEN), 14);
    }

    #[test]
    fn steps_are_counted() {
        let mut budget = Budget::new(Limits { steps: Some(2), ..none() });
        assert_eq!(budget.step(SpentSoFar::default()), Ok(()));
        assert_eq!(budget.step(SpentSoFar::default()), Ok(()));
        let failure = budget.step(SpentSoFar::default()).unwrap_err();
        assert_eq!(failure.code.as_str(), "STEP_LIMIT");
        assert!(failure.message.contains("max_steps"), "{}", failure.message);
    }

    #[test]
    fn money_is_told_in_dollars() {
        assert_eq!(over("it", 1_234_567, 1_000_000, "x"), "it cost $1.23; the limit is $1.00 (x)");
    }
}
