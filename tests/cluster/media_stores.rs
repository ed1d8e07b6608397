//! The contract of `MediaStore`, on a folder alone and on a folder that caches what is in a shared log.

use std::collections::BTreeSet;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use parlor_engine::MediaStore;
use parlor_engine::media::{MAX_MEDIA_BYTES, MediaError, PIECE_BYTES, SWEEP_GRACE};
use parlor_log::postgres::test_server::TestServer;
use parlor_log::{EventLog, MemoryLog, PostgresLog, PostgresOptions, SharedMedia, SystemClock};
use parlor_vocab::{
    Clock, EventId, MediaId, Message, MessageId, NewEntry, Role, Seq, SessionEvent, SessionId, Timestamp,
};
use tempfile::TempDir;

/// A state folder with its store and its log.
struct Node {
    _folder: TempDir,
    store: MediaStore,
    log: Arc<dyn EventLog>,
    /// What all nodes share, if anything.
    shared: Option<(Arc<PostgresLog>, String)>,
}

impl Node {
    async fn folder() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = MediaStore::open(folder.path()).unwrap();
        Self { _folder: folder, store, log: Arc::new(MemoryLog::new(Arc::new(SystemClock))), shared: None }
    }

    /// A node on a database of the server that all tests share.
    async fn on(database: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = TestServer::shared().url(database);
        let log = PostgresLog::open(PostgresOptions::new(url, "a"), Arc::new(SystemClock)).await.unwrap();
        let log = Arc::new(log);
        let shared = Arc::<PostgresLog>::clone(&log) as Arc<dyn SharedMedia>;
        let store = MediaStore::open(folder.path()).unwrap().with_shared(Some(shared));
        let shared = Some((Arc::clone(&log), database.to_owned()));
        Self { _folder: folder, store, log, shared }
    }

    async fn both() -> [Self; 2] {
        [Self::folder().await, Self::on(&TestServer::shared().new_database().await).await]
    }

    /// Appends an event that refers to a file. Creates the session if `after` is 0.
    async fn refer(&self, session: &str, after: u64, media: &parlor_vocab::Media) {
        let lease = self.log.acquire(&SessionId::parse(session).unwrap()).await.unwrap();
        let message = Message {
            id: MessageId::parse("m").unwrap(),
            role: Role::User,
            text: String::new(),
            media: vec![media.clone()],
        };
        let event = SessionEvent::MessageAdded(message);
        let entry = NewEntry { id: EventId::parse("e").unwrap(), at: SystemClock.now(), event };
        self.log.append(&lease, Seq(after), &[entry]).await.unwrap();
        self.log.release(lease).await.unwrap();
    }

    /// Deletes a session, and what only it refers to, as the engine does.
    async fn delete(&self, session: &str) {
        let id = SessionId::parse(session).unwrap();
        let before = self.log.referenced_media().await.unwrap();
        let last_used = self.log.session(&id).await.unwrap().updated;
        let lease = self.log.acquire(&id).await.unwrap();
        self.log.delete(&lease).await.unwrap();
        let after = self.log.referenced_media().await.unwrap();
        let unreferenced: BTreeSet<MediaId> = before.difference(&after).cloned().collect();
        self.store.remove(unreferenced, last_used).await.unwrap();
    }

    async fn is_stored(&self, id: &MediaId) -> bool {
        match self.store.read(id, MAX_MEDIA_BYTES).await {
            Ok(_) => true,
            Err(MediaError::Missing(_)) => false,
            Err(error) => panic!("{error}"),
        }
    }

    async fn sweep(&self, grace: Duration) -> u64 {
        let referenced = self.log.referenced_media().await.unwrap();
        // The modification time of a file may be a little ahead of the clock.
        let now = Timestamp(SystemClock.now().0 + 60_000);
        self.store.sweep(referenced, grace, now, false).await.unwrap().files
    }

    /// Runs a statement on the database, if there is one.
    async fn damage(&self, sql: &str) {
        if let Some((_, database)) = &self.shared {
            TestServer::shared().execute(database, sql).await;
        }
    }
}

