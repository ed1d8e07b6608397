//! A client of the supr door that waits for events by their type.

use parlor_client::supr::{Activity, SuprClient, SuprEvent, SuprSettings};

use crate::TIMEOUT;
use crate::server::{Server, TOKEN};

/// A client of one session.
pub(crate) struct Client(SuprClient);

impl Client {
    /// Opens `session` on a node.
    pub(crate) async fn open(server: &Server, session: &str) -> Self {
        let url = format!("ws://{}/supr/ws", server.http);
        let settings = SuprSettings::new(url, TOKEN).with_session(session);
        Self(SuprClient::connect(settings).await.unwrap())
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.0.send(text).await.unwrap();
    }

    /// The next event of this type.
    pub(crate) async fn event(&mut self, event_type: &str) -> Activity {
        self.find(event_type, |event| match event {
            SuprEvent::Activity(event) if event.event_type == event_type => Some(*event),
            SuprEvent::Activity(_) | SuprEvent::Typed(_) | SuprEvent::Reconnected => None,
        })
        .await
    }

    /// Reads events until `pick` accepts one.
    async fn find<T>(&mut self, what: &str, mut pick: impl FnMut(SuprEvent) -> Option<T>) -> T {
        let mut seen = Vec::new();
        let found = async {
            loop {
                let event = self.0.next().await.unwrap();
                seen.push(match &event {
                    SuprEvent::Activity(event) => event.event_type.clone(),
                    SuprEvent::Typed(frame) => format!("{} {:?}", frame.kind, frame.payload),
                    SuprEvent::Reconnected => panic!("the node disconnected its client"),
                });
                if let Some(found) = pick(event) {
                    return found;
                }
            }
        };
        let found = tokio::time::timeout(TIMEOUT, found).await;
        found.unwrap_or_else(|_| panic!("no {what} arrived, but {seen:?}"))
    }
}
