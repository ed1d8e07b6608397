//! The limits of a run, and how much of them it has used.

use std::time::Duration;

use parlor_vocab::{Failure, FailureCode, Usage};
use tokio::time::Instant;

use crate::SpentSoFar;

/// The default limit of model answers in one run.
pub const DEFAULT_STEPS: u64 = 300;

/// The default limit of input and output tokens in one run.
pub const DEFAULT_TOKENS: u64 = 20_000_000;

/// The token limit counts at least one token for this many bytes of text sent and received, even if the provider
/// reports fewer. A token of a real model has about four bytes.
pub const LIMIT_BYTES_PER_TOKEN: usize = 64;

/// The default cost limit of one run, in millionths of a dollar.
pub const DEFAULT_COST_MICROS: u64 = 25_000_000;

/// The default time limit of one run.
pub const DEFAULT_TIME: Duration = Duration::from_secs(2 * 60 * 60);

/// The limits of a run. `None` means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Model answers in the run.
    pub steps: Option<u64>,
    /// Input and output tokens of the run.
    pub tokens: Option<u64>,
    /// The cost of the run in millionths of a dollar. Models without a price cost nothing.
    pub cost_micros: Option<u64>,
    /// The duration of the run.
    pub time: Option<Duration>,
    /// The cost of the session in millionths of a dollar.
    pub session_micros: Option<u64>,
    /// The cost of all sessions since midnight UTC, in millionths of a dollar.
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

/// The limits of a run and what it has used so far.
pub(super) struct Budget {
    limits: Limits,
    started: Instant,
    steps: u64,
    used: Usage,
    /// The tokens that count for the limit; see [`LIMIT_BYTES_PER_TOKEN`].
    tokens: u64,
}

impl Budget {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, started: Instant::now(), steps: 0, used: Usage::default(), tokens: 0 }
    }

    /// When the time limit ends the run.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.started.checked_add(self.limits.time?)
    }

    /// Adds time in which the run only waited for a person.
    pub(super) fn extend(&mut self, waited: Duration) {
        self.started += waited;
    }

    /// Whether [`step`](Self::step) needs the cost so far.
    pub(super) fn needs_spending(&self) -> bool {
        self.limits.session_micros.is_some() || self.limits.day_micros.is_some()
    }

    /// Adds one request: the usage that the provider reports, and the bytes of text sent and received.
    pub(super) fn add(&mut self, usage: Usage, bytes: usize) {
        self.used = self.used.plus(usage);
        let reported =
            usage.input_tokens + usage.output_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
        self.tokens = self.tokens.saturating_add(reported.max(min_tokens(bytes)));
    }

    /// Counts a step. Fails if a limit is reached.
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
            let text = format!("the run has used {tokens} tokens; its limit is {limit} (max_tokens)");
            return Err(failed(FailureCode::TokenLimit, text));
        }
        if let Some(limit) = reached(used.cost_micros, self.limits.cost_micros) {
            return Err(failed(
                FailureCode::CostLimit,
                cost_text("the run", used.cost_micros, limit, "max_cost"),
            ));
        }
        if self.deadline().is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(self.time_limit_failure());
        }
        if let Some(limit) = reached(spent.session_micros, self.limits.session_micros) {
            let text = cost_text("the session", spent.session_micros, limit, "spending.session");
            return Err(failed(FailureCode::SessionSpendLimit, text));
        }
        if let Some(limit) = reached(spent.today_micros, self.limits.day_micros) {
            let text = cost_text("today's sessions together", spent.today_micros, limit, "spending.day");
            return Err(failed(FailureCode::DaySpendLimit, text));
        }
        self.steps += 1;
        Ok(())
    }

    /// The failure of a run that reached its time limit.
    pub(super) fn time_limit_failure(&self) -> Failure {
        let seconds = self.limits.time.unwrap_or_default().as_secs();
        failed(
            FailureCode::TimeLimit,
            format!("the run has taken {seconds} seconds, its limit (max_seconds)"),
        )
    }
}

/// The minimum number of tokens for a text with this size.
pub(super) fn min_tokens(bytes: usize) -> u64 {
    (bytes / LIMIT_BYTES_PER_TOKEN) as u64
}

fn cost_text(who: &str, micros: u64, limit: u64, setting: &str) -> String {
    let dollars = |micros: u64| format!("${}.{:02}", micros / 1_000_000, micros % 1_000_000 / 10_000);
    format!("{who} cost {}; the limit is {} ({setting})", dollars(micros), dollars(limit))
}

fn failed(code: FailureCode, problem: String) -> Failure {
    let message = format!("{problem}. Raise it in parlor.toml, or say what to do next in a new message.");
    Failure { code, message, retryable: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_limits() -> Limits {
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
    fn each_limit_has_its_own_code_and_is_exact() {
        let used = Usage { input_tokens: 5, output_tokens: 5, cost_micros: 7, ..Usage::default() };
        let spent = SpentSoFar { session_micros: 100, today_micros: 200 };
        let at = |limits| code(limits, used, spent);
        assert_eq!(at(no_limits()), None);
        assert_eq!(at(Limits { tokens: Some(11), ..no_limits() }), None);
        assert_eq!(at(Limits { tokens: Some(10), ..no_limits() }).as_deref(), Some("TOKEN_LIMIT"));
        assert_eq!(at(Limits { cost_micros: Some(8), ..no_limits() }), None);
        assert_eq!(at(Limits { cost_micros: Some(7), ..no_limits() }).as_deref(), Some("COST_LIMIT"));
        assert_eq!(
            at(Limits { session_micros: Some(100), ..no_limits() }).as_deref(),
            Some("SESSION_SPEND_LIMIT")
        );
        assert_eq!(at(Limits { day_micros: Some(200), ..no_limits() }).as_deref(), Some("DAY_SPEND_LIMIT"));
        assert_eq!(at(Limits { day_micros: Some(201), ..no_limits() }), None);
        assert_eq!(at(Limits { time: Some(Duration::ZERO), ..no_limits() }).as_deref(), Some("TIME_LIMIT"));
    }

    #[test]
    fn bytes_count_if_the_provider_reports_too_few_tokens() {
        let tokens = |usage: Usage, bytes: usize| {
            let mut budget = Budget::new(no_limits());
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
        let mut budget = Budget::new(Limits { steps: Some(2), ..no_limits() });
        assert_eq!(budget.step(SpentSoFar::default()), Ok(()));
        assert_eq!(budget.step(SpentSoFar::default()), Ok(()));
        let failure = budget.step(SpentSoFar::default()).unwrap_err();
        assert_eq!(failure.code.as_str(), "STEP_LIMIT");
        assert!(failure.message.contains("max_steps"), "{}", failure.message);
    }

    #[test]
    fn costs_are_shown_in_dollars() {
        assert_eq!(cost_text("it", 1_234_567, 1_000_000, "x"), "it cost $1.23; the limit is $1.00 (x)");
    }
}
