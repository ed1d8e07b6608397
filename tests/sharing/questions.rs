//! A run asks a person before a tool call; the process of the run is killed or left; another process answers.

use std::path::PathBuf;

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::acp::Acp;
use crate::client::Client;
use crate::home::Home;
use crate::loaf::{CLIENT_NAME, Loaf};
use crate::log::{checked_events, of_type};
use crate::server::{Server, TOKEN};
use crate::supr::{Socket, serve};

/// Every command is asked about, also those of a script.
const SETTINGS: &str = r#"
default_agent = "asking"
[agents.asking]
kind = "script"
file = "asking.toml"
[policy]
mode = "full"
enforce_all = true
ask = [{ tool = "shell" }]
"#;

/// Adds a line to a file, so that a call that is made twice shows.
const SCRIPT: &str = r#"
[otherwise]
steps = [
  { say = "I begin." },
  { tool = "shell", args = { command = "echo made >> made" } },
  { say = "I have ended." },
]
"#;

struct Asked {
    home: Home,
    loaf: Loaf,
    session: String,
    question: String,
}

impl Asked {
    /// A loaf session whose run waits for an answer.
    async fn begin() -> Self {
        let home = Home::new();
        home.configure("parlor.toml", SETTINGS);
        home.configure("asking.toml", SCRIPT);
        let mut loaf = Loaf::start(&home).await;
        // Only then the client knows the frames of questions.
        loaf.server.call("rpc.handshake", json!({"client_name": CLIENT_NAME, "extensions": true})).await;
        loaf.send("go").await;
        let asked =
            loaf.frames().find("question", |line| line["params"]["type"] == "session.question.asked").await;
        let payload = &asked["params"]["payload"];
        assert_eq!(payload["detail"], "echo made >> made", "{payload}");
        // No rule can name a command with a redirection.
        assert_eq!(payload["options"], json!(["once", "deny"]), "{payload}");
        let question = payload["question_id"].as_str().unwrap().to_owned();
        let session = home.last_session();
        Self { home, loaf, session, question }
    }

    fn made(&self) -> Option<String> {
        std::fs::read_to_string(PathBuf::from(self.home.folder()).join("made")).ok()
    }

    /// Whether the list of sessions shows the question.
    fn is_listed(&self) -> bool {
        let listed = self.home.json(&["sessions", "--json", "--limit", "1"]);
        listed[0]["question"]["question"] == self.question.as_str()
    }

    /// The outcomes of the question in the log.
    fn outcomes(&self) -> Vec<String> {
        let events = checked_events(&self.home, &self.session);
        let settled = of_type(&events, "question.settled");
        settled.iter().map(|event| event["answer"].as_str().unwrap().to_owned()).collect()
    }
}

async fn answer_over_http(server: &Server, asked: &Asked, body: Value) -> (StatusCode, String) {
    let Asked { session, question, .. } = asked;
    let path = format!("http://{}/api/sessions/{session}/questions/{question}/answer", server.http);
    let request = reqwest::Client::new().post(path).bearer_auth(TOKEN).body(body.to_string());
    let answer = request.send().await.unwrap();
    (answer.status(), answer.text().await.unwrap())
}

