//! Kills a process with eight busy sessions, again and again. Afterwards no acknowledged run is missing, no log has a
//! gap, and no run is open.
//!
//! The test starts its own program again as the child; an environment variable tells the child what to do.
#![expect(clippy::unwrap_used, reason = "a panic fails the test and shows the line")]
#![expect(clippy::disallowed_methods, reason = "these tests start processes and read environment variables")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parlor_engine::session::Session;
use parlor_engine::{Agents, MediaStore, SessionDeps, SessionUpdate, Sessions};
use parlor_log::{EventLog, SqliteLog, SystemClock, TimeOrderedIds};
use parlor_model::LocalAgent;
use parlor_tools::{ShellTool, Toolbox};
use parlor_vocab::{
    AgentChoice, AgentId, Entry, NewSession, RunEvent, RunId, Seq, SessionCommand, SessionEvent, SessionId,
    SessionRefusal, SessionReply, UserInput, WhenBusy,
};

/// The environment variable with the child's state folder.
const HOME: &str = "PARLOR_ENGINE_TEST_HOME";

/// How long the lock of a dead process may still seem to be held.
const LOCK_RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// How many sessions are busy at the same time.
const SESSIONS: usize = 8;

fn session(number: usize) -> SessionId {
    SessionId::parse(&format!("s{number}")).unwrap()
}

fn open(home: &Path) -> (Arc<SqliteLog>, Sessions) {
    let clock = Arc::new(SystemClock);
    let log = Arc::new(SqliteLog::open(home, Arc::clone(&clock) as _).unwrap());
    let deps = SessionDeps {
        log: Arc::clone(&log) as _,
        agents: Agents::new(AgentId::parse("local").unwrap(), Arc::new(LocalAgent::default())),
        tools: Toolbox::standard(ShellTool::default()),
        media: MediaStore::open(home).unwrap(),
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
        clock: Arc::clone(&clock) as _,
        ids: Arc::new(TimeOrderedIds::new(clock)),
    };
    (log, Sessions::new(deps))
}

/// The child: keeps its sessions busy until it is killed, and prints each accepted run to standard error.
#[test]
#[ignore = "started by the other test as a child process"]
fn child() {
    let home = std::env::var_os(HOME).expect("the parent sets the folder");
    // One thread, like the program: child processes get a signal when the thread that started them ends.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let sessions: &'static Sessions = Box::leak(Box::new(open(Path::new(&home)).1));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..SESSIONS {
            tasks.spawn(keep_busy(sessions, number));
        }
        tasks.join_all().await;
    });
}

async fn keep_busy(sessions: &Sessions, number: usize) {
    let id = session(number);
    let new_session = NewSession {
        title: None,
        door: "test".to_owned(),
        folder: "/tmp".into(),
        choice: AgentChoice::default(),
        system: None,
        forked_from: None,
    };
    match sessions.create(Some(id.clone()), new_session).await {
        Ok(_) | Err(SessionRefusal::SessionExists(_)) => {}
        Err(error) => panic!("{error}"),
    }
    for turn in 0_usize.. {
        let text =
            ["/say one two three", "!echo done", "/think a while", "/fail on purpose"][(turn + number) % 4];
        let head = sessions.view(&id).await.unwrap().head();
        let mut watcher = sessions.watch(&id, head).await;
        let input = UserInput { text: text.to_owned(), ..UserInput::default() };
        let send = SessionCommand::Send { input, when_busy: WhenBusy::Enqueue };
        let reply = sessions.execute(&id, send).await.unwrap();
        let (SessionReply::Started(run) | SessionReply::Queued { run, .. }) = reply else {
            panic!("{reply:?}")
        };
        // One write for each line, so that a kill can cut only the last line short.
        let _ = std::io::stderr().write_all(format!("s{number} {run}\n").as_bytes());
        while !is_end_of(&watcher.next().await.unwrap(), &run) {}
    }
}

fn is_end_of(seen: &SessionUpdate, of: &RunId) -> bool {
    let SessionUpdate::Entry(entry) = seen else { return false };
    matches!(&entry.event, SessionEvent::Run { run, event: RunEvent::Ended { .. }, .. } if run == of)
}

struct ChildProcess {
    child: Child,
    output: BufReader<ChildStderr>,
}

