//! `parlor stdio`: serves one door on standard input and output.

use std::io::{IsTerminal, stdin};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Subcommand;
use parlor_doors::exec::ExecMachine;
use parlor_log::SystemClock;
use parlor_process::Executor;
use parlor_transport::SharedProcesses;
use parlor_web::ExecutorHttp;

use crate::environment::Environment;
use crate::settings::Config;
use crate::{acp, loaf, mcp, state_folder_trust, synaps};

/// The doors that can be served on standard input and output.
#[derive(Subcommand)]
pub(crate) enum Door {
    /// Agent Client Protocol, version 1: an agent for editors such as Zed, Neovim and Emacs
    Acp(acp::Options),
    /// codex exec-server, v0 and today's: processes on terminals and pipes, and files
    Exec,
    /// loaf RPC 1.0.0: sessions, turns and logins for a front end, as `loaf rpc` serves them
    Loaf,
    /// Model Context Protocol: parlor's tools, and sessions to delegate work to, for other agents
    Mcp,
    /// synaps-bridge: the child process of a chat thread, with the flags of `synaps rpc`
    Synaps(synaps::Options),
}

/// Serves a door until its client disconnects or the program is asked to end.
pub(crate) fn serve(door: Door, environment: &Environment) -> anyhow::Result<ExitCode> {
    match door {
        Door::Acp(options) => acp::serve(&options, environment),
        Door::Exec => {
            if stdin().is_terminal() {
                eprintln!("{EXEC_HINT}");
            }
            let home = environment.state_folder().ok();
            home.as_deref().map_or(Ok(()), state_folder_trust::check)?;
            // This door needs no settings, so an invalid parlor.toml is not an error here: the default limits are safe.
            let mut allows_private_urls = false;
            if let Some(Ok(config)) = home.as_deref().map(Config::load) {
                parlor_process::set_child_limits(config.tools.limits);
                allows_private_urls = config.exec_allows_private_urls;
            }
            let processes = SharedProcesses::new(home, Arc::new(SystemClock));
            let http = Arc::new(ExecutorHttp::new(allows_private_urls));
            let executor = Executor::new(processes).with_http(http);
            parlor_process::unmap_code();
            parlor_transport::block_on(parlor_transport::serve_stdio(ExecMachine::default(), executor))?;
            Ok(ExitCode::SUCCESS)
        }
        Door::Loaf => {
            if stdin().is_terminal() {
                eprintln!("{LOAF_HINT}");
            }
            loaf::serve(environment)
        }
        Door::Mcp => {
            if stdin().is_terminal() {
                eprintln!("{MCP_HINT}");
            }
            mcp::serve(environment)
        }
        Door::Synaps(options) => {
            if stdin().is_terminal() {
                eprintln!("{SYNAPS_HINT}");
            }
            synaps::serve(options, environment)
        }
    }
}

/// Printed if stdin is a terminal: a person started the door by hand. Programs have a pipe on stdin and never see it.
const EXEC_HINT: &str = r#"parlor: the exec door is open. It reads one JSON message a line; Ctrl-D ends it. Try these three lines:
  {"id":1,"method":"initialize","params":{"clientName":"me"}}
  {"method":"initialized"}
  {"id":2,"method":"command/exec","params":{"processId":"p","argv":["uname","-a"],"cwd":"/","env":{},"tty":false}}"#;

const LOAF_HINT: &str = r#"parlor: the loaf door is open. It reads one JSON-RPC request a line; Ctrl-D ends it. Try these two lines, with
the session_id that the first one answers:
  {"jsonrpc":"2.0","id":1,"method":"session.create"}
  {"jsonrpc":"2.0","id":2,"method":"session.send","params":{"session_id":"…","text":"!uname -a"}}"#;

const MCP_HINT: &str = r#"parlor: the MCP door is open. It reads one JSON-RPC message a line; Ctrl-D ends it. Clients start it themselves:
docs/protocols/mcp.md. Try these two lines:
  {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
  {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell","arguments":{"command":"uname -a"}}}"#;

const SYNAPS_HINT: &str = r#"parlor: the synaps door is open. It reads one JSON command a line; Ctrl-D ends it. Try these two lines:
  {"type":"prompt","id":"1","message":"!uname -a"}
  {"type":"get_messages","id":"2"}"#;
