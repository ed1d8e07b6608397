//! Checks the configured MCP servers.

use std::path::Path;

use parlor_engine::Redact;
use parlor_tools::McpServerState;

use super::Finding;
use crate::environment::Environment;
use crate::home::Home;
use crate::mcp::servers::check_all;

const CHECK: &str = "mcp server";

/// Starts each server and asks for its tools, if `starts`. Empty if the settings are invalid: another check reports that.
pub(super) fn check(home: &Path, environment: &Environment, starts: bool) -> Vec<Finding> {
    let Ok(home) = Home::at(environment, home.to_owned()) else { return Vec::new() };
    let Ok(servers) = home.mcp_servers(environment) else { return Vec::new() };
    let servers: Vec<_> = servers.iter().cloned().collect();
    if servers.is_empty() {
        return Vec::new();
    }
    if !starts {
        let count = servers.len();
        // The settings may be those of a backup that somebody else made.
        return vec![Finding::ok(
            CHECK,
            format!("{count} configured, not started; parlor doctor --mcp starts them"),
        )];
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
    states.into_iter().map(finding).collect()
}
