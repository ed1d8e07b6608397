//! The `parlor` command.

use std::io::IsTerminal;

use clap::{Parser, Subcommand, ValueEnum};
use parlor_doors::exec::ExecMachine;

/// One agent runtime with many doors.
#[derive(Parser)]
#[command(version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
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

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Stdio { door: Door::Exec } => {
            if std::io::stdin().is_terminal() {
                eprintln!("{EXEC_HINT}");
            }
            parlor_host::block_on(parlor_host::serve_stdio(ExecMachine::default()))?;
        }
    }
    Ok(())
}

/// For a person who started a door by hand; programs have a pipe on stdin and never see it.
const EXEC_HINT: &str = r#"parlor: the exec door is open. It reads one JSON message a line; Ctrl-D ends it. Try these three lines:
  {"id":1,"method":"initialize","params":{"clientName":"me"}}
  {"method":"initialized"}
  {"id":2,"method":"command/exec","params":{"processId":"p","argv":["uname","-a"],"cwd":"/","env":{},"tty":false}}"#;
