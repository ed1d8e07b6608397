//! An agent that is chosen by its name answers with its own model, price and limits, whichever door it was chosen
//! through. A session goes on when its agent is not configured any more.

use serde_json::{Value, json};

use crate::api_format::ApiFormat;
use crate::client::Client;
use crate::home::Home;
use crate::loaf_child::LoafChild;
use crate::scripted_server::{Reply, ScriptedServer};
use crate::server::Server;
use crate::synaps_child::{SynapsChild, usage_model};

const API: ApiFormat = ApiFormat::Responses;

/// Two agents with a model each. The default agent is `other`; the model of `main` costs a dollar for each token.
fn settings(url: &str) -> String {
    let model = |name: &str| {
        format!(
            "[models.{name}]\nprovider = \"openai-responses\"\nmodel = \"provider-{name}\"\nbase_url = \"{url}/v1\"\n"
        )
    };
    format!(
        "default_agent = \"other\"\n{}price = {{ input = 1000000, output = 1000000 }}\n{}\
         [agents.main]\nkind = \"model\"\nmodel = \"a\"\nmax_cost = 5\n\
         [agents.other]\nkind = \"model\"\nmodel = \"b\"\n",
        model("a"),
        model("b")
    )
}

fn home(server: &ScriptedServer) -> Home {
    let home = Home::new();
    home.configure("parlor.toml", &settings(&server.url));
    home
}

fn answer() -> Reply {
    Reply::Stream(API.text("Hello.") + &API.end())
}

/// The `model` of each request.
fn sent_models(server: &ScriptedServer) -> Vec<String> {
    let model = |body: &Value| body["model"].as_str().unwrap_or_default().to_owned();
    server.bodies().iter().map(model).collect()
}

