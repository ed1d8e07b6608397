//! Checks the configured MCP servers.

use std::path::Path;

use parlor_engine::{Redact, visible};
use parlor_tools::{McpServerState, PROJECT_MCP_FILE};
use parlor_vocab::RuleAction;

use super::Finding;
use crate::environment::Environment;
use crate::home::Home;
use crate::mcp::servers::check_all;
use crate::rules::{ProjectServers, project_servers};

const CHECK: &str = "mcp server";

/// Starts each server of the settings and asks for its tools, if `starts`; names those of the project in the working folder. Empty if the settings are invalid: another check reports that.
pub(super) fn check(home: &Path, environment: &Environment, starts: bool) -> Vec<Finding> {
    let Ok(home) = Home::at(environment, home.to_owned()) else { return Vec::new() };
    let Ok(servers) = home.mcp_servers(environment) else { return Vec::new() };
    let servers: Vec<_> = servers.iter().cloned().collect();
    let of_project = project_finding(&home, environment);
    if servers.is_empty() {
        return of_project.into_iter().collect();
    }
    if !starts {
        let count = servers.len();
        // The settings may be those of a backup that somebody else made.
        let found = format!("{count} configured, not started; parlor doctor --mcp starts them");
        return std::iter::once(Finding::ok(CHECK, found)).chain(of_project).collect();
    }
    let states = check_all(&servers).unwrap_or_default();
    let finding = |(name, state): (String, McpServerState)| match state {
        McpServerState::Up { description, tools } => {
            let found = format!("{name}: {description}, {} tools", tools.len());
            Finding::ok(CHECK, home.redaction().redact(&found).into_owned())
        }
        McpServerState::Failed(reason) => {
            let fix = format!("correct [mcp.{name}] in parlor.toml, or remove it: parlor mcp remove {name}");
            let found = format!("{name}: {}", reason.lines().next().unwrap_or_default());
            Finding::warning(CHECK, home.redaction().redact(&found).into_owned(), fix)
        }
    };
    states.into_iter().map(finding).chain(of_project).collect()
}

/// The servers of the project's own file, which only a session starts: it has a sandbox for them.
fn project_finding(home: &Home, environment: &Environment) -> Option<Finding> {
    let ProjectServers { root, judged } = project_servers(home, environment)?;
    let path = visible(&root.join(PROJECT_MCP_FILE).display().to_string());
    Some(match judged {
        Err(reason) => {
            Finding::warning(CHECK, format!("{path}: {reason}"), "correct the file, or remove it".to_owned())
        }
        Ok((file, verdict)) => {
            let (used, left_out): (Vec<_>, Vec<_>) =
                file.servers().partition(|(_, _, reason)| reason.is_none());
            let used: Vec<&str> = used.iter().map(|(name, ..)| name.as_str()).collect();
            let state = match verdict.action {
                RuleAction::Allow => "trusted, started by sessions",
                RuleAction::Ask => "not used before you trust it; parlor mcp list shows what it would start",
                RuleAction::Deny => "never used, as a rule says",
            };
            let found = format!("{path}: {} ({state})", used.join(", "));
            match left_out.first() {
                None => Finding::ok(CHECK, found),
                Some((name, _, reason)) => {
                    let reason = reason.unwrap_or_default();
                    let more = left_out.len() - 1;
                    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
                    let fix = "correct the file; parlor mcp list shows all servers".to_owned();
                    Finding::warning(CHECK, format!("{found}; {name} is left out: {reason}{more}"), fix)
                }
            }
        }
    })
}
