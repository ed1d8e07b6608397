//! `parlor models`: lists the configured models, and those that their providers offer.

mod build;
mod catalogue;
mod keys;
mod refresh;

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use parlor_model::DEFAULT_CONTEXT_WINDOW;
use serde::Serialize;

pub(crate) use self::build::Builder;
pub(crate) use self::catalogue::{CatalogueSource, ServerList, server_key};
pub(crate) use self::keys::{Keys, ModelCredential, provider_credential_name};
pub(crate) use self::refresh::ListRefresh;
use crate::environment::Environment;
use crate::home::Home;
use crate::json;
use crate::settings::AgentKind;
use crate::settings::models::ModelConfig;

/// The flags of `parlor models`.
#[derive(Args)]
pub(crate) struct Options {
    /// Also list the models that the providers offer, from lists that are at most a day old
    #[arg(long)]
    all: bool,
    /// Ask the providers now, without the cached lists
    #[arg(long)]
    refresh: bool,
    /// Print one JSON object per line: name, provider, model, whether it can be used, and more
    #[arg(long)]
    json: bool,
}

/// One model of the list.
#[derive(Debug, Serialize)]
struct Line<'a> {
    /// The name that `parlor chat --model` takes.
    name: &'a str,
    provider: &'static str,
    model: &'a str,
    /// Whether the model can be used: a key is there, or none is needed.
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
    /// Whether the settings have the model; otherwise only its provider lists it.
    configured: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_window: Option<u64>,
    /// Whether it is the model of the default agent.
    default: bool,
}

/// Runs `parlor models`.
pub(crate) fn models(
    environment: &Environment,
    options: &Options,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let home = Home::open(environment)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let default = match home.config().agents.get(&home.config().default_agent).map(|agent| &agent.kind) {
        Some(AgentKind::Model(model_agent)) => Some(model_agent.model.as_str()),
        Some(AgentKind::Local { .. } | AgentKind::Script(_)) | None => None,
    };
    let configured: Vec<(&String, &ModelConfig)> = home.config().models.iter().collect();
    for (name, model) in &configured {
        let missing = runtime.block_on(home.keys().credential(model)).err();
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
    let catalogue = runtime.block_on(CatalogueSource::new(&home).read(options.refresh))?;
    for list in &catalogue.lists {
        let provider = list.provider.name();
        for model in &list.ids {
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
    for error in &catalogue.errors {
        eprintln!("parlor: {error}");
    }
    Ok(if catalogue.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write(line: &Line<'_>, options: &Options, out: &mut dyn Write) -> anyhow::Result<()> {
    if options.json {
        return Ok(json::write_line(out, line)?);
    }
    let Line { name, provider, model, .. } = line;
    let note = match (&line.missing, line.default) {
        (Some(missing), _) => format!("  ({missing})"),
        (None, true) => "  (the default)".to_owned(),
        (None, false) => String::new(),
    };
    Ok(writeln!(out, "{name:<24}  {provider:<16}  {model}{note}")?)
}