impl ChildProcess {
    fn start(home: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "child", "--nocapture"])
            .env(HOME, home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stderr.take().unwrap());
        Self { child, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the child has ended");
        line
    }

    /// Kills the child with SIGKILL, and returns the rest of its output.
    fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest
    }
}

/// Opens a session after its process was killed. A process that it had just forked holds a copy of the lock until it
/// executes its program, so this tries again for a while.
async fn view(sessions: &Sessions, number: usize) -> Result<Session, SessionRefusal> {
    let deadline = tokio::time::Instant::now() + LOCK_RELEASE_TIMEOUT;
    loop {
        match sessions.view(&session(number)).await {
            Err(SessionRefusal::SessionHeld { .. }) if tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            viewed => return viewed,
        }
    }
}

#[tokio::test]
async fn eight_busy_sessions_survive_sigkill() {
    let rounds = if std::env::var_os("PARLOR_SOAK").is_some() { 200 } else { 15 };
    let home = tempfile::tempdir().unwrap();
    let mut acknowledged: BTreeMap<usize, BTreeSet<RunId>> = BTreeMap::new();
    for round in 0..rounds {
        let mut child_process = ChildProcess::start(home.path());
        // Kill at a different moment each time, measured in printed lines.
        let mut printed: String = (0..1 + round * 13 % 60).map(|_| child_process.line()).collect();
        printed.push_str(&child_process.kill());
        let complete = printed.rsplit_once('\n').map_or("", |(complete, _)| complete);
        for line in complete.lines() {
            let (name, run) = line.split_once(' ').unwrap_or_else(|| panic!("the child printed: {line}"));
            let number = name.strip_prefix('s').and_then(|number| number.parse().ok()).unwrap();
            acknowledged.entry(number).or_default().insert(RunId::parse(run).unwrap());
        }
        let (log, sessions) = open(home.path());
        for number in 0..SESSIONS {
            // Opening records the interrupted run as failed and starts queued inputs, which `close` stops below.
            match view(&sessions, number).await {
                Ok(_) => {}
                Err(SessionRefusal::UnknownSession(_)) => assert!(!acknowledged.contains_key(&number)),
                Err(error) => panic!("a dead process holds nothing: {error}"),
            }
        }
        sessions.close().await;
        for (number, runs) in &acknowledged {
            check(&read_all(&*log, &session(*number)).await, runs);
        }
        drop((log, sessions));
        let database = rusqlite::Connection::open(home.path().join("parlor.db")).unwrap();
        let verdict: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(verdict, "ok");
    }
    assert_eq!(acknowledged.len(), SESSIONS, "every session had an accepted run");
}

async fn read_all(log: &dyn EventLog, of: &SessionId) -> Vec<Entry> {
    let mut all: Vec<Entry> = Vec::new();
    loop {
        let after = all.last().map_or(Seq::START, |entry| entry.seq);
        let more = log.read(of, after, 1024).await.unwrap();
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
}

/// Checks what must hold for a session's log when no run is active.
fn check(entries: &[Entry], acknowledged: &BTreeSet<RunId>) {
    assert!(entries.iter().zip(1..).all(|(entry, position)| entry.seq == Seq(position)), "no gap in the log");
    let (mut last, mut ended, mut waiting) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    for entry in entries {
        match &entry.event {
            SessionEvent::Queued(queued) => drop(waiting.insert(queued.run.clone())),
            SessionEvent::Run { run, sequence, event } => {
                let before = last.insert(run.clone(), *sequence).unwrap_or(0);
                assert_eq!(*sequence, before + 1, "{run} counts without a gap");
                assert!(!ended.contains(run), "nothing follows the end of {run}");
                waiting.remove(run);
                if matches!(event, RunEvent::Ended { .. }) {
                    ended.insert(run.clone());
                }
            }
            SessionEvent::Created(_)
            | SessionEvent::Renamed { .. }
            | SessionEvent::AgentChosen(_)
            | SessionEvent::ModeChosen { .. }
            | SessionEvent::Unqueued { .. }
            | SessionEvent::Cleared
            | SessionEvent::Compacted { .. }
            | SessionEvent::MessageAdded(_) => {}
        }
    }
    let started: BTreeSet<RunId> = last.into_keys().collect();
    assert_eq!(started, ended, "no run is left open");
    for run in acknowledged {
        assert!(ended.contains(run) || waiting.contains(run), "{run} was acknowledged and is missing");
    }
}
