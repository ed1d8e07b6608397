//! A running `parlor serve`.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use parlor_testkit::STEP_TIMEOUT;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// How often the helper looks for a file.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A server process with its own state folder. The process is killed on drop.
pub(crate) struct Server {
    child: Child,
    client: Client,
    pub(crate) address: String,
    pub(crate) token: String,
    /// The working folder of the server.
    pub(crate) folder: TempDir,
}

impl Server {
    pub(crate) fn start(settings: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let home = folder.path().join("home");
        std::fs::create_dir(&home).expect("a new folder");
        std::fs::write(home.join("parlor.toml"), settings).expect("the settings");
        let mut child = Command::new(PARLOR)
            .args(["serve", "--listen", "127.0.0.1:0", "--no-supex"])
            .env("PARLOR_HOME", &home)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("parlor starts");
        let deadline = Instant::now() + STEP_TIMEOUT;
        let served = loop {
            if let Ok(text) = std::fs::read_to_string(home.join("serve.json")) {
                break serde_json::from_str::<Value>(&text).expect("JSON");
            }
            assert!(child.try_wait().expect("a child").is_none(), "the server has ended");
            assert!(Instant::now() < deadline, "the server does not start");
            std::thread::sleep(POLL_INTERVAL);
        };
        let address = served["http"].as_str().expect("an address").replace("http://", "");
        let token =
            Command::new(PARLOR).arg("token").env("PARLOR_HOME", &home).output().expect("parlor token");
        let token = String::from_utf8(token.stdout).expect("text").trim().to_owned();
        Self {
            child,
            client: Client::new(),
            address: address.trim_end_matches('/').to_owned(),
            token,
            folder,
        }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    /// A message with the token.
    pub(crate) fn post(&self, message: &Value) -> RequestBuilder {
        self.request(Method::POST, "/mcp").bearer_auth(&self.token).json(message)
    }

    /// Waits until a file in the working folder has a line, or exists with a name that ends in `done` or `begun`.
    pub(crate) async fn wait_for_file(&self, name: &str) -> String {
        let deadline = Instant::now() + STEP_TIMEOUT;
        loop {
            let text = std::fs::read_to_string(self.folder.path().join(name));
            if let Some(text) = text.ok().filter(|text| text.ends_with('\n') || !name.ends_with("pid")) {
                return text;
            }
            assert!(Instant::now() < deadline, "{name} does not appear");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
