//! Recovery of damaged databases.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]
#![expect(
    clippy::disallowed_methods,
    reason = "these tests start this test program again as another process"
)]

mod common;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use parlor_log::{
    EventLog, LogError, LostData, MAX_PAGE, PageRequest, Recovered, SavedData, SystemClock, recover,
};
use parlor_vocab::Seq;

use common::{assert_intact, database, new_entry, noise, open, session, texts};

const PAGE: u64 = 4096;

/// The number of sessions in the database of most tests.
const SESSIONS: usize = 40;

/// Pseudorandom numbers from a fixed seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        // The generator of George Marsaglia's "Xorshift RNGs".
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The text of event `seq` of session `name`: mostly short, sometimes longer than a page.
fn text(name: &str, seq: u64) -> String {
    format!("{name} {seq} {}", noise(if seq.is_multiple_of(7) { 9000 } else { 200 }))
}

/// Writes sessions in turns, some events at a time, so that their pages mix. Deletes some of them. If `move_fresh`,
/// empties the table `fresh` and the write-ahead log.
async fn write(home: &Path, move_fresh: bool) {
    let log = open(home).unwrap();
    let mut leases = Vec::new();
    for number in 0..SESSIONS + 5 {
        leases.push(log.acquire(&session(&format!("s{number}"))).await.unwrap());
    }
    for round in 0..10 {
        for lease in &leases {
            let name = lease.session().as_str();
            let new: Vec<_> = (1..=4).map(|seq| new_entry(text(name, 4 * round + seq))).collect();
            log.append(lease, Seq(4 * round), &new).await.unwrap();
        }
    }
    for lease in leases.split_off(SESSIONS) {
        log.delete(&lease).await.unwrap();
    }
    drop((leases, log));
    if move_fresh {
        let sql = "INSERT INTO events SELECT place, id, at, version, body FROM fresh; DELETE FROM fresh;
                     PRAGMA wal_checkpoint(TRUNCATE)";
        database(home).execute_batch(sql).unwrap();
    }
}

/// Copies the files of a state folder.
fn copy(of: &Path) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(of).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, home.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    home
}

/// Recovers the database and checks the result: each session is a gapless prefix of what it was, and accepts appends.
async fn recover_and_check(home: &Path) -> (SavedData, LostData, PathBuf) {
    let outcome = recover(home, &SystemClock, |_| ()).unwrap();
    let Recovered::New { saved, lost, damaged } = outcome else { panic!("{outcome:?}") };
    let log = open(home).unwrap();
    let page = log.sessions(PageRequest::first(MAX_PAGE)).await.unwrap();
    assert_eq!(page.records.len() as u64, saved.sessions);
    assert_eq!(page.records.iter().map(|record| record.head.0).sum::<u64>(), saved.events);
    for record in page.records {
        let name = record.id.as_str();
        let texts = texts(&log, name).await;
        assert_eq!(texts.len() as u64, record.head.0, "{name}");
        let own = texts[0].split(' ').next().unwrap();
        assert!(own == name || name.starts_with("recovered-"), "{name} was {own}");
        let number: usize = own.strip_prefix('s').unwrap().parse().unwrap();
        assert!(number < SESSIONS, "{own} was deleted but came back");
        assert!(texts.iter().zip(1..).all(|(found, seq)| *found == text(own, seq)), "{name}");
        let lease = log.acquire(&record.id).await.unwrap();
        log.append(&lease, record.head, &[new_entry("goes on")]).await.unwrap();
    }
    let lease = log.acquire(&session("new")).await.unwrap();
    log.append(&lease, Seq::START, &[new_entry("begins")]).await.unwrap();
    drop((lease, log));
    assert_intact(home);
    assert!(damaged.exists());
    (saved, lost, damaged)
}