#[tokio::test]
async fn a_question_is_answered_over_http_after_its_process_was_killed_and_started_again() {
    let mut asked = Asked::begin().await;
    asked.loaf.server.process.kill().await;
    assert!(asked.is_listed());
    let mut again = Loaf::start(&asked.home).await;
    let server = serve(&asked.home);
    let listed = reqwest::Client::new()
        .get(format!("http://{}/api/sessions/{}/questions", server.http, asked.session))
        .bearer_auth(TOKEN)
        .send()
        .await
        .unwrap();
    let listed: Value = serde_json::from_str(&listed.text().await.unwrap()).unwrap();
    assert_eq!(listed["questions"][0]["question_id"], asked.question.as_str(), "{listed}");
    assert_eq!(asked.made(), None, "the call waits");

    let mut socket =
        Socket::connect(server.http, &format!("session_id={}&stream=1&after=", asked.session)).await;
    let (status, text) = answer_over_http(&server, &asked, json!({"answer": "perhaps"})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
    let (status, text) = answer_over_http(&server, &asked, json!({"answer": "once"})).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    socket.frames.until("end", |frame| frame["event_type"] == "run.completed").await;
    let (status, text) = answer_over_http(&server, &asked, json!({"answer": "deny"})).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(text.contains("was settled before: once"), "{text}");

    assert_eq!(asked.made().as_deref(), Some("made\n"), "the call was made exactly once");
    assert_eq!(asked.outcomes(), ["once"]);
    assert!(!asked.is_listed());
    let events = checked_events(&asked.home, &asked.session);
    let texts: Vec<&Value> =
        of_type(&events, "message.completed").iter().map(|event| &event["text"]).collect();
    assert_eq!(texts, ["I begin.", "I have ended."]);
    again.server.process.kill().await;
}

#[tokio::test]
async fn of_two_answers_at_the_same_time_one_is_taken() {
    let mut asked = Asked::begin().await;
    let server = serve(&asked.home);
    let mut socket =
        Socket::connect(server.http, &format!("session_id={}&stream=1&after=", asked.session)).await;
    socket.frames.find("question", |frame| frame["event_type"] == "question.asked").await;
    let answer = json!({"question_id": asked.question, "answer": "once"});
    assert!(socket.send("question.answer", answer.clone()).await);
    assert!(socket.send("question.answer", answer).await);
    let (status, text) = answer_over_http(&server, &asked, json!({"answer": "once"})).await;
    assert!([StatusCode::OK, StatusCode::CONFLICT].contains(&status), "{text}");
    let refused = socket.frames.find("error", |frame| frame["type"] == "error").await;
    assert_eq!(refused["payload"]["code"], "question_answered", "{refused}");
    asked.loaf.frames().find("answer", |line| line["params"]["type"] == "session.question.answered").await;
    asked.loaf.sees_end().await;
    assert_eq!(asked.made().as_deref(), Some("made\n"));
    assert_eq!(asked.outcomes(), ["once"]);
}

#[tokio::test]
async fn a_question_outlives_its_client_and_is_answered_on_the_command_line() {
    let mut asked = Asked::begin().await;
    asked.loaf.server.process.close_stdin();
    asked.loaf.server.process.wait().await;
    assert!(asked.is_listed());
    asked.home.prints(&["chat", "--session", &asked.session, "--answer", "deny", "use make"]);
    assert_eq!(asked.made(), None);
    assert_eq!(asked.outcomes(), ["deny"]);
    let events = checked_events(&asked.home, &asked.session);
    let failed = of_type(&events, "tool.failed");
    assert_eq!(failed[0]["failure"]["message"], "the user refused this call: use make");
    let refused = asked.home.refuses(&["chat", "--session", &asked.session, "--answer", "once"]);
    assert!(refused.contains("asks no question"), "{refused}");
}

/// Without the handshake it would wait for an hour, for an answer to a frame that it does not know.
#[tokio::test]
async fn a_client_that_knows_no_questions_is_not_asked() {
    let home = Home::new();
    home.configure("parlor.toml", SETTINGS);
    home.configure("asking.toml", SCRIPT);
    let mut loaf = Loaf::start(&home).await;
    loaf.send("go").await;
    loaf.sees_end().await;
    let of_loaf = home.last_session();
    let server = serve(&home);
    let mut plain = Socket::connect(server.http, "session_id=plain").await;
    assert!(plain.send("message.send", json!({"content": "go"})).await);
    let ends = ["run.completed", "run.failed"];
    plain.frames.until("end", |frame| ends.iter().any(|end| frame["event_type"] == *end)).await;
    for session in [of_loaf, "plain".to_owned()] {
        let events = checked_events(&home, &session);
        assert!(of_type(&events, "question.asked").is_empty(), "{session}");
        let failed = of_type(&events, "tool.failed");
        assert_eq!(failed[0]["failure"]["code"], "POLICY_DENIED", "{failed:?}");
        assert!(failed[0]["failure"]["message"].to_string().contains("nobody can be asked"), "{failed:?}");
    }
    assert!(!home.folder().join("made").exists());
}

#[tokio::test]
async fn a_run_that_is_stopped_withdraws_its_question() {
    let mut asked = Asked::begin().await;
    asked.loaf.stop().await;
    asked.loaf.sees_end().await;
    assert_eq!(asked.outcomes(), ["withdrawn"]);
    assert_eq!(asked.made(), None);
}

#[tokio::test]
async fn an_editor_that_closes_a_session_is_asked_again_when_it_loads_it() {
    let mut asked = Asked::begin().await;
    let mut editor = Acp::join(&asked.home, &asked.session).await;
    let is_asked = |frame: &Value| frame["method"] == "session/request_permission";
    let first = editor.process.frames.until("a request", is_asked).await;
    editor.call("session/close", json!({"sessionId": asked.session})).await;
    let is_taken_back =
        |frame: &Value| frame["method"] == "$/cancel_request" && frame["params"]["requestId"] == first["id"];
    editor.process.frames.until("the end of the request", is_taken_back).await;

    let load = json!({"sessionId": asked.session, "cwd": asked.home.folder(), "mcpServers": []});
    editor.call("session/load", load).await;
    let second = editor.process.frames.until("another request", is_asked).await;
    for (request, option) in [(&first, "deny"), (&second, "once")] {
        let outcome = json!({"outcome": "selected", "optionId": option});
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": {"outcome": outcome}});
        editor.process.write(&answer).await;
    }
    asked.loaf.sees_text("I have ended.").await;
    assert_eq!(asked.made().as_deref(), Some("made\n"), "a late answer changes nothing");
}
