//! `parlor mcp`: lists, adds, removes and tests the MCP servers whose tools agents may call.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use futures_util::future::join_all;
use parlor_engine::{Redact, visible};
use parlor_tools::{McpServer, McpServerState, PROJECT_MCP_FILE};
use parlor_vocab::RuleAction;

use super::login::{self, LoginOptions};
use crate::console::Console;
use crate::environment::Environment;
use crate::home::Home;
use crate::rules::{ProjectServers, project_servers};
use crate::settings::{Config, FILE};

/// The arguments of `parlor mcp`.
#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List the servers of parlor.toml, and those of the project's .mcp.json
    List,
    /// Add a server to parlor.toml
    Add(AddOptions),
    /// Remove a server from parlor.toml
    Remove {
        /// The name of the server
        name: String,
    },
    /// Log in to a web service, with a browser
    Login(LoginOptions),
    /// Delete the login to a web service
    Logout {
        /// The name of the server
        name: String,
    },
    /// Start servers and list their tools; exits with 1 if one of them fails
    Test {
        /// The name of one server; all of them if absent
        name: Option<String>,
    },
}

#[derive(Args)]
struct AddOptions {
    /// A name for the server: letters, digits, - and _
    name: String,
    /// The address of a web service, or a program with its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "URL|COMMAND")]
    target: Vec<String>,
}

