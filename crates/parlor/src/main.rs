//! The `parlor` command.

mod called_as;
mod chat;
mod closed;
mod command_variables;
mod console;
mod doctor;
mod environment;
mod gc;
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
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use parlor_engine::House;

use crate::console::Console;
use crate::environment::Environment;
use crate::home::Home;

/// How long the runs that are under way may take to end when the program ends. Longer than their
/// processes are given; what is not recorded by then is ended when the session is opened again.
const CLOSE_WAIT: Duration = Duration::from_secs(10);

/// One agent runtime with many doors.
#[derive(Parser)]
#[command(version, about, propagate_version = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  parlor chat                    talk; the built-in agent needs no key and no network
  parlor chat '!uname -s'        ask one thing
  parlor sessions                what there is to go on with
  parlor doctor                  what is ready and what is missing

State is kept in $PARLOR_HOME, or ~/.parlor.";

#[derive(Subcommand)]
enum Command {
    /// Talk to an agent from the terminal
    ///
    /// With MESSAGE, or with text on stdin that is no terminal, it answers once on stdout and exits
    /// with 0 if the run completed, 1 if it failed, 130 if it was stopped. Otherwise it talks until
    /// Ctrl-D or /quit; Ctrl-C stops the answer that is being given, and pressed twice it leaves.
    #[command(after_help = CHAT_EXAMPLES)]
    Chat(chat::Options),
    /// List the sessions, the last used first; rename and delete them
    #[command(after_help = SESSIONS_EXAMPLES)]
    Sessions(sessions::Options),
    /// Print what happened in a session
    ///
    /// One event a line, cut to fit; --json prints all of each. A session that another process uses
    /// can be followed as well.
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(replay::Options),
    /// Delete old sessions and what nothing refers to any more, and give the space back
    ///
    /// Sessions go by the time since their last use, and by their size in all, those not used for
    /// longest first. What runs, what another process uses and what was used within a day stays.
    #[command(after_help = GC_EXAMPLES)]
    Gc(gc::Options),
    /// Open the doors on the network: the web page with the supr door, the Supex bridge and its REPL
    ///
    /// Serves until SIGTERM, SIGINT or SIGHUP. While it does, serve.json in the state folder names the
    /// process and the addresses. HTTP listens beyond this machine only with a token that cannot be guessed,
    /// Supex only if SUPEX_ALLOW_REMOTE=1 says so and a token is set.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(serve::Options),
    /// Print the token that clients of the supr door must send
    ///
    /// It is made at the first use and kept in supr.json in the state folder, unless parlor.toml sets one.
    #[command(after_help = TOKEN_EXAMPLES)]
    Token(token::Options),
    /// Log in to a provider, or keep a key
    ///
    /// Opens a browser, or where there is no screen shows a code to enter on any device. What one can log
    /// in to is described by [auth.NAME] in parlor.toml. With --key it keeps the key of a provider instead.
    /// Exits with 130 if the login was cancelled.
    #[command(after_help = LOGIN_EXAMPLES)]
    Login(login::LoginOptions),
    /// Forget a login, and tell the provider; forget a key
    #[command(after_help = LOGOUT_EXAMPLES)]
    Logout(login::LogoutOptions),
    /// List the keys that are kept and the logins: how each stands, whose it is, when it expires
    #[command(after_help = AUTH_EXAMPLES)]
    Auth(login::ListOptions),
    /// Say what is ready and what is missing, with the fix for each
    ///
    /// Looks at the state folder, parlor.toml, the database, Ruby, the keys of models, the ports and
    /// the links, at who it runs as and at what the kernel enforces for agents and doors, and changes
    /// none of them. Exits with 0 if nothing is a problem, else with 1. If the database is damaged,
    /// --recover saves what can be saved of it.
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(doctor::Options),
    /// List the models that are configured, and those that their providers have
    ///
    /// A model is chosen with parlor chat --model NAME: a name of [models] in parlor.toml, one of anthropic,
    /// openai, gemini and openrouter, or a name that the provider of the agent's model knows.
    #[command(after_help = MODELS_EXAMPLES)]
    Models(models::Options),
    /// Print every setting with its value and what it is for
    Settings(settings::show::Options),
    /// Write links under which programs find parlor in the place of another program
    ///
    /// The links are codex-exec-server, loaf and synaps. Called by one of these names, parlor
    /// behaves as that program. What is not such a link is never overwritten without --force.
    #[command(after_help = LINK_EXAMPLES)]
    Link {
        /// The folder for the links, best one that is early in PATH
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Replace files and links of other programs
        #[arg(long)]
        force: bool,
    },
    /// Talk to a Supex bridge: ask for its status, run Ruby, call tools
    ///
    /// Speaks to the bridge of `parlor serve`, or to any other one. The token, if it wants one, is taken
    /// from SUPEX_AUTH_TOKEN.
    #[command(after_help = SUPEX_EXAMPLES)]
    Supex(supex_client::Options),
    /// Open one door on standard input and output
    ///
    /// Frames go in on stdin and come out on stdout, one JSON message a line; nothing else is ever
    /// written to stdout. The server ends when stdin closes or on SIGTERM, SIGINT or SIGHUP, and
    /// everything it started ends with it.
    Stdio {
        /// Which protocol to speak
        #[command(subcommand)]
        door: stdio::Door,
    },
}

