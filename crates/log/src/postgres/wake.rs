//! Wakes the readers that follow a session, by `LISTEN` and `NOTIFY`.
//!
//! A commit notifies once for all of its sessions: `<incarnation>;<hash>:<head>,…`, where the hash is that of the session's
//! id. A hash that two sessions share wakes a reader once too often. Notifications are lost while the connection is, so
//! after each reconnect all followers are woken.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use parlor_vocab::{Seq, SessionId};
use tokio_postgres::Notification;

use super::Shared;
use super::connect::{Backoff, Connection};
use super::db_error::{DbError, describe};

/// The index of followed sessions is never rebuilt while it has fewer entries than this.
const REBUILD_AT_LEAST: usize = 64;

/// The largest number of sessions in one notification. Each takes at most 38 bytes, and the server allows 8,000.
const PAYLOAD_PAIRS: usize = 200;

const HEADS: &str = "SELECT id, head FROM sessions WHERE id = ANY ($1::bytea[])";

/// Finds followed sessions by their hash.
#[derive(Default)]
pub(super) struct FollowedSessions(Mutex<Index>);

#[derive(Default)]
struct Index {
    sessions: HashMap<u64, Vec<SessionId>>,
    /// The number of sessions at which those without followers are removed.
    rebuild_at: usize,
    count: usize,
}

impl FollowedSessions {
    /// Adds a session. `followed` is asked for those that have followers, now and then.
    pub(super) fn add(&self, session: &SessionId, followed: impl FnOnce() -> Vec<SessionId>) {
        let mut index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if index.count >= index.rebuild_at.max(REBUILD_AT_LEAST) {
            *index = Index::default();
            followed().iter().for_each(|session| index.insert(session));
            index.rebuild_at = 2 * index.count;
        }
        index.insert(session);
    }

    fn find(&self, hash: u64) -> Vec<SessionId> {
        let index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        index.sessions.get(&hash).cloned().unwrap_or_default()
    }
}

impl Index {
    fn insert(&mut self, session: &SessionId) {
        let sessions = self.sessions.entry(hash(session.as_str())).or_default();
        if !sessions.contains(session) {
            sessions.push(session.clone());
            self.count += 1;
        }
    }
}

/// FNV-1a. All nodes of all versions have to compute the same number.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The hash of a session, as notifications have it.
pub(super) fn hash_text(session: &SessionId) -> String {
    format!("{:x}", hash(session.as_str()))
}

/// The name of the channel for the log in this schema. Channels are shared by all schemas of a database.
pub(super) fn channel_name(schema: &str) -> String {
    format!("parlor_{:x}", hash(schema))
}

/// The notifications of a commit, from hashes and heads. Usually one; an empty commit has none.
pub(super) fn payloads(incarnation: i64, heads: &[(String, Seq)]) -> Vec<String> {
    let payload = |heads: &[(String, Seq)]| {
        let pairs: Vec<String> = heads.iter().map(|(hash, head)| format!("{hash}:{}", head.0)).collect();
        format!("{incarnation};{}", pairs.join(","))
    };
    heads.chunks(PAYLOAD_PAIRS).map(payload).collect()
}

pub(super) fn payload_of_deletion(incarnation: i64, session: &SessionId) -> String {
    format!("{incarnation};{}:0", hash_text(session))
}

/// The sender of a notification, and hashes with heads. `None` if it is not one of ours.
fn parse(payload: &str) -> Option<(i64, Vec<(u64, Seq)>)> {
    let (incarnation, pairs) = payload.split_once(';')?;
    let pair = |pair: &str| {
        let (hash, head) = pair.split_once(':')?;
        Some((u64::from_str_radix(hash, 16).ok()?, Seq(head.parse().ok()?)))
    };
    Some((incarnation.parse().ok()?, pairs.split(',').map(pair).collect::<Option<_>>()?))
}