/// Carries out `parlor mcp`.
pub(crate) fn run(
    environment: &Environment,
    options: &Options,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    match &options.action {
        Action::Login(options) => return login::log_in(environment, options, console, out),
        Action::Logout { name } => return login::log_out(environment, name, out),
        Action::List | Action::Add(_) | Action::Remove { .. } | Action::Test { .. } => {}
    }
    let home = Home::open(environment)?;
    match &options.action {
        Action::List => list_servers(&home, environment, out)?,
        Action::Add(options) => add(&home, options, out)?,
        Action::Remove { name } => remove(&home, name, out)?,
        Action::Login(_) | Action::Logout { .. } => {}
        Action::Test { name } => return test(&home, environment, name.as_deref(), out),
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the configured servers, and those that the project of the working folder brings.
pub(crate) fn list_servers(
    home: &Home,
    environment: &Environment,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let servers = &home.config().mcp;
    let project = project_servers(home, environment);
    if servers.is_empty() && project.is_none() {
        writeln!(out, "no MCP servers are configured; add one with: parlor mcp add NAME COMMAND...")?;
    }
    for (name, server) in servers {
        let disabled = if server.is_enabled() { "" } else { "  (disabled)" };
        let line = format!("{name}  {}{disabled}", server.summary());
        writeln!(out, "{}", home.redaction().redact(&line))?;
    }
    let Some(ProjectServers { root, judged }) = project else { return Ok(()) };
    let path = visible(&root.join(PROJECT_MCP_FILE).display().to_string());
    let (file, verdict) = match judged {
        Ok(found) => found,
        Err(reason) => {
            writeln!(out, "{path}: {reason}")?;
            return Ok(());
        }
    };
    let state = match verdict.action {
        RuleAction::Allow => "trusted as it is now".to_owned(),
        RuleAction::Ask => {
            "not used before you trust it, in a session or with: parlor rules trust".to_owned()
        }
        RuleAction::Deny => format!("not used: {}", verdict.reason),
    };
    writeln!(out, "from {path} ({state}):")?;
    for (name, shown, reason) in file.servers() {
        let left_out = reason.map_or_else(String::new, |reason| format!("  (left out: {reason})"));
        writeln!(out, "{name}  {}{left_out}", home.redaction().redact(shown))?;
    }
    Ok(())
}

fn test(
    home: &Home,
    environment: &Environment,
    name: Option<&str>,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    if let Some(name) = name.filter(|name| !home.config().mcp.contains_key(*name)) {
        bail!("there is no server {name:?} in parlor.toml; parlor mcp list names them");
    }
    let is_chosen = |server: &&Arc<McpServer>| name.is_none_or(|name| server.config().name == name);
    let servers = home.mcp_servers(environment)?;
    let chosen: Vec<Arc<McpServer>> = servers.iter().filter(is_chosen).cloned().collect();
    let mut has_failed = false;
    for (name, state) in check_all(&chosen)? {
        let line = match state {
            McpServerState::Up { description, tools } => {
                format!("{name}  ok  {description}, {} tools: {}", tools.len(), tools.join(", "))
            }
            McpServerState::Failed(reason) => {
                has_failed = true;
                format!("{name}  failed  {reason}")
            }
        };
        // A server may repeat the secrets that it got.
        writeln!(out, "{}", home.redaction().redact(&line))?;
    }
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Starts all servers at the same time, asks how they are, and ends them.
pub(crate) fn check_all(servers: &[Arc<McpServer>]) -> anyhow::Result<Vec<(String, McpServerState)>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let states = runtime.block_on(async {
        join_all(servers.iter().map(|server| async {
            let state = server.check().await;
            server.stop().await;
            (server.config().name.clone(), state)
        }))
        .await
    });
    runtime.shutdown_background();
    Ok(states)
}

fn add(home: &Home, options: &AddOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    let AddOptions { name, target } = options;
    if home.config().mcp.contains_key(name) {
        bail!("there is a server {name:?} already; remove it first with: parlor mcp remove {name}");
    }
    let section = match target.as_slice() {
        [url] if url.starts_with("http://") || url.starts_with("https://") => {
            format!("[mcp.{name}]\nurl = {}\n", toml_text(url))
        }
        [command, args @ ..] => {
            let args: Vec<String> = args.iter().map(|arg| toml_text(arg)).collect();
            format!("[mcp.{name}]\ncommand = {}\nargs = [{}]\n", toml_text(command), args.join(", "))
        }
        [] => bail!("name a URL or a command"),
    };
    change(home.path(), |text| {
        let gap = if text.is_empty() || text.ends_with("\n\n") { "" } else { "\n" };
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        format!("{text}{end}{gap}{section}")
    })?;
    writeln!(out, "added {name}; try it with: parlor mcp test {name}")?;
    Ok(())
}

/// A text as TOML. JSON's escapes are TOML's too, except for a few control characters, which no command has.
fn toml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn remove(home: &Home, name: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    if !home.config().mcp.contains_key(name) {
        bail!("there is no server {name:?} in parlor.toml; parlor mcp list names them");
    }
    change(home.path(), |text| without_section(text, name))?;
    if Config::load(home.path())?.mcp.contains_key(name) {
        bail!(
            "{name:?} is not written as a table [mcp.{name}] of its own; remove it from parlor.toml by hand"
        );
    }
    writeln!(out, "removed {name}")?;
    Ok(())
}

/// The file without `[mcp.NAME]` and the tables inside of it.
fn without_section(text: &str, name: &str) -> String {
    let (own, inner) = (format!("[mcp.{name}]"), format!("[mcp.{name}."));
    let mut is_removed = false;
    let mut kept = String::new();
    for line in text.split_inclusive('\n') {
        let start = line.trim_start();
        if start.starts_with('[') {
            is_removed = start.starts_with(&own) || start.starts_with(&inner);
        }
        if !is_removed {
            kept.push_str(line);
        }
    }
    kept
}

/// Changes parlor.toml, unless the result would not be valid.
fn change(home: &Path, change: impl FnOnce(&str) -> String) -> anyhow::Result<()> {
    let file = home.join(FILE);
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    let text = change(&text);
    Config::check_text(home, &text).with_context(|| format!("{} would not be valid", file.display()))?;
    std::fs::create_dir_all(home)?;
    let written = home.join(format!("{FILE}.new"));
    let write = || -> std::io::Result<()> {
        let mut new =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&written)?;
        new.write_all(text.as_bytes())?;
        new.sync_all()?;
        std::fs::rename(&written, &file)
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_removed_with_its_inner_tables_and_nothing_else() {
        let text =
            "a = 1\n[mcp.x]\ncommand = \"c\"\n[mcp.x.env]\nK = \"v\"\n[mcp.xy]\nurl = \"u\"\n[tools]\n";
        assert_eq!(without_section(text, "x"), "a = 1\n[mcp.xy]\nurl = \"u\"\n[tools]\n");
    }
}
