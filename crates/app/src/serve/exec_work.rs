//! Records what the clients of the exec door do as runs of sessions: one session for each of the client's threads, one run for
//! each burst of work in it, one tool call for each process and each changed file.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parlor_engine::{ExternalCall, ExternalRun, Sessions};
use parlor_process::{ObservedChange, ObservedWork, StopProcess, WorkObserver};
use parlor_vocab::{AgentChoice, AgentId, NewSession, ProcessExit, Sender, SessionId, UserInput, WorkOrigin};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// How many reports of work may wait to be recorded. Beyond it, work is not recorded.
pub(crate) const MAX_WAITING_WORK: usize = 1024;

/// How many processes at a time are recorded. Further ones are not.
pub(crate) const MAX_RECORDED_PROCESSES: usize = 256;

/// How long a run waits for more work before it ends.
pub(crate) const WORK_PAUSE: Duration = Duration::from_millis(500);

/// How many bytes of a command line a session records.
pub(crate) const COMMAND_BYTES: usize = 16 << 10;

/// The door and the agent that the sessions name.
const DOOR: &str = "exec";

/// Sends what clients do to the task that records it.
#[derive(Debug)]
pub(super) struct WorkRecorder(mpsc::Sender<ObservedWork>);

impl WorkObserver for WorkRecorder {
    fn observe(&self, work: ObservedWork) {
        if self.0.try_send(work).is_err() {
            tracing::debug!("work at the exec door was not recorded");
        }
    }
}

/// Records work in `sessions` until the recorder is dropped.
pub(super) fn record(sessions: Arc<Sessions>) -> Arc<WorkRecorder> {
    let (sender, work) = mpsc::channel(MAX_WAITING_WORK);
    tokio::spawn(record_all(sessions, work));
    Arc::new(WorkRecorder(sender))
}

/// The work of one thread of a client.
struct ThreadWork {
    run: ExternalRun,
    processes: HashMap<u64, (ExternalCall, StopProcess)>,
    /// When the run ends, if nothing else happens.
    ends_at: Instant,
    is_stopped: bool,
}

async fn record_all(sessions: Arc<Sessions>, mut work: mpsc::Receiver<ObservedWork>) {
    let mut threads: HashMap<SessionId, ThreadWork> = HashMap::new();
    loop {
        let idle = threads.values().filter(|thread| thread.processes.is_empty());
        let next_end = idle.map(|thread| thread.ends_at).min();
        tokio::select! {
            biased;
            session = next_stopped(&threads) => {
                if let Some(thread) = threads.get_mut(&session) {
                    (thread.is_stopped, thread.ends_at) = (true, Instant::now());
                    thread.processes.values().for_each(|(_, stop)| stop.stop());
                }
            }
            item = work.recv() => match item {
                Some(item) => on_work(&sessions, &mut threads, item).await,
                None => return,
            },
            () = sleep_until(next_end.unwrap_or_else(Instant::now)), if next_end.is_some() => {
                let now = Instant::now();
                threads.retain(|_, thread| !thread.processes.is_empty() || thread.ends_at > now);
            }
        }
    }
}

/// The session of a run that somebody has stopped, when there is one.
async fn next_stopped(threads: &HashMap<SessionId, ThreadWork>) -> SessionId {
    let running = threads.iter().filter(|(_, thread)| !thread.is_stopped);
    let stopped: Vec<_> = running
        .map(|(session, thread)| {
            Box::pin(async move {
                thread.run.stopped().cancelled().await;
                session.clone()
            })
        })
        .collect();
    if stopped.is_empty() {
        return std::future::pending().await;
    }
    futures_util::future::select_all(stopped).await.0
}

