//! Waits for the text of an unfinished message in the database of a running program. Tests of several doors use it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parlor_log::{EventLog, SqliteLog, SystemClock};
use parlor_vocab::SessionId;

/// The pause between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The text that the program on the state folder `state` has kept of the message that it is writing in `session`.
pub(crate) async fn kept_text(state: &Path, session: &str) -> String {
    let log = SqliteLog::open(state, Arc::new(SystemClock)).expect("the program has made the database");
    let session = SessionId::parse(session).expect("a session id");
    loop {
        if let Some(partial) = log.partial_message(&session).await.expect("the database can be read") {
            return partial.text;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
