//! The MCP servers of a project's `.mcp.json` start only after the user has trusted this text of the file, and in the sandbox.
#![expect(clippy::unwrap_used, reason = "test helpers panic on failure, as the tests do")]

use std::path::{Path, PathBuf};

use parlor_testkit::folder_outside_tmp;
use serde_json::{Value, json};

use crate::api_format::ApiFormat;
use crate::client::Client;
use crate::home::Home;
use crate::project_trust::{answer, serve};
use crate::scripted_server::{Reply, ScriptedServer};

const LEFT_OUT: &str = "The MCP servers of this project's .mcp.json are left out";

/// A repository whose `.mcp.json` has the server `brought`, which leaves the file `started` when it starts.
struct Repository {
    home: Home,
    model: ScriptedServer,
    /// A folder that sandboxes show, with the program of the server.
    visible: tempfile::TempDir,
}

impl Repository {
    fn new(settings: &str) -> Self {
        let api = ApiFormat::Chat;
        let answer = || Reply::Stream(api.text("Hello.") + &api.end());
        let model = ScriptedServer::start((0..16).map(|_| answer()).collect());
        let home = api.home(&model.url, settings);
        let visible = folder_outside_tmp(env!("CARGO_TARGET_TMPDIR"));
        let repository = Self { home, model, visible };
        std::fs::create_dir_all(repository.path("repository/.git")).unwrap();
        std::fs::create_dir_all(repository.path("repository/sub")).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/tests/fake_mcp_server.py");
        std::fs::copy(script, repository.script()).unwrap();
        repository.bring(&json!({"brought": repository.server("started")}));
        repository
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.folder().join(name)
    }

    fn script(&self) -> PathBuf {
        self.visible.path().join("server.py")
    }

    fn server(&self, pid_file: &str) -> Value {
        json!({"command": "python3", "args": [self.script(), format!("pid={pid_file}")]})
    }

    fn bring(&self, servers: &Value) {
        let text = json!({"mcpServers": servers}).to_string();
        std::fs::write(self.path("repository/.mcp.json"), text).unwrap();
    }

    /// Sends a message in a new session. Returns stderr.
    fn chat(&self, options: &[&str]) -> String {
        self.chat_in("repository", options)
    }

    fn chat_in(&self, folder: &str, options: &[&str]) -> String {
        let mut command = self.home.command(&["chat"]);
        command.args(options).arg("say hello").current_dir(self.path(folder));
        let output = command.output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "Hello.\n", "{stderr}");
        stderr
    }

    /// What `parlor` prints in the repository.
    fn prints(&self, args: &[&str]) -> String {
        let output = self.home.command(args).current_dir(self.path("repository")).output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    /// Whether the last request to the model offers a tool of this server.
    fn offers(&self, server: &str) -> bool {
        self.model.bodies().last().unwrap().to_string().contains(&format!("{server}__echo"))
    }

    fn has_started(&self) -> bool {
        self.path("repository/started").exists()
    }
}

#[test]
fn servers_start_after_trust_and_a_changed_file_is_a_new_question() {
    let repository = Repository::new("");
    let said = repository.chat(&[]);
    assert!(said.contains(LEFT_OUT) && said.contains("parlor mcp list"), "{said}");
    assert!(!repository.offers("brought") && !repository.has_started());
    let listed = repository.prints(&["mcp", "list"]);
    assert!(listed.contains(".mcp.json (not used before you trust it"), "{listed}");
    assert!(listed.contains("brought  runs \"python3\""), "{listed}");
    assert!(repository.prints(&["doctor"]).contains(".mcp.json: brought (not used before you trust it"));
    let said = repository.chat(&["--trust"]);
    assert!(!said.contains(LEFT_OUT), "{said}");
    assert!(repository.offers("brought") && repository.has_started(), "{said}");
    assert!(repository.prints(&["mcp", "list"]).contains(".mcp.json (trusted as it is now)"));
    assert!(repository.prints(&["doctor"]).contains(".mcp.json: brought (trusted, started by sessions)"));
    repository.chat_in("repository/sub", &[]);
    assert!(repository.offers("brought"), "it is remembered, and the whole repository is one project");
    repository.bring(&json!({"brought": repository.server("other")}));
    let said = repository.chat(&[]);
    assert!(said.contains(LEFT_OUT), "{said}");
    assert!(!repository.offers("brought") && !repository.path("repository/other").exists());
    repository.prints(&["rules", "trust"]);
    repository.chat(&[]);
    assert!(repository.offers("brought") && repository.path("repository/other").exists());
}

#[test]
fn the_sandbox_of_the_run_confines_them() {
    let repository = Repository::new("");
    let outside = repository.path("outside");
    let closed = json!({"url": "http://127.0.0.1:9/mcp"});
    repository.bring(&json!({"brought": repository.server(outside.to_str().unwrap()), "web": closed}));
    let said = repository.chat(&["--trust"]);
    assert!(repository.offers("brought"), "{said}");
    assert!(said.contains("the policy allows no connection to 127.0.0.1"), "{said}");
    assert!(!outside.exists(), "what it writes outside of the project is gone with its sandbox");
    let free = Repository::new("[policy]\nmode = \"full\"\n");
    let outside = free.path("outside");
    free.bring(&json!({"brought": free.server(outside.to_str().unwrap())}));
    free.chat(&["--trust"]);
    assert!(free.offers("brought") && outside.exists(), "the user chose no sandbox");
}

