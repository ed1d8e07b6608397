//! What was used, day by day.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde::Serialize;

use crate::answer::text;
use crate::archive::{number, refused};
use crate::outflow::Outflow;
use crate::site::Shared;

/// How many days are told of if nobody says how many.
pub const DEFAULT_USAGE_DAYS: usize = 30;

/// How many days are told of at most.
pub const MAX_USAGE_DAYS: usize = 366;

/// What was used on a day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DayUsage {
    /// The day, UTC: `2026-11-16`.
    pub date: String,
    /// How many runs began.
    pub runs: u64,
    /// How many failed.
    pub failed: u64,
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Tokens read from a provider's cache.
    pub cache_read_tokens: u64,
    /// What it cost, in millionths of a dollar, where prices are known.
    pub cost_micros: u64,
}

/// What was used of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ModelUsage {
    /// The model.
    pub model: String,
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// What it cost, in millionths of a dollar, where prices are known.
    pub cost_micros: u64,
}

/// What was used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UsageReport {
    /// Each day, the oldest first, today last.
    pub days: Vec<DayUsage>,
    /// Each model that was used on these days, the dearest first.
    pub models: Vec<ModelUsage>,
}

pub(crate) async fn usage(
    State(site): State<Shared>,
    Extension(outflow): Extension<Arc<Outflow>>,
    parts: Parts,
) -> Response {
    let Ok(days) = number(&parts, "days") else {
        return text(StatusCode::BAD_REQUEST, "days is a whole number");
    };
    let days = days.map_or(DEFAULT_USAGE_DAYS, |days| days.clamp(1, MAX_USAGE_DAYS));
    match site.web.archive.usage(days).await {
        Ok(report) => outflow.json(&report, site.web.settings.limits.answer_wait).await,
        Err(flaw) => refused(flaw),
    }
}
