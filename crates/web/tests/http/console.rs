//! Health, the endpoints of a console, the page, and the description of all of it.

use parlor_web::{
    DEFAULT_EVENTS, DEFAULT_SESSIONS, DEFAULT_USAGE_DAYS, FILE_PIECE_BYTES, MAX_EVENTS, MAX_SESSIONS,
    MAX_USAGE_DAYS, ROUTES,
};
use serde_json::{Value, json};

use crate::support::{Server, bearer};

#[tokio::test]
async fn health_and_readiness_have_the_shapes_that_are_known() {
    let server = Server::start().await;
    let health = server.ask("GET /health").await.json();
    assert_eq!((&health["status"], &health["pid"]), (&"ok".into(), &std::process::id().into()));
    assert!(health["uptime"].as_str().unwrap().ends_with('s'));
    assert_eq!(server.ask("GET /ready").await.json()["status"], "ready");
    server.ask("GET /healthz").await.assert_text(200, "ok");
    server.ask("GET /readyz").await.assert_text(200, "ready");
}

#[tokio::test]
async fn a_console_learns_what_it_asks_for() {
    let server = Server::start().await;
    let status = server.ask("GET /api/gateway/status").await.json();
    assert_eq!(status["gateway_status"], "running");
    assert_eq!(
        (&status["gateway_start_allowed"], &status["gateway_restart_required"]),
        (&true.into(), &false.into())
    );
    let models = server.ask("GET /api/models").await.json();
    assert_eq!((&models["total"], &models["default_model"]), (&2.into(), &"local".into()));
    assert_eq!(
        models["models"][0],
        json!({"index": 0, "model_name": "local", "model": "parlor/local", "api_key": "", "configured": true, "is_default": true})
    );
    let catalog = server.ask("GET /api/channels/catalog").await.json();
    assert_eq!(catalog, json!({"channels": [{"name": "supr", "config_key": "supr"}]}));
    let config = server.ask("GET /api/config").await;
    assert!(!config.body.contains(crate::support::TOKEN), "{}", config.body);
    assert_eq!(config.json()["channels"]["supr"]["max_connections"], 100);
}

#[tokio::test]
async fn sessions_are_listed_read_and_deleted() {
    let server = Server::start().await;
    let ids = |list: Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(server.ask("GET /api/sessions").await.json()), ["c", "b", "a/b"]);
    assert_eq!(ids(server.ask("GET /api/sessions?offset=1&limit=1").await.json()), ["b"]);
    assert!(ids(server.ask("GET /api/sessions?limit=0").await.json()).is_empty());
    assert_eq!(server.ask("GET /api/sessions?offset=-1").await.status, 400);
    // As many as were asked for from here are said to have been asked for.
    let asked = async |limit: &str| {
        server.ask(&format!("GET /api/sessions?offset=1000{limit}")).await.json()[0]["message_count"].clone()
    };
    assert_eq!(asked("").await, DEFAULT_SESSIONS);
    assert_eq!(asked("&limit=100").await, MAX_SESSIONS);
    assert_eq!(asked("&limit=101").await, MAX_SESSIONS);
    let list = server.ask("GET /api/sessions?limit=1").await.json();
    for member in ["id", "title", "preview", "message_count", "created", "updated"] {
        assert!(!list[0][member].is_null(), "{member}");
    }
    let session = server.ask("GET /api/sessions/a%2Fb").await.json();
    assert_eq!((&session["id"], &session["summary"]), (&"a/b".into(), &"".into()));
    assert_eq!(session["messages"], json!([{"role": "user", "content": "hi"}]));
    server.ask("GET /api/sessions/x").await.assert_text(404, "session not found");
    server.ask("GET /api/sessions/broken").await.assert_text(500, "the disk is gone");
    let delete = |id: &str| format!("DELETE /api/sessions/{id}");
    assert_eq!(server.ask(&delete("c")).await.status, 204);
    server.ask(&delete("b")).await.assert_text(409, "a run is active");
    server.ask(&delete("x")).await.assert_text(404, "session not found");
}

