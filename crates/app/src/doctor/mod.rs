//! `parlor doctor`: what is ready and what is missing, with the fix for each.
//!
//! It looks and changes nothing, except that opening a database of an older format brings it up to
//! date, as every command does. `--recover` alone mends something: a damaged database.

mod database;
pub(crate) mod enforced;
mod models;
mod recover;
mod state;
mod surroundings;

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::console::Console;
use crate::environment::Environment;
use crate::json;
use crate::ownership;

/// How to report.
#[derive(Args)]
pub(crate) struct Options {
    /// Print one JSON object a line: check, state, found, fix
    #[arg(long)]
    json: bool,
    /// Save what can be read of a damaged database into a new one, and keep the damaged one beside it
    ///
    /// Of each session the events up to the first one that is missing are saved. Refused while any process has
    /// the database open; one that is intact is left as it is. Nothing else is looked at.
    #[arg(long)]
    recover: bool,
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
    /// For people: what several checks are about together, and what is said of all of them if it is the same.
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
}

impl Finding {
    fn in_group(self, group: &'static str, said: &'static str) -> Self {
        Self { group: Some((group, said)), ..self }
    }
}

/// The findings with one for each group of those that say the same, so that all fit on one screen.
fn grouped(findings: Vec<Finding>) -> Vec<Finding> {
    let mut shown: Vec<Finding> = Vec::new();
    for finding in findings {
        let Some((name, said)) = finding.group else {
            shown.push(finding);
            continue;
        };
        // What stands for the check, without the group's name.
        let member = finding.check.trim_start_matches(name.trim_end_matches('s')).trim_start();
        let same = |other: &&mut Finding| other.group == finding.group && other.state == finding.state;
        match shown.iter_mut().find(same) {
            Some(first) => first.found = first.found.replacen(": ", &format!(", {member}: "), 1),
            None => shown.push(Finding { check: name, found: format!("{member}: {said}"), ..finding }),
        }
    }
    shown
}

/// Looks at everything and says how it is. Fails if anything is a problem.
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
        Ok(home) if let Err(not_ours) = ownership::check(home) => {
            findings.push(Finding::problem("state folder", not_ours.found(), not_ours.fix));
        }
        Ok(home) => {
            findings.extend(state::look(home, environment));
            findings.push(database::look(home));
            findings.extend(models::look(home, environment));
        }
        Err(error) => {
            let fix = "set PARLOR_HOME to a folder that is yours";
            findings.push(Finding::problem("state folder", error.to_string(), fix));
        }
    }
    findings.extend(surroundings::look(environment));
    findings.extend(enforced::look(home.as_deref().ok()));
    let count = |health| findings.iter().filter(|finding| finding.state == health).count();
    let (problems, warnings) = (count(Health::Problem), count(Health::Warning));
    if !options.json {
        findings = grouped(findings);
    }
    for (finding, next) in findings.iter().zip(findings.iter().skip(1).map(Some).chain([None])) {
        if options.json {
            json::write_line(out, finding)?;
        } else {
            // What mends several in a row is said once.
            let fix = finding.fix.as_deref().filter(|_| next.is_none_or(|next| next.fix != finding.fix));
            print(finding, fix, console, out)?;
        }
    }
    if !options.json {
        writeln!(out, "{}", verdict(problems, warnings))?;
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
                "Ready, with {}: parlor works, and what a warning names is missing or not safe.",
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
    fn those_of_a_group_that_say_the_same_are_one_line() {
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
        let shown = grouped(findings);
        let shown: Vec<_> = shown.iter().map(|finding| (finding.check, finding.found.as_str())).collect();
        assert_eq!(shown, [("ruby", "there"), ("ports", "1, 3: free"), ("ports", "2: in use")]);
    }

    #[test]
    fn the_verdict_counts() {
        assert_eq!(verdict(0, 0), "Everything is ready.");
        assert!(verdict(0, 1).contains("1 warning:"));
        assert!(verdict(2, 0).starts_with("2 problems and 0 warnings"));
    }
}
