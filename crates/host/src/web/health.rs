//! Whether the server lives, whether it can be used, and what it has counted.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;

use super::answer::{json as answer, text, typed};
use super::metrics::CONTENT_TYPE;
use super::site::{Shared, Site};

/// It lives, as consoles of this protocol ask for it.
pub(super) async fn health(State(site): State<Shared>) -> Response {
    let value =
        json!({ "status": "ok", "uptime": uptime(site.started.elapsed()), "pid": std::process::id() });
    answer(StatusCode::OK, &value)
}

/// It can be used, as consoles of this protocol ask for it.
pub(super) async fn ready(State(site): State<Shared>) -> Response {
    let (code, status) = match is_ready(&site).await {
        true => (StatusCode::OK, "ready"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    };
    answer(code, &json!({ "status": status, "uptime": uptime(site.started.elapsed()) }))
}

/// It lives, for supervisors.
pub(super) async fn healthz() -> Response {
    text(StatusCode::OK, "ok")
}

/// It can be used, for supervisors.
pub(super) async fn readyz(State(site): State<Shared>) -> Response {
    match is_ready(&site).await {
        true => text(StatusCode::OK, "ready"),
        false => text(StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    }
}

pub(super) async fn metrics(State(site): State<Shared>) -> Response {
    let metrics = &site.web.metrics;
    metrics.connections.set(i64::try_from(site.connections.taken()).unwrap_or(i64::MAX));
    typed(StatusCode::OK, CONTENT_TYPE, metrics.render())
}

async fn is_ready(site: &Site) -> bool {
    site.is_running() && site.web.archive.is_ready().await
}

/// `1h2m3s`.
fn uptime(since: Duration) -> String {
    let seconds = since.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (hours, minutes, seconds) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptime_is_a_duration_as_go_writes_it() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (60, "1m0s"), (3600, "1h0m0s"), (93_784, "26h3m4s")] {
            assert_eq!(uptime(Duration::from_secs(seconds)), text);
        }
    }
}
