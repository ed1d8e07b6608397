//! The scenarios. Each is run with a number of repetitions, from the program's start to its end.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, ensure};
use parlor_log::{EventLog, SqliteLog, SystemClock};
use parlor_vocab::{Seq, SessionId};

use super::{APPEND, Repetitions};
use crate::exec_server::{Dialect, Program};
use crate::{PRODUCE, exec_server, loaf, log, supex, supr};

/// Something that the program does, again and again.
pub(super) struct Scenario {
    /// What one repetition is.
    pub(super) name: &'static str,
    /// Runs the program from its start to its end, with its files in the folder, and repeats the step at least so often.
    /// Returns how often it did.
    pub(super) run: fn(program: &Path, folder: &Path, repetitions: u64) -> anyhow::Result<u64>,
    /// Whether the program is this one, with a part of parlor in it, and not parlor.
    pub(super) runs_this_program: bool,
}

/// All scenarios, for the page.
pub(super) static ALL: [(Scenario, Repetitions); 6] = [
    (APPENDS, Repetitions { few: 100, many: 10_100 }),
    (BROADCAST_TO_1000, Repetitions { few: 5, many: 105 }),
    (MESSAGE, Repetitions { few: 5, many: 205 }),
    (PING, Repetitions { few: 100, many: 10_100 }),
    (OUTPUT, Repetitions { few: 1, many: 65 }),
    (EVAL, Repetitions { few: 10, many: 510 }),
];

/// The scenarios that are compared with stored counts in `make test`: cheap ones.
pub(super) static CHEAP: [(Scenario, Repetitions); 3] = [
    (APPENDS, Repetitions { few: 50, many: 550 }),
    (PING, Repetitions { few: 100, many: 1100 }),
    (OUTPUT, Repetitions { few: 1, many: 5 }),
];

const APPENDS: Scenario = Scenario { name: "a durable append", run: appends, runs_this_program: true };
const BROADCAST_TO_1000: Scenario = Scenario {
    name: "an event of a session that 1000 supr sockets watch",
    run: |program, folder, count| broadcast(program, folder, count, 1000),
    runs_this_program: false,
};
const MESSAGE: Scenario =
    Scenario { name: "a supr message with its run", run: messages, runs_this_program: false };
const PING: Scenario = Scenario { name: "a loaf ping", run: pings, runs_this_program: false };
const OUTPUT: Scenario = Scenario {
    name: "a MiB of a process's output through the exec door",
    run: output,
    runs_this_program: false,
};
const EVAL: Scenario = Scenario { name: "`eval_ruby \"1+1\"`", run: evals, runs_this_program: false };

/// Appends events one after another, each in a transaction of its own.
fn appends(program: &Path, folder: &Path, count: u64) -> anyhow::Result<u64> {
    let status =
        Command::new(program).arg(APPEND).arg(folder.join("home")).arg(count.to_string()).status()?;
    ensure!(status.success(), "{} {APPEND} failed: {status}", program.display());
    Ok(count)
}

/// Appends `count` events to a session of a new log in `home`.
pub(crate) fn append_one_by_one(home: &Path, count: u64) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let log: Arc<dyn EventLog> = Arc::new(SqliteLog::open(home, Arc::new(SystemClock))?);
        let lease = log.acquire(&SessionId::parse("session")?).await?;
        let mut head = Seq::START;
        for number in 0..count {
            head = log.append(&lease, head, &[log::answer(number)]).await?;
        }
        anyhow::Ok(())
    })
}

/// One run with at least so many events, which this many clients watch.
fn broadcast(program: &Path, folder: &Path, events: u64, watchers: usize) -> anyhow::Result<u64> {
    supr::raise_file_limit()?;
    // A thought and the text after it have more than two events.
    let pair = "{ think = \"a thought of some length\" }, { say = \"and what is said of it\" }, ";
    let steps = pair.repeat(usize::try_from(events)? / 2);
    let script = format!("[otherwise]\nsteps = [ {steps} ]\n");
    on_runtime(async {
        let server = supr::Server::parlor(program, folder, &script)?;
        let mut clients = Vec::new();
        for number in 0..watchers {
            let mut client = server.connect(&format!("?session_id=watcher-{number}&watch=source")).await?;
            client.frame().await?;
            clients.push(client);
        }
        let mut source = server.connect("?session_id=source").await?;
        source.frame().await?;
        source.send_message("go").await?;
        while !source.frame().await?.contains("\"run.completed\"") {}
        let mut frames = 0;
        for client in &mut clients {
            frames = 1;
            while !client.frame().await?.contains("\"run.completed\"") {
                frames += 1;
            }
        }
        server.end()?;
        Ok(frames)
    })
}

/// Messages one after another, each with a run that says one word.
fn messages(program: &Path, folder: &Path, count: u64) -> anyhow::Result<u64> {
    on_runtime(async {
        let server = supr::Server::parlor(program, folder, "[otherwise]\nsteps = [ { say = \"yes\" } ]\n")?;
        let mut client = server.connect("?session_id=session").await?;
        client.frame().await?;
        for _ in 0..count {
            client.send_message("hello").await?;
            while !client.frame().await?.contains("\"run.completed\"") {}
        }
        server.end()?;
        Ok(count)
    })
}

fn pings(program: &Path, folder: &Path, count: u64) -> anyhow::Result<u64> {
    loaf::ask_pings(program, folder, count)?;
    Ok(count)
}

/// A process that writes `mebibytes`.
fn output(program: &Path, _folder: &Path, mebibytes: u64) -> anyhow::Result<u64> {
    let program = Program { path: program.to_path_buf(), args: &["stdio", "exec"], dialect: Dialect::V0 };
    let this_program = std::env::current_exe()?;
    let this_program = this_program.to_str().context("the path of this program is not UTF-8")?;
    let bytes = mebibytes << 20;
    let mut server = exec_server::Server::start(&program)?;
    let read = server.run(&[this_program, PRODUCE, &bytes.to_string()])?;
    ensure!(read as u64 == bytes, "{read} bytes arrived, not {bytes}");
    server.end()?;
    Ok(mebibytes)
}

fn evals(program: &Path, folder: &Path, count: u64) -> anyhow::Result<u64> {
    supex::ask_evals(program, folder, count)?;
    Ok(count)
}

fn on_runtime<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
