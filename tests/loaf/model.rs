//! A model and a script that say and do the same look the same from outside.

use serde_json::Value;

use crate::mock::Mock;
use crate::server::{Home, Server, appended, is_ready, streamed, text};

/// What a script does where the mock's model does it: words, then tools, then words.
const SCRIPT: &str = r#"
[[on]]
match = "say hello"
steps = [{ say = "Hello from the mock, in several pieces." }]

[[on]]
match = "think first"
steps = [{ think = "Two and two make four." }, { say = "Four." }]

[[on]]
match = "read three"
steps = [
  { say = "All three at once." },
  { tool = "read_file", args = { path = "one.txt" } },
  { tool = "read_file", args = { path = "two.txt" } },
  { tool = "read_file", args = { path = "three.txt" } },
  { say = "I have read all three." },
]
"#;

/// How the label of a status begins that shows a thought.
const THINKING: &str = "thinking: ";

async fn server(settings: &str) -> (Home, Server) {
    let home = Home::with(settings);
    std::fs::write(home.state().join("s.toml"), SCRIPT).expect("the folder can be written to");
    for name in ["one", "two", "three"] {
        std::fs::write(home.folder().join(format!("{name}.txt")), "content\n").expect("it can be written");
    }
    let server = home.server().await;
    (home, server)
}

/// The form of a turn: types and members of its events, with the pieces of a text as one.
fn shape(events: &[Value]) -> Vec<String> {
    let mut shape: Vec<String> = Vec::new();
    for event in events {
        let payload = event["payload"].as_object().expect("an object");
        let mut members: Vec<&String> = payload.keys().collect();
        members.sort();
        let label = payload.get("status_label").and_then(Value::as_str).unwrap_or_default();
        // A thought may come in pieces as well; `thought` puts them together.
        let label = if label.starts_with(THINKING) { THINKING } else { label };
        let told = format!("{} {members:?} {label}", text(&event["type"]));
        // A status and its piece come again for each piece.
        let (len, again) = (shape.len(), shape.iter().rev().take(2).any(|known| *known == told));
        let is_piece = told.contains("chunk") || label.starts_with("drafting") || label == THINKING;
        if !(is_piece && again && len > 1) {
            shape.push(told);
        }
    }
    shape
}

/// The thought of a turn, without white space: labels have none at their ends.
fn thought(events: &[Value]) -> String {
    let labels = events.iter().filter_map(|event| event["payload"]["status_label"].as_str());
    labels.filter_map(|label| label.strip_prefix(THINKING)).flat_map(str::split_whitespace).collect()
}

#[tokio::test]
async fn a_model_and_a_script_have_the_same_events() {
    let mut mock = Mock::start();
    let model = format!(
        "[agents.main]\nkind = \"model\"\nmodel = \"mock\"\n[models.mock]\nprovider = \"openai\"\nmodel = \"m\"\n\
         base_url = \"{}/v1\"\napi_key_env = \"SOME_API_KEY\"\n",
        mock.url
    );
    let script = "default_agent = \"s\"\n[agents.s]\nkind = \"script\"\nfile = \"s.toml\"\n";
    let (_one, mut with_model) = server(&model).await;
    let (_two, mut with_script) = server(script).await;
    let (session, other) = (with_model.session().await, with_script.session().await);
    for prompt in ["say hello", "think first", "read three"] {
        with_model.send(&session, prompt).await;
        with_script.send(&other, prompt).await;
        let (ours, theirs) =
            (with_model.events(&session, is_ready).await, with_script.events(&other, is_ready).await);
        assert_eq!(shape(&ours), shape(&theirs), "{prompt}");
        assert_eq!(streamed(&ours), streamed(&theirs), "{prompt}");
        assert_eq!(thought(&ours), thought(&theirs), "{prompt}");
        assert_eq!(appended(&ours, "assistant"), [streamed(&ours)], "{prompt}");
    }
    assert_eq!(mock.requests().len(), 4, "the model was asked once for each round");
}
