//! `parlor settings --check`: finds all problems of a settings file, and starts nothing.

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use parlor_model::ScriptAgent;

use super::read::{Assignment, FileSettings, read};
use super::{AgentKind, Config, FILE, SettingsError, read_text};
use crate::environment::Environment;
use crate::home::tools;
use crate::state_folder_trust;

/// Checks `file`, or `parlor.toml` in the state folder, and prints each problem with its line. The exit status is 1 if
/// there is any. Settings that this version does not know count as problems here.
pub(crate) fn run(
    environment: &Environment,
    file: Option<&Path>,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let (home, path) = match file {
        Some(file) => {
            let path = std::path::absolute(file)?;
            (path.parent().unwrap_or(Path::new("/")).to_owned(), path)
        }
        None => {
            let home = environment.state_folder()?;
            state_folder_trust::check(&home)?;
            let path = home.join(FILE);
            (home, path)
        }
    };
    let shown = path.display();
    let text = match read_text(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound && file.is_none() => {
            writeln!(out, "{shown} does not exist, so all settings have their defaults.")?;
            return Ok(ExitCode::SUCCESS);
        }
        text => text.with_context(|| format!("cannot read {shown}"))?,
    };
    let problems = problems(&home, &text, environment);
    for SettingsError { line, message } in &problems {
        match line {
            Some(line) => writeln!(out, "{shown}:{line}: {message}")?,
            None => writeln!(out, "{shown}: {message}")?,
        }
    }
    if problems.is_empty() {
        writeln!(out, "{shown} is valid.")?;
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}

/// All problems of the text, in the order of their lines.
fn problems(home: &Path, text: &str, environment: &Environment) -> Vec<SettingsError> {
    let FileSettings { mut assignments, mut problems, unknown } = match read(text) {
        Ok(settings) => settings,
        Err(not_toml) => return vec![not_toml],
    };
    problems.extend(unknown);
    // Each problem hides later ones, so its cause is taken out and the rest is checked again.
    loop {
        match Config::from_assignments(home, assignments.clone()) {
            Ok(config) => {
                problems.extend(of_agents(&config, environment));
                break;
            }
            Err(problem) => {
                let before = assignments.len();
                remove_cause(&mut assignments, &problem);
                problems.push(problem);
                if assignments.len() == before {
                    break;
                }
            }
        }
    }
    problems.sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
    problems
}

/// Removes the setting that a problem is about, or its whole table if the problem is not about one setting.
fn remove_cause(assignments: &mut Vec<Assignment>, problem: &SettingsError) {
    let Some(cause) = assignments.iter().find(|assignment| Some(assignment.line) == problem.line) else {
        return;
    };
    let name = cause.path.join(".");
    let table: Vec<String> = cause.path.iter().take(2).cloned().collect();
    let is_about_one = problem.message.strip_prefix(&name).is_some_and(|rest| rest.starts_with([' ', ':']));
    match is_about_one {
        true => assignments.retain(|assignment| assignment.path.join(".") != name),
        false => assignments.retain(|assignment| !assignment.path.starts_with(&table)),
    }
}

/// What only those notice who build the agents: scripts and names of tools.
fn of_agents(config: &Config, environment: &Environment) -> Vec<SettingsError> {
    let of_agent = |(id, agent): (&String, &super::AgentConfig)| {
        let message = match &agent.kind {
            AgentKind::Local { .. } => None,
            AgentKind::Script(file) => {
                ScriptAgent::load(file, agent.name.clone()).err().map(|error| format!("{error:#}"))
            }
            AgentKind::Model(agent) => {
                let names = agent.tools.as_ref()?;
                tools(environment).only(names).err().map(|failure| failure.message)
            }
        };
        message.map(|message| SettingsError {
            line: None,
            message: format!("agents.{id} cannot be used: {message}"),
        })
    };
    config.agents.iter().filter_map(of_agent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let problems = problems(Path::new("/nowhere"), text, &Environment::read());
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn all_problems_are_found_at_once() {
        let text = "default_agnet = \"a\"\n[agents.a]\nname = \"x\"\nsystem = \"y\"\n[retention]\ndays = 0\n\
                    [from_the_future]\nx = 1\n[log]\nurl = \"mysql://x\"\n[agents.b]\nkind = \"script\"\n\
                    file = \"none.toml\"\n[agents.c]\nkind = \"model\"\nmodel = \"openai\"\ntools = [\"hammer\"]\n";
        let found = found(text);
        let starts = [
            "line 1: there is no setting \"default_agnet\"",
            "line 3: agents.a needs a kind",
            "line 6: retention.days takes",
            "line 7: there is no setting \"from_the_future\"",
            "line 10: log.url: is neither",
            "agents.b cannot be used",
            "agents.c cannot be used",
        ];
        assert_eq!(found.len(), starts.len(), "{found:#?}");
        for (found, start) in found.iter().zip(starts) {
            assert!(found.starts_with(start), "{found} does not start with {start}");
        }
    }

    #[test]
    fn a_file_that_is_not_toml_has_one_problem() {
        assert_eq!(found("a = \n[retention]\ndays = 0").len(), 1);
        assert!(found("").is_empty());
    }
}
