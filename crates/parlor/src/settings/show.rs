//! `parlor settings`: every setting with the value that holds.

use std::io::Write;

use clap::Args;

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
    match name {
        "default_agent" => one(format!("{:?}", config.default_agent)),
        "agents.*.kind" => of_agents(&|agent| {
            Some(match agent.kind {
                AgentKind::Local => "\"local\"".to_owned(),
                AgentKind::Script(_) => "\"script\"".to_owned(),
            })
        }),
        "agents.*.name" => of_agents(&|agent| Some(format!("{:?}", agent.name))),
        "agents.*.file" => of_agents(&|agent| match &agent.kind {
            AgentKind::Local => None,
            AgentKind::Script(file) => Some(format!("{file:?}")),
        }),
        "retention.days" => one(config.retention.days.map_or(format!("{NEVER:?}"), |days| days.to_string())),
        "retention.max_size" => {
            one(format!("{:?}", config.retention.max_size.map_or(UNLIMITED.to_owned(), size::exact)))
        }
        _ => match name.strip_prefix("channels.supex.").and_then(|member| config.supex.value(member)) {
            Some(value) => one(value),
            None => Vec::new(),
        },
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
        assert_eq!(Config::parse(std::path::Path::new("/"), &text), Ok(config), "{text}");
        for name in ["default_agent", "retention.days", "retention.max_size", "agents.local.kind"] {
            assert!(text.contains(&format!("{name} = ")), "{name} is not printed");
        }
    }
}