/// Content of several pieces, none of which is like another.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|number| (number * 31 / 7 + number / PIECE_BYTES) as u8).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_stored_is_read_whatever_its_size() {
    for node in Node::both().await {
        for length in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 5] {
            let bytes = content(length);
            let media = node.store.put("f", bytes.clone(), MAX_MEDIA_BYTES).await.unwrap();
            assert_eq!(node.store.read(&media.id, length as u64).await.unwrap(), bytes);
            // An upload in pieces of the same content is the same file.
            let mut upload = node.store.begin_upload(MAX_MEDIA_BYTES).await.unwrap();
            for part in bytes.chunks(100_000) {
                upload.write(part).await.unwrap();
            }
            assert_eq!(upload.finish("g").await.unwrap().id, media.id);
            let (mut file, size) = node.store.open_file(&media.id).await.unwrap();
            let mut read = Vec::new();
            file.read_to_end(&mut read).unwrap();
            assert_eq!((read, size), (bytes, length as u64));
        }
        let too_large = node.store.put("f", content(11), 10).await;
        assert!(matches!(too_large, Err(MediaError::TooLarge { limit: 10 })));
        for unknown in ["0".repeat(64), "../parlor.db".to_owned()] {
            let unknown = MediaId::parse(&unknown).unwrap();
            assert!(!node.is_stored(&unknown).await);
            assert!(matches!(node.store.renew(&unknown).await, Err(MediaError::Missing(_))));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_goes_with_the_last_session_that_refers_to_it() {
    for node in Node::both().await {
        let media = node.store.put("f", content(9), MAX_MEDIA_BYTES).await.unwrap();
        node.refer("one", 0, &media).await;
        node.refer("two", 0, &media).await;
        // Sent again in the same session.
        node.store.put("f", content(9), MAX_MEDIA_BYTES).await.unwrap();
        node.refer("two", 1, &media).await;
        node.delete("one").await;
        assert!(node.is_stored(&media.id).await, "the other session refers to it");
        node.delete("two").await;
        assert!(!node.is_stored(&media.id).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_about_to_be_referred_to_outlives_a_session() {
    for node in Node::both().await {
        let media = node.store.put("f", content(9), MAX_MEDIA_BYTES).await.unwrap();
        node.refer("one", 0, &media).await;
        // In time of the event and of the folder.
        tokio::time::sleep(Duration::from_millis(5)).await;
        node.store.renew(&media.id).await.unwrap();
        node.store.put("f", content(9), MAX_MEDIA_BYTES).await.unwrap();
        node.delete("one").await;
        assert!(node.is_stored(&media.id).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_removes_old_files_without_a_reference_only() {
    for node in Node::both().await {
        let [old, referenced] = [1, 2].map(content);
        let old = node.store.put("f", old, MAX_MEDIA_BYTES).await.unwrap();
        let referenced = node.store.put("f", referenced, MAX_MEDIA_BYTES).await.unwrap();
        node.refer("s", 0, &referenced).await;
        assert_eq!(node.sweep(SWEEP_GRACE).await, 0);
        assert!(node.is_stored(&old.id).await);
        assert_eq!(node.sweep(Duration::ZERO).await, 1);
        assert!(!node.is_stored(&old.id).await);
        assert!(node.is_stored(&referenced.id).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_discarded_file_is_removed_unless_somebody_has_stored_it_again() {
    for node in Node::both().await {
        let [kept, gone] = [3, 4].map(content);
        let kept_media = node.store.put("f", kept.clone(), MAX_MEDIA_BYTES).await.unwrap();
        let gone = node.store.put("f", gone, MAX_MEDIA_BYTES).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        node.store.put("f", kept, MAX_MEDIA_BYTES).await.unwrap();
        node.store.discard(vec![kept_media.id.clone(), gone.id.clone()]).await.unwrap();
        assert!(node.is_stored(&kept_media.id).await);
        assert!(!node.is_stored(&gone.id).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sending_a_damaged_file_again_repairs_it() {
    for node in Node::both().await {
        let bytes = content(2 * PIECE_BYTES);
        let media = node.store.put("f", bytes.clone(), MAX_MEDIA_BYTES).await.unwrap();
        std::fs::write(node.store.path_of(&media.id).unwrap(), "damaged").unwrap();
        node.damage("UPDATE media_pieces SET content = 'damaged' WHERE number = 2").await;
        let damaged = node.store.read(&media.id, MAX_MEDIA_BYTES).await;
        let is_found = matches!(damaged, Err(MediaError::Corrupt { .. } | MediaError::SharedCorrupt(_)));
        assert!(is_found, "{damaged:?}");
        node.store.put("f", bytes.clone(), MAX_MEDIA_BYTES).await.unwrap();
        assert_eq!(node.store.read(&media.id, MAX_MEDIA_BYTES).await.unwrap(), bytes);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_share_files_and_their_folders_are_caches() {
    let database = TestServer::shared().new_database().await;
    let (one, two) = (Node::on(&database).await, Node::on(&database).await);
    let bytes = content(3 * PIECE_BYTES + 1);
    let media = one.store.put("f", bytes.clone(), MAX_MEDIA_BYTES).await.unwrap();
    assert_eq!(two.store.read(&media.id, MAX_MEDIA_BYTES).await.unwrap(), bytes);
    // From now on the second node has it, also without the database.
    two.damage("ALTER TABLE media_pieces RENAME TO away").await;
    assert_eq!(two.store.read(&media.id, MAX_MEDIA_BYTES).await.unwrap(), bytes);
    two.damage("ALTER TABLE away RENAME TO media_pieces").await;
    // A damaged cache is filled again.
    std::fs::write(two.store.path_of(&media.id).unwrap(), "damaged").unwrap();
    assert_eq!(two.store.read(&media.id, MAX_MEDIA_BYTES).await.unwrap(), bytes);
    assert!(matches!(two.store.read(&media.id, 5).await, Err(MediaError::TooLarge { limit: 5 })));
    // Each node may delete the session.
    one.refer("s", 0, &media).await;
    two.delete("s").await;
    assert!(!two.is_stored(&media.id).await);
    let left = one.shared.as_ref().unwrap().0.file_size(&media.id).await.unwrap();
    assert_eq!(left, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_sweeps_at_a_time_and_many_may_store_meanwhile() {
    let database = TestServer::shared().new_database().await;
    let node = Node::on(&database).await;
    let log = &node.shared.as_ref().unwrap().0;
    let media = node.store.put("f", content(5), MAX_MEDIA_BYTES).await.unwrap();
    // Another node that sweeps has the lock.
    let other = TestServer::shared().client(&database).await;
    let lock: i64 = 0x7061_726c_7377;
    other.batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({lock})")).await.unwrap();
    assert_eq!(log.sweep(Duration::ZERO, false).await.unwrap().files, 0);
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(log.sweep(Duration::ZERO, true).await.unwrap().files, 1);
    assert!(log.file_size(&media.id).await.unwrap().is_some(), "a dry run removes nothing");
    let bytes = content(5);
    // What is stored again while a sweep runs is complete afterwards.
    for _ in 0..20 {
        let (swept, stored) = tokio::join!(log.sweep(Duration::ZERO, false), log.store(&media.id, &bytes));
        swept.unwrap();
        stored.unwrap();
        let is_complete = log.renew_intact(&media.id).await.unwrap();
        assert!(is_complete || log.file_size(&media.id).await.unwrap().is_none());
    }
}