async fn on_work(sessions: &Sessions, threads: &mut HashMap<SessionId, ThreadWork>, work: ObservedWork) {
    match work {
        ObservedWork::ProcessStarted { number, origin, argv, folder, stop } => {
            let recorded: usize = threads.values().map(|thread| thread.processes.len()).sum();
            if recorded >= MAX_RECORDED_PROCESSES {
                return;
            }
            let command = command_line(&argv);
            let (text, WorkOrigin { thread, .. }) = (format!("$ {command}"), origin);
            let Some(thread) = thread_work(sessions, threads, &thread, &folder, text).await else { return };
            let input = json!({"command": command, "folder": folder}).to_string();
            if let Ok(call) = thread.run.begin_call("shell", input).await {
                thread.processes.insert(number, (call, stop));
            }
        }
        ObservedWork::ProcessEnded { number, output, omitted, exit } => {
            let thread = threads.values_mut().find(|thread| thread.processes.contains_key(&number));
            let Some(thread) = thread else { return };
            thread.ends_at = Instant::now() + if thread.is_stopped { Duration::ZERO } else { WORK_PAUSE };
            if let Some((call, _)) = thread.processes.remove(&number) {
                let result = Ok(output_text(&output, omitted, exit));
                log_failure(thread.run.end_call(call, result).await);
            }
        }
        ObservedWork::FileChanged { thread, path, change } => {
            let tool = match change {
                ObservedChange::Written | ObservedChange::Copied => "write_file",
                ObservedChange::Removed => "remove_file",
            };
            let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
            let text = format!("{tool} {}", path.display());
            let Some(thread) = thread_work(sessions, threads, &thread, &folder, text).await else { return };
            thread.ends_at = Instant::now() + WORK_PAUSE;
            if let Ok(call) = thread.run.begin_call(tool, json!({"path": path}).to_string()).await {
                log_failure(thread.run.end_call(call, Ok("done".to_owned())).await);
            }
        }
    }
}

/// The work of a thread, in a run that is begun if none is active.
async fn thread_work<'a>(
    sessions: &Sessions,
    threads: &'a mut HashMap<SessionId, ThreadWork>,
    thread: &str,
    folder: &Path,
    text: String,
) -> Option<&'a mut ThreadWork> {
    // A thread whose id cannot name a session is not recorded.
    let session = SessionId::parse(thread).ok()?;
    // A run that was stopped ends when its processes have ended; work after that belongs to another run.
    if threads.get(&session).is_some_and(|work| work.is_stopped && work.processes.is_empty()) {
        threads.remove(&session);
    }
    if !threads.contains_key(&session) {
        let new_session = NewSession {
            title: None,
            door: DOOR.to_owned(),
            folder: folder.to_owned(),
            choice: AgentChoice::default(),
            system: None,
            forked_from: None,
        };
        let agent = AgentId::parse(DOOR).expect("the name of a door is a short id");
        let input = UserInput { text, by: Some(Sender::at(DOOR)), ..UserInput::default() };
        match sessions.begin_external_run(&session, new_session, agent, input).await {
            Ok(run) => {
                let ends_at = Instant::now() + WORK_PAUSE;
                let work = ThreadWork { run, processes: HashMap::new(), ends_at, is_stopped: false };
                threads.insert(session.clone(), work);
            }
            Err(refusal) => {
                tracing::debug!(%refusal, "work at the exec door was not recorded");
                return None;
            }
        }
    }
    threads.get_mut(&session)
}

fn log_failure(recorded: Result<(), parlor_vocab::SessionRefusal>) {
    if let Err(refusal) = recorded {
        tracing::debug!(%refusal, "work at the exec door was not recorded");
    }
}

/// The command as a person would type it. Clients run commands with `SHELL -lc COMMAND`.
fn command_line(argv: &[String]) -> String {
    let text = match argv {
        [_, flag, command] if flag == "-lc" || flag == "-c" => command.clone(),
        _ => argv.join(" "),
    };
    parlor_vocab::truncate_middle(&text, COMMAND_BYTES).into_owned()
}

fn output_text(output: &[u8], omitted: u64, exit: ProcessExit) -> String {
    let mut text = String::from_utf8_lossy(output).into_owned();
    if omitted > 0 {
        text.insert_str(0, &format!("[{omitted} bytes before this are left out]\n"));
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    match exit {
        ProcessExit::Code(code) => text.push_str(&format!("[exit code {code}]")),
        ProcessExit::Signal(signal) => text.push_str(&format!("[killed by signal {signal}]")),
        ProcessExit::Terminated | ProcessExit::Unknown => text.push_str("[terminated]"),
    }
    text
}
