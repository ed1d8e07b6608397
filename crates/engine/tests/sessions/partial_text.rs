//! Tests of the text of an unfinished message, which survives the death of its process.

use std::sync::Arc;

use async_trait::async_trait;
use parlor_engine::{PARTIAL_TEXT_BYTES, PARTIAL_TEXT_INTERVAL, SessionUpdate, Sessions};
use parlor_log::{EventLog, LogError, MemoryLog, SystemClock};
use parlor_model::{Agent, AgentContext, Turn, TurnError};
use parlor_vocab::{
    FailureCode, HistoryItem, MessageEvent, Role, RunEnding, RunEvent, Seq, SessionEvent, SessionId, WhenBusy,
};
use tokio::sync::Semaphore;

use crate::common::{message_text, new_session, send_command, sessions_on, sessions_with_agent};

/// Writes each text of its list when the test permits it.
struct Writer {
    texts: Vec<String>,
    go_on: Arc<Semaphore>,
}

#[async_trait]
impl Agent for Writer {
    fn name(&self) -> &str {
        "Writer"
    }

    async fn answer(&self, _: &Turn, context: &mut dyn AgentContext) -> Result<(), TurnError> {
        for text in &self.texts {
            self.go_on.acquire().await.unwrap().forget();
            context.write_text(text).await?;
        }
        self.go_on.acquire().await.unwrap().forget();
        Ok(())
    }
}

/// A session on `log` whose agent writes `texts`, with a run that has started.
struct Writing {
    log: Arc<MemoryLog>,
    sessions: Sessions,
    session: SessionId,
    go_on: Arc<Semaphore>,
}

impl Writing {
    async fn start(log: &Arc<MemoryLog>, texts: &[&str]) -> Self {
        let go_on = Arc::new(Semaphore::new(0));
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        let agent = Writer { texts, go_on: Arc::clone(&go_on) };
        let sessions = sessions_with_agent(log, Arc::new(agent));
        let session = sessions.create(None, new_session()).await.unwrap();
        sessions.execute(&session, send_command("write", WhenBusy::Refuse)).await.unwrap();
        Self { log: Arc::clone(log), sessions, session, go_on }
    }

    /// Lets the agent write its next text, and waits until the time to keep it has passed.
    async fn write(&self) {
        self.go_on.add_permits(1);
        tokio::time::sleep(2 * PARTIAL_TEXT_INTERVAL).await;
    }

    async fn kept(&self) -> Option<String> {
        self.log.partial_message(&self.session).await.unwrap().map(|partial| partial.text)
    }

    async fn head(&self) -> Seq {
        self.log.session(&self.session).await.unwrap().head
    }
}

fn new_log() -> Arc<MemoryLog> {
    Arc::new(MemoryLog::new(Arc::new(SystemClock)))
}

/// Runs `first` as a process that then dies: its tasks are dropped wherever they are.
fn in_dying_process<T>(first: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(first)
}

/// The messages of the agent in a session.
fn answers(history: &[HistoryItem]) -> Vec<&str> {
    let answers = history.iter().filter_map(|item| match item {
        HistoryItem::Message(message) if message.role == Role::Assistant => Some(message.text.as_str()),
        HistoryItem::Message(_) | HistoryItem::ToolUse(_) | HistoryItem::UnfinishedRun { .. } => None,
    });
    answers.collect()
}

async fn all_updates(sessions: &Sessions, session: &SessionId) -> Result<Vec<SessionUpdate>, LogError> {
    let (mut watcher, mut all) = (sessions.watch(session, Seq::START).await, Vec::new());
    while let Some(update) = watcher.try_next().await? {
        all.push(update);
    }
    Ok(all)
}

#[tokio::test(start_paused = true)]
async fn text_is_kept_while_it_is_written_and_not_after_its_message() {
    let writing = Writing::start(&new_log(), &["one ", "two "]).await;
    writing.write().await;
    assert_eq!(writing.kept().await.as_deref(), Some("one "));
    let head = writing.head().await;
    writing.write().await;
    assert_eq!(writing.kept().await.as_deref(), Some("one two "));
    assert_eq!(writing.head().await, head, "kept text is no event");
    writing.write().await;
    assert_eq!(writing.kept().await, None);
    let session = writing.sessions.read(&writing.session).await.unwrap();
    assert_eq!(answers(session.history()), ["one two "]);
}

#[tokio::test(start_paused = true)]
async fn a_fast_answer_is_kept_in_bounded_parts() {
    let long = "\u{e4}".repeat(PARTIAL_TEXT_BYTES);
    let writing = Writing::start(&new_log(), &[&long]).await;
    writing.go_on.add_permits(1);
    let mut lengths = Vec::new();
    for _ in 0..8 {
        tokio::time::sleep(PARTIAL_TEXT_INTERVAL / 2).await;
        lengths.extend(writing.kept().await.map(|kept| kept.len()));
    }
    lengths.dedup();
    assert_eq!(lengths, [PARTIAL_TEXT_BYTES, 2 * PARTIAL_TEXT_BYTES]);
}

#[test]
fn an_interrupted_message_is_recorded_once_with_the_text_that_was_kept() {
    let log = new_log();
    let session = in_dying_process(async {
        let writing = Writing::start(&log, &["first half", ", second half"]).await;
        writing.write().await;
        // While the process lives, others get the text from it or not at all.
        let other = sessions_on(&Arc::new(log.as_other_process()));
        assert_eq!(answers(other.read(&writing.session).await.unwrap().history()), [""; 0]);
        writing.session
    });
    in_dying_process(async {
        let sessions = sessions_on(&log);
        let read = sessions.read(&session).await.unwrap();
        assert_eq!(answers(read.history()), ["first half"], "a reader that does not open the session");
        let opened = sessions.view(&session).await.unwrap();
        assert_eq!(answers(opened.history()), ["first half"]);
        assert!(
            matches!(opened.history().last(), Some(HistoryItem::UnfinishedRun { ending: RunEnding::Failed(failure), .. })
            if failure.code == FailureCode::RunInterrupted)
        );
        assert_eq!(log.partial_message(&session).await.unwrap(), None);
        let updates = all_updates(&sessions, &session).await.unwrap();
        assert_eq!(message_text(&updates), "first half");
        let completed = updates.iter().filter(|update| {
            matches!(update, SessionUpdate::Entry(entry)
            if matches!(&entry.event, SessionEvent::Run { event: RunEvent::Message(message), .. }
                if matches!(message, MessageEvent::Completed { .. })))
        });
        assert_eq!(completed.count(), 1);
        sessions.execute(&session, send_command("/say more", WhenBusy::Refuse)).await.unwrap();
    });
    in_dying_process(async {
        let again = sessions_on(&log).view(&session).await.unwrap();
        assert_eq!(answers(again.history()).first(), Some(&"first half"), "the text is not recorded twice");
        assert_eq!(answers(again.history()).iter().filter(|text| **text == "first half").count(), 1);
    });
}

#[test]
fn a_message_without_kept_text_stays_as_it_was() {
    let log = new_log();
    let session = in_dying_process(async {
        let writing = Writing::start(&log, &["too short-lived"]).await;
        writing.go_on.add_permits(1);
        let mut watcher = writing.sessions.watch(&writing.session, Seq::START).await;
        while !matches!(watcher.next().await.unwrap(), SessionUpdate::Delta { .. }) {}
        writing.session
    });
    in_dying_process(async {
        let opened = sessions_on(&log).view(&session).await.unwrap();
        assert_eq!(answers(opened.history()), [""; 0]);
        assert!(opened.active().is_none());
    });
}
