//! The usage report: runs, tokens and costs of each day and of each model.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use parlor_engine::Sessions;
use parlor_log::UsageLine;
use parlor_vocab::Timestamp;
use serde::Serialize;

use super::session_error::SessionApiError;
use crate::query::number;
use crate::response::text;
use crate::response_memory::ResponseMemory;
use crate::site::Site;

/// How many days the report has if the client does not say.
pub const DEFAULT_USAGE_DAYS: usize = 30;

/// How many days the report has at most.
pub const MAX_USAGE_DAYS: usize = 366;

/// The length of a day in milliseconds.
const DAY_MS: i64 = 86_400_000;

/// What all runs of a day used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct DayUsage {
    /// The day, UTC: `2026-11-16`.
    date: String,
    /// How many runs began.
    runs: u64,
    /// How many runs failed.
    failed: u64,
    input_tokens: u64,
    output_tokens: u64,
    /// Input tokens that a provider read from its cache.
    cache_read_tokens: u64,
    /// The cost in millionths of a dollar, as far as prices are known.
    cost_micros: u64,
}

/// What all runs with one model used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct ModelUsage {
    model: String,
    input_tokens: u64,
    output_tokens: u64,
    /// The cost in millionths of a dollar, as far as prices are known.
    cost_micros: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct UsageReport {
    /// Every day, the oldest first, today last.
    days: Vec<DayUsage>,
    /// Every model that was used on these days, the most expensive first.
    models: Vec<ModelUsage>,
}

pub(crate) async fn usage(
    State(site): State<Arc<Site>>,
    Extension(memory): Extension<Arc<ResponseMemory>>,
    parts: Parts,
) -> Response {
    let Ok(days) = number(&parts, "days") else {
        return text(StatusCode::BAD_REQUEST, "days is a whole number");
    };
    let days = days.map_or(DEFAULT_USAGE_DAYS, |days| days.clamp(1, MAX_USAGE_DAYS));
    match usage_report(&site.deps.sessions, days, day_of(site.deps.clock.now())).await {
        Ok(report) => memory.json(&report, site.deps.settings.limits.answer_wait).await,
        Err(error) => error.response(),
    }
}

/// The usage of `days` days, of which `today` is the last.
async fn usage_report(sessions: &Sessions, days: usize, today: i64) -> Result<UsageReport, SessionApiError> {
    let first = today - days as i64 + 1;
    Ok(report(first, today, &sessions.usage(first).await?))
}

/// The number of days from 1970 to a moment, UTC.
fn day_of(moment: Timestamp) -> i64 {
    moment.0.div_euclid(DAY_MS)
}

/// Sums up the usage of the days from `first` to `last`.
fn report(first: i64, last: i64, lines: &[UsageLine]) -> UsageReport {
    let mut days: Vec<DayUsage> =
        (first..=last).map(|day| DayUsage { date: date(day), ..DayUsage::default() }).collect();
    let mut models: BTreeMap<&str, ModelUsage> = BTreeMap::new();
    for line in lines {
        let usage = line.usage;
        let index = usize::try_from(line.day - first).ok();
        let Some(day) = index.and_then(|index| days.get_mut(index)) else { continue };
        day.runs += line.runs;
        day.failed += line.failed;
        day.input_tokens = day.input_tokens.saturating_add(usage.input_tokens);
        day.output_tokens = day.output_tokens.saturating_add(usage.output_tokens);
        day.cache_read_tokens = day.cache_read_tokens.saturating_add(usage.cache_read_tokens);
        day.cost_micros = day.cost_micros.saturating_add(usage.cost_micros);
        if !line.model.is_empty() {
            let model = models.entry(&line.model).or_default();
            model.input_tokens = model.input_tokens.saturating_add(usage.input_tokens);
            model.output_tokens = model.output_tokens.saturating_add(usage.output_tokens);
            model.cost_micros = model.cost_micros.saturating_add(usage.cost_micros);
        }
    }
    let models = models.into_iter().map(|(model, usage)| ModelUsage { model: model.to_owned(), ..usage });
    let mut models: Vec<ModelUsage> = models.collect();
    models.sort_by_key(|model| std::cmp::Reverse((model.cost_micros, model.output_tokens)));
    UsageReport { days, models }
}

fn date(day: i64) -> String {
    Timestamp(day.saturating_mul(DAY_MS)).rfc3339().chars().take_while(|letter| *letter != 'T').collect()
}

#[cfg(test)]
mod tests {
    use parlor_vocab::Usage;

    use super::*;

    #[test]
    fn the_report_has_every_day_and_the_sum_of_each_model() {
        let line = |day, model: &str, runs, tokens| UsageLine {
            day,
            model: model.to_owned(),
            runs,
            failed: 0,
            usage: Usage { input_tokens: tokens, cost_micros: tokens, ..Usage::default() },
        };
        let lines = [
            line(9, "x", 1, 1),
            line(10, "", 2, 0),
            line(10, "a", 0, 3),
            line(12, "a", 0, 4),
            line(12, "b", 0, 9),
        ];
        let report = report(10, 12, &lines);
        let days: Vec<_> =
            report.days.iter().map(|day| (day.date.as_str(), day.runs, day.input_tokens)).collect();
        assert_eq!(days, [("1970-01-11", 2, 3), ("1970-01-12", 0, 0), ("1970-01-13", 0, 13)]);
        let models: Vec<_> =
            report.models.iter().map(|model| (model.model.as_str(), model.cost_micros)).collect();
        assert_eq!(models, [("b", 9), ("a", 7)]);
    }
}