#[test]
fn a_chosen_agent_answers_with_its_own_model() {
    let server = ScriptedServer::start(vec![answer(), answer(), answer(), answer(), answer()]);
    let home = home(&server);
    home.prints(&["chat", "--model", "main", "hello"]);
    let mut started = SynapsChild::start(&home, &["--model", "main"]);
    started.prompt("hello");
    drop(started);
    let mut switched = SynapsChild::start(&home, &[]);
    switched.request("set_model", json!({"model": "some-id"}));
    switched.prompt("hello");
    switched.request("set_model", json!({"model": "main"}));
    switched.prompt("hello");
    drop(switched);
    let mut loaf = LoafChild::start(&home);
    let select =
        |model: &str| format!(r#"{{"model_id":"{model}","provider":"openai","thinking_level":"OFF"}}"#);
    let selected = loaf.request("model.select", &select("main"));
    assert_eq!(selected["selected_model"], "main");
    loaf.run_turn("hello");
    assert_eq!(
        sent_models(&server),
        ["provider-a", "provider-a", "some-id", "provider-a", "provider-a"],
        "chat --model, synaps --model, a model id, synaps set_model, loaf model.select"
    );
}

#[test]
fn an_agent_that_is_selected_after_a_model_answers_with_its_own_model() {
    let server = ScriptedServer::start(vec![answer(), answer()]);
    let home = home(&server);
    let mut loaf = LoafChild::start(&home);
    let session = loaf.request("session.create", "{}")["session_id"].as_str().unwrap().to_owned();
    for model in ["a", "other"] {
        let select = format!(r#"{{"model_id":"{model}","provider":"openai","thinking_level":"OFF"}}"#);
        loaf.request("model.select", &select);
        loaf.run_turn_in(&session, "hello");
    }
    assert_eq!(sent_models(&server), ["provider-a", "provider-b"]);
}

#[test]
fn the_price_and_the_cost_limit_of_a_chosen_agent_apply() {
    let call = Reply::Stream(API.call("list_dir", "{}"));
    let server = ScriptedServer::start(vec![call, answer()]);
    let home = home(&server);
    let mut synaps = SynapsChild::start(&home, &[]);
    synaps.request("set_model", json!({"model": "main"}));
    let response = synaps.prompt("hello").pop().unwrap();
    assert!(response["error"].as_str().unwrap_or_default().contains("max_cost"), "{response}");
    assert_eq!(synaps.request("get_session_stats", json!({}))["cost"], 12.0);
}

#[test]
fn usage_names_the_providers_model_however_the_turn_ends() {
    let hanging = Reply::HangingStream(API.text("Hel"));
    let server = ScriptedServer::start(vec![answer(), Reply::Status(400, "x: y".to_owned()), hanging]);
    let home = home(&server);
    let mut synaps = SynapsChild::start(&home, &[]);
    synaps.request("set_model", json!({"model": "main"}));
    let completed = usage_model(&synaps.prompt("one"));
    let failed = usage_model(&synaps.prompt("two"));
    synaps.send(&json!({"type": "prompt", "id": "p", "message": "three"}));
    synaps.until(|frame| frame["event"]["type"] == "text_delta");
    synaps.send(&json!({"type": "abort", "id": "a"}));
    let aborted = usage_model(&synaps.until(|frame| frame["id"] == "a"));
    assert_eq!([completed, failed, aborted], ["provider-a"; 3]);
    let replay = home.json(&["replay", "--json", &home.last_session()]);
    let consumed = replay.iter().find(|line| line["type"] == "run.consumed").unwrap();
    assert_eq!(consumed["model"], "provider-a");
}

#[test]
fn a_session_goes_on_when_its_agent_is_not_configured_any_more() {
    let server = ScriptedServer::start(vec![answer(), answer(), answer(), answer(), answer()]);
    let home = home(&server);
    home.prints(&["chat", "--agent", "main", "--model", "some-id", "one"]);
    let session = home.last_session();
    let without_main = settings(&server.url).replace("agents.main", "agents.renamed");
    home.configure("parlor.toml", &without_main);
    let continued = |text: &str| {
        let output = home.run(&["chat", "--session", &session, text]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "Hello.\n");
        String::from_utf8(output.stderr).unwrap()
    };
    let notice = continued("two");
    assert!(notice.contains("\"main\" is no longer configured") && notice.contains("other"), "{notice}");
    assert!(!continued("three").contains("configured"), "the notice comes once");
    let mut synaps = SynapsChild::start(&home, &["--continue", &session]);
    assert_eq!(synaps.ready["model"], "other");
    assert_eq!(usage_model(&synaps.prompt("four")), "provider-b");
    drop(synaps);
    // When the agent is back, the session uses it again.
    home.configure("parlor.toml", &settings(&server.url));
    continued("five");
    assert_eq!(sent_models(&server), ["some-id", "provider-b", "provider-b", "provider-b", "some-id"]);
}

#[test]
fn synaps_and_loaf_show_that_another_agent_answers() {
    let server = ScriptedServer::start(vec![answer(), answer(), answer(), answer()]);
    let home = home(&server);
    home.prints(&["chat", "--agent", "main", "for synaps"]);
    let for_synaps = home.last_session();
    home.prints(&["chat", "--agent", "main", "for loaf"]);
    let for_loaf = home.last_session();
    home.configure("parlor.toml", &settings(&server.url).replace("agents.main", "agents.renamed"));
    let mut synaps = SynapsChild::start(&home, &["--continue", &for_synaps]);
    let frames = synaps.prompt("again");
    let thought = frames.iter().find(|frame| frame["event"]["type"] == "thinking_delta").expect("a notice");
    assert!(thought["event"]["delta"].as_str().unwrap().contains("\"main\" is no longer configured"));
    drop(synaps);
    let mut loaf = LoafChild::start(&home);
    let session = loaf.request("session.create", "{}")["session_id"].as_str().unwrap().to_owned();
    let resume = json!({"session_id": session, "raw_command": format!("/history {for_loaf}")});
    loaf.request("command.execute", &resume.to_string());
    loaf.run_turn_in(&session, "again");
    let messages = loaf.request("session.get", &json!({"session_id": session}).to_string());
    let shown = messages.to_string();
    assert!(shown.contains("main") && shown.contains("no longer configured"), "{shown}");
    assert_eq!(sent_models(&server)[2..], ["provider-b", "provider-b"]);
}

#[tokio::test]
async fn a_step_tells_sockets_that_another_agent_answers() {
    let server = ScriptedServer::start(vec![answer(), answer(), answer()]);
    let home = home(&server);
    home.prints(&["chat", "--agent", "main", "one"]);
    let session = home.last_session();
    home.configure("parlor.toml", &settings(&server.url).replace("agents.main", "agents.renamed"));
    let parlor = Server::on(&home.state());
    let mut socket = Client::connect(parlor.http, &format!("session_id={session}")).await;
    let mut headlines = Vec::new();
    for text in ["two", "three"] {
        socket.send_text(text).await;
        loop {
            let frame = socket.next().await.unwrap();
            match frame["event_type"].as_str() {
                Some("step.updated") => headlines.push(frame["data"]["headline"].clone()),
                Some("run.completed") => break,
                Some("run.failed") => panic!("{frame}"),
                _ => {}
            }
        }
    }
    let notice = "The agent \"main\" is no longer configured, so other answers.";
    assert_eq!(headlines.len(), 1, "the notice comes once: {headlines:?}");
    assert!(headlines[0].as_str().unwrap().starts_with(notice), "{headlines:?}");
    assert_eq!(sent_models(&server), ["provider-a", "provider-b", "provider-b"]);
}
