//! A client of a session at any of the doors.

use async_trait::async_trait;

use crate::acp::Acp;
use crate::chat::{TerminalChat, WatchingChat};
use crate::frames::Frames;
use crate::home::Home;
use crate::loaf::Loaf;
use crate::supr::Supr;
use crate::synaps::Synaps;

/// The doors through which a session is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Acp,
    Chat,
    Loaf,
    Synaps,
    Supr,
}

/// A client in one session, in a process of its own.
#[async_trait]
pub(crate) trait Client: Send {
    /// Sends a message. Does not wait for the answer.
    async fn send(&mut self, text: &str);

    /// Stops the active run.
    async fn stop(&mut self);

    /// Steers the active run.
    async fn steer(&mut self, text: &str);

    /// What the client was sent. A terminal has none.
    fn frames(&mut self) -> &mut Frames;

    /// Waits for a message of a user, if this door shows those of other clients.
    async fn sees_message(&mut self, text: &str) {
        self.frames().sees_message(text).await;
    }

    /// Waits for `text` in the answer of the active run.
    async fn sees_text(&mut self, text: &str) {
        self.frames().sees_text(text).await;
    }

    /// Waits for the end of the active run.
    async fn sees_end(&mut self) {
        self.frames().sees_end().await;
    }
}

/// Begins a session with an answered message. Returns the client and the id of the session.
pub(crate) async fn begin(door: Door, home: &Home) -> (Box<dyn Client>, String) {
    let mut client: Box<dyn Client> = match door {
        Door::Acp => Box::new(Acp::start(home).await),
        Door::Chat => Box::new(TerminalChat::start(home).await),
        Door::Loaf => Box::new(Loaf::start(home).await),
        Door::Synaps => Box::new(Synaps::start(home, &[]).await),
        Door::Supr => Box::new(Supr::start(home, "begun-at-supr").await),
    };
    client.send("/say begun").await;
    client.sees_text("begun").await;
    client.sees_end().await;
    (client, home.last_session())
}

/// Joins a session that another process has open.
pub(crate) async fn join(door: Door, home: &Home, session: &str) -> Box<dyn Client> {
    match door {
        Door::Acp => Box::new(Acp::join(home, session).await),
        Door::Chat => Box::new(WatchingChat::start(home, session).await),
        Door::Loaf => Box::new(Loaf::join(home, session).await),
        Door::Synaps => Box::new(Synaps::start(home, &["--continue", session]).await),
        Door::Supr => Box::new(Supr::join(home, session).await),
    }
}
