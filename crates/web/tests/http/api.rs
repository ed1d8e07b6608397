//! Health, sessions, usage, choices and files over HTTP; the page; the description of the API; the metrics.

use std::sync::Arc;

use parlor_log::SqliteLog;
use parlor_vocab::{AgentChoice, NamedFile, SessionEvent, UserInput};
use parlor_web::{
    DEFAULT_EVENTS, DEFAULT_SESSIONS, DEFAULT_USAGE_DAYS, FILE_PIECE_BYTES, MAX_EVENTS, MAX_SESSIONS,
    MAX_USAGE_DAYS, ROUTES,
};
use serde_json::{Value, json};

use crate::client::{bearer, greeting};
use crate::server::{Server, TOKEN};
use crate::sessions::{ManualClock, append, run, user_message};

#[tokio::test]
async fn health_and_readiness_have_the_forms_that_clients_expect() {
    let server = Server::start().await;
    let health = server.request("GET /health").await.json();
    assert_eq!((&health["status"], &health["pid"]), (&"ok".into(), &std::process::id().into()));
    assert!(health["uptime"].as_str().unwrap().ends_with('s'));
    assert_eq!(server.request("GET /ready").await.json()["status"], "ready");
    server.request("GET /healthz").await.assert_text(200, "ok");
    server.request("GET /readyz").await.assert_text(200, "ready");
}

#[tokio::test]
async fn a_console_gets_status_models_catalog_and_settings() {
    let server = Server::start().await;
    let status = server.request("GET /api/gateway/status").await.json();
    assert_eq!(status["gateway_status"], "running");
    assert_eq!(
        (&status["gateway_start_allowed"], &status["gateway_restart_required"]),
        (&true.into(), &false.into())
    );
    let models = server.request("GET /api/models").await.json();
    assert_eq!((&models["total"], &models["default_model"]), (&2.into(), &"local".into()));
    assert_eq!(
        models["models"][0],
        json!({"index": 0, "model_name": "local", "model": "parlor/local", "api_key": "", "configured": true, "is_default": true})
    );
    let catalog = server.request("GET /api/channels/catalog").await.json();
    assert_eq!(catalog, json!({"channels": [{"name": "supr", "config_key": "supr"}]}));
    let config = server.request("GET /api/config").await;
    assert!(!config.body.contains(TOKEN), "{}", config.body);
    assert_eq!(config.json()["channels"]["supr"]["max_connections"], 100);
}

#[tokio::test]
async fn sessions_are_listed_read_and_deleted() {
    let server = Server::start().await;
    let ids = |list: Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|info| info["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(server.request("GET /api/sessions").await.json()), ["c", "b", "a/b"]);
    assert_eq!(ids(server.request("GET /api/sessions?offset=1&limit=1").await.json()), ["b"]);
    assert!(ids(server.request("GET /api/sessions?limit=0").await.json()).is_empty());
    assert_eq!(server.request("GET /api/sessions?offset=-1").await.status, 400);
    let list = server.request("GET /api/sessions?limit=1").await.json();
    for member in ["id", "title", "preview", "message_count", "created", "updated"] {
        assert!(!list[0][member].is_null(), "{member}");
    }
    let session = server.request("GET /api/sessions/a%2Fb").await.json();
    assert_eq!((&session["id"], &session["summary"]), (&"a/b".into(), &"".into()));
    assert_eq!(session["messages"], json!([{"role": "user", "content": "hi"}]));
    server.request("GET /api/sessions/x").await.assert_text(404, "session not found");
    let delete = |id: &str| format!("DELETE /api/sessions/{id}");
    assert_eq!(server.request(&delete("c")).await.status, 204);
    let running = "a run is under way in this session: stop it first, then delete the session";
    server.request(&delete("a%2Fb")).await.assert_text(409, running);
    let held = server.request(&delete("b")).await;
    assert!(held.status == 409 && held.body.contains("session b is in use by"), "{held:?}");
    server.request(&delete("x")).await.assert_text(404, "session not found");
    assert_eq!(ids(server.request("GET /api/sessions").await.json()), ["b", "a/b"]);
}

#[tokio::test]
async fn a_list_has_a_default_and_a_maximum_length() {
    let server = Server::start().await;
    for number in 0..MAX_SESSIONS {
        append(&*server.log, &server.clock, &number.to_string(), []).await;
    }
    let length = async |query: &str| {
        server.request(&format!("GET /api/sessions{query}")).await.json().as_array().unwrap().len()
    };
    assert_eq!(length("").await, DEFAULT_SESSIONS);
    assert_eq!(length("?limit=100").await, MAX_SESSIONS);
    assert_eq!(length("?limit=101").await, MAX_SESSIONS);
}

#[tokio::test]
async fn a_session_that_cannot_be_read_is_a_server_error() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let log = SqliteLog::open(folder.path(), Arc::clone(&clock) as _).unwrap();
    append(&log, &clock, "broken", [user_message("lost".to_owned())]).await;
    drop(log);
    let database = rusqlite::Connection::open(folder.path().join("parlor.db")).unwrap();
    for table in ["events", "fresh"] {
        database.execute(&format!("UPDATE {table} SET body = '{{'"), []).unwrap();
    }
    drop(database);
    let log = SqliteLog::open(folder.path(), clock).unwrap();
    let server = Server::with(|options| options.log = Some(Arc::new(log))).await;
    assert_eq!(server.request("GET /api/sessions/a%2Fb").await.status, 200);
    let answer = server.request("GET /api/sessions/broken").await;
    assert!(answer.status == 500 && answer.body.contains("session broken"), "{answer:?}");
}

