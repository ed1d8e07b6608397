//! A model that uses a login: its server gets the access token, renewed in time.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use crate::api_format::ApiFormat;
use crate::browser::Browser;
use crate::home::Home;
use crate::model_server::{Reply, ScriptedServer};
use crate::oidc_server::OidcServer;
use crate::{expire, log_in, stored_login};

/// A home with the login `x`, and a model at `url` that uses it.
fn home_with_login(server: &OidcServer, api: ApiFormat, url: &str) -> Home {
    let home = api.home(url, "auth = \"x\"\n");
    let models = std::fs::read_to_string(home.state().join("parlor.toml")).unwrap();
    server.configure(&home, "public");
    let login = std::fs::read_to_string(home.state().join("parlor.toml")).unwrap();
    home.configure("parlor.toml", &(models.replace("SOME_API_KEY", "NO_SUCH_KEY") + &login));
    home
}

fn bearer_token(home: &Home) -> Option<String> {
    stored_login(home)["access_token"].as_str().map(|token| format!("Bearer {token}"))
}

#[test]
fn a_model_uses_the_login_and_renews_it_before_it_expires() {
    let server = OidcServer::start();
    for api in ApiFormat::ALL {
        let answer = || Reply::Stream(api.text("Hello.") + &api.end());
        let models = ScriptedServer::start(vec![answer(), answer()]);
        let home = home_with_login(&server, api, &models.url);
        let said = home.refuses(&["chat", "hello"]);
        assert!(said.contains("or parlor login x"), "{api:?}: {said}");
        log_in(&home, &mut Browser::new());
        let line = home.json(&["models", "--json"]).into_iter().find(|line| line["name"] == "mock").unwrap();
        assert_eq!(line["ready"], true, "{api:?}: {line}");
        let first = bearer_token(&home);
        assert_eq!(home.prints(&["chat", "hello"]), "Hello.\n");
        expire(&home);
        assert_eq!(home.prints(&["chat", "hello"]), "Hello.\n");
        let second = bearer_token(&home);
        assert_ne!(first, second, "{api:?}: the token must be renewed");
        assert_eq!(models.header_values("authorization"), [first, second], "{api:?}");
        assert_eq!(
            models.header_values("x-api-key"),
            [None, None],
            "{api:?}: a token must not be sent as a key"
        );
    }
}

#[test]
fn a_rejected_token_is_renewed_once() {
    let (server, api) = (OidcServer::start(), ApiFormat::Chat);
    let refuse = || Reply::Status(401, "x: y".to_owned());
    let answer = Reply::Stream(api.text("Hello.") + &api.end());
    let models = ScriptedServer::start(vec![refuse(), answer, refuse(), refuse()]);
    let home = home_with_login(&server, api, &models.url);
    log_in(&home, &mut Browser::new());
    let first = bearer_token(&home);
    assert_eq!(home.prints(&["chat", "hello"]), "Hello.\n");
    assert_eq!(models.header_values("authorization"), [first, bearer_token(&home)]);
    let said = home.refuses(&["chat", "hello"]);
    assert!(said.contains("the login to x is not accepted"), "{said}");
    assert_eq!(models.header_values("authorization").len(), 4, "the request must be sent again only once");
}

#[test]
fn a_revoked_login_says_what_to_do() {
    let (server, api) = (OidcServer::start(), ApiFormat::Chat);
    let models = ScriptedServer::start(vec![Reply::Status(401, "x: y".to_owned())]);
    let home = home_with_login(&server, api, &models.url);
    log_in(&home, &mut Browser::new());
    server.revoke(stored_login(&home)["refresh_token"].as_str().unwrap());
    // The first request is rejected and the renewal fails; after that the login is known to have ended.
    for _ in 0..2 {
        let said = home.refuses(&["chat", "hello"]);
        assert!(said.contains("the login to x has ended") && said.contains("run: parlor login x"), "{said}");
    }
    assert_eq!(models.bodies().len(), 1, "an ended login must not be sent");
    let listed = home.prints(&["models"]);
    assert!(listed.contains("the login to x has ended"), "{listed}");
}

#[test]
fn a_login_lists_the_models_of_its_provider() {
    let server = OidcServer::start();
    for (provider, body, expected) in [
        (
            "anthropic",
            r#"{"data":[{"id":"claude-b"},{"id":"claude-a"}],"has_more":false}"#,
            ["claude-a", "claude-b"],
        ),
        ("gemini", r#"{"models":[{"name":"models/gem-a"},{"name":"models/gem-b"}]}"#, ["gem-a", "gem-b"]),
    ] {
        let list = || Reply::Body(200, "application/json", body);
        let refuse = Reply::Status(401, "x: y".to_owned());
        let models = ScriptedServer::start(vec![list(), refuse, list()]);
        let home = home_with_login(&server, ApiFormat::Anthropic, &models.url);
        let settings = std::fs::read_to_string(home.state().join("parlor.toml")).unwrap();
        home.configure("parlor.toml", &settings.replace("\"anthropic\"", &format!("{provider:?}")));
        log_in(&home, &mut Browser::new());
        let names = |flag: &str| -> Vec<String> {
            let lines = home.json(&["models", flag, "--json"]).into_iter();
            let lines = lines.filter(|line| line["configured"] == false);
            lines.map(|line| line["name"].as_str().unwrap().to_owned()).collect()
        };
        let first = bearer_token(&home);
        assert_eq!(names("--all"), expected, "{provider}");
        assert_eq!(names("--refresh"), expected, "{provider}: with a renewed token");
        assert_eq!(
            models.header_values("authorization"),
            [first.clone(), first, bearer_token(&home)],
            "{provider}"
        );
        for key in ["x-api-key", "x-goog-api-key"] {
            assert_eq!(
                models.header_values(key),
                [None, None, None],
                "{provider}: a token must not be sent as a key"
            );
        }
    }
}
