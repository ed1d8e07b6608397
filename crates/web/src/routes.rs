//! Which path of the server leads to which handler.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{any, delete, get, post, put};
use serde::Serialize;

use crate::api::{
    changes, console, controls, events, health, login, media, mode, models, nodes, processes, questions,
    sessions, terminal_socket, token, tool_servers, transcript, usage,
};
use crate::auth::screen::screen;
use crate::mcp;
use crate::page;
use crate::response::{json, not_found};
use crate::site::Site;
use crate::socket;

/// Every method and path that the server answers. Any other path without an extension shows the page.
pub const ROUTES: &[(&str, &str)] = &[
    ("GET", "/"),
    ("GET", "/login"),
    ("POST", "/login"),
    ("GET", "/assets/{name}"),
    ("GET", "/acp"),
    ("POST", "/mcp"),
    ("DELETE", "/mcp"),
    ("GET", "/supr/ws"),
    ("GET", "/pico/ws"),
    ("GET", "/api/supr/token"),
    ("POST", "/api/supr/token"),
    ("POST", "/api/supr/setup"),
    ("POST", "/api/supr/claim"),
    ("POST", "/api/supr/logout"),
    ("GET", "/api/pico/token"),
    ("POST", "/api/pico/token"),
    ("POST", "/api/pico/setup"),
    ("GET", "/api/gateway/status"),
    ("POST", "/api/gateway/start"),
    ("POST", "/api/gateway/stop"),
    ("POST", "/api/gateway/restart"),
    ("GET", "/api/gateway/logs"),
    ("POST", "/api/gateway/logs/clear"),
    ("GET", "/api/models"),
    ("POST", "/api/models/default"),
    ("GET", "/api/tools"),
    ("PUT", "/api/tools/{name}/state"),
    ("GET", "/api/skills"),
    ("POST", "/api/skills/import"),
    ("GET", "/api/skills/{name}"),
    ("DELETE", "/api/skills/{name}"),
    ("GET", "/api/sessions"),
    ("GET", "/api/sessions/{id}"),
    ("PATCH", "/api/sessions/{id}"),
    ("DELETE", "/api/sessions/{id}"),
    ("GET", "/api/sessions/{id}/events"),
    ("GET", "/api/sessions/{id}/runs/{run}/changes"),
    ("POST", "/api/sessions/{id}/runs/{run}/undo"),
    ("GET", "/api/sessions/{id}/mode"),
    ("PUT", "/api/sessions/{id}/mode"),
    ("GET", "/api/sessions/{id}/questions"),
    ("POST", "/api/sessions/{id}/questions/{question}/answer"),
    ("GET", "/api/choices"),
    ("GET", "/api/media/{id}"),
    ("GET", "/api/processes"),
    ("POST", "/api/processes"),
    ("DELETE", "/api/processes/{id}"),
    ("GET", "/api/processes/{id}/ws"),
    ("GET", "/api/mcp/servers"),
    ("GET", "/api/nodes"),
    ("GET", "/api/usage"),
    ("GET", "/api/config"),
    ("GET", "/api/channels/catalog"),
    ("GET", "/api/openapi.json"),
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
];

/// The answer for a document that does not exist.
#[derive(Serialize)]
struct NotFound {
    error: &'static str,
}

/// The routes of `site`, behind the checks that every request has to pass.
pub(crate) fn router(site: Arc<Site>) -> Router {
    let mut router = Router::new();
    for path in ["/supr/ws", "/supr/ws/", "/pico/ws", "/pico/ws/"] {
        router = router.route(path, any(socket::accept));
    }
    router = router.route("/acp", any(socket::acp::accept)).route(mcp::MCP_PATH, any(mcp::answer));
    for channel in ["supr", "pico"] {
        router = router
            .route(&format!("/api/{channel}/token"), get(token::token).post(token::rotate))
            .route(&format!("/api/{channel}/setup"), post(token::set_up));
    }
    router
        .route("/", get(page::page))
        .route("/api/gateway/status", get(console::status))
        .route("/api/gateway/start", post(controls::start_gateway))
        .route("/api/gateway/stop", post(controls::stop_gateway))
        .route("/api/gateway/restart", post(controls::stop_gateway))
        .route("/api/gateway/logs", get(controls::logs))
        .route("/api/gateway/logs/clear", post(controls::clear_logs))
        .route("/api/models", get(console::models))
        .route("/api/models/default", post(controls::set_default_model))
        .route("/api/tools", get(controls::tools))
        .route("/api/tools/{name}/state", put(controls::set_tool))
        .route("/api/skills", get(controls::skills))
        .route("/api/skills/import", post(controls::change_skill))
        .route("/api/skills/{name}", get(controls::skill).delete(controls::change_skill))
        .route("/api/sessions", get(sessions::list))
        .route("/api/sessions/{id}", get(transcript::read).patch(sessions::rename).delete(sessions::delete))
        .route("/api/sessions/{id}/events", get(events::events))
        .route("/api/sessions/{id}/runs/{run}/changes", get(changes::read))
        .route("/api/sessions/{id}/runs/{run}/undo", post(changes::undo))
        .route("/api/sessions/{id}/mode", get(mode::read).put(mode::choose))
        .route("/api/sessions/{id}/questions", get(questions::list))
        .route("/api/sessions/{id}/questions/{question}/answer", post(questions::answer))
        .route("/api/supr/claim", post(token::claim))
        .route("/api/supr/logout", post(token::sign_out))
        .route("/login", get(login::form).post(login::sign_in))
        .route("/api/choices", get(models::choices))
        .route("/api/media/{id}", get(media::media))
        .route("/api/processes", get(processes::list).post(processes::start))
        .route("/api/processes/{id}", delete(processes::end))
        .route("/api/processes/{id}/ws", any(terminal_socket::accept))
        .route("/api/mcp/servers", get(tool_servers::tool_servers))
        .route("/api/nodes", get(nodes::nodes))
        .route("/api/usage", get(usage::usage))
        .route("/api/config", get(console::config))
        .route("/api/channels/catalog", get(console::catalog))
        .route("/api/openapi.json", get(console::openapi))
        .route("/health", get(health::health))
        .route("/ready", get(health::ready))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
        // Clients of the MCP door look here for a login, which there is none of.
        .route(
            "/.well-known/{*path}",
            any(async || json(StatusCode::NOT_FOUND, &NotFound { error: "not found" })),
        )
        .fallback(page::page_or_asset)
        .method_not_allowed_fallback(async || not_found())
        .layer(from_fn_with_state(Arc::clone(&site), screen))
        .with_state(site)
}
