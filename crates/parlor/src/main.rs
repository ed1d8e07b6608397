//! The `parlor` command.

mod chat;
mod home;
mod sessions;
mod show;

use std::io::{IsTerminal, stdin, stdout};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use parlor_doors::exec::ExecMachine;
use parlor_vocab::SessionId;

use crate::home::Home;

/// One agent runtime with many doors.
#[derive(Parser)]
#[command(version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Talk to an agent from the terminal
    ///
    /// With MESSAGE, or with text on stdin that is no terminal, it answers once on stdout and exits
    /// with 0 if the run completed, 1 if it failed, 130 if it was stopped. Otherwise it talks until
    /// Ctrl-D; Ctrl-C stops the answer that is being given. Sessions are kept in $PARLOR_HOME
    /// (~/.parlor).
    Chat {
        /// What to say
        message: Option<String>,
        /// Go on with this session instead of starting one
        #[arg(long, value_name = "SESSION")]
        session: Option<String>,
        /// Let this agent answer; agents are named in $PARLOR_HOME/parlor.toml
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
    },
    /// List the sessions, the last used first
    Sessions,
    /// Print what happened in a session
    Replay {
        /// Which one; `parlor sessions` lists them
        session: String,
        /// Begin with this event
        #[arg(long, value_name = "N", default_value_t = 1)]
        from: u64,
        /// Go on printing what happens, until Ctrl-C
        #[arg(long)]
        follow: bool,
    },
    /// Open one door on standard input and output
    ///
    /// Frames go in on stdin and come out on stdout, one JSON message a line; nothing else is ever
    /// written to stdout. The server ends when stdin closes or on SIGTERM, SIGINT or SIGHUP, and
    /// everything it started ends with it.
    Stdio {
        /// Which protocol to speak
        door: Door,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Door {
    /// codex exec-server v0: start, feed and end processes on terminals and pipes
    Exec,
}

fn main() -> anyhow::Result<ExitCode> {
    let command = Cli::parse().command;
    if let Command::Stdio { door: Door::Exec } = command {
        if stdin().is_terminal() {
            eprintln!("{EXEC_HINT}");
        }
        parlor_host::block_on(parlor_host::serve_stdio(ExecMachine::default()))?;
        return Ok(ExitCode::SUCCESS);
    }
    // One thread: children get a signal when the thread that started them ends.
    let done =
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(with_house(command));
    match done {
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::FAILURE),
        done => done,
    }
}

/// Whoever read our output has enough of it, as `head` has; that needs no words.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

async fn with_house(command: Command) -> anyhow::Result<ExitCode> {
    let house = Home::find()?.house()?;
    let done = match command {
        Command::Chat { message, session, agent } => {
            chat::chat(&house, chat::Options { message, session, agent }).await
        }
        Command::Sessions => sessions::list(&house, &mut stdout()).await.map(|()| ExitCode::SUCCESS),
        Command::Replay { session, from, follow } => {
            let session = SessionId::parse(&session)?;
            sessions::replay(&house, &session, from, follow, &mut stdout()).await.map(|()| ExitCode::SUCCESS)
        }
        Command::Stdio { .. } => Ok(ExitCode::SUCCESS),
    };
    house.close().await;
    done
}

/// For a person who started a door by hand; programs have a pipe on stdin and never see it.
const EXEC_HINT: &str = r#"parlor: the exec door is open. It reads one JSON message a line; Ctrl-D ends it. Try these three lines:
  {"id":1,"method":"initialize","params":{"clientName":"me"}}
  {"method":"initialized"}
  {"id":2,"method":"command/exec","params":{"processId":"p","argv":["uname","-a"],"cwd":"/","env":{},"tty":false}}"#;
