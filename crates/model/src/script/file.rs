//! From the text of a file to a script that can be performed. Whatever is wrong is found here, so
//! that performing it can only end as the script says.

use std::time::Duration;

use parlor_vocab::Usage;
use regex::{Regex, RegexBuilder};
use serde::Deserialize;

use super::argument::Argument;
use super::error::{ScriptFault, ScriptLocation};
use super::template::Template;
use super::{Cue, Script, Step};
use crate::{
    MAX_PATTERN_BYTES, MAX_SCRIPT_BYTES, MAX_SCRIPT_DEPTH, MAX_SCRIPT_PATTERNS, MAX_SCRIPT_STEPS, MAX_WAIT,
};

/// The file as it is written. Its parts are read one by one, so that a flaw has a place.
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

/// What a model call would have consumed.
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

/// Reads the text of a script.
pub(super) fn parse(text: &str) -> Result<Script, (ScriptLocation, ScriptFault)> {
    let file = |flaw| (ScriptLocation::File, flaw);
    if text.len() > MAX_SCRIPT_BYTES {
        return Err(file(ScriptFault::TooLarge));
    }
    let written: FileText = toml::from_str(text).map_err(|error| file(at_line(text, &error)))?;
    if written.on.len() > MAX_SCRIPT_PATTERNS {
        return Err(file(ScriptFault::TooManyPatterns));
    }
    let mut steps_left = MAX_SCRIPT_STEPS;
    let mut cues = Vec::new();
    for (index, on) in written.on.into_iter().enumerate() {
        let pattern = on.get("match").and_then(toml::Value::as_str).map(str::to_owned);
        let mut step = Vec::new();
        let cue = cue(on, &mut steps_left, &mut step);
        cues.push(cue.map_err(|flaw| (ScriptLocation::On { number: index + 1, pattern, step }, flaw))?);
    }
    let mut step = Vec::new();
    let otherwise = written.otherwise.map(|otherwise| {
        let otherwise: OtherwiseText = otherwise.try_into()?;
        // There is no pattern: the whole prompt counts as the match.
        Reader { highest: 0, steps_left: &mut steps_left, place: &mut step }.steps(otherwise.steps)
    });
    let otherwise = otherwise.transpose().map_err(|flaw| (ScriptLocation::Otherwise { step }, flaw))?;
    Ok(Script { cues, otherwise })
}

fn at_line(text: &str, error: &toml::de::Error) -> ScriptFault {
    let start = error.span().map_or(0, |span| span.start);
    let line = 1 + text.bytes().take(start).filter(|byte| *byte == b'\n').count();
    ScriptFault::Line { line, message: error.message().to_owned() }
}

fn cue(on: toml::Table, steps_left: &mut usize, place: &mut Vec<usize>) -> Result<Cue, ScriptFault> {
    let on: OnText = on.try_into()?;
    let pattern = compile(&on.r#match)?;
    let mut reader = Reader { highest: pattern.captures_len() - 1, steps_left, place };
    Ok(Cue { steps: reader.steps(on.steps)?, pattern })
}

fn compile(pattern: &str) -> Result<Regex, ScriptFault> {
    let compiled = RegexBuilder::new(pattern).size_limit(MAX_PATTERN_BYTES).build();
    compiled.map_err(|error| {
        if matches!(error, regex::Error::CompiledTooBig(_)) {
            return ScriptFault::PatternTooLarge;
        }
        // The message repeats the pattern with a mark below, on many lines; the last says it all.
        let message = error.to_string();
        ScriptFault::Pattern(
            message.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned(),
        )
    })
}

/// Reads the steps of one `[[on]]`.
struct Reader<'a> {
    /// The captures are `0..=highest`.
    highest: usize,
    steps_left: &'a mut usize,
    /// The step that is being read; after a flaw, the one that has it.
    place: &'a mut Vec<usize>,
}

impl Reader<'_> {
    fn steps(&mut self, tables: Vec<toml::Table>) -> Result<Vec<Step>, ScriptFault> {
        let mut steps = Vec::new();
        for (index, table) in tables.into_iter().enumerate() {
            self.place.push(index + 1);
            *self.steps_left = self.steps_left.checked_sub(1).ok_or(ScriptFault::TooManySteps)?;
            steps.push(self.step(table.try_into()?)?);
            self.place.pop();
        }
        Ok(steps)
    }

    fn step(&mut self, text: StepText) -> Result<Step, ScriptFault> {
        let kind = kind(&text)?;
        let step = match text {
            StepText { think: Some(thought), .. } => Step::Think(self.template(&thought)?),
            StepText { say: Some(words), .. } => Step::Say(self.template(&words)?),
            StepText { wait_ms: Some(wait), .. } => {
                let wait = Duration::from_millis(wait);
                if wait > MAX_WAIT {
                    return Err(ScriptFault::WaitTooLong);
                }
                Step::Wait(wait)
            }
            StepText { usage: Some(usage), .. } => Step::Consume(usage.into()),
            StepText { tool: Some(name), args, .. } => Step::Tool {
                name: self.template(&name)?,
                args: Argument::object(args.unwrap_or_default(), self.highest)?,
            },
            StepText { subagent: Some(name), task, steps, .. } => {
                let (name, missing) = (self.template(&name)?, |member| ScriptFault::Missing { kind, member });
                let task = self.template(&task.ok_or_else(|| missing("task"))?)?;
                let steps = steps.ok_or_else(|| missing("steps"))?;
                // The place is one step for each subagent around this one, and this one.
                if self.place.len() > MAX_SCRIPT_DEPTH {
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
        Ok(Template::parse(text, self.highest)?)
    }
}

/// What a step does, if it is one thing and has no members of another.
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
