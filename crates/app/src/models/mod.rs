//! `parlor models`: the models that are configured, and those that their providers have.

mod build;
mod catalogue;
mod keys;

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use parlor_model::DEFAULT_CONTEXT_WINDOW;
use serde::Serialize;

pub(crate) use self::build::Builder;
use self::catalogue::Catalogue;
pub(crate) use self::keys::{Keys, Pass, name_of};
use crate::environment::Environment;
use crate::home::Home;
use crate::json;
use crate::settings::AgentKind;
use crate::settings::models::ModelConfig;

/// What to list, and how.
#[derive(Args)]
pub(crate) struct Options {
    /// List also what the providers have, as they call it, from a list that is at most a day old
    #[arg(long)]
    all: bool,
    /// Ask the providers now
    #[arg(long)]
    refresh: bool,
    /// Print one JSON object a line: name, provider, model, and what is known of it
    #[arg(long)]
    json: bool,
}

/// A model as it is listed.
#[derive(Debug, Serialize)]
struct Line<'a> {
    /// What `--model` takes.
    name: &'a str,
    provider: &'static str,
    model: &'a str,
    /// Whether it can be asked: there is a key, or none is needed.
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
    /// Whether it is configured, or only known to its provider.
    configured: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_window: Option<u64>,
    /// Whether it answers where nobody is asked for.
    default: bool,
}

/// Lists the models.
pub(crate) fn models(
    environment: &Environment,
    options: &Options,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let home = Home::open(environment)?;
    let builder = Builder::new(&home, environment);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let default = match home.config().agents.get(&home.config().default_agent).map(|agent| &agent.kind) {
        Some(AgentKind::Model(mind)) => Some(mind.model.as_str()),
        Some(AgentKind::Local | AgentKind::Script(_)) | None => None,
    };
    let configured: Vec<(&String, &ModelConfig)> = home.config().models.iter().collect();
    for (name, model) in &configured {
        let missing = runtime.block_on(home.keys().pass(model)).err();
        let line = Line {
            name,
            provider: model.provider.name(),
            model: &model.model,
            ready: missing.is_none(),
            missing,
            configured: true,
            context_window: Some(model.context_window.unwrap_or(DEFAULT_CONTEXT_WINDOW)),
            default: default == Some(name.as_str()),
        };
        write(&line, options, out)?;
    }
    if !options.all && !options.refresh {
        return Ok(ExitCode::SUCCESS);
    }
    let catalogue = runtime.block_on(Catalogue::read(&home, &builder, options.refresh))?;
    for (provider, names) in catalogue.names() {
        for model in names {
            let line = Line {
                name: model,
                provider,
                model,
                ready: true,
                missing: None,
                configured: false,
                context_window: None,
                default: false,
            };
            write(&line, options, out)?;
        }
    }
    for trouble in catalogue.troubles() {
        eprintln!("parlor: {trouble}");
    }
    Ok(if catalogue.troubles().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write(line: &Line<'_>, options: &Options, out: &mut dyn Write) -> anyhow::Result<()> {
    if options.json {
        return Ok(json::write_line(out, line)?);
    }
    let Line { name, provider, model, .. } = line;
    let note = match (&line.missing, line.default) {
        (Some(missing), _) => format!("  ({missing})"),
        (None, true) => "  (answers where nobody is asked for)".to_owned(),
        (None, false) => String::new(),
    };
    Ok(writeln!(out, "{name:<24}  {provider:<16}  {model}{note}")?)
}