#[test]
fn they_never_replace_servers_of_the_settings() {
    let settings = "[mcp.brought]\ncommand = \"python3\"\nargs = [\"/nonexistent\"]\nenabled = false\n";
    let repository = Repository::new(settings);
    let said = repository.chat(&["--trust"]);
    assert!(
        said.contains("\"brought\" of .mcp.json is left out: parlor.toml has a server of this name"),
        "{said}"
    );
    assert!(!repository.offers("brought") && !repository.has_started());
    let listed = repository.prints(&["mcp", "list"]);
    assert!(listed.contains("brought  python3 /nonexistent  (disabled)"), "{listed}");
    assert!(listed.contains("(left out: parlor.toml has a server of this name)"), "{listed}");
}

#[test]
fn rules_of_the_settings_decide_and_agents_without_a_policy_get_none() {
    let allowed = Repository::new("[policy]\nallow = [{ tool = \"trust_project_servers\" }]\n");
    allowed.chat(&[]);
    assert!(allowed.offers("brought"));
    let denied = Repository::new("[policy]\ndeny = [{ tool = \"trust_project_servers\" }]\n");
    let said = denied.chat(&["--trust"]);
    assert!(said.contains(LEFT_OUT) && said.contains("the rule of parlor.toml says deny"), "{said}");
    assert!(!denied.offers("brought") && !denied.has_started());
    let untrusted =
        Repository::new("[policy]\ndeny = [{ tool = \"trust_project\" }]\nwhen_unattended = \"allow\"\n");
    assert!(untrusted.chat(&[]).contains(LEFT_OUT));
    assert!(!untrusted.has_started());
    let script = "[agents.script]\nkind = \"script\"\nfile = \"script.toml\"\n";
    let scripted = Repository::new(script);
    let steps = "[otherwise]\nsteps = [{ tool = \"brought__echo\", args = {} }]\n";
    std::fs::write(scripted.home.state().join("script.toml"), steps).unwrap();
    scripted.prints(&["rules", "trust"]);
    let said = scripted.prints(&["chat", "--agent", "script", "--json", "go"]);
    assert!(said.contains("there is no tool `brought__echo`"), "{said}");
    assert!(!scripted.has_started());
}

#[tokio::test]
async fn a_person_is_asked_and_the_answer_survives_a_killed_process() {
    let repository = Repository::new("[policy]\nallow = [{ tool = \"trust_project\" }]\n");
    std::fs::rename(repository.path("repository/.mcp.json"), repository.path(".mcp.json")).unwrap();
    let mut server = serve(&repository.home);
    let mut client = Client::connect(server.http, "session_id=s1&stream=1").await;
    client.send_text("hello").await;
    let asked = client.until("question.asked").await["data"].clone();
    let title = asked["title"].as_str().unwrap();
    assert!(title.starts_with("Use the MCP servers of") && title.contains(".mcp.json"), "{asked}");
    assert!(asked["detail"].as_str().unwrap().starts_with("brought: runs \"python3\""), "{asked}");
    assert!(repository.model.bodies().is_empty() && !repository.path("started").exists());
    server.kill();
    let server = serve(&repository.home);
    let mut client = Client::connect(server.http, "session_id=s1&stream=1").await;
    answer(&server, "s1", &asked["question_id"], "always").await;
    client.until("run.completed").await;
    assert!(repository.offers("brought") && repository.path("started").exists());
    let rules = repository.home.json(&["rules", "--json"]);
    assert_eq!(rules.len(), 1, "{rules:?}");
    assert_eq!(rules[0]["tool"], "trust_project_servers");
    assert!(rules[0]["command"].as_str().unwrap().starts_with("sha256:"), "{rules:?}");
    let mut client = Client::connect(server.http, "session_id=s2&stream=1").await;
    client.send_text("hello").await;
    client.until("run.completed").await;
    assert!(repository.offers("brought"), "nobody is asked again");
}

#[tokio::test]
async fn an_answer_for_once_holds_for_its_session_and_its_text() {
    for (word, is_used) in [("once", true), ("deny", false)] {
        let repository = Repository::new("");
        std::fs::rename(repository.path("repository/.mcp.json"), repository.path(".mcp.json")).unwrap();
        let server = serve(&repository.home);
        let mut client = Client::connect(server.http, "session_id=s1&stream=1").await;
        client.send_text("hello").await;
        let asked = client.until("question.asked").await["data"].clone();
        answer(&server, "s1", &asked["question_id"], word).await;
        client.until("run.completed").await;
        assert_eq!(repository.offers("brought"), is_used, "{word}");
        client.send_text("hello again").await;
        client.until("run.completed").await;
        assert_eq!(repository.offers("brought"), is_used, "{word}");
        let events = repository.home.json(&["replay", "s1", "--json"]);
        let questions = events.iter().filter(|event| event["type"] == "question.asked").count();
        assert_eq!(questions, 1, "{word}");
        assert!(repository.home.json(&["rules", "--json"]).is_empty());
        let changed = json!({"mcpServers": {"brought": repository.server("other")}});
        std::fs::write(repository.path(".mcp.json"), changed.to_string()).unwrap();
        client.send_text("hello once more").await;
        client.until("question.asked").await;
    }
}