#[tokio::test]
async fn usage_is_told_for_so_many_days() {
    let server = Server::start().await;
    let usage = server.ask("GET /api/usage").await.json();
    let day = json!({
        "date": DEFAULT_USAGE_DAYS.to_string(), "runs": 1, "failed": 0, "input_tokens": 0, "output_tokens": 0,
        "cache_read_tokens": 0, "cost_micros": 0,
    });
    let model = json!({"model": "m", "input_tokens": 0, "output_tokens": 0, "cost_micros": 0});
    assert_eq!(usage, json!({"days": [day], "models": [model]}));
    for (asked, told) in [("0", 1), ("366", MAX_USAGE_DAYS), ("367", MAX_USAGE_DAYS)] {
        let usage = server.ask(&format!("GET /api/usage?days={asked}")).await.json();
        assert_eq!(usage["days"][0]["date"], told.to_string());
    }
    server.ask("GET /api/usage?days=x").await.assert_text(400, "days is a whole number");
}

#[tokio::test]
async fn what_can_be_chosen_is_told() {
    let server = Server::start().await;
    let choices = server.ask("GET /api/choices").await.json();
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
async fn files_are_images_or_to_be_saved_and_run_nothing() {
    let server = Server::start().await;
    for (id, kind, disposition) in
        [("image", "image/png", "inline"), ("page", "application/octet-stream", "attachment")]
    {
        let answer = server.ask(&format!("GET /api/media/{id}\nConnection: close")).await;
        assert_eq!((answer.status, answer.body.len()), (200, 2 * FILE_PIECE_BYTES + 1));
        for (name, value) in [
            ("content-type", kind),
            ("content-disposition", disposition),
            ("content-security-policy", "sandbox; default-src 'none'"),
            ("x-content-type-options", "nosniff"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{id}");
        }
    }
    server.ask("GET /api/media/none").await.assert_text(404, "file not found");
}

#[tokio::test]
async fn sessions_are_found_and_renamed() {
    let server = Server::start().await;
    let list = server.ask("GET /api/sessions?q=+a%2F").await.json();
    assert_eq!((list.as_array().unwrap().len(), &list[0]["id"]), (1, &"a/b".into()));
    for (member, value) in [
        ("full_title", json!(null)),
        ("door", json!("supr")),
        ("agent_id", json!("")),
        ("running", json!(true)),
        ("queued", json!(1)),
        ("here", json!(true)),
        ("last_event", json!({"event_type": "run.queued", "timestamp": "2026-01-02T03:04:05.006Z"})),
    ] {
        assert_eq!(list[0][member], value, "{member}");
    }
    let renamed = server.tell("PATCH /api/sessions/a%2Fb", r#"{"title":"Größe"}"#).await.json();
    assert_eq!((&renamed["id"], &renamed["title"]), (&"a/b".into(), &"Größe".into()));
    server.tell("PATCH /api/sessions/b", r#"{"title":"x"}"#).await.assert_text(409, "another process has it");
    server.tell("PATCH /api/sessions/c", r#"{"title":""}"#).await.assert_text(400, "a title needs a letter");
    server.tell("PATCH /api/sessions/x", r#"{"title":"x"}"#).await.assert_text(404, "session not found");
    for body in ["", "{}", r#"{"title":1}"#, "\u{ff}"] {
        server.tell("PATCH /api/sessions/c", body).await.assert_text(400, r#"the body is {"title":"…"}"#);
    }
}

#[tokio::test]
async fn events_are_given_page_by_page() {
    let server = Server::start().await;
    let page = server.ask("GET /api/sessions/a%2Fb/events?before=7").await.json();
    assert_eq!(page["events"], json!([{"event_type": "run.started"}]));
    assert_eq!((&page["before"], &page["last_event_id"]), (&7.into(), &DEFAULT_EVENTS.to_string().into()));
    let asked = async |limit: &str| {
        let page = server.ask(&format!("GET /api/sessions/a%2Fb/events?limit={limit}")).await.json();
        assert_eq!(page["before"], Value::Null);
        page["last_event_id"].as_str().unwrap().parse::<usize>().unwrap()
    };
    assert_eq!((asked("1").await, asked("0").await), (1, 1));
    assert_eq!((asked("1000").await, asked("1001").await), (MAX_EVENTS, MAX_EVENTS));
    for wrong in ["before=x", "limit=-1"] {
        let answer = server.ask(&format!("GET /api/sessions/c/events?{wrong}")).await;
        answer.assert_text(400, "before and limit are whole numbers");
    }
    server.ask("GET /api/sessions/x/events").await.assert_text(404, "session not found");
}

#[tokio::test]
async fn the_page_is_at_every_place_that_is_not_something_else() {
    let server = Server::start().await;
    for path in ["/", "/chat", "/chat/one"] {
        let answer = server.ask(&format!("GET {path}")).await;
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
        assert_eq!(server.ask(request).await.status, 404, "{request}");
    }
    let head = server.ask("HEAD /\nConnection: close").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[tokio::test]
async fn files_of_the_page_are_packed_and_kept() {
    let server = Server::start().await;
    let script = "GET /assets/index-0a1b2c.js";
    for (accepted, encoding, body) in [
        ("", None, "script"),
        ("gzip", Some("gzip"), "gzip"),
        ("gzip, br", Some("br"), "brotli"),
        ("gzip, br;q=0", Some("gzip"), "gzip"),
        ("zstd", None, "script"),
    ] {
        let answer = server.ask(&format!("{script}\nAccept-Encoding: {accepted}")).await;
        assert_eq!((answer.header("content-encoding"), answer.body.as_str()), (encoding, body), "{accepted}");
        assert_eq!(answer.header("cache-control"), Some("public, max-age=31536000, immutable"));
        assert_eq!(answer.header("content-type"), Some("text/javascript; charset=utf-8"));
        assert_eq!(answer.header("vary"), Some("accept-encoding"));
    }
    let style = server.ask("GET /assets/index-0a1b2c.css\nAccept-Encoding: br, gzip").await;
    assert_eq!((style.header("content-encoding"), style.body.as_str()), (None, "style"));
    for tags in ["\"3\"", "\"2\", W/\"3\"", "*"] {
        let known = server.ask(&format!("GET /\nIf-None-Match: {tags}\nConnection: close")).await;
        assert_eq!(
            (known.status, known.body.as_str(), known.header("etag")),
            (304, "", Some("\"3\"")),
            "{tags}"
        );
    }
    assert_eq!(server.ask("GET /\nIf-None-Match: \"2\"").await.status, 200);
}

#[tokio::test]
async fn a_program_without_its_page_says_how_to_get_it() {
    let server = Server::with(|wanted| wanted.page = &[]).await;
    for path in ["/", "/chat"] {
        let answer = server.ask(&format!("GET {path}")).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/html; charset=utf-8")));
        assert!(answer.body.contains("make page") && answer.body.contains("/supr/ws"), "{}", answer.body);
        // The policy forbids what stands in the page itself.
        assert!(!["<script", " style=", "<style"].iter().any(|text| answer.body.contains(text)));
    }
}

#[tokio::test]
async fn the_description_names_every_route_and_no_other() {
    let server = Server::start().await;
    let described = server.ask("GET /api/openapi.json").await;
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
        let answer = server.ask(&format!("{method} {path}\nContent-Length: 0\n{}", bearer())).await;
        assert!(
            answer.status != 404 || answer.body.ends_with(" not found\n") && !answer.body.contains("page"),
            "{method} {path}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn what_is_counted_can_be_scraped() {
    let server = Server::start().await;
    let mut client = server.connect("").await;
    crate::support::text(&mut client).await;
    server.shake("/supr/ws", "").await.assert_text(401, "unauthorized");
    server.metrics.runs_started.inc();
    let answer = server.ask("GET /metrics").await;
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
