//! The client of the process that owns a session leaves, while clients of other processes watch its run.

use crate::client::{Client, Door, join};
use crate::home::Home;
use crate::line_process::LineProcess;
use crate::loaf::Loaf;
use crate::log::{checked_events, owner, runs};
use crate::supr::Supr;
use crate::synaps::Synaps;

/// A run that ends when the file `go` exists.
const WAIT_FOR_FILE: &str = "!until [ -e go ]; do sleep 0.05; done; echo file-is-there";

/// A client at a door of stdin and stdout, which leaves by closing stdin.
trait StdioClient: Client {
    fn process(&mut self) -> &mut LineProcess;
}

impl StdioClient for Synaps {
    fn process(&mut self) -> &mut LineProcess {
        &mut self.process
    }
}

impl StdioClient for Loaf {
    fn process(&mut self) -> &mut LineProcess {
        &mut self.server.process
    }
}

/// The clients that stay: one with a server, and one that watches.
struct Watchers {
    home: Home,
    session: String,
    /// The process of the client that will leave.
    first_owner: u32,
    supr: Supr,
    chat: Box<dyn Client>,
}

impl Watchers {
    /// Lets `client` begin a session, and joins it.
    async fn join(client: &mut dyn StdioClient, home: &Home) -> Self {
        client.send("/say begun").await;
        client.sees_end().await;
        let (home, session) = (home.clone(), home.last_session());
        let first_owner = client.process().pid();
        assert_eq!(owner(&home, &session), first_owner);
        let supr = Supr::join(&home, &session).await;
        let chat = join(Door::Chat, &home, &session).await;
        Self { home, session, first_owner, supr, chat }
    }

    async fn see_message(&mut self, text: &str) {
        self.supr.sees_message(text).await;
        self.chat.sees_message(text).await;
    }

    async fn see_text(&mut self, text: &str) {
        self.supr.sees_text(text).await;
        self.chat.sees_text(text).await;
    }

    async fn see_end(&mut self) {
        self.supr.sees_end().await;
        self.chat.sees_end().await;
    }

    /// Sends a message, which is answered by another process than that of the client that left. Then checks how the runs
    /// of the session ended.
    async fn go_on(mut self, ending: (&str, &str)) {
        self.supr.send("/say after").await;
        self.see_message("/say after").await;
        self.see_text("after").await;
        self.see_end().await;
        assert_ne!(owner(&self.home, &self.session), self.first_owner);
        let runs = runs(&checked_events(&self.home, &self.session));
        let runs: Vec<_> = runs.iter().map(|(text, ending, _)| (text.as_str(), ending.as_str())).collect();
        assert_eq!(runs, [("/say begun", "completed"), ending, ("/say after", "completed")]);
    }
}

async fn its_run_stops(mut client: impl StdioClient, home: &Home) {
    let mut watchers = Watchers::join(&mut client, home).await;
    client.send("/wait 600").await;
    watchers.see_text(".").await;
    client.process().close_stdin();
    watchers.see_end().await;
    assert!(client.process().wait().await.success());
    watchers.go_on(("/wait 600", "stopped")).await;
}

async fn its_run_goes_on(mut client: impl StdioClient, home: &Home) {
    let mut watchers = Watchers::join(&mut client, home).await;
    client.send(WAIT_FOR_FILE).await;
    watchers.see_message(WAIT_FOR_FILE).await;
    client.process().close_stdin();
    // The run still takes messages.
    watchers.chat.steer("still there").await;
    watchers.see_message("still there").await;
    std::fs::write(home.folder().join("go"), "").unwrap();
    watchers.see_text("file-is-there").await;
    watchers.see_end().await;
    assert!(client.process().wait().await.success());
    watchers.go_on((WAIT_FOR_FILE, "completed")).await;
}

fn hand_over_home() -> Home {
    let home = Home::new();
    home.configure("parlor.toml", "[sessions]\nwhen_owner_leaves = \"hand-over\"\n");
    home
}

#[tokio::test]
async fn the_run_of_a_synaps_parent_that_leaves_stops() {
    let home = Home::new();
    its_run_stops(Synaps::start(&home, &[]).await, &home).await;
}

#[tokio::test]
async fn the_run_of_a_loaf_front_end_that_leaves_stops() {
    let home = Home::new();
    its_run_stops(Loaf::start(&home).await, &home).await;
}

#[tokio::test]
async fn with_hand_over_a_synaps_child_stays_until_the_run_ends() {
    let home = hand_over_home();
    its_run_goes_on(Synaps::start(&home, &[]).await, &home).await;
}

#[tokio::test]
async fn with_hand_over_a_loaf_child_stays_until_the_run_ends() {
    let home = hand_over_home();
    its_run_goes_on(Loaf::start(&home).await, &home).await;
}

#[tokio::test]
async fn with_hand_over_a_run_that_nobody_watches_stops() {
    let home = hand_over_home();
    let mut client = Synaps::start(&home, &[]).await;
    client.send("/wait 600").await;
    client.sees_text(".").await;
    client.process().close_stdin();
    assert!(client.process().wait().await.success());
    let runs = runs(&checked_events(&home, &client.session));
    assert_eq!(runs, [("/wait 600".to_owned(), "stopped".to_owned(), "synaps".to_owned())]);
}
