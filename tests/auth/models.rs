//! A login opens a model: its token arrives at the model's server, renewed in time.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use crate::browser::Browser;
use crate::forms::Form;
use crate::home::Home;
use crate::model_server::{Deed, Server as ModelServer};
use crate::server::Server;
use crate::{expire, kept, log_in};

/// A home with the login `x`, whose model at `url` is asked with it.
fn home(server: &Server, form: Form, url: &str) -> Home {
    let home = form.home(url, "auth = \"x\"\n");
    let models = std::fs::read_to_string(home.state().join("parlor.toml")).unwrap();
    server.configure(&home, "public");
    let login = std::fs::read_to_string(home.state().join("parlor.toml")).unwrap();
    home.configure("parlor.toml", &(models.replace("SOME_API_KEY", "NO_SUCH_KEY") + &login));
    home
}

fn token(home: &Home) -> Option<String> {
    kept(home)["access_token"].as_str().map(|token| format!("Bearer {token}"))
}

#[test]
fn a_login_opens_a_model_and_is_renewed_before_it_expires() {
    let server = Server::start();
    for form in Form::ALL {
        let answer = || Deed::Answer(form.text("Hello.") + &form.end());
        let models = ModelServer::start(vec![answer(), answer()]);
        let home = home(&server, form, &models.url);
        let said = home.refuses(&["chat", "hello"]);
        assert!(said.contains("or parlor login x"), "{form:?}: {said}");
        log_in(&home, &mut Browser::new());
        let line = home.json(&["models", "--json"]).into_iter().find(|line| line["name"] == "mock").unwrap();
        assert_eq!(line["ready"], true, "{form:?}: {line}");
        let first = token(&home);
        assert_eq!(home.prints(&["chat", "hello"]), "Hello.\n");
        expire(&home);
        assert_eq!(home.prints(&["chat", "hello"]), "Hello.\n");
        let second = token(&home);
        assert_ne!(first, second, "{form:?}: it was renewed");
        assert_eq!(models.heads("authorization"), [first, second], "{form:?}");
        assert_eq!(models.heads("x-api-key"), [None, None], "{form:?}: a token is no key");
    }
}

#[test]
fn a_token_that_a_server_does_not_take_is_renewed_once() {
    let (server, form) = (Server::start(), Form::Chat);
    let refuse = || Deed::Refuse(401, "x: y".to_owned());
    let answer = Deed::Answer(form.text("Hello.") + &form.end());
    let models = ModelServer::start(vec![refuse(), answer, refuse(), refuse()]);
    let home = home(&server, form, &models.url);
    log_in(&home, &mut Browser::new());
    let first = token(&home);
    assert_eq!(home.prints(&["chat", "hello"]), "Hello.\n");
    assert_eq!(models.heads("authorization"), [first, token(&home)]);
    let said = home.refuses(&["chat", "hello"]);
    assert!(said.contains("the login to x is not accepted"), "{said}");
    assert_eq!(models.heads("authorization").len(), 4, "once more, and no more often");
}

#[test]
fn a_login_that_was_revoked_says_what_to_do() {
    let (server, form) = (Server::start(), Form::Chat);
    let models = ModelServer::start(vec![Deed::Refuse(401, "x: y".to_owned())]);
    let home = home(&server, form, &models.url);
    log_in(&home, &mut Browser::new());
    server.revoke(kept(&home)["refresh_token"].as_str().unwrap());
    // The server does not take it, and neither is it renewed; from then on that is known.
    for _ in 0..2 {
        let said = home.refuses(&["chat", "hello"]);
        assert!(said.contains("the login to x has ended") && said.contains("run: parlor login x"), "{said}");
    }
    assert_eq!(models.bodies().len(), 1, "what has ended is not sent");
    let listed = home.prints(&["models"]);
    assert!(listed.contains("the login to x has ended"), "{listed}");
}

#[test]
fn a_login_lists_the_models_of_its_provider() {
    let server = Server::start();
    for (provider, told, listed) in [
        (
            "anthropic",
            r#"{"data":[{"id":"claude-b"},{"id":"claude-a"}],"has_more":false}"#,
            ["claude-a", "claude-b"],
        ),
        ("gemini", r#"{"models":[{"name":"models/gem-a"},{"name":"models/gem-b"}]}"#, ["gem-a", "gem-b"]),
    ] {
        let list = || Deed::Body(200, "application/json", told);
        let refuse = Deed::Refuse(401, "x: y".to_owned());
        let models = ModelServer::start(vec![list(), refuse, list()]);
        let home = home(&server, Form::Anthropic, &models.url);
        let settings = std::fs::read_to_string(home.state().join("parlor.toml")).unwrap();
        home.configure("parlor.toml", &settings.replace("\"anthropic\"", &format!("{provider:?}")));
        log_in(&home, &mut Browser::new());
        let names = |flag: &str| -> Vec<String> {
            let lines = home.json(&["models", flag, "--json"]).into_iter();
            let lines = lines.filter(|line| line["configured"] == false);
            lines.map(|line| line["name"].as_str().unwrap().to_owned()).collect()
        };
        let first = token(&home);
        assert_eq!(names("--all"), listed, "{provider}");
        assert_eq!(names("--refresh"), listed, "{provider}: with another token");
        assert_eq!(models.heads("authorization"), [first.clone(), first, token(&home)], "{provider}");
        for key in ["x-api-key", "x-goog-api-key"] {
            assert_eq!(models.heads(key), [None, None, None], "{provider}: a token is no key");
        }
    }
}
