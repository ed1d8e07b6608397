//! The table of snapshots: how the writer keeps one, and how it is read.

use parlor_vocab::{EventId, Seq, SessionId};

use super::Shared;
use super::queue::Job;
use super::request::{StoredValueError, WriteReply, WriteRequest, text};
use super::writer::{Failures, Replies, Writer};
use crate::LogError;
use crate::lease::Token;
use crate::row::Row;
use crate::snapshot::StoredSnapshot;

/// Locks the lease, so that nobody takes it over before the commit.
const KEEP: &str = "WITH
    held AS MATERIALIZED (SELECT session FROM leases WHERE session = $1 AND token = $2 FOR SHARE),
    known AS MATERIALIZED (SELECT s.id FROM sessions AS s JOIN held AS h ON s.id = h.session),
    kept AS (
        INSERT INTO snapshots (session, seq, event, version, body) SELECT k.id, $3, $4, $5, $6 FROM known AS k
        ON CONFLICT (session) DO UPDATE
        SET seq = excluded.seq, event = excluded.event, version = excluded.version, body = excluded.body
    )
    SELECT EXISTS (SELECT FROM held), EXISTS (SELECT FROM known)";

const SNAPSHOT: &str = "SELECT n.seq, n.event, n.version, n.body
    FROM snapshots AS n JOIN events AS e ON e.session = n.session AND e.seq = n.seq AND e.id = n.event
    WHERE n.session = $1";

impl Writer<'_> {
    /// Keeps snapshots, one after the other: they are rare.
    pub(super) async fn keep_snapshots(&mut self, jobs: &[Job]) -> Replies {
        let mut replies = Vec::new();
        for job in jobs {
            if let WriteRequest::KeepSnapshot { session, token, snapshot } = &job.request {
                let kept = self.keep_snapshot(session, *token, snapshot).await;
                replies.push(kept.map(|()| WriteReply::SnapshotKept));
            }
        }
        replies
    }

    async fn keep_snapshot(
        &mut self,
        session: &SessionId,
        token: Token,
        snapshot: &StoredSnapshot,
    ) -> Result<(), LogError> {
        let not_held = || LogError::NotHeld { session: session.clone() };
        if !self.shared.membership.holds(session, token) {
            return Err(not_held());
        }
        let StoredSnapshot { seq, event, row } = snapshot;
        let (name, token, seq) = (session.as_str().as_bytes(), token.0 as i64, seq.0 as i64);
        let event = event.as_str().as_bytes();
        let mut failures = Failures::default();
        loop {
            let connection = self.connected().await?;
            let kept = connection.query(KEEP, &[&name, &token, &seq, &event, &row.version, &row.body]).await;
            // A snapshot may be lost, so it does not wait for a standby.
            connection.take_sync_wait_cancelled();
            match kept {
                Ok(rows) => {
                    let column = |index| rows.first().is_some_and(|row| row.get::<_, bool>(index));
                    return match (column(0), column(1)) {
                        (true, true) => Ok(()),
                        (true, false) => Err(LogError::UnknownSession(session.clone())),
                        (false, _) => Err(not_held()),
                    };
                }
                Err(error) if self.may_repeat(&error, &mut failures) => {}
                Err(error) => return Err(self.shared.log_error(error)),
            }
        }
    }
}

impl Shared {
    /// The snapshot of a session, if its event is in the log.
    pub(super) async fn stored_snapshot(
        &self,
        session: &SessionId,
    ) -> Result<Option<StoredSnapshot>, LogError> {
        let rows = self.read(SNAPSHOT, &[&session.as_str().as_bytes()]).await?;
        let stored = |row: &tokio_postgres::Row| {
            let seq = Seq(row.try_get::<_, i64>(0)? as u64);
            let event = EventId::parse(text(row, 1)?)?;
            let row = Row { version: row.try_get(2)?, body: row.try_get(3)? };
            Ok::<_, StoredValueError>(StoredSnapshot { seq, event, row })
        };
        self.stored(rows.first().map(stored).transpose())
    }
}