fn overwrite(home: &Path, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(home.join("parlor.db")).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// The numbers of the pages of a table. The first page of the file is number 1.
fn pages_of(home: &Path, table: &str) -> Vec<u64> {
    let database = database(home);
    let mut select = database.prepare("SELECT pageno FROM dbstat WHERE name = ?1").unwrap();
    let pages = select.query_map([table], |row| row.get::<_, i64>(0)).unwrap();
    pages.map(|page| u64::try_from(page.unwrap()).unwrap()).collect()
}

fn pages(home: &Path) -> u64 {
    home.join("parlor.db").metadata().unwrap().len() / PAGE
}

#[tokio::test]
async fn damaged_pages_cost_only_the_sessions_on_them() {
    let original = tempfile::tempdir().unwrap();
    write(original.path(), true).await;
    let record_pages = pages_of(original.path(), "sessions");
    for seed in 1..=12 {
        let mut random = Random(seed * 0x9e37_79b9);
        let home = copy(original.path());
        let count = 1 + random.below(4);
        let (mut sessions_hit, mut is_record_hit) = (0, false);
        for _ in 0..count {
            // Never the first page, which has a test of its own.
            let page = 1 + random.below(pages(home.path()) - 1);
            let noise: Vec<u8> = (0..PAGE).map(|_| random.below(256) as u8).collect();
            overwrite(home.path(), page * PAGE, &noise);
            sessions_hit += 3;
            is_record_hit |= record_pages.contains(&(page + 1));
        }
        // The damage may hit a free page or an index; then nothing is lost.
        let before = fs::read(home.path().join("parlor.db")).unwrap();
        match recover(home.path(), &SystemClock, |_| ()).unwrap() {
            Recovered::Intact => continue,
            Recovered::New { damaged, .. } => assert_eq!(fs::read(&damaged).unwrap(), before),
        }
        fs::write(home.path().join("parlor.db"), before).unwrap();
        let (saved, lost, _) = recover_and_check(home.path()).await;
        assert!(saved.sessions + lost.sessions >= SESSIONS as u64, "{seed}: {saved:?} {lost:?}");
        // A page has rows of three sessions at most, and the rest of each is lost with its first missing event.
        assert!(lost.events <= sessions_hit * 40, "{seed}: {saved:?} {lost:?}");
        // Without its record, nobody knows how many events a session had.
        let (known, all) = (saved.events + lost.events, 40 * SESSIONS as u64);
        assert!(known == all || is_record_hit && known < all, "{seed}: {saved:?} {lost:?}");
    }
}

#[tokio::test]
async fn damage_of_the_first_page_costs_nothing() {
    let original = tempfile::tempdir().unwrap();
    write(original.path(), true).await;
    for bytes in [16, 100, PAGE] {
        let home = copy(original.path());
        overwrite(home.path(), 0, &vec![0xa5; usize::try_from(bytes).unwrap()]);
        let error = open(home.path()).err().unwrap();
        assert!(matches!(error, LogError::Damaged { .. }), "{bytes}: {error:?}");
        assert!(error.to_string().contains("parlor doctor --recover"), "{error}");
        let (saved, lost, _) = recover_and_check(home.path()).await;
        assert_eq!(
            (saved.sessions, saved.unnamed, lost),
            (SESSIONS as u64, 0, LostData::default()),
            "{bytes}"
        );
    }
}

#[tokio::test]
async fn the_beginning_of_a_truncated_file_is_saved() {
    let original = tempfile::tempdir().unwrap();
    write(original.path(), true).await;
    for part in [2, 3, 10] {
        let home = copy(original.path());
        let length = home.path().join("parlor.db").metadata().unwrap().len() / part + 1234;
        OpenOptions::new().write(true).open(home.path().join("parlor.db")).unwrap().set_len(length).unwrap();
        let error = open(home.path()).err().unwrap();
        assert!(matches!(error, LogError::Damaged { .. }), "{error:?}");
        let (saved, lost, _) = recover_and_check(home.path()).await;
        assert!(saved.events > 0 && lost.events > 0, "{part}: {saved:?} {lost:?}");
    }
}

#[tokio::test]
async fn events_that_are_only_in_the_write_ahead_log_are_saved() {
    let home = tempfile::tempdir().unwrap();
    write(home.path(), true).await;
    // Copy the files while the log is open, as a killed process leaves them.
    let log = open(home.path()).unwrap();
    let lease = log.acquire(&session("late")).await.unwrap();
    log.append(&lease, Seq::START, &[new_entry("only in the log")]).await.unwrap();
    let copied = copy(home.path());
    drop((lease, log));
    assert!(copied.path().join("parlor.db-wal").metadata().unwrap().len() > 0);
    // A page in the middle, which the write-ahead log does not contain.
    let half = pages(copied.path()) / 2 * PAGE;
    overwrite(copied.path(), half, &[0xa5; PAGE as usize]);
    let outcome = recover(copied.path(), &SystemClock, |_| ()).unwrap();
    let Recovered::New { damaged, .. } = outcome else { panic!("{outcome:?}") };
    assert!(damaged.with_file_name(format!("{}-wal", damaged.file_name().unwrap().display())).exists());
    assert_eq!(texts(&open(copied.path()).unwrap(), "late").await, ["only in the log"]);
}

#[tokio::test]
async fn usage_and_references_to_files_are_saved() {
    use parlor_vocab::{Media, MediaId, Message, MessageId, Role, RunEvent, RunId, SessionEvent, Usage};
    let home = tempfile::tempdir().unwrap();
    write(home.path(), true).await;
    let log = open(home.path()).unwrap();
    let lease = log.acquire(&session("m")).await.unwrap();
    let media = Media { id: MediaId::parse("ab").unwrap(), name: "n".into(), mime: "m".into(), size: 1 };
    let message = Message {
        id: MessageId::parse("m").unwrap(),
        role: Role::User,
        text: String::new(),
        media: vec![media],
    };
    let run = RunId::parse("r").unwrap();
    let usage_added = RunEvent::UsageAdded {
        usage: Usage { input_tokens: 7, ..Usage::default() },
        model: Some("m".into()),
    };
    let events =
        [SessionEvent::MessageAdded(message), SessionEvent::Run { run, sequence: 1, event: usage_added }];
    let new: Vec<_> = events.map(|event| parlor_vocab::NewEntry { event, ..new_entry("") }).into();
    log.append(&lease, Seq::START, &new).await.unwrap();
    let (usage, references) = (log.usage(0).await.unwrap(), log.referenced_media().await.unwrap());
    assert_eq!((usage.len(), references.len()), (1, 1));
    drop((lease, log));
    overwrite(home.path(), 0, &[0xa5; 100]);
    recover(home.path(), &SystemClock, |_| ()).unwrap();
    let log = open(home.path()).unwrap();
    assert_eq!((log.usage(0).await.unwrap(), log.referenced_media().await.unwrap()), (usage, references));
}

#[tokio::test]
async fn an_intact_database_is_not_changed() {
    let home = tempfile::tempdir().unwrap();
    write(home.path(), false).await;
    let before = fs::read(home.path().join("parlor.db")).unwrap();
    assert_eq!(recover(home.path(), &SystemClock, |_| ()).unwrap(), Recovered::Intact);
    assert_eq!(fs::read(home.path().join("parlor.db")).unwrap(), before);
}

/// The files of a folder with their contents, without the `-shm` index.
fn contents(home: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().path());
    let files = paths.filter(|path| path.is_file() && !path.to_string_lossy().ends_with("-shm"));
    files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[tokio::test]
async fn a_failed_recovery_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    write(home.path(), true).await;
    overwrite(home.path(), 0, &[0xa5; 100]);
    // A folder with the name of the new file makes the recovery fail.
    fs::create_dir_all(home.path().join("parlor.db.recovering/in the way")).unwrap();
    let before = contents(home.path());
    let error = recover(home.path(), &SystemClock, |_| ()).unwrap_err();
    assert!(matches!(error, LogError::Io { .. }), "{error:?}");
    assert_eq!(contents(home.path()), before);
}

/// The child: opens the log, prints a line, and ends with its input.
#[test]
#[ignore = "started by another test"]
fn child() {
    let home = std::env::var_os("PARLOR_LOG_TEST_HOME").expect("the parent sets it");
    let _log = open(Path::new(&home)).unwrap();
    std::io::Write::write_all(&mut std::io::stderr(), b"open\n").unwrap();
    let _ = std::io::read_to_string(std::io::stdin());
}

#[tokio::test]
async fn a_database_in_use_is_not_recovered() {
    let home = tempfile::tempdir().unwrap();
    write(home.path(), true).await;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child", "--nocapture"])
        .env("PARLOR_LOG_TEST_HOME", home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "open\n");
    let last = pages(home.path()) - 1;
    overwrite(home.path(), last * PAGE, &[0xa5; PAGE as usize]);
    let before = contents(home.path());
    let error = recover(home.path(), &SystemClock, |_| ()).unwrap_err();
    assert!(matches!(error, LogError::InUse { pid: Some(pid), .. } if pid == child.id()), "{error:?}");
    assert!(error.to_string().starts_with(&format!("process {} uses", child.id())), "{error}");
    assert_eq!(contents(home.path()), before);
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(recover(home.path(), &SystemClock, |_| ()).is_ok());
}
