//! A client of the supr door that waits for events by their type.

use parlor_client::supr::{Activity, SuprClient, SuprEvent, SuprFile, SuprSettings};

use crate::TIMEOUT;
use crate::server::{Server, TOKEN};

/// A client of one session.
pub(crate) struct Client {
    client: SuprClient,
    /// All events that came so far.
    events: Vec<Activity>,
}

impl Client {
    /// Opens `session` on a node.
    pub(crate) async fn open(server: &Server, session: &str) -> Self {
        let url = format!("ws://{}/supr/ws", server.http);
        let mut settings = SuprSettings::new(url, TOKEN).with_session(session);
        settings.streams = true;
        Self { client: SuprClient::connect(settings).await.unwrap(), events: Vec::new() }
    }

    /// Opens `session` from its first event on.
    pub(crate) async fn replay(server: &Server, session: &str) -> Self {
        let url = format!("ws://{}/supr/ws", server.http);
        let mut settings = SuprSettings::new(url, TOKEN).with_session(session);
        (settings.after, settings.streams) = (Some(String::new()), true);
        Self { client: SuprClient::connect(settings).await.unwrap(), events: Vec::new() }
    }

    /// Stops the active run.
    pub(crate) async fn stop(&mut self) {
        self.client.stop(None, None).await.unwrap();
    }

    /// The ids of all events that came so far.
    pub(crate) fn event_ids(&self) -> Vec<String> {
        self.events.iter().map(|event| event.event_id.clone()).collect()
    }

    /// How many events of this type came so far.
    pub(crate) fn count(&self, event_type: &str) -> usize {
        self.events.iter().filter(|event| event.event_type == event_type).count()
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.client.send(text).await.unwrap();
    }

    /// Sends a file with a caption.
    pub(crate) async fn send_file(&mut self, content: &[u8], caption: &str) {
        let file = SuprFile {
            name: "file.bin".to_owned(),
            content_type: "application/octet-stream".to_owned(),
            caption: None,
            base64: base64_simd::STANDARD.encode_to_string(content),
        };
        self.client.send_files(vec![file], Some(caption.to_owned())).await.unwrap();
    }

    /// The next event of this type.
    pub(crate) async fn event(&mut self, event_type: &str) -> Activity {
        self.find(event_type, |event| match event {
            SuprEvent::Activity(event) if event.event_type == event_type => Some(*event),
            SuprEvent::Activity(_) | SuprEvent::Typed(_) | SuprEvent::Reconnected => None,
        })
        .await
    }

    /// The next frame of this type that is not an event, such as a piece of a text that is being written.
    pub(crate) async fn frame(&mut self, kind: &str) {
        self.find(kind, |event| match event {
            SuprEvent::Typed(frame) if frame.kind == kind => Some(()),
            SuprEvent::Activity(_) | SuprEvent::Typed(_) | SuprEvent::Reconnected => None,
        })
        .await;
    }

    /// Reads events until `pick` accepts one.
    async fn find<T>(&mut self, what: &str, mut pick: impl FnMut(SuprEvent) -> Option<T>) -> T {
        let mut seen = Vec::new();
        let found = async {
            loop {
                let event = self.client.next().await.unwrap();
                seen.push(match &event {
                    SuprEvent::Activity(event) => {
                        self.events.push((**event).clone());
                        event.event_type.clone()
                    }
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
