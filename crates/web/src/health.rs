//! Whether the server lives, whether it can be used, and what it has counted.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;

use crate::answer::{json as answer, text, typed};
use crate::metrics::CONTENT_TYPE;
use crate::site::{Shared, SiteState};

/// It lives, as consoles of this protocol ask for it.
pub(crate) async fn health(State(site): State<Shared>) -> Response {
    let value =
        json!({ "status": "ok", "uptime": uptime(site.started.elapsed()), "pid": std::process::id() });
    answer(StatusCode::OK, &value)
}

/// It can be used, as consoles of this protocol ask for it.
pub(crate) async fn ready(State(site): State<Shared>) -> Response {
    let uptime = uptime(site.started.elapsed());
    match readiness(&site).await {
        Ok(()) => answer(StatusCode::OK, &json!({ "status": "ready", "uptime": uptime })),
        Err(reason) => {
            let value = json!({ "status": "not ready", "uptime": uptime, "reason": reason });
            answer(StatusCode::SERVICE_UNAVAILABLE, &value)
        }
    }
}

/// It lives, for supervisors.
pub(crate) async fn healthz() -> Response {
    text(StatusCode::OK, "ok")
}

/// It can be used, for supervisors.
pub(crate) async fn readyz(State(site): State<Shared>) -> Response {
    match readiness(&site).await {
        Ok(()) => text(StatusCode::OK, "ready"),
        Err(_) => text(StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    }
}

pub(crate) async fn metrics(State(site): State<Shared>) -> Response {
    let metrics = &site.web.metrics;
    metrics.connections.set(i64::try_from(site.connections.taken()).unwrap_or(i64::MAX));
    typed(StatusCode::OK, CONTENT_TYPE, metrics.render())
}

async fn readiness(site: &SiteState) -> Result<(), String> {
    if !site.is_running() {
        return Err("the server is ending".to_owned());
    }
    site.web.archive.readiness().await
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
