//! The loaf door lists the models that `parlor models --all` lists, and each can be selected by its provider's name.

use std::io::ErrorKind;
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::api_format::ApiFormat;
use crate::home::Home;
use crate::loaf_child::LoafChild;
use crate::scripted_server::{Reply, ScriptedServer};

const JSON: &str = "application/json";

/// How often a test asks for a list that its provider has not sent yet; each answer waits for the provider.
const MAX_LISTS: usize = 30;

/// The ids of the listed models, once `expected` is among them.
fn listed(loaf: &mut LoafChild, expected: &str) -> Vec<String> {
    let mut last = Vec::new();
    for _ in 0..MAX_LISTS {
        let list = loaf.request("model.list", "{}");
        let models = list["models"].as_array().expect("a list of models").iter();
        let ids: Vec<String> = models.map(|model| model["id"].as_str().expect("an id").to_owned()).collect();
        if ids.iter().any(|id| id == expected) {
            return ids;
        }
        last = ids;
    }
    panic!("{expected} is not among {last:?}");
}

fn select(loaf: &mut LoafChild, model: &str, provider: &str) -> Value {
    let params = json!({"model_id": model, "provider": provider, "thinking_level": "OFF"});
    loaf.request("model.select", &params.to_string())
}

#[test]
fn a_model_of_ones_own_server_is_selected_by_its_own_name() {
    let api = ApiFormat::Chat;
    let list = r#"{"object":"list","data":[{"id":"gpt-stub"},{"id":"vendor/other"}]}"#;
    let answer = Reply::Stream(api.text("Hello.") + &api.end());
    let server = ScriptedServer::start(vec![Reply::Body(200, JSON, list), answer]);
    let home = Home::new();
    let environment = [("OPENAI_BASE_URL", format!("{}/v1", server.url))];
    let mut loaf = LoafChild::start_with(&home, &environment);
    let ids = listed(&mut loaf, "gpt-stub");
    assert_eq!(select(&mut loaf, "gpt-stub", "openai")["selected_model"], "gpt-stub");
    loaf.run_turn("hello");
    assert_eq!(server.bodies()[1]["model"], "gpt-stub");
    drop(loaf);
    // The selection and the list outlast the process, without another request.
    let mut again = LoafChild::start_with(&home, &environment);
    assert_eq!(again.request("model.list", "{}")["selected_model"], "gpt-stub");
    let mut command = home.command(&["models", "--all", "--json"]);
    let output = command.envs(environment).output().unwrap();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["ready"] == true {
            assert!(ids.iter().any(|id| line["name"] == id.as_str()), "{line} is not among {ids:?}");
        }
    }
    assert_eq!(server.bodies().len(), 2, "the list is cached");
}

#[test]
fn models_of_a_provider_without_an_agent_go_to_that_provider() {
    let api = ApiFormat::Chat;
    let list = r#"{"data":[{"id":"a/routed"},{"id":"a/configured"}]}"#;
    let answer = || Reply::Stream(api.text("Hello.") + &api.end());
    let router = ScriptedServer::start(vec![Reply::Body(200, JSON, list), answer(), answer()]);
    let own = ScriptedServer::start(vec![Reply::Body(404, JSON, "{}")]);
    let home = api.home(&own.url, "");
    let settings = std::fs::read_to_string(home.state().join("parlor.toml")).unwrap();
    let routed = format!(
        "[models.routed]\nprovider = \"openrouter\"\nmodel = \"a/configured\"\nbase_url = \"{}/v1\"\n",
        router.url
    );
    home.configure("parlor.toml", &(settings + &routed));
    let mut loaf = LoafChild::start(&home);
    listed(&mut loaf, "a/routed");
    for model in ["a/routed", "a/configured"] {
        assert_eq!(select(&mut loaf, model, "openrouter")["selected_model"], model);
        loaf.run_turn("hello");
    }
    let sent: Vec<Value> = router.bodies().iter().skip(1).map(|body| body["model"].clone()).collect();
    assert_eq!(sent, ["a/routed", "a/configured"]);
}

#[test]
fn the_start_asks_no_provider_and_a_list_does_not_wait_for_one_that_never_answers() {
    // Connections are accepted by the kernel and never answered.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let url = format!("http://{}/v1", silent.local_addr().unwrap());
    let home = Home::new();
    let mut loaf = LoafChild::start_with(&home, &[("OPENAI_BASE_URL", url)]);
    let handshake = loaf.request("rpc.handshake", r#"{"client_name":"test","client_version":"1"}"#);
    assert!(handshake["capabilities"].is_object(), "{handshake}");
    assert_eq!(silent.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "the start asks no provider");
    let models = loaf.request("model.list", "{}")["models"].clone();
    assert!(models.as_array().is_some_and(|models| !models.is_empty()), "{models}");
    silent.accept().expect("the list asks the provider");
}
