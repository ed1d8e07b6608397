//! The command line: all subcommands with their help texts.

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
  parlor chat                    start a chat; the built-in agent needs no key and no network
  parlor chat '!uname -s'        send one message and print the answer
  parlor sessions                list the sessions that you can continue
  parlor doctor                  check what works and what is missing

Parlor keeps its state in $PARLOR_HOME, or in ~/.parlor.";

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Chat with an agent on the terminal
    ///
    /// With MESSAGE, or if stdin is not a terminal, parlor prints one answer on stdout and exits with 0 if the run
    /// completed, 1 if it failed, and 130 if it was stopped. Otherwise the chat continues until Ctrl-D or /quit. Ctrl-C
    /// stops the current answer; pressed twice, it ends the chat. With --watch, parlor shows a session and sends nothing.
    #[command(after_help = CHAT_EXAMPLES)]
    Chat(chat::Options),
    /// List the sessions, the most recently used first; rename or delete them
    #[command(after_help = SESSIONS_EXAMPLES)]
    Sessions(sessions::Options),
    /// Print the events of a session
    ///
    /// Prints one event per line, shortened to fit; --json prints whole events, and --as the frames of a door. Another
    /// process may use the session at the same time.
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(replay::Options),
    /// Delete old sessions and unreferenced files, and free their disk space
    ///
    /// Deletes sessions that were not used for a number of days, and then the least recently used ones until the rest
    /// fits into a size. Never deletes a session that runs, that another process uses, or that was used within the last
    /// day.
    #[command(after_help = GC_EXAMPLES)]
    Gc(gc::Options),
    /// Serve the network doors: the web page with the supr door, the Supex bridge and its REPL
    ///
    /// Serves until SIGTERM, SIGINT or SIGHUP. Meanwhile, serve.json in the state folder has the process id and the
    /// addresses. To accept clients from other machines, HTTP needs a token that is hard to guess; Supex needs
    /// SUPEX_ALLOW_REMOTE=1 and a token.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(serve::Options),
    /// Print the token that clients of the supr door must send
    ///
    /// Parlor generates the token at the first use and stores it in supr.json in the state folder, unless parlor.toml
    /// sets one.
    #[command(after_help = TOKEN_EXAMPLES)]
    Token(token::Options),
    /// Log in to a provider, or store an API key
    ///
    /// Opens a browser, or, if there is no screen, shows a code to enter on any device. [auth.NAME] in parlor.toml
    /// configures the provider. With --key, parlor stores an API key instead. Exits with 130 if the login was cancelled.
    #[command(after_help = LOGIN_EXAMPLES)]
    Login(login::LoginOptions),
    /// Remove a login and revoke it at the provider; remove a stored key
    #[command(after_help = LOGOUT_EXAMPLES)]
    Logout(login::LogoutOptions),
    /// List the stored keys, and the logins with their state, account and expiry
    #[command(after_help = AUTH_EXAMPLES)]
    Auth(login::ListOptions),
    /// Check what works and what is missing, and print a fix for each problem
    ///
    /// Checks the state folder, parlor.toml, the database, Ruby, the keys of models, the ports, the links, the user, and
    /// what the kernel enforces for agents and doors. Changes none of them. Exits with 1 if there is a problem, else with
    /// 0. If the database is damaged, --recover saves what can be read of it.
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(doctor::Options),
    /// List the configured models, and those that their providers offer
    ///
    /// To choose a model, run parlor chat --model NAME. NAME is a name in [models] in parlor.toml, one of anthropic,
    /// openai, gemini and openrouter, or a name that the provider of the agent's model knows.
    #[command(after_help = MODELS_EXAMPLES)]
    Models(models::Options),
    /// Print every setting with its value and description
    Settings(settings::show::Options),
    /// Create links so that other programs start parlor instead of the program they expect
    ///
    /// The links are codex-exec-server, loaf and synaps. Started by one of these names, parlor behaves as that program.
    /// Does not replace other files or links without --force.
    #[command(after_help = LINK_EXAMPLES)]
    Link {
        /// The folder for the links; it should be early in PATH
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Replace files and links of other programs
        #[arg(long)]
        force: bool,
    },
    /// Use a Supex bridge: print its status, run Ruby, call tools
    ///
    /// Connects to the bridge of `parlor serve`, or to any other one. If the bridge requires a token, set
    /// SUPEX_AUTH_TOKEN.
    #[command(after_help = SUPEX_EXAMPLES)]
    Supex(supex_client::Options),
    /// Serve one door on standard input and output
    ///
    /// Reads one JSON message per line from stdin and writes one per line to stdout, and nothing else. Ends when stdin
    /// closes, or on SIGTERM, SIGINT or SIGHUP, and ends all processes that it started.
    Stdio {
        /// The protocol of the door
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
  parlor chat --watch 019a8f2e
  parlor chat --json '!make' | jq -r 'select(.type == \"tool.completed\").output'";

const MODELS_EXAMPLES: &str = "\
Examples:
  parlor models                  list the configured models, and what is missing for them
  parlor models --all            also list the models that the providers offer; cached for a day
  parlor models --refresh --json | jq -r .name";

const SESSIONS_EXAMPLES: &str = "\
Examples:
  parlor sessions --limit 10
  parlor sessions rename 019a8f2e 'The deployment'
  parlor sessions delete 019a8f2e
  parlor sessions --json | jq -r 'select(.messages < 3).session'

SESSION is an id, or a prefix of an id that no other session shares.";

const REPLAY_EXAMPLES: &str = "\
Examples:
  parlor replay 019a8f2e
  parlor replay 019a8f2e --from 20 --follow
  parlor replay 019a8f2e --json | jq -r 'select(.type == \"message.completed\").text'
  parlor replay 019a8f2e --as supr | jq -r .type";

const GC_EXAMPLES: &str = "\
Examples:
  parlor gc --dry-run                           print what the settings would delete
  parlor gc --older-than 30 --keep-bytes 2GiB
  parlor gc --older-than never --keep-bytes unlimited      delete no session, only free unused space

The default limits are days and max_size under [retention] in parlor.toml.";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  parlor doctor
  parlor doctor --json | jq -r 'select(.state != \"ok\").fix'
  parlor doctor --recover        first end all parlor processes that use the state folder

With --recover, the damaged database stays as parlor.db.damaged-TIME; delete it when nothing is missing.";

const SERVE_EXAMPLES: &str = "\
Examples:
  parlor serve
  parlor serve --listen 127.0.0.1:0 --no-supex      only HTTP, on a free port; see serve.json
  parlor serve --supex 127.0.0.1:0 --supex-repl 127.0.0.1:0 --no-http
  SUPEX_AUTH_TOKEN=secret parlor serve

The settings are [channels.supr] and [channels.supex] in parlor.toml, and the SUPRCLAW_... and SUPEX_...
variables. PARLOR_LOG sets the log level on stderr: off, error, warn, info, debug or trace.";

const TOKEN_EXAMPLES: &str = "\
Examples:
  curl -H \"Authorization: Bearer $(parlor token)\" http://127.0.0.1:18790/api/sessions
  parlor token --rotate          replace it; a running server uses the new one at once
  parlor token --sign-out        sign out all browsers; the token stays";

const LOGIN_EXAMPLES: &str = "\
Examples:
  parlor login openai --key                asks for the key without showing it
  parlor login openai --key < key.txt
  parlor login example
  parlor login example --device            log in with a code on any device
  parlor login example --browser --no-open > url.txt

docs/auth.md describes how to configure a login.";

const LOGOUT_EXAMPLES: &str = "\
Examples:
  parlor logout openai                     remove its key and its login
  parlor logout --all                      remove all stored keys and logins, but no environment variable";

const AUTH_EXAMPLES: &str = "\
Examples:
  parlor auth                              list stored keys and logins, and where they are
  parlor auth --check && parlor chat hello";

const SUPEX_EXAMPLES: &str = "\
Examples:
  parlor supex status
  parlor supex eval '1 + 1'
  parlor supex eval < script.rb
  parlor supex call console_capture_status
  SUPEX_AUTH_TOKEN=secret parlor supex status --host 192.168.1.20

Environment variables: SUPEX_HOST, SUPEX_PORT and SUPEX_TIMEOUT, as the flags; SUPEX_AUTH_TOKEN; SUPEX_AGENT,
the client's name [user]; SUPEX_RETRIES [2]; SUPEX_MAX_RESPONSE, in bytes [10485760]; SUPEX_IDLE_TIMEOUT, in
seconds [300].";

const LINK_EXAMPLES: &str = "\
Example:
  mkdir -p ~/bin && parlor link ~/bin";
