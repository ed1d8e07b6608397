//! Health checks, readiness checks, and the metrics.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;

use crate::metrics::CONTENT_TYPE;
use crate::response::{json as json_response, text, typed};
use crate::site::Site;

/// The health check of clients of this protocol: the server runs.
pub(crate) async fn health(State(site): State<Arc<Site>>) -> Response {
    let value =
        json!({ "status": "ok", "uptime": uptime(site.started.elapsed()), "pid": std::process::id() });
    json_response(StatusCode::OK, &value)
}

/// The readiness check of clients of this protocol: messages can be recorded.
pub(crate) async fn ready(State(site): State<Arc<Site>>) -> Response {
    let uptime = uptime(site.started.elapsed());
    match readiness(&site).await {
        Ok(()) => json_response(StatusCode::OK, &json!({ "status": "ready", "uptime": uptime })),
        Err(reason) => {
            let value = json!({ "status": "not ready", "uptime": uptime, "reason": reason });
            json_response(StatusCode::SERVICE_UNAVAILABLE, &value)
        }
    }
}

/// The health check of supervisors: the server runs.
pub(crate) async fn healthz() -> Response {
    text(StatusCode::OK, "ok")
}

/// The readiness check of supervisors: messages can be recorded.
pub(crate) async fn readyz(State(site): State<Arc<Site>>) -> Response {
    match readiness(&site).await {
        Ok(()) => text(StatusCode::OK, "ready"),
        Err(_) => text(StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    }
}

pub(crate) async fn metrics(State(site): State<Arc<Site>>) -> Response {
    let metrics = &site.deps.metrics;
    metrics.connections.set(i64::try_from(site.connections.taken()).unwrap_or(i64::MAX));
    typed(StatusCode::OK, CONTENT_TYPE, metrics.render())
}

async fn readiness(site: &Site) -> Result<(), String> {
    if !site.is_running() {
        return Err("the server is ending".to_owned());
    }
    site.deps.readiness.check().await
}

/// A duration as Go writes it, such as `1h2m3s`.
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