#[tokio::test]
async fn the_usage_report_has_so_many_days() {
    let server = Server::start().await;
    let choice = AgentChoice { model: Some("m".to_owned()), ..AgentChoice::default() };
    let input = UserInput { text: "cost".to_owned(), choice, ..UserInput::default() };
    run(&server.sessions, "spender", input).await;
    let usage = server.request("GET /api/usage").await.json();
    assert_eq!(usage["days"].as_array().unwrap().len(), DEFAULT_USAGE_DAYS);
    // The run of `a/b`, and this one.
    let today = json!({
        "date": "2026-01-02", "runs": 2, "failed": 0, "input_tokens": 1, "output_tokens": 2,
        "cache_read_tokens": 0, "cost_micros": 3,
    });
    assert_eq!(usage["days"][DEFAULT_USAGE_DAYS - 1], today);
    let idle = json!({
        "date": "2025-12-04", "runs": 0, "failed": 0, "input_tokens": 0, "output_tokens": 0,
        "cache_read_tokens": 0, "cost_micros": 0,
    });
    assert_eq!(usage["days"][0], idle);
    assert_eq!(
        usage["models"],
        json!([{"model": "m", "input_tokens": 1, "output_tokens": 2, "cost_micros": 3}])
    );
    for (query, days) in [("0", 1), ("366", MAX_USAGE_DAYS), ("367", MAX_USAGE_DAYS)] {
        let usage = server.request(&format!("GET /api/usage?days={query}")).await.json();
        assert_eq!(usage["days"].as_array().unwrap().len(), days, "{query}");
    }
    server.request("GET /api/usage?days=x").await.assert_text(400, "days is a whole number");
}

#[tokio::test]
async fn choices_are_the_agents_and_models_that_have_keys() {
    let server = Server::start().await;
    let choices = server.request("GET /api/choices").await.json();
    let agents = json!([
        {"id": "local", "name": "Local", "kind": "local", "model": null},
        {"id": "demo", "name": "Demo", "kind": "model", "model": "fast"},
    ]);
    let models = json!([{"name": "fast", "provider": "ollama", "model": "small"}]);
    let expected = json!({
        "agents": agents, "default_agent": "local", "models": models, "reasoning": ["off", "low"],
        "settings_file": "~/.parlor/parlor.toml",
    });
    assert_eq!(choices, expected);
}

