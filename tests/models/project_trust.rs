//! The instructions and skills of a project reach a model only after the user has said that the project is trusted.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::acp_child::AcpChild;
use crate::api_format::ApiFormat;
use crate::client::Client;
use crate::home::Home;
use crate::loaf_child::LoafChild;
use crate::scripted_server::{Reply, ScriptedServer};
use crate::server::{self, Server, TOKEN};

/// In the instructions of the project.
const RULE: &str = "Always use tabs.";
/// In a skill of the project that has the name of one of the user's.
const PROJECT_SKILL: &str = "Wave with the left hand.";
/// In the user's own skill.
const OWN_SKILL: &str = "Wave with the right hand.";
const LEFT_OUT: &str = "The instructions and skills of this project are left out";

/// A repository with instructions and a skill, and a model that says hello.
struct NewRepository {
    home: Home,
    model: ScriptedServer,
}

impl NewRepository {
    fn new(policy: &str) -> Self {
        let api = ApiFormat::Chat;
        let answer = || Reply::Stream(api.text("Hello.") + &api.end());
        let model = ScriptedServer::start((0..8).map(|_| answer()).collect());
        let home = api.home(&model.url, &format!("[policy]\n{policy}\n"));
        let repository = Self { home, model };
        for folder in [".git", "sub", ".agents/skills/greet"] {
            std::fs::create_dir_all(repository.path(folder)).unwrap();
        }
        std::fs::create_dir_all(repository.home.state().join("skills/greet")).unwrap();
        std::fs::write(repository.home.state().join("skills/greet/SKILL.md"), OWN_SKILL).unwrap();
        std::fs::write(repository.path("AGENTS.md"), RULE).unwrap();
        std::fs::write(repository.path(".agents/skills/greet/SKILL.md"), PROJECT_SKILL).unwrap();
        repository
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.folder().join(name)
    }

    /// Sends a message in a new session, in a subfolder. Returns stderr.
    fn chat(&self, options: &[&str]) -> String {
        let mut command = self.home.command(&["chat"]);
        command.args(options).arg("say hello with $greet").current_dir(self.path("sub"));
        let output = command.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "Hello.\n", "{stderr}");
        stderr
    }

    /// Whether the last request to the model has the files of the project; if not, it has none of them.
    fn is_obeyed(&self) -> bool {
        let sent = self.model.bodies().last().unwrap().to_string();
        let is_obeyed = sent.contains(RULE);
        assert_eq!(sent.contains(PROJECT_SKILL), is_obeyed, "{sent}");
        assert_eq!(sent.contains(OWN_SKILL), !is_obeyed, "the user's skill is used instead: {sent}");
        assert_eq!(sent.contains(".agents/skills"), is_obeyed, "{sent}");
        is_obeyed
    }

    fn rules(&self) -> Vec<Value> {
        self.home.json(&["rules", "--json"])
    }
}

#[test]
fn a_new_project_is_left_out_until_it_is_trusted_and_again_when_that_is_revoked() {
    let repository = NewRepository::new("");
    let said = repository.chat(&[]);
    assert!(said.contains(LEFT_OUT) && said.contains("parlor chat --trust"), "{said}");
    assert!(!repository.is_obeyed());
    assert!(!repository.chat(&["--trust"]).contains(LEFT_OUT));
    assert!(repository.is_obeyed());
    assert!(!repository.chat(&[]).contains(LEFT_OUT), "it is remembered");
    assert!(repository.is_obeyed());
    // The whole repository is one project, although the session was in a subfolder.
    let root = repository.home.folder().canonicalize().unwrap();
    let rules = repository.rules();
    assert_eq!(rules.len(), 1, "{rules:?}");
    assert_eq!(rules[0]["project"], root.to_str().unwrap());
    assert_eq!((&rules[0]["tool"], &rules[0]["action"]), (&json!("trust_project"), &json!("allow")));
    repository.home.prints(&["rules", "remove", "1"]);
    assert!(repository.chat(&[]).contains(LEFT_OUT));
    assert!(!repository.is_obeyed());
    repository.home.prints(&["rules", "trust", "sub"]);
    repository.chat(&[]);
    assert!(repository.is_obeyed());
}

