//! `parlor stdio`: one door on standard input and output.

use std::io::{IsTerminal, stdin};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Subcommand;
use parlor_doors::exec::ExecMachine;
use parlor_log::SystemClock;
use parlor_transport::SharedProcesses;

use crate::environment::Environment;
use crate::settings::Config;
use crate::{loaf, ownership, synaps};

/// The doors that can be opened so.
#[derive(Subcommand)]
pub(crate) enum Door {
    /// codex exec-server v0: start, feed and end processes on terminals and pipes
    Exec,
    /// loaf RPC 1.0.0: sessions, turns and logins for a front end, as `loaf rpc` serves them
    Loaf,
    /// synaps-bridge: the child of a chat thread, with the flags of `synaps rpc`
    Synaps(synaps::Options),
}

/// Opens a door and serves it to its end.
pub(crate) fn serve(door: Door, environment: &Environment) -> anyhow::Result<ExitCode> {
    match door {
        Door::Exec => {
            if stdin().is_terminal() {
                eprintln!("{EXEC_HINT}");
            }
            let home = environment.state_folder().ok();
            home.as_deref().map_or(Ok(()), ownership::check)?;
            // Whoever only starts processes need not have settings that are right; the usual limits are safe ones.
            if let Some(Ok(config)) = home.as_deref().map(Config::load) {
                parlor_process::limit_children(config.tools.limits);
            }
            let processes = SharedProcesses::new(home, Arc::new(SystemClock));
            parlor_process::give_back_startup_code();
            parlor_transport::block_on(parlor_transport::serve_stdio(ExecMachine::default(), processes))?;
            Ok(ExitCode::SUCCESS)
        }
        Door::Loaf => {
            if stdin().is_terminal() {
                eprintln!("{LOAF_HINT}");
            }
            loaf::serve(environment)
        }
        Door::Synaps(options) => {
            if stdin().is_terminal() {
                eprintln!("{SYNAPS_HINT}");
            }
            synaps::serve(options, environment)
        }
    }
}

/// For a person who started a door by hand; programs have a pipe on stdin and never see it.
const EXEC_HINT: &str = r#"parlor: the exec door is open. It reads one JSON message a line; Ctrl-D ends it. Try these three lines:
  {"id":1,"method":"initialize","params":{"clientName":"me"}}
  {"method":"initialized"}
  {"id":2,"method":"command/exec","params":{"processId":"p","argv":["uname","-a"],"cwd":"/","env":{},"tty":false}}"#;

const LOAF_HINT: &str = r#"parlor: the loaf door is open. It reads one JSON-RPC request a line; Ctrl-D ends it. Try these two lines, with
the session_id that the first one answers:
  {"jsonrpc":"2.0","id":1,"method":"session.create"}
  {"jsonrpc":"2.0","id":2,"method":"session.send","params":{"session_id":"…","text":"!uname -a"}}"#;

const SYNAPS_HINT: &str = r#"parlor: the synaps door is open. It reads one JSON command a line; Ctrl-D ends it. Try these two lines:
  {"type":"prompt","id":"1","message":"!uname -a"}
  {"type":"get_messages","id":"2"}"#;