#[tokio::test]
async fn files_are_shown_as_images_or_downloaded_and_run_no_scripts() {
    let server = Server::start().await;
    let file = |start: &str| {
        let mut bytes = vec![b'x'; 2 * FILE_PIECE_BYTES + 1];
        bytes.splice(..start.len(), start.bytes());
        NamedFile { name: "file".to_owned(), bytes }
    };
    let stored = server.sessions.store_media(vec![file("GIF89a"), file("<html>")]).await.unwrap();
    let expected = [("image/gif", "inline"), ("application/octet-stream", "attachment")];
    for (media, (kind, disposition)) in stored.iter().zip(expected) {
        let answer = server.request(&format!("GET /api/media/{}\nConnection: close", media.id)).await;
        assert_eq!((answer.status, answer.body.len()), (200, 2 * FILE_PIECE_BYTES + 1));
        for (name, value) in [
            ("content-type", kind),
            ("content-disposition", disposition),
            ("content-security-policy", "sandbox; default-src 'none'"),
            ("x-content-type-options", "nosniff"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{kind}");
        }
    }
    server.request("GET /api/media/none").await.assert_text(404, "file not found");
}

#[tokio::test]
async fn sessions_are_found_and_renamed() {
    let server = Server::start().await;
    let list = server.request("GET /api/sessions?q=+a%2F").await.json();
    assert_eq!((list.as_array().unwrap().len(), &list[0]["id"]), (1, &"a/b".into()));
    for (member, value) in [
        ("full_title", json!("hi")),
        ("door", json!("supr")),
        ("agent_id", json!("")),
        ("running", json!(true)),
        ("queued", json!(1)),
        ("here", json!(true)),
        ("last_event", json!({"event_type": "run.queued", "timestamp": "2026-01-02T03:04:05.006Z"})),
    ] {
        assert_eq!(list[0][member], value, "{member}");
    }
    let untitled = server.request("GET /api/sessions?q=c").await.json();
    assert_eq!((&untitled[0]["id"], &untitled[0]["full_title"]), (&"c".into(), &Value::Null));
    let renamed = server.request_with_body("PATCH /api/sessions/a%2Fb", r#"{"title":"Größe"}"#).await.json();
    assert_eq!((&renamed["id"], &renamed["title"]), (&"a/b".into(), &"Größe".into()));
    let held = server.request_with_body("PATCH /api/sessions/b", r#"{"title":"x"}"#).await;
    assert!(held.status == 409 && held.body.contains("session b is in use by"), "{held:?}");
    server
        .request_with_body("PATCH /api/sessions/c", r#"{"title":""}"#)
        .await
        .assert_text(400, "a title needs a letter");
    server
        .request_with_body("PATCH /api/sessions/x", r#"{"title":"x"}"#)
        .await
        .assert_text(404, "session not found");
    for body in ["", "{}", r#"{"title":1}"#, "\u{ff}"] {
        server
            .request_with_body("PATCH /api/sessions/c", body)
            .await
            .assert_text(400, r#"the body is {"title":"…"}"#);
    }
}

#[tokio::test]
async fn the_mode_of_a_session_is_chosen_and_read() {
    let server = Server::start().await;
    assert_eq!(
        server.request("GET /api/sessions/c/mode").await.json(),
        json!({"mode": null, "default": "workspace"})
    );
    let chosen = server.request_with_body("PUT /api/sessions/c/mode", r#"{"mode":"read-only"}"#).await;
    assert_eq!(chosen.json(), json!({"mode": "read-only", "default": "workspace"}));
    assert_eq!(server.request("GET /api/sessions/c/mode").await.json(), chosen.json());
    for body in ["", "{}", r#"{"mode":"root"}"#, r#"["full"]"#] {
        let refused = server.request_with_body("PUT /api/sessions/c/mode", body).await;
        let expected = r#"the body is {"mode":"read-only"}, {"mode":"workspace"} or {"mode":"full"}"#;
        refused.assert_text(400, expected);
    }
    let unknown = server.request_with_body("PUT /api/sessions/x/mode", r#"{"mode":"full"}"#).await;
    unknown.assert_text(404, "session not found");
    let held = server.request_with_body("PUT /api/sessions/b/mode", r#"{"mode":"full"}"#).await;
    assert_eq!(held.status, 409, "{held:?}");
}

#[tokio::test]
async fn events_are_returned_page_by_page() {
    let server = Server::start().await;
    let renames = (2..=1100).map(|number| SessionEvent::Renamed { title: number.to_string() });
    append(&*server.log, &server.clock, "long", renames).await;
    let page = async |query: &str| {
        let page = server.request(&format!("GET /api/sessions/long/events{query}")).await.json();
        let titles = page["events"].as_array().unwrap().iter();
        let titles: Vec<usize> =
            titles.map(|event| event["payload"]["title"].as_str().unwrap().parse().unwrap()).collect();
        (titles, page["before"].clone())
    };
    // The title of each event is its position. The first event, the creation, has no frame.
    assert_eq!(page("?before=7").await, ((2..=6).collect(), Value::Null));
    assert_eq!(page("?before=7&limit=3").await, ((4..=6).collect(), 4.into()));
    for (query, length) in [
        ("", DEFAULT_EVENTS),
        ("?limit=1", 1),
        ("?limit=0", 1),
        ("?limit=1000", MAX_EVENTS),
        ("?limit=1001", MAX_EVENTS),
    ] {
        assert_eq!(page(query).await, ((1101 - length..=1100).collect(), (1101 - length).into()), "{query}");
    }
    let last = server.request("GET /api/sessions/long/events?limit=1").await.json();
    let before_last = server.request("GET /api/sessions/long/events?limit=1&before=1100").await.json();
    let id = |page: &Value| page["last_event_id"].as_str().unwrap().to_owned();
    assert!(id(&last) > id(&before_last) && id(&last).starts_with("evt_"), "{last} {before_last}");
    let page = server.request("GET /api/sessions/a%2Fb/events").await.json();
    let events = page["events"].as_array().unwrap();
    assert!(events.iter().any(|event| event["event_type"] == "run.started"), "{page}");
    for wrong in ["before=x", "limit=-1"] {
        let answer = server.request(&format!("GET /api/sessions/c/events?{wrong}")).await;
        answer.assert_text(400, "before, limit and after are whole numbers");
    }
    server.request("GET /api/sessions/x/events").await.assert_text(404, "session not found");
}

#[tokio::test]
async fn the_page_is_at_every_path_that_is_not_something_else() {
    let server = Server::start().await;
    for path in ["/", "/chat", "/chat/one"] {
        let answer = server.request(&format!("GET {path}")).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "<html>"), "{path}");
        for (name, value) in
            [("content-type", "text/html; charset=utf-8"), ("cache-control", "no-cache"), ("etag", "\"3\"")]
        {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
    }
    for request in [
        "GET /favicon.ico",
        "GET /chat/x.map",
        "POST /chat",
        "GET /api",
        "GET /apix/y.js",
        "GET /assets/none.js",
        "GET /assets/none",
        "POST /assets/index-0a1b2c.js",
    ] {
        assert_eq!(server.request(request).await.status, 404, "{request}");
    }
    let head = server.request("HEAD /\nConnection: close").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[tokio::test]
async fn files_of_the_page_are_compressed_and_cached() {
    let server = Server::start().await;
    let script = "GET /assets/index-0a1b2c.js";
    for (accepted, encoding, body) in [
        ("", None, "script"),
        ("gzip", Some("gzip"), "gzip"),
        ("gzip, br", Some("br"), "brotli"),
        ("gzip, br;q=0", Some("gzip"), "gzip"),
        ("zstd", None, "script"),
    ] {
        let answer = server.request(&format!("{script}\nAccept-Encoding: {accepted}")).await;
        assert_eq!((answer.header("content-encoding"), answer.body.as_str()), (encoding, body), "{accepted}");
        assert_eq!(answer.header("cache-control"), Some("public, max-age=31536000, immutable"));
        assert_eq!(answer.header("content-type"), Some("text/javascript; charset=utf-8"));
        assert_eq!(answer.header("vary"), Some("accept-encoding"));
    }
    let style = server.request("GET /assets/index-0a1b2c.css\nAccept-Encoding: br, gzip").await;
    assert_eq!((style.header("content-encoding"), style.body.as_str()), (None, "style"));
    for tags in ["\"3\"", "\"2\", W/\"3\"", "*"] {
        let known = server.request(&format!("GET /\nIf-None-Match: {tags}\nConnection: close")).await;
        assert_eq!(
            (known.status, known.body.as_str(), known.header("etag")),
            (304, "", Some("\"3\"")),
            "{tags}"
        );
    }
    assert_eq!(server.request("GET /\nIf-None-Match: \"2\"").await.status, 200);
}

#[tokio::test]
async fn a_program_without_its_page_says_how_to_build_it() {
    let server = Server::with(|options| options.page = &[]).await;
    for path in ["/", "/chat"] {
        let answer = server.request(&format!("GET {path}")).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/html; charset=utf-8")));
        assert!(answer.body.contains("make page") && answer.body.contains("/supr/ws"), "{}", answer.body);
        // The security policy forbids inline scripts and styles.
        assert!(!["<script", " style=", "<style"].iter().any(|text| answer.body.contains(text)));
    }
}

#[tokio::test]
async fn the_description_names_every_route_and_no_other() {
    let server = Server::start().await;
    let described = server.request("GET /api/openapi.json").await;
    let described: Value = serde_json::from_str(&described.body).unwrap();
    assert!(described["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut routes: Vec<(String, String)> = Vec::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for (method, about) in methods.as_object().unwrap() {
            assert!(about["summary"].is_string() && about["responses"].is_object(), "{method} {path}");
            routes.push((method.to_uppercase(), path.clone()));
        }
    }
    let mut known: Vec<_> =
        ROUTES.iter().map(|(method, path)| ((*method).to_owned(), (*path).to_owned())).collect();
    routes.sort();
    known.sort();
    assert_eq!(routes, known);
    for (method, path) in known {
        let path = path.replace("{id}", "c").replace("{name}", "index-0a1b2c.js");
        let answer = server.request(&format!("{method} {path}\nContent-Length: 0\n{}", bearer())).await;
        assert!(
            answer.status != 404 || answer.body.contains(" not found") && !answer.body.contains("page"),
            "{method} {path}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn metrics_can_be_scraped() {
    let server = Server::start().await;
    let mut client = server.connect("").await;
    greeting(&mut client).await;
    server.handshake("/supr/ws", "").await.assert_text(401, "unauthorized");
    server.metrics.runs_started.inc();
    let answer = server.request("GET /metrics").await;
    assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    for line in [
        "parlor_connections 1",
        "parlor_handshakes_total 1",
        "parlor_handshakes_refused_total{reason=\"unauthorized\"} 1",
        "parlor_runs_started_total 1",
        "# TYPE parlor_log_append_seconds histogram",
    ] {
        assert!(answer.body.lines().any(|shown| shown == line), "{line} is not in\n{}", answer.body);
    }
}

#[tokio::test]
async fn the_controls_of_a_console_are_answered_or_refused_with_a_reason() {
    let server = Server::start().await;
    let tools = server.request("GET /api/tools").await.json();
    let tools = tools["tools"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "shell" && tool["status"] == "enabled"), "{tools:?}");
    let skills = server.request("GET /api/skills").await.json();
    assert_eq!(
        skills["skills"][0],
        json!({"name": "deploy", "path": "/skills/deploy/SKILL.md", "source": "workspace", "description": "what for"})
    );
    assert_eq!(skills["skills"][1]["source"], "global");
    assert_eq!(server.request("GET /api/skills/mine").await.json()["content"], "# How");
    let logs = server.request("GET /api/gateway/logs?log_offset=0&log_run_id=3").await.json();
    assert!(logs["logs"][0].as_str().unwrap().contains("stderr"), "{logs}");
    // The client has the line, so it gets no second one.
    assert_eq!(server.request("GET /api/gateway/logs?log_offset=1").await.json()["logs"], json!([]));
    assert_eq!(server.request("POST /api/gateway/start\nContent-Length: 0").await.json()["status"], "ok");
    let default = r#"{"model_name":"local"}"#;
    let chosen = server.request_with_body("POST /api/models/default", default).await;
    assert_eq!((chosen.status, &chosen.json()["default_model"]), (200, &json!("local")));
    let on = server.request_with_body("PUT /api/tools/shell/state", r#"{"enabled":true}"#).await;
    assert_eq!((on.status, &on.json()["status"]), (200, &json!("ok")));
    for (request, body, status, hint) in [
        ("POST /api/models/default", r#"{"model_name":"fast"}"#, 409, "default_agent"),
        ("POST /api/models/default", r#"{"model_name":"none"}"#, 404, "none"),
        ("POST /api/models/default", "{}", 400, "model_name"),
        ("PUT /api/tools/shell/state", r#"{"enabled":false}"#, 409, "parlor.toml"),
        ("PUT /api/tools/none/state", r#"{"enabled":true}"#, 404, "none"),
        ("PUT /api/tools/shell/state", "", 400, "enabled"),
        ("GET /api/skills/none", "", 404, "none"),
        ("POST /api/skills/import", "x", 409, "SKILL.md"),
        ("DELETE /api/skills/mine", "", 409, "SKILL.md"),
        ("GET /api/gateway/logs?log_offset=x", "", 400, "log_offset"),
        ("POST /api/gateway/logs/clear", "", 409, "stderr"),
        ("POST /api/gateway/stop", "", 409, "process"),
        ("POST /api/gateway/restart", "", 409, "process"),
    ] {
        let answer = server.request_with_body(request, body).await;
        let error = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(answer.status == status && error.contains(hint), "{request} {body}: {answer:?}");
    }
}
