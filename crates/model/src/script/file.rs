//! Parses and checks a script file. All errors are found here, so that running the script cannot fail unexpectedly.

use std::time::Duration;

use parlor_vocab::Usage;
use regex::{Regex, RegexBuilder};
use serde::Deserialize;

use super::argument::Argument;
use super::error::{ScriptFault, ScriptLocation};
use super::template::Template;
use super::{Rule, Script, Step};
use crate::{
    MAX_PATTERN_BYTES, MAX_SCRIPT_BYTES, MAX_SCRIPT_DEPTH, MAX_SCRIPT_PATTERNS, MAX_SCRIPT_STEPS, MAX_WAIT,
};

/// The top level of the file. Its tables are decoded one by one, so that each error has a location.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    #[serde(default)]
    on: Vec<toml::Table>,
    otherwise: Option<toml::Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OnText {
    r#match: String,
    steps: Vec<toml::Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OtherwiseText {
    steps: Vec<toml::Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepText {
    think: Option<String>,
    say: Option<String>,
    wait_ms: Option<u64>,
    usage: Option<UsageText>,
    tool: Option<String>,
    args: Option<toml::Table>,
    subagent: Option<String>,
    task: Option<String>,
    steps: Option<Vec<toml::Table>>,
    fail: Option<String>,
    code: Option<String>,
}

/// The usage that a step reports.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UsageText {
    #[serde(default)]
    input: u64,
    #[serde(default)]
    output: u64,
    #[serde(default)]
    cache_read: u64,
    #[serde(default)]
    cache_write: u64,
    /// In millionths of a dollar.
    #[serde(default)]
    cost_micros: u64,
}

impl From<UsageText> for Usage {
    fn from(text: UsageText) -> Self {
        Self {
            input_tokens: text.input,
            output_tokens: text.output,
            cache_read_tokens: text.cache_read,
            cache_write_tokens: text.cache_write,
            cost_micros: text.cost_micros,
        }
    }
}

/// Parses the text of a script.
pub(super) fn parse(text: &str) -> Result<Script, (ScriptLocation, ScriptFault)> {
    let file = |fault| (ScriptLocation::File, fault);
    if text.len() > MAX_SCRIPT_BYTES {
        return Err(file(ScriptFault::TooLarge));
    }
    let written: FileText = toml::from_str(text).map_err(|error| file(at_line(text, &error)))?;
    if written.on.len() > MAX_SCRIPT_PATTERNS {
        return Err(file(ScriptFault::TooManyPatterns));
    }
    let mut steps_left = MAX_SCRIPT_STEPS;
    let mut rules = Vec::new();
    for (index, on) in written.on.into_iter().enumerate() {
        let pattern = on.get("match").and_then(toml::Value::as_str).map(str::to_owned);
        let mut step = Vec::new();
        let rule = rule(on, &mut steps_left, &mut step);
        rules.push(rule.map_err(|fault| (ScriptLocation::On { number: index + 1, pattern, step }, fault))?);
    }
    let mut step = Vec::new();
    let otherwise = written.otherwise.map(|otherwise| {
        let otherwise: OtherwiseText = otherwise.try_into()?;
        // There is no pattern, so the whole prompt is the match.
        StepReader { max_capture: 0, steps_left: &mut steps_left, path: &mut step }.steps(otherwise.steps)
    });
    let otherwise = otherwise.transpose().map_err(|fault| (ScriptLocation::Otherwise { step }, fault))?;
    Ok(Script { rules, otherwise })
}

fn at_line(text: &str, error: &toml::de::Error) -> ScriptFault {
    let start = error.span().map_or(0, |span| span.start);
    let line = 1 + text.bytes().take(start).filter(|byte| *byte == b'\n').count();
    ScriptFault::Line { line, message: error.message().to_owned() }
}

fn rule(on: toml::Table, steps_left: &mut usize, path: &mut Vec<usize>) -> Result<Rule, ScriptFault> {
    let on: OnText = on.try_into()?;
    let pattern = compile(&on.r#match)?;
    let mut reader = StepReader { max_capture: pattern.captures_len() - 1, steps_left, path };
    Ok(Rule { steps: reader.steps(on.steps)?, pattern })
}

fn compile(pattern: &str) -> Result<Regex, ScriptFault> {
    let compiled = RegexBuilder::new(pattern).size_limit(MAX_PATTERN_BYTES).build();
    compiled.map_err(|error| {
        if matches!(error, regex::Error::CompiledTooBig(_)) {
            return ScriptFault::PatternTooLarge;
        }
        // The message repeats the pattern and marks the error on many lines. Its last line is enough.
        let message = error.to_string();
        ScriptFault::Pattern(
            message.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned(),
        )
    })
}

/// Reads the steps of one table.
struct StepReader<'a> {
    /// The captures are `0..=max_capture`.
    max_capture: usize,
    steps_left: &'a mut usize,
    /// The path of the current step; after an error, the path of the invalid step.
    path: &'a mut Vec<usize>,
}

impl StepReader<'_> {
    fn steps(&mut self, tables: Vec<toml::Table>) -> Result<Vec<Step>, ScriptFault> {
        let mut steps = Vec::new();
        for (index, table) in tables.into_iter().enumerate() {
            self.path.push(index + 1);
            *self.steps_left = self.steps_left.checked_sub(1).ok_or(ScriptFault::TooManySteps)?;
            steps.push(self.step(table.try_into()?)?);
            self.path.pop();
        }
        Ok(steps)
    }

    fn step(&mut self, text: StepText) -> Result<Step, ScriptFault> {
        let kind = kind(&text)?;
        let step = match text {
            StepText { think: Some(text), .. } => Step::Reasoning(self.template(&text)?),
            StepText { say: Some(text), .. } => Step::Text(self.template(&text)?),
            StepText { wait_ms: Some(wait), .. } => {
                let wait = Duration::from_millis(wait);
                if wait > MAX_WAIT {
                    return Err(ScriptFault::WaitTooLong);
                }
                Step::Wait(wait)
            }
            StepText { usage: Some(usage), .. } => Step::Usage(usage.into()),
            StepText { tool: Some(name), args, .. } => Step::Tool {
                name: self.template(&name)?,
                args: Argument::object(args.unwrap_or_default(), self.max_capture)?,
            },
            StepText { subagent: Some(name), task, steps, .. } => {
                let (name, missing) = (self.template(&name)?, |member| ScriptFault::Missing { kind, member });
                let task = self.template(&task.ok_or_else(|| missing("task"))?)?;
                let steps = steps.ok_or_else(|| missing("steps"))?;
                // The path has one step for each enclosing subagent, and this one.
                if self.path.len() > MAX_SCRIPT_DEPTH {
                    return Err(ScriptFault::TooDeep);
                }
                Step::Subagent { name, task, steps: self.steps(steps)? }
            }
            StepText { fail: Some(message), code, .. } => Step::Fail {
                message: self.template(&message)?,
                code: self.template(code.as_deref().unwrap_or("FAILED"))?,
            },
            _ => return Err(ScriptFault::NoKind),
        };
        Ok(step)
    }

    fn template(&self, text: &str) -> Result<Template, ScriptFault> {
        Ok(Template::parse(text, self.max_capture)?)
    }
}

/// The kind of a step. Fails if it has several kinds or members of another kind.
fn kind(step: &StepText) -> Result<&'static str, ScriptFault> {
    let kinds = [
        ("think", step.think.is_some()),
        ("say", step.say.is_some()),
        ("wait_ms", step.wait_ms.is_some()),
        ("usage", step.usage.is_some()),
        ("tool", step.tool.is_some()),
        ("subagent", step.subagent.is_some()),
        ("fail", step.fail.is_some()),
    ];
    let mut kinds = kinds.into_iter().filter_map(|(kind, given)| given.then_some(kind));
    let kind = kinds.next().ok_or(ScriptFault::NoKind)?;
    if let Some(second) = kinds.next() {
        return Err(ScriptFault::TwoKinds(kind, second));
    }
    let members = [
        ("args", "tool", step.args.is_some()),
        ("task", "subagent", step.task.is_some()),
        ("steps", "subagent", step.steps.is_some()),
        ("code", "fail", step.code.is_some()),
    ];
    match members.into_iter().find(|(_, owner, given)| *given && *owner != kind) {
        Some((member, ..)) => Err(ScriptFault::Stray { member, kind }),
        None => Ok(kind),
    }
}