#[test]
fn rules_of_the_settings_say_which_projects_are_trusted() {
    let trusted = NewRepository::new(r#"allow = [{ tool = "trust_project" }]"#);
    assert!(!trusted.chat(&[]).contains(LEFT_OUT));
    assert!(trusted.is_obeyed());
    // Other rules that allow say nothing about trust, and a rule that denies wins over a remembered answer.
    let other = NewRepository::new(r#"allow = [{ tool = "*" }, { path = "/" }]"#);
    assert!(other.chat(&[]).contains(LEFT_OUT));
    assert!(!other.is_obeyed());
    let denied = NewRepository::new(r#"deny = [{ tool = "trust_project", path = "/" }]"#);
    let said = denied.chat(&["--trust"]);
    assert!(said.contains("the rule of parlor.toml says deny"), "{said}");
    assert!(!denied.is_obeyed());
    let unattended = NewRepository::new(r#"when_unattended = "allow""#);
    let said = unattended.chat(&[]);
    assert!(said.contains("when_unattended = \"allow\""), "{said}");
    assert!(unattended.is_obeyed());
}

/// A front end that knows no questions would wait for their timeout.
#[test]
fn a_loaf_client_is_not_asked() {
    let repository = NewRepository::new("");
    let mut loaf = LoafChild::start(&repository.home);
    loaf.run_turn("hello with $greet");
    let sent = repository.model.bodies()[0].to_string();
    assert!(!sent.contains(RULE), "{sent}");
    let events = repository.home.json(&["replay", &repository.home.last_session(), "--json"]);
    let said: Vec<&Value> = events.iter().filter(|event| event["type"] == "step.updated").collect();
    assert!(said.iter().any(|event| event.to_string().contains(LEFT_OUT)), "{events:?}");
    assert!(events.iter().all(|event| event["type"] != "question.asked"), "{events:?}");
}

#[test]
fn an_editor_is_asked_before_the_first_prompt_reaches_the_model() {
    for (option, is_obeyed) in [("once", true), ("deny", false)] {
        let repository = NewRepository::new("");
        let mut editor = AcpChild::start(&repository.home);
        editor.prompt("hello with $greet");
        let question = editor.question();
        assert!(
            question["params"]["toolCall"]["title"].to_string().contains("Trust the project"),
            "{question}"
        );
        let options = question["params"]["options"].as_array().unwrap();
        let ids: Vec<&Value> = options.iter().map(|option| &option["optionId"]).collect();
        assert_eq!(ids, ["once", "always", "deny"]);
        assert!(repository.model.bodies().is_empty(), "nothing is sent before the answer");
        editor.choose(&question, option);
        assert_eq!(editor.answer()["result"]["stopReason"], "end_turn");
        assert_eq!(repository.is_obeyed(), is_obeyed, "{option}");
    }
}

pub(crate) fn serve(home: &Home) -> Server {
    let state = home.state();
    let mut command = server::command(&state);
    command.current_dir(home.folder()).env("SOME_API_KEY", "s3cret");
    Server::spawn(command, &state).unwrap()
}

pub(crate) async fn answer(server: &Server, session: &str, question: &Value, answer: &str) {
    let question = question.as_str().unwrap();
    let path = format!("http://{}/api/sessions/{session}/questions/{question}/answer", server.http);
    let body = json!({"answer": answer}).to_string();
    let answered = reqwest::Client::new().post(path).bearer_auth(TOKEN).body(body).send().await.unwrap();
    assert!(answered.status().is_success(), "{}", answered.text().await.unwrap());
}

#[tokio::test]
async fn the_question_survives_a_killed_process_and_always_is_remembered() {
    let repository = NewRepository::new("");
    let mut server = serve(&repository.home);
    let mut client = Client::connect(server.http, "session_id=s1&stream=1").await;
    client.send_text("hello with $greet").await;
    let asked = client.until("question.asked").await["data"].clone();
    assert_eq!(asked["options"], json!(["once", "always", "deny"]), "{asked}");
    assert!(asked["title"].as_str().unwrap().starts_with("Trust the project"), "{asked}");
    assert!(asked["detail"].as_str().unwrap().contains("AGENTS.md"), "{asked}");
    assert!(repository.model.bodies().is_empty(), "nothing is sent before the answer");
    server.kill();
    let server = serve(&repository.home);
    let mut client = Client::connect(server.http, "session_id=s1&stream=1").await;
    answer(&server, "s1", &asked["question_id"], "always").await;
    client.until("run.completed").await;
    assert!(repository.is_obeyed());
    assert_eq!(repository.model.bodies().len(), 1);
    assert_eq!(repository.rules().len(), 1);
    // Nobody is asked again, in this session or in another one.
    let mut client = Client::connect(server.http, "session_id=s2&stream=1").await;
    client.send_text("hello again with $greet").await;
    client.until("run.completed").await;
    assert!(repository.is_obeyed());
    assert!(
        repository
            .home
            .json(&["replay", "s2", "--json"])
            .iter()
            .all(|event| event["type"] != "question.asked")
    );
}

#[tokio::test]
async fn an_answer_for_once_holds_for_its_session() {
    for (word, is_obeyed) in [("once", true), ("deny", false)] {
        let repository = NewRepository::new("");
        let server = serve(&repository.home);
        let mut client = Client::connect(server.http, "session_id=s1&stream=1").await;
        client.send_text("hello with $greet").await;
        let asked = client.until("question.asked").await["data"].clone();
        answer(&server, "s1", &asked["question_id"], word).await;
        client.until("run.completed").await;
        assert_eq!(repository.is_obeyed(), is_obeyed, "{word}");
        client.send_text("hello again with $greet").await;
        client.until("run.completed").await;
        assert_eq!(repository.is_obeyed(), is_obeyed, "{word}");
        let events = repository.home.json(&["replay", "s1", "--json"]);
        let questions = events.iter().filter(|event| event["type"] == "question.asked").count();
        assert_eq!(questions, 1, "{word}");
        assert!(repository.rules().is_empty());
        let mut client = Client::connect(server.http, "session_id=s2&stream=1").await;
        client.send_text("hello with $greet").await;
        client.until("question.asked").await;
    }
}
