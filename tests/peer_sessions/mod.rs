//! The sessions in the transcripts of the peer door: `s`, which nobody has open, and `held`, which a third process has open.

use std::path::Path;

use parlor_log::{EventLog, Lease};
use parlor_vocab::{AgentChoice, EventId, NewEntry, NewSession, Seq, SessionEvent, SessionId, Timestamp};

/// Creates both sessions. Returns the lease of `held`, for the third process.
pub(crate) async fn create_sessions(log: &dyn EventLog, folder: &Path) -> Lease {
    drop(create(log, "s", folder).await);
    create(log, "held", folder).await
}

async fn create(log: &dyn EventLog, id: &str, folder: &Path) -> Lease {
    let lease = log.acquire(&SessionId::parse(id).expect("a short id")).await.expect("a new session");
    let created = SessionEvent::Created(NewSession {
        title: None,
        door: "test".to_owned(),
        folder: folder.to_owned(),
        choice: AgentChoice::default(),
        system: None,
        forked_from: None,
    });
    let id = EventId::parse(&format!("evt_{id}")).expect("a short id");
    let entry = NewEntry { id, at: Timestamp(0), event: created };
    log.append(&lease, Seq::START, &[entry]).await.expect("a log that accepts a session");
    lease
}
