//! The command line: every subcommand with its help.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::{chat, doctor, gc, login, models, replay, serve, sessions, settings, stdio, supex_client, token};

/// One agent runtime with many doors.
#[derive(Parser)]
#[command(name = "parlor", version, about, propagate_version = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  parlor chat                    talk; the built-in agent needs no key and no network
  parlor chat '!uname -s'        ask one thing
  parlor sessions                what there is to go on with
  parlor doctor                  what is ready and what is missing

State is kept in $PARLOR_HOME, or ~/.parlor.";

#[derive(Subcommand)]
pub(crate) enum Command {
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
