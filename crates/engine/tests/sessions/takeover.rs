//! A session whose lease another process takes while its first owner lives: the first owner stops its work, and follows
//! the session like everybody else.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use parlor_engine::{SessionDeps, Sessions, Watcher};
use parlor_log::{MemoryLog, SqliteLog, SystemClock};
use parlor_model::LocalAgent;
use parlor_vocab::{
    FailureCode, RunEnding, RunId, Seq, SessionCommand, SessionId, SessionRefusal, SessionReply, WhenBusy,
};

use crate::common::{TIMEOUT, deps, ending, message_text, new_session, send_command};

/// The registry of one more process on the state folder `home`.
fn process_on(home: &Path) -> Sessions {
    let memory = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
    let deps = deps(&memory, Arc::new(LocalAgent::default()), Arc::new(SystemClock));
    Sessions::new(SessionDeps {
        log: Arc::new(SqliteLog::open(home, Arc::new(SystemClock)).unwrap()),
        ..deps
    })
}

/// Takes away the leases of all processes that have opened sessions so far, as if they had died.
fn remove_lock_files(home: &Path) {
    let files = std::fs::read_dir(home.join("holders")).unwrap().map(|entry| entry.unwrap().path());
    let locks: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "lock")).collect();
    assert!(!locks.is_empty());
    locks.iter().for_each(|lock| std::fs::remove_file(lock).unwrap());
}

async fn send(sessions: &Sessions, session: &SessionId, text: &str) -> Result<RunId, SessionRefusal> {
    let reply = sessions.execute(session, send_command(text, WhenBusy::Refuse)).await?;
    let SessionReply::Started(run) = reply else { panic!("{reply:?}") };
    Ok(run)
}

/// Watches until the run ends. Returns the text of its messages, and how it ended.
async fn end_of(watcher: &mut Watcher, run: &RunId) -> (String, RunEnding) {
    let mut updates = Vec::new();
    loop {
        updates.push(tokio::time::timeout(TIMEOUT, watcher.next()).await.expect("an update").unwrap());
        if let Some(ending) = ending(updates.last().unwrap(), run) {
            return (message_text(&updates), ending);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_lost_its_lease_stops_its_tools_and_follows_the_new_owner() {
    let home = tempfile::tempdir().unwrap();
    let fifo = home.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    let first = process_on(home.path());
    let session = first.create(None, new_session()).await.unwrap();
    let mut watcher = first.watch(&session, Seq::START).await;
    let tool = format!("!exec 3>{}; exec sleep 600", fifo.display());
    let run = send(&first, &session, &tool).await.unwrap();
    // Opening the pipe waits for the tool; the pipe ends when all of the tool's processes have ended.
    let mut pipe = tokio::task::spawn_blocking(move || std::fs::File::open(fifo).unwrap()).await.unwrap();

    remove_lock_files(home.path());
    let second = process_on(home.path());
    let answer = send(&second, &session, "/say hello").await.unwrap();

    let end_of_tool = tokio::task::spawn_blocking(move || pipe.read_to_end(&mut Vec::new()).unwrap());
    tokio::time::timeout(TIMEOUT, end_of_tool).await.expect("the tool ends").unwrap();
    let (_, ended) = end_of(&mut watcher, &run).await;
    assert!(
        matches!(&ended, RunEnding::Failed(failure) if failure.code == FailureCode::RunInterrupted),
        "{ended:?}"
    );
    assert_eq!(end_of(&mut watcher, &answer).await.0, "hello", "the first process sees the second one's run");

    let refused = send(&first, &session, "/say held").await.unwrap_err();
    assert!(matches!(refused, SessionRefusal::SessionHeld { .. }), "{refused:?}");
    second.shut_down().await;
    let again = send(&first, &session, "/say again").await.unwrap();
    assert_eq!(end_of(&mut watcher, &again).await.0, "again");
    first.shut_down().await;
}

#[tokio::test]
async fn an_idle_owner_that_lost_its_lease_takes_the_session_again_with_its_next_command() {
    let home = tempfile::tempdir().unwrap();
    let first = process_on(home.path());
    let session = first.create(None, new_session()).await.unwrap();
    remove_lock_files(home.path());
    let second = process_on(home.path());
    let title = "of the second process".to_owned();
    second.execute(&session, SessionCommand::Rename { title: title.clone() }).await.unwrap();
    second.shut_down().await;

    send(&first, &session, "/say hello").await.unwrap();
    assert_eq!(first.view(&session).await.unwrap().title(), Some(title.as_str()));
    first.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_watchers_of_an_idle_owner_that_lost_its_lease_follow_the_new_owner() {
    let home = tempfile::tempdir().unwrap();
    let first = process_on(home.path());
    let session = first.create(None, new_session()).await.unwrap();
    let mut watcher = first.watch(&session, Seq::START).await;
    let own = send(&first, &session, "/say first").await.unwrap();
    end_of(&mut watcher, &own).await;

    remove_lock_files(home.path());
    let second = process_on(home.path());
    let answer = send(&second, &session, "/say second").await.unwrap();
    assert_eq!(end_of(&mut watcher, &answer).await.0, "second");
    second.shut_down().await;
    first.shut_down().await;
}

#[tokio::test]
async fn commands_that_wait_for_an_owner_that_lost_its_lease_are_all_carried_out() {
    let home = tempfile::tempdir().unwrap();
    let first = process_on(home.path());
    let session = first.create(None, new_session()).await.unwrap();
    remove_lock_files(home.path());
    let second = process_on(home.path());
    let title = "of the second process".to_owned();
    second.execute(&session, SessionCommand::Rename { title }).await.unwrap();
    second.shut_down().await;

    // All three are in the mailbox before the first of them finds out that the lease is lost.
    let rename = |title: &str| first.execute(&session, SessionCommand::Rename { title: title.to_owned() });
    let replies = tokio::join!(rename("a"), rename("b"), rename("c"));
    assert_eq!(replies, (Ok(SessionReply::Done), Ok(SessionReply::Done), Ok(SessionReply::Done)));
    first.shut_down().await;
}
