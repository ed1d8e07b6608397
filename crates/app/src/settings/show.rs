//! `parlor settings`: prints every setting with its current value.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use parlor_engine::OnDisconnect;
use parlor_transport::AllowLocal;

use super::auth::LoginConfig;
use super::mcp::McpSettings;
use super::models::{ModelConfig, money_as_toml};
use super::table::{NEVER, UNLIMITED, settings};
use super::{AgentKind, Config, check, page, size};
use crate::environment::Environment;

/// The flags of `parlor settings`.
#[derive(Args)]
pub(crate) struct Options {
    /// Print the reference docs/settings.md instead of the current values
    #[arg(long)]
    markdown: bool,
    /// Check parlor.toml, or FILE, and print all problems; exits with 1 if there is any
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with = "markdown")]
    check: Option<Option<PathBuf>>,
}

/// Runs `parlor settings`.
pub(crate) fn show(
    environment: &Environment,
    options: &Options,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    if options.markdown {
        out.write_all(page::render().as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(file) = &options.check {
        return check::run(environment, file.as_deref(), out);
    }
    let home = environment.state_folder()?;
    let config = Config::load(&home)?;
    let file = home.join(super::FILE);
    writeln!(
        out,
        "# {}{}",
        file.display(),
        if file.exists() { "" } else { " (does not exist; these are the defaults)" }
    )?;
    for setting in settings() {
        let (doc, takes) = (setting.doc.replace('`', ""), setting.kind.description().replace('`', ""));
        writeln!(out, "\n# {doc}\n# Takes {takes}; default: {}.", setting.default.replace('`', ""))?;
        for (name, value) in values(setting.name, &config) {
            writeln!(out, "{name} = {value}")?;
        }
    }
    for unknown in &config.unknown_settings {
        writeln!(out, "\n# Ignored: {unknown}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The full names of the settings whose values differ. A token that was replaced by another one is not among them, because
/// tokens are not shown; the names of their tables are.
pub(crate) fn changed_settings(old: &Config, new: &Config) -> Vec<String> {
    let pairs = |config: &Config| -> BTreeSet<(String, String)> {
        settings().flat_map(|setting| values(setting.name, config)).collect()
    };
    let (before, after) = (pairs(old), pairs(new));
    let mut names: BTreeSet<String> =
        before.symmetric_difference(&after).map(|(name, _)| name.clone()).collect();
    let tables = [
        ("channels.supr", old.supr != new.supr),
        ("channels.supex", old.supex != new.supex),
        ("log", old.log != new.log),
    ];
    for (table, is_changed) in tables {
        if is_changed && !names.iter().any(|name| name.starts_with(table)) {
            names.insert(table.to_owned());
        }
    }
    names.into_iter().collect()
}

/// The full names and TOML values of a setting: one pair, or one for each agent, model or login if the name contains `*`.
/// Values that are not set are left out.
fn values(name: &str, config: &Config) -> Vec<(String, String)> {
    let single = |value: String| vec![(name.to_owned(), value)];
    let for_agents = |value: &dyn Fn(&super::AgentConfig) -> Option<String>| {
        let pair = |(id, agent): (&String, _)| Some((name.replace('*', id), value(agent)?));
        config.agents.iter().filter_map(pair).collect()
    };
    if let Some(member) = name.strip_prefix("auth.*.") {
        let pairs = |(id, login): (&String, &LoginConfig)| {
            let table = format!("auth.{id}");
            login.value(member).into_iter().map(move |(member, value)| (format!("{table}.{member}"), value))
        };
        return config.auth.iter().flat_map(pairs).collect();
    }
    if let Some(member) = name.strip_prefix("mcp.*.") {
        let pair =
            |(id, server): (&String, &McpSettings)| Some((name.replacen('*', id, 1), server.value(member)?));
        return config.mcp.iter().filter_map(pair).collect();
    }
    if let Some(member) = name.strip_prefix("models.*.") {
        let pair = |(id, model): (&String, &ModelConfig)| Some((name.replace('*', id), model.value(member)?));
        return config.models.iter().filter_map(pair).collect();
    }
    if let Some(provider) = name.strip_prefix("default_models.") {
        let model = config.models.get(provider).map(|model| format!("{:?}", model.model));
        return model.map_or_else(Vec::new, single);
    }
    if let Some(member) = name.strip_prefix("agents.*.")
        && !["kind", "name", "file", "commands"].contains(&member)
    {
        return for_agents(&|agent| match &agent.kind {
            AgentKind::Local { .. } | AgentKind::Script(_) => None,
            AgentKind::Model(model_agent) => model_agent.value(member),
        });
    }
    match name {
        "default_agent" => single(format!("{:?}", config.default_agent)),
        "agents.*.kind" => for_agents(&|agent| {
            Some(match agent.kind {
                AgentKind::Local { .. } => "\"local\"".to_owned(),
                AgentKind::Script(_) => "\"script\"".to_owned(),
                AgentKind::Model(_) => "\"model\"".to_owned(),
            })
        }),
        "agents.*.name" => for_agents(&|agent| Some(format!("{:?}", agent.name))),
        "agents.*.commands" => for_agents(&|agent| match &agent.kind {
            AgentKind::Local { runs_commands } => Some(runs_commands.to_string()),
            AgentKind::Model(_) | AgentKind::Script(_) => None,
        }),
        "agents.*.file" => for_agents(&|agent| match &agent.kind {
            AgentKind::Local { .. } | AgentKind::Model(_) => None,
            AgentKind::Script(file) => Some(format!("{file:?}")),
        }),
        "spending.session" => single(money_as_toml(config.spending.session)),
        "spending.day" => single(money_as_toml(config.spending.day)),
        "secrets.keyring" => single(config.keyring.to_string()),
        "serve.allow_local" => single(match config.allow_local {
            AllowLocal::User => "\"user\"".to_owned(),
            AllowLocal::Token => "\"token\"".to_owned(),
        }),
        "channels.mcp.tools" => single(format!("{:?}", config.mcp_tools)),
        "acp.usage_updates" => single(config.sends_acp_usage.to_string()),
        "sessions.join" => single(config.joins_sessions.to_string()),
        "sessions.when_owner_leaves" => single(match config.when_owner_leaves {
            OnDisconnect::HandOver => "\"hand-over\"".to_owned(),
            OnDisconnect::Stop | OnDisconnect::Keep => "\"stop\"".to_owned(),
        }),
        "exec.allow_private_urls" => single(config.exec_allows_private_urls.to_string()),
        "serve.max_frame_memory" => {
            single(format!("{:?}", config.max_frame_memory.map_or(UNLIMITED.to_owned(), size::exact)))
        }
        "retention.automatic" => single(config.retention.is_automatic.to_string()),
        "retention.days" => {
            single(config.retention.days.map_or(format!("{NEVER:?}"), |days| days.to_string()))
        }
        "retention.max_size" => {
            single(format!("{:?}", config.retention.max_size.map_or(UNLIMITED.to_owned(), size::exact)))
        }
        _ => {
            let supex = name.strip_prefix("channels.supex.").and_then(|member| config.supex.value(member));
            let supr = || name.strip_prefix("channels.supr.").and_then(|member| config.supr.value(member));
            let policy = || name.strip_prefix("policy.").and_then(|member| config.policy.value(member));
            let tools = || name.strip_prefix("tools.").and_then(|member| config.tools.value(member));
            let log = || name.strip_prefix("log.").and_then(|member| config.log.value(member));
            let cluster = || name.strip_prefix("cluster.").and_then(|member| config.cluster.value(member));
            supex
                .or_else(supr)
                .or_else(policy)
                .or_else(tools)
                .or_else(log)
                .or_else(cluster)
                .map_or_else(Vec::new, single)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_settings_are_named_and_secrets_by_their_table() {
        let parse = |text: &str| Config::parse(std::path::Path::new("/"), text).unwrap();
        let old = parse("[retention]\ndays = 7\n[channels.supr]\ntoken = \"one\"\n");
        assert!(changed_settings(&old, &old).is_empty());
        let new = parse("[agents.a]\nkind = \"local\"\n[channels.supr]\ntoken = \"two\"\n");
        assert_eq!(
            changed_settings(&old, &new),
            ["agents.a.commands", "agents.a.kind", "agents.a.name", "channels.supr", "retention.days"]
        );
    }

    #[test]
    fn printed_settings_are_read_back_to_the_same_config() {
        let config = Config::default();
        let text: String = settings()
            .flat_map(|setting| values(setting.name, &config))
            .map(|(name, value)| format!("{name} = {value}\n"))
            .collect();
        // The printed text sets `default_agent`, so it counts as chosen.
        let config = Config { is_default_chosen: true, ..config };
        assert_eq!(Config::parse(std::path::Path::new("/"), &text), Ok(config), "{text}");
        for name in ["default_agent", "retention.days", "retention.max_size", "agents.local.kind"] {
            assert!(text.contains(&format!("{name} = ")), "{name} is not printed");
        }
    }
}
