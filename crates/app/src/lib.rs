//! The `parlor` program as a library: settings, the state folder, the wiring of backends and doors, and a module for each
//! subcommand. The binary calls [`main`]; tests use the rest.

mod called_as;
mod chat;
mod cli;
mod command_variables;
mod console;
mod doctor;
mod environment;
mod gc;
mod hardening;
mod home;
mod json;
mod link;
mod loaf;
mod login;
mod models;
mod ownership;
mod panics;
mod redaction;
mod replay;
mod serve;
mod sessions;
mod settings;
mod stdio;
mod supex_client;
mod synaps;
mod text;
mod time;
mod token;

use std::ffi::OsString;
use std::io::stdout;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use parlor_engine::Sessions;

use crate::cli::{Cli, Command};
use crate::console::Console;
use crate::environment::Environment;
use crate::home::Home;

/// How long the runs that are under way may take to end when the program ends. Longer than their
/// processes are given; what is not recorded by then is ended when the session is opened again.
const CLOSE_WAIT: Duration = Duration::from_secs(10);

/// Runs the command that the arguments name. The program's `main` does nothing else.
pub fn main() -> ExitCode {
    parlor_process::give_back_large_blocks();
    panics::say_in_one_line();
    let environment = Environment::read();
    // First: the children's score is set by a file that is root's from then on.
    parlor_process::prepare_child_scores();
    if !environment.is_open {
        hardening::set_undumpable();
    }
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let done =
        called_as::serve(&arguments, &environment).unwrap_or_else(|| run(Cli::parse().command, &environment));
    done.unwrap_or_else(|error| report(&error))
}

fn run(command: Command, environment: &Environment) -> anyhow::Result<ExitCode> {
    let console = Console::look(environment);
    match command {
        Command::Stdio { door } => stdio::serve(door, environment),
        Command::Link { folder, force } => {
            link::link(environment, &folder, force, &mut stdout()).map(|()| ExitCode::SUCCESS)
        }
        Command::Serve(options) => serve::serve(environment, &options, console, &mut stdout()),
        Command::Supex(options) => supex_client::run(environment, &options, console, &mut stdout()),
        Command::Token(options) => {
            token::token(environment, &options, &mut stdout()).map(|()| ExitCode::SUCCESS)
        }
        Command::Login(options) => login::login(environment, &options, console, &mut stdout()),
        Command::Logout(options) => login::logout(environment, &options, &mut stdout()),
        Command::Auth(options) => login::list(environment, &options, &mut stdout()),
        Command::Models(options) => models::models(environment, &options, &mut stdout()),
        Command::Doctor(options) => doctor::doctor(environment, &options, console, &mut stdout()),
        Command::Settings(options) => {
            settings::show::show(environment, &options, &mut stdout()).map(|()| ExitCode::SUCCESS)
        }
        Command::Chat(options) => with_sessions(environment, async |home, sessions| {
            chat::chat(home, sessions, options, console).await
        }),
        Command::Sessions(options) => with_sessions(environment, async |_, sessions| {
            sessions::sessions(sessions, options, console, &mut stdout()).await.map(|()| ExitCode::SUCCESS)
        }),
        Command::Gc(options) => with_sessions(environment, async |home, sessions| {
            gc::gc(sessions, home.config(), &options, console, &mut stdout())
                .await
                .map(|()| ExitCode::SUCCESS)
        }),
        Command::Replay(options) => with_sessions(environment, async |_, sessions| {
            replay::replay(sessions, options, console, &mut stdout()).await.map(|()| ExitCode::SUCCESS)
        }),
    }
}

/// Does something with the sessions of the state folder, and leaves them in order.
fn with_sessions(
    environment: &Environment,
    work: impl AsyncFnOnce(&Home, &Sessions) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    // One thread: children get a signal when the thread that started them ends.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let home = Home::open(environment)?;
        let sessions = home.sessions(environment)?;
        // Said before the rest is put in order, which may take its time if the disk is the trouble.
        let done = work(&home, &sessions).await.unwrap_or_else(|error| report(&error));
        if tokio::time::timeout(CLOSE_WAIT, sessions.close()).await.is_err() {
            eprintln!("parlor: not all that happened could be recorded; it is put right when the session is used again");
        }
        Ok(done)
    });
    // What still waits for a disk or a terminal is not waited for.
    runtime.shutdown_background();
    done
}

/// Says what went wrong, to whoever still listens.
fn report(error: &anyhow::Error) -> ExitCode {
    if !is_broken_pipe(error) {
        // An id or a title that it names is not ours.
        eprintln!("Error: {}", text::Clean::default().text(&format!("{error:#}")));
    }
    ExitCode::FAILURE
}

/// Whoever read our output has enough of it, as `head` has; that needs no words.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
