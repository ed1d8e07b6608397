//! A model and a script with the same answers and tool calls produce the same events.

use serde_json::Value;

use crate::aimock::Aimock;
use crate::server::{Home, Server, appended, is_ready, streamed, text};

/// A script with the same answers and tool calls as the model of aimock.
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

/// The prefix of a status label that shows reasoning.
const THINKING: &str = "thinking: ";

async fn server(settings: &str) -> (Home, Server) {
    let home = Home::with(settings);
    std::fs::write(home.state().join("s.toml"), SCRIPT).expect("the folder can be written to");
    for name in ["one", "two", "three"] {
        std::fs::write(home.folder().join(format!("{name}.txt")), "content\n")
            .expect("the folder can be written to");
    }
    let server = home.server().await;
    (home, server)
}

/// The shape of a turn: the types and keys of its events, with repeated text chunks merged into one.
fn shape(events: &[Value]) -> Vec<String> {
    let mut shape: Vec<String> = Vec::new();
    for event in events {
        let payload = event["payload"].as_object().expect("an object");
        let mut keys: Vec<&String> = payload.keys().collect();
        keys.sort();
        let label = payload.get("status_label").and_then(Value::as_str).unwrap_or_default();
        // Reasoning may come in chunks as well; `reasoning` joins them.
        let label = if label.starts_with(THINKING) { THINKING } else { label };
        let line = format!("{} {keys:?} {label}", text(&event["type"]));
        // Each chunk of a text repeats two events: a status and the chunk.
        let (len, is_repeated) = (shape.len(), shape.iter().rev().take(2).any(|known| *known == line));
        let is_chunk = line.contains("chunk") || label.starts_with("drafting") || label == THINKING;
        if !(is_chunk && is_repeated && len > 1) {
            shape.push(line);
        }
    }
    shape
}

/// The reasoning of a turn without white space, since labels are trimmed.
fn reasoning(events: &[Value]) -> String {
    let labels = events.iter().filter_map(|event| event["payload"]["status_label"].as_str());
    labels.filter_map(|label| label.strip_prefix(THINKING)).flat_map(str::split_whitespace).collect()
}

#[tokio::test]
async fn a_model_and_a_script_have_the_same_events() {
    let mut aimock = Aimock::start();
    let model = format!(
        "[agents.main]\nkind = \"model\"\nmodel = \"mock\"\n[models.mock]\nprovider = \"openai\"\nmodel = \"m\"\n\
         base_url = \"{}/v1\"\napi_key_env = \"SOME_API_KEY\"\n",
        aimock.url
    );
    let script = "default_agent = \"s\"\n[agents.s]\nkind = \"script\"\nfile = \"s.toml\"\n";
    let (_one, mut with_model) = server(&model).await;
    let (_two, mut with_script) = server(script).await;
    let (session, other) = (with_model.session().await, with_script.session().await);
    for prompt in ["say hello", "think first", "read three"] {
        with_model.send(&session, prompt).await;
        with_script.send(&other, prompt).await;
        let (of_model, of_script) =
            (with_model.events(&session, is_ready).await, with_script.events(&other, is_ready).await);
        assert_eq!(shape(&of_model), shape(&of_script), "{prompt}");
        assert_eq!(streamed(&of_model), streamed(&of_script), "{prompt}");
        assert_eq!(reasoning(&of_model), reasoning(&of_script), "{prompt}");
        assert_eq!(appended(&of_model, "assistant"), [streamed(&of_model)], "{prompt}");
    }
    assert_eq!(aimock.requests().len(), 4, "one request to the model for each round");
}
