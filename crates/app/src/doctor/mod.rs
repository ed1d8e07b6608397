//! `parlor doctor`: checks what works and what is missing, and prints a fix for each problem.
//!
//! The checks change nothing, except that opening a database of an older format upgrades it, as every command does. Only
//! `--recover` repairs something: a damaged database.

mod database;
pub(crate) mod enforced;
mod mcp;
mod models;
mod recover;
mod shared_log;
mod state;
mod system;

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::console::Console;
use crate::environment::Environment;
use crate::json;
use crate::settings::Config;
use crate::state_folder_trust;

/// The flags of `parlor doctor`.
#[derive(Args)]
pub(crate) struct Options {
    /// Print one JSON object per line: check, state, found, fix
    #[arg(long)]
    json: bool,
    /// Also start each MCP server of the settings and ask for its tools
    #[arg(long)]
    mcp: bool,
    /// Copy what can be read of a damaged database into a new one, and keep the damaged file beside it
    ///
    /// Saves the events of each session up to the first one that is missing. Fails while a process has the database
    /// open, and leaves an intact database unchanged. Makes no other checks.
    #[arg(long)]
    recover: bool,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Health {
    Ok,
    /// Something optional does not work, or is not safe.
    Warning,
    /// Parlor does not work.
    Problem,
}

/// What one check found. The fields are the members of the JSON output.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    check: &'static str,
    state: Health,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
    /// Set if the text output can join this finding with similar ones: the name of the group, and the text that is
    /// then printed for all of them.
    #[serde(skip)]
    group: Option<(&'static str, &'static str)>,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, state: Health::Ok, found: found.into(), fix: None, group: None }
    }

    fn warning(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, state: Health::Warning, found: found.into(), fix: Some(fix.into()), group: None }
    }

    fn problem(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, state: Health::Problem, found: found.into(), fix: Some(fix.into()), group: None }
    }

    fn in_group(self, group: &'static str, text: &'static str) -> Self {
        Self { group: Some((group, text)), ..self }
    }
}

/// Joins findings of the same group and text into one, so that all fit on one screen.
fn join_groups(findings: Vec<Finding>) -> Vec<Finding> {
    let mut shown: Vec<Finding> = Vec::new();
    for finding in findings {
        let Some((name, text)) = finding.group else {
            shown.push(finding);
            continue;
        };
        // The name of the check without the name of the group: `port 9876` becomes `9876`.
        let member = finding.check.trim_start_matches(name.trim_end_matches('s')).trim_start();
        let same = |other: &&mut Finding| other.group == finding.group && other.state == finding.state;
        match shown.iter_mut().find(same) {
            Some(first) => first.found = first.found.replacen(": ", &format!(", {member}: "), 1),
            None => shown.push(Finding { check: name, found: format!("{member}: {text}"), ..finding }),
        }
    }
    shown
}

/// Runs all checks and prints the findings. The exit status is 1 if one of them is a problem.
pub(crate) fn doctor(
    environment: &Environment,
    options: &Options,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    if options.recover {
        return recover::run(&environment.state_folder()?, options.json, out);
    }
    let mut findings = Vec::new();
    let home = environment.state_folder();
    match &home {
        Ok(home) if let Err(untrusted) = state_folder_trust::check(home) => {
            findings.push(Finding::problem("state folder", untrusted.description(), untrusted.fix));
        }
        Ok(home) => {
            findings.extend(state::check(home, environment));
            findings.push(match Config::load(home) {
                Ok(config) if config.log.url.is_some() => shared_log::check(&config),
                Ok(_) | Err(_) => database::check(home),
            });
            findings.extend(models::check(home, environment));
            findings.extend(mcp::check(home, environment, options.mcp));
        }
        Err(error) => {
            let fix = "set PARLOR_HOME to a folder of your own";
            findings.push(Finding::problem("state folder", error.to_string(), fix));
        }
    }
    findings.extend(system::check(environment));
    findings.extend(enforced::check(home.as_deref().ok()));
    if !options.json {
        findings = join_groups(findings);
    }
    let count = |health| findings.iter().filter(|finding| finding.state == health).count();
    let (problems, warnings) = (count(Health::Problem), count(Health::Warning));
    for (finding, next) in findings.iter().zip(findings.iter().skip(1).map(Some).chain([None])) {
        if options.json {
            json::write_line(out, finding)?;
        } else {
            // A fix that is the same for several findings in a row is printed once, after the last.
            let fix = finding.fix.as_deref().filter(|_| next.is_none_or(|next| next.fix != finding.fix));
            print(finding, fix, console, out)?;
        }
    }
    if !options.json {
        writeln!(out, "{}", summary(problems, warnings))?;
    }
    Ok(if problems == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(finding: &Finding, fix: Option<&str>, console: Console, out: &mut dyn Write) -> std::io::Result<()> {
    let style = crate::console::Style(console.style.0 && console.stdout_is_terminal);
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

fn summary(problems: usize, warnings: usize) -> String {
    let plural = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    match (problems, warnings) {
        (0, 0) => "Everything is ready.".to_owned(),
        (0, warnings) => {
            format!(
                "Ready, with {}: parlor works, but something optional is missing or not safe.",
                plural(warnings, "warning")
            )
        }
        (problems, warnings) => format!(
            "{} and {}: fix the problems first.",
            plural(problems, "problem"),
            plural(warnings, "warning")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_of_a_group_with_the_same_text_are_one_line() {
        let port = |check, state| {
            Finding { state, ..Finding::ok(check, "x") }.in_group(
                "ports",
                match state {
                    Health::Ok => "free",
                    Health::Warning | Health::Problem => "in use",
                },
            )
        };
        let findings = vec![
            Finding::ok("ruby", "there"),
            port("port 1", Health::Ok),
            port("port 2", Health::Warning),
            port("port 3", Health::Ok),
        ];
        let shown = join_groups(findings);
        let shown: Vec<_> = shown.iter().map(|finding| (finding.check, finding.found.as_str())).collect();
        assert_eq!(shown, [("ruby", "there"), ("ports", "1, 3: free"), ("ports", "2: in use")]);
    }

    #[test]
    fn the_summary_counts_problems_and_warnings() {
        assert_eq!(summary(0, 0), "Everything is ready.");
        assert!(summary(0, 1).contains("1 warning:"));
        assert!(summary(2, 0).starts_with("2 problems and 0 warnings"));
    }
}