const CHAT_EXAMPLES: &str = "\
Examples:
  parlor chat
  parlor chat '/say hello'
  git diff | parlor chat --agent reviewer
  parlor chat --model anthropic --reasoning high 'why does the build fail?'
  parlor chat --session 019a8f2e 'and now?'
  parlor chat --json '!make' | jq -r 'select(.type == \"tool.completed\").output'";

const MODELS_EXAMPLES: &str = "\
Examples:
  parlor models                  those that are configured, and what is missing for them
  parlor models --all            also what the providers have; asked once a day
  parlor models --refresh --json | jq -r .name";

const SESSIONS_EXAMPLES: &str = "\
Examples:
  parlor sessions --limit 10
  parlor sessions rename 019a8f2e 'The deployment'
  parlor sessions delete 019a8f2e
  parlor sessions --json | jq -r 'select(.messages < 3).session'

SESSION is an id, or as much of its beginning as no other session shares.";

const REPLAY_EXAMPLES: &str = "\
Examples:
  parlor replay 019a8f2e
  parlor replay 019a8f2e --from 20 --follow
  parlor replay 019a8f2e --json | jq -r 'select(.type == \"message.completed\").text'";

const GC_EXAMPLES: &str = "\
Examples:
  parlor gc --dry-run                           what would go by the settings
  parlor gc --older-than 30 --keep-bytes 2GiB
  parlor gc --older-than never --keep-bytes unlimited      only give space back

The limits are set in parlor.toml: [retention] days and max_size.";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  parlor doctor
  parlor doctor --json | jq -r 'select(.state != \"ok\").fix'
  parlor doctor --recover        after ending all parlors that use the state folder

The damaged database is kept as parlor.db.damaged-TIME; delete it once nothing is missed.";

const SERVE_EXAMPLES: &str = "\
Examples:
  parlor serve
  parlor serve --listen 127.0.0.1:0 --no-supex      HTTP alone, on a free port; see serve.json
  parlor serve --supex 127.0.0.1:0 --supex-repl 127.0.0.1:0 --no-http
  SUPEX_AUTH_TOKEN=secret parlor serve

The settings are [channels.supr] and [channels.supex] in parlor.toml, and the SUPRCLAW_... and SUPEX_...
variables. PARLOR_LOG says how much is said on stderr: off, error, warn, info, debug or trace.";

const TOKEN_EXAMPLES: &str = "\
Examples:
  curl -H \"Authorization: Bearer $(parlor token)\" http://127.0.0.1:18790/api/sessions
  parlor token --rotate          another one; a server that runs takes it at once, connections stay";

const LOGIN_EXAMPLES: &str = "\
Examples:
  parlor login openai --key                asks for the key, and does not show it
  parlor login openai --key < key.txt
  parlor login example
  parlor login example --device            with a code, on any device
  parlor login example --browser --no-open > url.txt

docs/auth.md describes what can be configured.";

const LOGOUT_EXAMPLES: &str = "\
Examples:
  parlor logout openai                     forgets its key, and its login
  parlor logout --all                      forgets all that is kept; a key in a variable is not kept";

const AUTH_EXAMPLES: &str = "\
Examples:
  parlor auth                              what is kept, where, and how it stands
  parlor auth --check && parlor chat hello";

const SUPEX_EXAMPLES: &str = "\
Examples:
  parlor supex status
  parlor supex eval '1 + 1'
  parlor supex eval < script.rb
  parlor supex call console_capture_status
  SUPEX_AUTH_TOKEN=secret parlor supex status --host 192.168.1.20

Variables: SUPEX_HOST, SUPEX_PORT and SUPEX_TIMEOUT, as the flags; SUPEX_AUTH_TOKEN; SUPEX_AGENT, the name
to be known by [user]; SUPEX_RETRIES [2]; SUPEX_MAX_RESPONSE, in bytes [10485760]; SUPEX_IDLE_TIMEOUT, in
seconds [300].";

const LINK_EXAMPLES: &str = "\
Example:
  mkdir -p ~/bin && parlor link ~/bin";

fn main() -> ExitCode {
    parlor_process::give_back_large_blocks();
    panics::say_in_one_line();
    let environment = Environment::read();
    // Before it is closed: the children's score is set by a file that is root's from then on.
    parlor_process::prepare_child_scores();
    if !environment.is_open {
        closed::close();
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
        Command::Chat(options) => {
            in_house(environment, async |home, house| chat::chat(home, house, options, console).await)
        }
        Command::Sessions(options) => in_house(environment, async |_, house| {
            sessions::sessions(house, options, console, &mut stdout()).await.map(|()| ExitCode::SUCCESS)
        }),
        Command::Gc(options) => in_house(environment, async |home, house| {
            gc::gc(house, home.config(), &options, console, &mut stdout()).await.map(|()| ExitCode::SUCCESS)
        }),
        Command::Replay(options) => in_house(environment, async |_, house| {
            replay::replay(house, options, console, &mut stdout()).await.map(|()| ExitCode::SUCCESS)
        }),
    }
}

/// Does something with the sessions of the state folder, and leaves them in order.
fn in_house(
    environment: &Environment,
    work: impl AsyncFnOnce(&Home, &House) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    // One thread: children get a signal when the thread that started them ends.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let home = Home::open(environment)?;
        let house = home.house(environment)?;
        // Said before the rest is put in order, which may take its time if the disk is the trouble.
        let done = work(&home, &house).await.unwrap_or_else(|error| report(&error));
        if tokio::time::timeout(CLOSE_WAIT, house.close()).await.is_err() {
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
