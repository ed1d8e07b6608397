//! The command line: all subcommands with their help texts.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::{
    backup, chat, completions, doctor, gc, log_command, login, mcp, models, nodes, replay, rules, sandbox,
    serve, sessions, settings, stdio, supex_client, token, undo, version,
};

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
    /// completed, 1 if it failed, and 130 if it was stopped. Otherwise the chat continues until Ctrl-D or /quit; /help
    /// lists its commands and keys. Ctrl-C stops the current answer; pressed twice, it ends the chat. With --watch, parlor
    /// shows a session and sends nothing.
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
    /// Show what a run changed in files
    ///
    /// Prints a unified diff of every file that the run created, changed or deleted, by file tools or by commands.
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(undo::DiffOptions),
    /// Put back the files that a run changed
    ///
    /// Restores contents, permissions and links, removes what the run created, and recreates what it deleted. A file that
    /// was changed after the run is reported and kept, unless --force is given. Exits with 1 if a file was kept. Works
    /// without git, and leaves git alone.
    #[command(after_help = UNDO_EXAMPLES)]
    Undo(undo::UndoOptions),
    /// Delete old sessions and unreferenced files, and free their disk space
    ///
    /// Deletes sessions that were not used for a number of days, and then the least recently used ones until the rest
    /// fits into a size. Never deletes a session that runs, that another process uses, or that was used within the last
    /// day.
    #[command(after_help = GC_EXAMPLES)]
    Gc(gc::Options),
    /// Copy the event log to another database
    Log {
        #[command(subcommand)]
        command: log_command::LogCommand,
    },
    /// Save the state folder to one file, while parlor runs
    ///
    /// Saves the sessions, their attached files, parlor.toml, AGENTS.md, skills and typed lines, and with --with-secrets
    /// also keys, logins and the token. Does not save a log in PostgreSQL and the scripts of agents. The file is a tar
    /// file, compressed with gzip, that only its owner can read.
    #[command(after_help = BACKUP_EXAMPLES)]
    Backup(backup::BackupOptions),
    /// Put a backup into the state folder
    ///
    /// Checks the whole backup before it changes anything. Refuses a state folder that another parlor uses, and one with
    /// sessions unless --force is given.
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(backup::RestoreOptions),
    /// Serve the network doors: the web page with the supr door, the Supex bridge and its REPL
    ///
    /// Serves until SIGTERM or SIGINT, or until the terminal in which it was started is closed. SIGHUP reads parlor.toml
    /// again. Meanwhile, serve.json in the state folder has the process id and the addresses. To accept clients from other machines, HTTP needs a token that is hard to guess; Supex needs
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
    /// List, add, remove and test the MCP servers whose tools agents may call
    #[command(after_help = MCP_EXAMPLES)]
    Mcp(mcp::servers::Options),
    /// List the nodes that share a log in PostgreSQL, with their sessions and active runs
    Nodes(nodes::Options),
    /// List the answers that were remembered for projects, or remove one
    #[command(after_help = RULES_EXAMPLES)]
    Rules(rules::Options),
    /// Print every setting with its value and description, or check them
    Settings(settings::show::Options),
    /// Print the version of parlor; with --verbose, also those of its formats and protocols
    ///
    /// `parlor --version --verbose` prints the same.
    Version(version::Options),
    /// Print a script that completes commands and flags in a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(completions::CompletionsOptions),
    /// Write the manual pages of all commands into a folder
    #[command(after_help = MAN_EXAMPLES)]
    Man(completions::ManOptions),
    /// Create links so that other programs start parlor instead of the program they expect
    ///
    /// The links are codex-exec-server, loaf, parlor-acp and synaps. Started by one of these names, parlor behaves as that program.
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
    /// Run a command in a sandbox
    ///
    /// In mode workspace, the command writes only the project folder and a private temporary folder, reads no secrets and
    /// has no network; read-only also protects the project; full only limits its resources. The kernel enforces the mode;
    /// where it cannot, the command is not started. Exits with the status of the command, or with 128 and the number of the
    /// signal that killed it.
    #[command(after_help = SANDBOX_EXAMPLES)]
    Sandbox(sandbox::Options),
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
        /// Trust the project of the current folder from now on: agents read its instructions and skills,
        /// and use the MCP servers that its .mcp.json has now (docs/policy.md)
        #[arg(long)]
        trust: bool,
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
  parlor chat --continue
  parlor chat --watch 019a8f2e
  parlor chat --json '!make' | jq -r 'select(.type == \"tool.completed\").output'";

const SANDBOX_EXAMPLES: &str = "\
Examples:
  parlor sandbox -- make test
  parlor sandbox --mode read-only --cwd ~/project -- sh -c 'grep -rn TODO . | wc -l'
  parlor sandbox -- bash

The command gets the variables that commands of agents get; [tools] environment in parlor.toml adds others.";
const MCP_EXAMPLES: &str = "\
Examples:
  parlor mcp add files npx -y @modelcontextprotocol/server-filesystem .
  parlor mcp add docs https://docs.example.org/mcp
  parlor mcp test
  parlor mcp remove docs

docs/protocols/mcp.md describes [mcp.NAME] in parlor.toml. parlor stdio mcp serves parlor's own tools to others.";

const MODELS_EXAMPLES: &str = "\
Examples:
  parlor models                  list the configured models, and what is missing for them
  parlor models --all            also list the models that the providers offer; cached for a day
  parlor models --refresh --json | jq -r .name";

const RULES_EXAMPLES: &str = "\
Examples:
  parlor rules                   list the remembered answers of all projects
  parlor rules remove 3          ask again before what rule 3 allows
  parlor rules --json | jq -r .command";

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

const DIFF_EXAMPLES: &str = "\
Examples:
  parlor diff                    of the last run that changed files in this folder
  parlor diff --session 019a8f2e
  parlor diff run_019a8f2e --json | jq -r '.files[].path'";

const UNDO_EXAMPLES: &str = "\
Examples:
  parlor undo --dry-run          print what would be put back
  parlor undo                    undo the last run that changed files in this folder
  parlor undo run_019a8f2e --force

docs/undo.md describes what can be undone.";

const GC_EXAMPLES: &str = "\
Examples:
  parlor gc --dry-run                           print what the settings would delete
  parlor gc --older-than 30 --keep-bytes 2GiB
  parlor gc --older-than never --keep-bytes unlimited      delete no session, only free unused space

The default limits are days and max_size under [retention] in parlor.toml.";

const BACKUP_EXAMPLES: &str = "\
Examples:
  parlor backup ~/parlor-backup.tar.gz
  parlor backup --with-secrets - | gpg --symmetric > parlor.gpg
  tar tvf ~/parlor-backup.tar.gz";

const RESTORE_EXAMPLES: &str = "\
Examples:
  parlor restore ~/parlor-backup.tar.gz
  PARLOR_HOME=/tmp/look parlor restore ~/parlor-backup.tar.gz        restore into another folder
  gpg --decrypt parlor.gpg | parlor restore -";

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

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  parlor completions bash > ~/.local/share/bash-completion/completions/parlor
  parlor completions fish > ~/.config/fish/completions/parlor.fish
  parlor completions zsh > \"${fpath[1]}/_parlor\"

The Debian package installs them.";

const MAN_EXAMPLES: &str = "\
Example:
  parlor man ~/.local/share/man/man1 && man parlor-chat";

const LINK_EXAMPLES: &str = "\
Example:
  mkdir -p ~/bin && parlor link ~/bin";
