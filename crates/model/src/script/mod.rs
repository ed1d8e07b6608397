//! An agent that answers from a script file: patterns for prompts, and the steps that answer them.
//!
//! `docs/agents.md` describes the format. [`mod@file`] parses and checks the file once, [`template`] and [`argument`] insert
//! captures into texts, and this module runs the steps.

mod argument;
mod error;
mod file;
mod template;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use parlor_vocab::{Failure, FailureCode, HistoryItem, Usage, truncate_chars};
use regex::Regex;

use crate::{Agent, AgentContext, MAX_QUOTE_CHARS, MAX_SCRIPT_BYTES, MAX_STEP_BYTES, Turn, TurnError};
use argument::Argument;
use template::{StepTooLarge, Template};

pub use error::{ScriptError, ScriptFault, ScriptLocation};

/// An agent that answers from a script file.
#[derive(Debug)]
pub struct ScriptAgent {
    name: String,
    script: Script,
}

#[derive(Debug)]
struct Script {
    /// The first rule whose pattern matches the prompt answers it.
    rules: Vec<Rule>,
    otherwise: Option<Vec<Step>>,
}

#[derive(Debug)]
struct Rule {
    pattern: Regex,
    steps: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    Reasoning(Template),
    Text(Template),
    Wait(Duration),
    Usage(Usage),
    Tool { name: Template, args: Argument },
    Subagent { name: Template, task: Template, steps: Vec<Step> },
    Fail { message: Template, code: Template },
}

impl ScriptAgent {
    /// Loads the script at `path`. `name` is the display name.
    pub fn load(path: &Path, name: impl Into<String>) -> Result<Self, ScriptError> {
        match read(path) {
            Ok(text) => Self::parse(&text, path, name),
            Err(fault) => Err(ScriptError { file: path.to_owned(), location: ScriptLocation::File, fault }),
        }
    }

    /// Parses a script. `file` is the path of `text` for error messages; it is not opened.
    pub fn parse(text: &str, file: &Path, name: impl Into<String>) -> Result<Self, ScriptError> {
        match file::parse(text) {
            Ok(script) => Ok(Self { name: name.into(), script }),
            Err((location, fault)) => Err(ScriptError { file: file.to_owned(), location, fault }),
        }
    }
}

fn read(path: &Path) -> Result<String, ScriptFault> {
    let mut bytes = Vec::new();
    // Opening a FIFO would wait for somebody who writes to it.
    if !path.metadata().map_err(ScriptFault::Unreadable)?.is_file() {
        return Err(ScriptFault::Unreadable(io::Error::other("it is not a regular file")));
    }
    let file = File::open(path).map_err(ScriptFault::Unreadable)?;
    file.take(MAX_SCRIPT_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(ScriptFault::Unreadable)?;
    if bytes.len() > MAX_SCRIPT_BYTES {
        return Err(ScriptFault::TooLarge);
    }
    String::from_utf8(bytes)
        .map_err(|error| ScriptFault::Unreadable(io::Error::new(io::ErrorKind::InvalidData, error)))
}

#[async_trait]
impl Agent for ScriptAgent {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs_history(&self) -> bool {
        false
    }

    fn follows_policy(&self) -> bool {
        false
    }

    async fn answer(&self, turn: &Turn, context: &mut dyn AgentContext) -> Result<(), TurnError> {
        let prompt = turn.input.text.as_str();
        let calls = turn.resumed.iter().filter(|item| matches!(item, HistoryItem::ToolUse(_))).count();
        let found = self.script.rules.iter().find_map(|rule| Some((rule, rule.pattern.captures(prompt)?)));
        if let Some((rule, captures)) = found {
            // A capture that did not match is empty.
            let captures: Vec<&str> =
                captures.iter().map(|capture| capture.map_or("", |capture| capture.as_str())).collect();
            return run_steps(remaining(&rule.steps, calls), &captures, turn.model.as_deref(), context).await;
        }
        match &self.script.otherwise {
            Some(steps) => {
                run_steps(remaining(steps, calls), &[prompt], turn.model.as_deref(), context).await
            }
            None => {
                let prompt = truncate_chars(prompt, MAX_QUOTE_CHARS);
                let answer =
                    format!("No [[on]] of this script matches “{prompt}”, and it has no [otherwise].");
                context.write_text(&answer).await
            }
        }
    }
}

/// The steps after the first `calls` tool calls, which a resumed turn has made.
fn remaining(steps: &[Step], calls: usize) -> &[Step] {
    let tools = steps.iter().enumerate().filter(|(_, step)| matches!(step, Step::Tool { .. }));
    let made = tools.map(|(place, _)| place + 1).take(calls).last().unwrap_or(0);
    steps.get(made..).unwrap_or_default()
}

async fn run_steps(
    steps: &[Step],
    captures: &[&str],
    model: Option<&str>,
    context: &mut dyn AgentContext,
) -> Result<(), TurnError> {
    for step in steps {
        let mut room = MAX_STEP_BYTES;
        let mut fill = |template: &Template| template.fill(captures, &mut room);
        match step {
            Step::Reasoning(text) => context.write_reasoning(&fill(text)?).await?,
            Step::Text(text) => context.write_text(&fill(text)?).await?,
            Step::Wait(wait) => context.sleep(*wait).await?,
            Step::Usage(usage) => context.record_usage(*usage, model).await?,
            Step::Tool { name, args } => {
                let name = fill(name)?;
                let input = args.fill(captures, &mut room)?.to_string();
                // Clients see the result. The script continues even if the tool fails.
                let _ = context.call_tool(&name, &input).await?;
            }
            Step::Subagent { name, task, steps } => {
                let subagent = ScriptSubagent { name: fill(name)?, steps, captures };
                let _ = context.delegate(&subagent.name, &fill(task)?, &subagent).await?;
            }
            Step::Fail { message, code } => {
                let failure =
                    Failure { code: fill(code)?.as_str().into(), message: fill(message)?, retryable: false };
                return Err(TurnError::Failed(failure));
            }
        }
    }
    Ok(())
}

/// A subagent: the steps of a subagent step, with the captures of the prompt.
struct ScriptSubagent<'a> {
    name: String,
    steps: &'a [Step],
    captures: &'a [&'a str],
}

#[async_trait]
impl Agent for ScriptSubagent<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs_history(&self) -> bool {
        false
    }

    async fn answer(&self, turn: &Turn, context: &mut dyn AgentContext) -> Result<(), TurnError> {
        run_steps(self.steps, self.captures, turn.model.as_deref(), context).await
    }
}

impl From<StepTooLarge> for TurnError {
    fn from(error: StepTooLarge) -> Self {
        let code = FailureCode::ScriptStepTooLarge;
        Self::Failed(Failure { code, message: error.to_string(), retryable: false })
    }
}
