//! `parlor settings`: every setting with the value that holds.

use std::io::Write;

use clap::Args;
use parlor_transport::AllowLocal;

use super::auth::LoginConfig;
use super::models::{ModelConfig, money};
use super::table::{NEVER, SETTINGS, UNLIMITED};
use super::{AgentKind, Config, page, size};
use crate::environment::Environment;

/// How to print.
#[derive(Args)]
pub(crate) struct Options {
    /// Print the reference, docs/settings.md, and not what is set
    #[arg(long)]
    markdown: bool,
}

/// Prints the settings.
pub(crate) fn show(environment: &Environment, options: &Options, out: &mut dyn Write) -> anyhow::Result<()> {
    if options.markdown {
        out.write_all(page::render().as_bytes())?;
        return Ok(());
    }
    let home = environment.state_folder()?;
    let config = Config::load(&home)?;
    let file = home.join(super::FILE);
    writeln!(
        out,
        "# {}{}",
        file.display(),
        if file.exists() { "" } else { " (not there; these are the defaults)" }
    )?;
    for setting in SETTINGS {
        let (doc, takes) = (setting.doc.replace('`', ""), setting.kind.in_words().replace('`', ""));
        writeln!(out, "\n# {doc}\n# Takes {takes}; default: {}.", setting.default.replace('`', ""))?;
        for (name, value) in values(setting.name, &config) {
            writeln!(out, "{name} = {value}")?;
        }
    }
    Ok(())
}

/// What a setting is set to, as TOML: for each agent, if it is an agent's.
fn values(name: &str, config: &Config) -> Vec<(String, String)> {
    let one = |value: String| vec![(name.to_owned(), value)];
    let of_agents = |value: &dyn Fn(&super::AgentConfig) -> Option<String>| {
        let named = |(id, agent): (&String, _)| Some((name.replace('*', id), value(agent)?));
        config.agents.iter().filter_map(named).collect()
    };
    if let Some(member) = name.strip_prefix("auth.*.") {
        let named = |(id, login): (&String, &LoginConfig)| {
            let under = format!("auth.{id}");
            login.value(member).into_iter().map(move |(member, value)| (format!("{under}.{member}"), value))
        };
        return config.auth.iter().flat_map(named).collect();
    }
    if let Some(member) = name.strip_prefix("models.*.") {
        let named =
            |(id, model): (&String, &ModelConfig)| Some((name.replace('*', id), model.value(member)?));
        return config.models.iter().filter_map(named).collect();
    }
    if let Some(provider) = name.strip_prefix("default_models.") {
        let model = config.models.get(provider).map(|model| format!("{:?}", model.model));
        return model.map_or_else(Vec::new, one);
    }
    if let Some(member) = name.strip_prefix("agents.*.")
        && !["kind", "name", "file"].contains(&member)
    {
        return of_agents(&|agent| match &agent.kind {
            AgentKind::Local | AgentKind::Script(_) => None,
            AgentKind::Model(mind) => mind.value(member),
        });
    }
    match name {
        "default_agent" => one(format!("{:?}", config.default_agent)),
        "agents.*.kind" => of_agents(&|agent| {
            Some(match agent.kind {
                AgentKind::Local => "\"local\"".to_owned(),
                AgentKind::Script(_) => "\"script\"".to_owned(),
                AgentKind::Model(_) => "\"model\"".to_owned(),
            })
        }),
        "agents.*.name" => of_agents(&|agent| Some(format!("{:?}", agent.name))),
        "agents.*.file" => of_agents(&|agent| match &agent.kind {
            AgentKind::Local | AgentKind::Model(_) => None,
            AgentKind::Script(file) => Some(format!("{file:?}")),
        }),
        "spending.session" => one(money(config.spending.session)),
        "spending.day" => one(money(config.spending.day)),
        "secrets.keyring" => one(config.keyring.to_string()),
        "serve.allow_local" => one(match config.allow_local {
            AllowLocal::User => "\"user\"".to_owned(),
            AllowLocal::Token => "\"token\"".to_owned(),
        }),
        "retention.days" => one(config.retention.days.map_or(format!("{NEVER:?}"), |days| days.to_string())),
        "serve.max_frame_memory" => {
            one(format!("{:?}", config.max_frame_memory.map_or(UNLIMITED.to_owned(), size::exact)))
        }
        "retention.max_size" => {
            one(format!("{:?}", config.retention.max_size.map_or(UNLIMITED.to_owned(), size::exact)))
        }
        _ => {
            let supex = name.strip_prefix("channels.supex.").and_then(|member| config.supex.value(member));
            let supr = || name.strip_prefix("channels.supr.").and_then(|member| config.supr.value(member));
            let tools = || name.strip_prefix("tools.").and_then(|member| config.tools.value(member));
            supex.or_else(supr).or_else(tools).map_or_else(Vec::new, one)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_means_the_same_when_it_is_read() {
        let config = Config::default();
        let text: String = SETTINGS
            .iter()
            .flat_map(|setting| values(setting.name, &config))
            .map(|(name, value)| format!("{name} = {value}\n"))
            .collect();
        // What is written down is chosen.
        let config = Config { is_default_chosen: true, ..config };
        assert_eq!(Config::parse(std::path::Path::new("/"), &text), Ok(config), "{text}");
        for name in ["default_agent", "retention.days", "retention.max_size", "agents.local.kind"] {
            assert!(text.contains(&format!("{name} = ")), "{name} is not printed");
        }
    }
}
