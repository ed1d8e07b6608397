//! The `parlor` program as a library: settings, the state folder, the wiring of backends and doors, and a module for each
//! subcommand. The binary calls [`main`]; tests use the rest.

mod acp;
mod backup;
mod chat;
mod cli;
mod command_variables;
mod completions;
mod console;
mod database_token;
mod doctor;
mod environment;
mod event_log;
mod gc;
mod hand_over;
mod hardening;
mod home;
mod json;
mod link;
mod loaf;
mod log_command;
mod login;
mod mcp;
mod models;
mod nodes;
mod panics;
mod peer_door;
mod program_alias;
mod redaction;
mod replay;
mod rules;
mod sandbox;
mod secret_file;
mod serve;
mod sessions;
mod settings;
mod state_folder_trust;
mod stdio;
mod supex_client;
mod synaps;
mod text;
mod time;
mod token;
mod undo;
mod version;

use std::ffi::OsString;
use std::io::{Write, stderr, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use parlor_engine::Sessions;

use crate::cli::{Cli, Command};
use crate::console::Console;
use crate::environment::Environment;
use crate::home::Home;

/// How long running runs may take to end when the program ends. This is longer than the time that their
/// processes get. A run whose end is not recorded by then is ended when its session is next opened.
const CLOSE_WAIT: Duration = Duration::from_secs(10);

/// Runs the subcommand that the arguments name. The binary's `main` only calls this. `commit` is the commit that the
/// program was built from, or `unknown`.
pub fn main(commit: &'static str) -> ExitCode {
    parlor_process::return_large_blocks_to_system();
    panics::install_hook();
    let environment = Environment::read();
    // Before `set_undumpable`: afterwards the file that sets the children's OOM score belongs to root.
    parlor_process::prepare_child_oom_score();
    if !environment.is_dumpable {
        hardening::set_undumpable();
    }
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let done = program_alias::run(&arguments, &environment).unwrap_or_else(|| {
        if version::is_verbose_version(&arguments) {
            return version::print_verbose(commit, &mut stdout()).map(|()| ExitCode::SUCCESS);
        }
        run(Cli::parse().command, &environment, commit)
    });
    done.unwrap_or_else(|error| report(&error))
}

fn run(command: Command, environment: &Environment, commit: &'static str) -> anyhow::Result<ExitCode> {
    let console = Console::detect(environment);
    match command {
        Command::Stdio { trust, door } => {
            if trust {
                rules::trust_project(environment, &std::env::current_dir()?)?;
            }
            stdio::serve(door, environment)
        }
        Command::Link { folder, force } => {
            link::link(environment, &folder, force, &mut stdout()).map(|()| ExitCode::SUCCESS)
        }
        Command::Log { command } => log_command::run(environment, &command, console, &mut stdout()),
        Command::Serve(options) => serve::serve(environment, &options, console, &mut stdout()),
        Command::Supex(options) => supex_client::run(environment, &options, console, &mut stdout()),
        Command::Sandbox(options) => sandbox::run(environment, &options),
        Command::Token(options) => {
            token::token(environment, &options, &mut stdout()).map(|()| ExitCode::SUCCESS)
        }
        Command::Login(options) => login::login(environment, &options, console, &mut stdout()),
        Command::Logout(options) => login::logout(environment, &options, &mut stdout()),
        Command::Auth(options) => login::list(environment, &options, &mut stdout()),
        Command::Mcp(options) => mcp::servers::run(environment, &options, console, &mut stdout()),
        Command::Models(options) => models::models(environment, &options, &mut stdout()),
        Command::Doctor(options) => doctor::doctor(environment, &options, console, &mut stdout()),
        Command::Rules(options) => {
            rules::run(environment, &options, &mut stdout()).map(|()| ExitCode::SUCCESS)
        }
        Command::Settings(options) => settings::show::show(environment, &options, &mut stdout()),
        Command::Version(options) => {
            version::version(commit, &options, &mut stdout()).map(|()| ExitCode::SUCCESS)
        }
        Command::Completions(options) => {
            completions::completions(&options, &mut stdout()).map(|()| ExitCode::SUCCESS)
        }
        Command::Man(options) => completions::man(&options, &mut stdout()).map(|()| ExitCode::SUCCESS),
        Command::Backup(options) => {
            backup::backup(environment, &options, &mut stdout()).map(|()| ExitCode::SUCCESS)
        }
        Command::Restore(options) => {
            backup::restore(environment, &options, &mut stdout()).map(|()| ExitCode::SUCCESS)
        }
        Command::Chat(options) => {
            with_sessions(environment, Home::shared_sessions, async |home, sessions| {
                chat::chat(home, sessions, options, environment, console).await
            })
        }
        Command::Sessions(options) => with_sessions(environment, Home::sessions, async |_, sessions| {
            sessions::sessions(sessions, options, console, &mut stdout()).await.map(|()| ExitCode::SUCCESS)
        }),
        Command::Undo(options) => with_sessions(environment, Home::sessions, async |_, sessions| {
            undo::undo(sessions, &options, console, &mut stdout()).await
        }),
        Command::Diff(options) => with_sessions(environment, Home::sessions, async |_, sessions| {
            undo::diff(sessions, &options, console, &mut stdout()).await.map(|()| ExitCode::SUCCESS)
        }),
        Command::Nodes(options) => with_sessions(environment, Home::sessions, async |home, sessions| {
            nodes::nodes(sessions, home.config(), &options, &mut stdout()).await.map(|()| ExitCode::SUCCESS)
        }),
        Command::Gc(options) => with_sessions(environment, Home::sessions, async |home, sessions| {
            gc::gc(sessions, home.config(), &options, console, &mut stdout())
                .await
                .map(|()| ExitCode::SUCCESS)
        }),
        Command::Replay(options) => {
            // Who watches live may take the session over, and then others must reach it here.
            let is_live = options.is_live();
            let open = async |home: &Home, environment: &Environment| match is_live {
                true => home.shared_sessions(environment).await,
                false => home.sessions(environment).await,
            };
            with_sessions(environment, open, async |home, sessions| {
                let replayed =
                    replay::replay(home, environment, sessions, options, console, &mut stdout()).await;
                replayed.map(|()| ExitCode::SUCCESS)
            })
        }
    }
}

/// Opens the sessions of the state folder with `open`, runs `work` with them, and closes them.
fn with_sessions(
    environment: &Environment,
    open: impl AsyncFnOnce(&Home, &Environment) -> anyhow::Result<Arc<Sessions>>,
    work: impl AsyncFnOnce(&Home, &Arc<Sessions>) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    // One thread: child processes get a signal when the thread that started them ends.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let home = Home::open(environment)?;
        let sessions = open(&home, environment).await?;
        // Report the error before closing: closing can take long if the disk caused the error.
        let done = work(&home, &sessions).await.unwrap_or_else(|error| report(&error));
        if tokio::time::timeout(CLOSE_WAIT, sessions.close()).await.is_err() {
            // If the terminal is gone, nobody reads it.
            let _ = writeln!(
                stderr(),
                "parlor: the last events of a session could not be recorded in time; the session is repaired when it is next opened"
            );
        }
        sessions.close_log().await;
        Ok(done)
    });
    // Do not wait for tasks that block on a disk or a terminal.
    runtime.shutdown_background();
    done
}

/// Prints the error on stderr, except for a broken pipe.
fn report(error: &anyhow::Error) -> ExitCode {
    if !is_broken_pipe(error) {
        // The error may quote an id or a title that a client chose.
        let text = text::TerminalSanitizer::default().sanitize(&format!("{error:#}"));
        // If the terminal is gone, nobody reads it.
        let _ = writeln!(stderr(), "Error: {text}");
    }
    ExitCode::FAILURE
}

/// Whether the error is that the reader of our output closed it, as `head` does. That is not worth a message.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
