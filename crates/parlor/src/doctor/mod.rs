//! `parlor doctor`: what is ready and what is missing, with the fix for each.
//!
//! It looks and changes nothing, except that opening a database of an older format brings it up to
//! date, as every command does.

mod database;
mod models;
mod state;
mod surroundings;

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::console::Console;
use crate::environment::Environment;
use crate::json;

/// How to report.
#[derive(Args)]
pub(crate) struct Options {
    /// Print one JSON object a line: check, state, found, fix
    #[arg(long)]
    json: bool,
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Health {
    /// Ready.
    Ok,
    /// Something does not work that not everybody needs.
    Warning,
    /// Parlor does not work.
    Problem,
}

/// One thing that was looked at.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    check: &'static str,
    state: Health,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, state: Health::Ok, found: found.into(), fix: None }
    }

    fn warning(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, state: Health::Warning, found: found.into(), fix: Some(fix.into()) }
    }

    fn problem(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, state: Health::Problem, found: found.into(), fix: Some(fix.into()) }
    }
}

/// Looks at everything and says how it is. Fails if anything is a problem.
pub(crate) fn doctor(
    environment: &Environment,
    options: &Options,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let mut findings = Vec::new();
    match environment.state_folder() {
        Ok(home) => {
            findings.extend(state::look(&home, environment));
            findings.push(database::look(&home));
            findings.extend(models::look(&home, environment));
        }
        Err(error) => {
            let fix = "set PARLOR_HOME to a folder that is yours";
            findings.push(Finding::problem("state folder", error.to_string(), fix));
        }
    }
    findings.extend(surroundings::look(environment));
    for (finding, next) in findings.iter().zip(findings.iter().skip(1).map(Some).chain([None])) {
        if options.json {
            json::write_line(out, finding)?;
        } else {
            // What mends several in a row is said once.
            let fix = finding.fix.as_deref().filter(|_| next.is_none_or(|next| next.fix != finding.fix));
            print(finding, fix, console, out)?;
        }
    }
    let count = |health| findings.iter().filter(|finding| finding.state == health).count();
    let (problems, warnings) = (count(Health::Problem), count(Health::Warning));
    if !options.json {
        writeln!(out, "\n{}", verdict(problems, warnings))?;
    }
    Ok(if problems == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(finding: &Finding, fix: Option<&str>, console: Console, out: &mut dyn Write) -> std::io::Result<()> {
    let style = crate::console::Style(console.style.0 && console.output);
    let mark = match (finding.state, console.unicode) {
        (Health::Ok, true) => "✓".to_owned(),
        (Health::Warning, true) => style.bold("!"),
        (Health::Problem, true) => style.red("✗"),
        (Health::Ok, false) => "ok     ".to_owned(),
        (Health::Warning, false) => style.bold("warning"),
        (Health::Problem, false) => style.red("problem"),
    };
    let indent = if console.unicode { 2 } else { 9 };
    writeln!(out, "{mark} {:<18}  {}", finding.check, finding.found)?;
    if let Some(fix) = fix {
        writeln!(out, "{:indent$}{:<18}  {}", "", "", style.dim(&format!("fix: {fix}")))?;
    }
    Ok(())
}

fn verdict(problems: usize, warnings: usize) -> String {
    let plural = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    match (problems, warnings) {
        (0, 0) => "Everything is ready.".to_owned(),
        (0, warnings) => {
            format!(
                "Ready, with {}: parlor works, and what a warning names is missing.",
                plural(warnings, "warning")
            )
        }
        (problems, warnings) => format!(
            "{} and {}: mend the problems first.",
            plural(problems, "problem"),
            plural(warnings, "warning")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_counts() {
        assert_eq!(verdict(0, 0), "Everything is ready.");
        assert!(verdict(0, 1).contains("1 warning:"));
        assert!(verdict(2, 0).starts_with("2 problems and 0 warnings"));
    }
}
