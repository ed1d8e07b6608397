//! The description of the API agrees with the server where a client has to know a limit. `tests/clients/run.sh` compares
//! all of it with schemathesis.

use serde_json::Value;

use crate::server::Server;

/// The schema of a member of the body that `method` of `path` takes.
fn member<'a>(description: &'a Value, method: &str, path: &str, name: &str) -> &'a Value {
    &description["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"]["properties"]
        [name]
}

#[tokio::test]
async fn the_description_excludes_what_the_server_refuses() {
    let server = Server::start().await;
    let description = server.request("GET /api/openapi.json").await;
    let description: Value = serde_json::from_str(&description.body).unwrap();
    // Numbers in queries are not negative.
    for (path, name) in [
        ("/api/sessions", "offset"),
        ("/api/sessions", "limit"),
        ("/api/sessions/{id}/events", "before"),
        ("/api/sessions/{id}/events", "limit"),
        ("/api/sessions/{id}/events", "after"),
        ("/api/usage", "days"),
        ("/api/gateway/logs", "log_offset"),
    ] {
        let parameters = description["paths"][path]["get"]["parameters"].as_array().unwrap();
        let schema = &parameters.iter().find(|parameter| parameter["name"] == name).unwrap()["schema"];
        assert_eq!((&schema["minimum"], &schema["maximum"]), (&0.into(), &u64::MAX.into()), "{path} {name}");
        let request = |number: &str| format!("GET {}?{name}={number}", path.replace("{id}", "c"));
        assert_eq!(server.request(&request("-1")).await.status, 400, "{path} {name}");
        assert_eq!(server.request(&request("18446744073709551615")).await.status, 200, "{path} {name}");
        assert_eq!(server.request(&request("18446744073709551616")).await.status, 400, "{path} {name}");
    }
    // A title can be seen.
    let title = member(&description, "patch", "/api/sessions/{id}", "title");
    assert!(title["minLength"] == 1 && title["pattern"].is_string(), "{title}");
    let blank = server.request_with_body("PATCH /api/sessions/c", r#"{"title":""}"#).await;
    assert_eq!(blank.status, 400);
    // An argument has no NUL, and a size may be null.
    let command = member(&description, "post", "/api/processes", "command");
    assert_eq!(command["items"]["pattern"], "^[^\\u0000]*$");
    let start = async |body: &str| server.request_with_body("POST /api/processes", body).await.status;
    assert_eq!(start(r#"{"command":["true\u0000"]}"#).await, 400);
    let rows = member(&description, "post", "/api/processes", "rows");
    assert_eq!(rows["type"], serde_json::json!(["integer", "null"]));
    assert_eq!(start(r#"{"rows":null,"cols":80.0}"#).await, 201);
    // A claim is either a code or a token.
    let claim =
        &description["paths"]["/api/supr/claim"]["post"]["requestBody"]["content"]["application/json"];
    let forms = claim["schema"]["oneOf"].as_array().unwrap();
    assert!(forms.iter().all(|form| form["additionalProperties"] == false), "{claim}");
    let both = server.request_with_body("POST /api/supr/claim", r#"{"code":"c","token":"t"}"#).await;
    assert_eq!(both.status, 400);
    // A body is an object, and an array of its members is not.
    for (request, array) in [
        ("POST /api/supr/logout", "[]"),
        ("POST /api/processes", "[]"),
        ("PATCH /api/sessions/c", r#"["title"]"#),
        ("PUT /api/tools/shell/state", "[true]"),
    ] {
        assert_eq!(server.request_with_body(request, array).await.status, 400, "{request} {array}");
    }
}