impl Shared {
    fn on_notification(&self, notification: &Notification) {
        let Some((sender, pairs)) = parse(notification.payload()) else { return };
        // The writer has told followers in this process itself.
        if self.incarnation() == Some(sender) {
            return;
        }
        for (hash, head) in pairs {
            for session in self.followed_sessions.find(hash) {
                self.heads.publish(&session, head);
            }
        }
    }
}

/// Connects and listens.
pub(super) async fn listen(shared: &Arc<Shared>) -> Result<Connection, DbError> {
    let weak = Arc::downgrade(shared);
    let on_notification = move |notification: &Notification| {
        if let Some(shared) = weak.upgrade() {
            shared.on_notification(notification);
        }
    };
    let mut connection = shared.connector.connect_and_listen(Arc::new(on_notification)).await?;
    connection.client_mut().batch_execute(&format!("LISTEN {}", shared.channel)).await?;
    Ok(connection)
}

/// Listens until the log is closed.
pub(super) async fn run(shared: Arc<Shared>, connection: Connection) {
    let mut closed = shared.closed.subscribe();
    tokio::select! {
        _ = closed.wait_for(|closed| *closed) => {}
        () = follow(&shared, connection) => {}
    }
}

async fn follow(shared: &Arc<Shared>, mut connection: Connection) {
    let mut backoff = Backoff::default();
    let mut reconnects = shared.reconnects.subscribe();
    loop {
        tokio::select! {
            () = connection.closed() => {}
            _ = reconnects.changed() => {}
            () = shared.heads_stale.notified() => {
                if wake_all(shared, &mut connection).await.is_ok() {
                    continue;
                }
            }
        }
        reconnects.mark_unchanged();
        connection = loop {
            match listen(shared).await {
                Ok(connection) => break connection,
                Err(error) => {
                    tracing::debug!(error = describe(&error), "cannot listen to the database");
                    tokio::time::sleep(backoff.next_pause()).await;
                }
            }
        };
        backoff = Backoff::default();
        shared.heads_stale.notify_one();
    }
}

/// Wakes all followers with the present heads of their sessions.
async fn wake_all(shared: &Shared, connection: &mut Connection) -> Result<(), DbError> {
    let followed = shared.heads.followed();
    let names: Vec<&[u8]> = followed.iter().map(|(session, _)| session.as_str().as_bytes()).collect();
    let mut heads: HashMap<Vec<u8>, i64> = HashMap::new();
    if !names.is_empty() {
        for row in connection.query(HEADS, &[&names]).await? {
            heads.insert(row.try_get(0)?, row.try_get(1)?);
        }
    }
    for (session, _) in &followed {
        let head = heads.get(session.as_str().as_bytes()).copied().unwrap_or_default();
        shared.heads.publish(session, Seq(head as u64));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(name: &str) -> SessionId {
        SessionId::parse(name).unwrap()
    }

    #[test]
    fn hashes_never_change() {
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash_text(&session("foobar")), "85944171f73967e8");
    }

    #[test]
    fn a_payload_is_parsed_as_it_was_written() {
        let payload = payload_of_deletion(7, &session("foobar"));
        assert_eq!(parse(&payload), Some((7, vec![(0x8594_4171_f739_67e8, Seq(0))])));
        assert_eq!(parse("-1;a:1,b:2"), Some((-1, vec![(10, Seq(1)), (11, Seq(2))])));
        for other in ["", "1", "1;", "1;a", "x;a:1", "1;a:1,", "1;a:-1"] {
            assert_eq!(parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn sessions_without_followers_are_removed() {
        let followed = FollowedSessions::default();
        for number in 0..10 * REBUILD_AT_LEAST {
            followed.add(&session(&number.to_string()), || vec![session("0")]);
        }
        assert!(followed.0.lock().unwrap().count <= REBUILD_AT_LEAST + 1);
        assert_eq!(followed.find(hash("0")), [session("0")]);
    }
}
