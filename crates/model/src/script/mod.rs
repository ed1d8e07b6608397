//! The agent that performs a file: prompts, and the steps that answer them.
//!
//! `docs/agents.md` describes the format. The file is read once; [`mod@file`] finds all that is wrong
//! with it, [`template`] and [`argument`] put captures into texts, and this file performs.

mod argument;
mod error;
mod file;
mod template;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use parlor_vocab::{Failure, FailureCode, Usage};
use regex::Regex;

use crate::quote::cut;
use crate::{Agent, AgentContext, MAX_QUOTE_CHARS, MAX_SCRIPT_BYTES, MAX_STEP_BYTES, Turn, TurnError};
use argument::Argument;
use template::{Overfull, Template};

pub use error::{ScriptError, ScriptFault, ScriptLocation};

/// An agent that answers as a file says.
#[derive(Debug)]
pub struct ScriptAgent {
    name: String,
    script: Script,
}

#[derive(Debug)]
struct Script {
    /// The first whose pattern matches is performed.
    cues: Vec<Cue>,
    otherwise: Option<Vec<Step>>,
}

#[derive(Debug)]
struct Cue {
    pattern: Regex,
    steps: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    Think(Template),
    Say(Template),
    Wait(Duration),
    Consume(Usage),
    Tool { name: Template, args: Argument },
    Subagent { name: Template, task: Template, steps: Vec<Step> },
    Fail { message: Template, code: Template },
}

impl ScriptAgent {
    /// Reads the script in the file at `path`. `name` is for people.
    pub fn load(path: &Path, name: impl Into<String>) -> Result<Self, ScriptError> {
        match read(path) {
            Ok(text) => Self::parse(&text, path, name),
            Err(flaw) => Err(ScriptError { file: path.to_owned(), place: ScriptLocation::File, flaw }),
        }
    }

    /// Reads a script. `file` is where `text` is from; it is not opened, only named in errors.
    pub fn parse(text: &str, file: &Path, name: impl Into<String>) -> Result<Self, ScriptError> {
        match file::parse(text) {
            Ok(script) => Ok(Self { name: name.into(), script }),
            Err((place, flaw)) => Err(ScriptError { file: file.to_owned(), place, flaw }),
        }
    }
}

fn read(path: &Path) -> Result<String, ScriptFault> {
    let mut bytes = Vec::new();
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

    async fn answer(&self, turn: &Turn, stage: &mut dyn AgentContext) -> Result<(), TurnError> {
        let prompt = turn.input.text.as_str();
        let found = self.script.cues.iter().find_map(|cue| Some((cue, cue.pattern.captures(prompt)?)));
        if let Some((cue, captures)) = found {
            // A capture that took no part in the match is empty.
            let captures: Vec<&str> =
                captures.iter().map(|capture| capture.map_or("", |capture| capture.as_str())).collect();
            return perform(&cue.steps, &captures, turn.model.as_deref(), stage).await;
        }
        match &self.script.otherwise {
            Some(steps) => perform(steps, &[prompt], turn.model.as_deref(), stage).await,
            None => {
                let prompt = cut(prompt, MAX_QUOTE_CHARS);
                let answer =
                    format!("No [[on]] of this script matches “{prompt}”, and it has no [otherwise].");
                stage.write_text(&answer).await
            }
        }
    }
}

async fn perform(
    steps: &[Step],
    captures: &[&str],
    model: Option<&str>,
    stage: &mut dyn AgentContext,
) -> Result<(), TurnError> {
    for step in steps {
        let mut room = MAX_STEP_BYTES;
        let mut fill = |template: &Template| template.fill(captures, &mut room);
        match step {
            Step::Think(thought) => stage.write_reasoning(&fill(thought)?).await?,
            Step::Say(words) => stage.write_text(&fill(words)?).await?,
            Step::Wait(wait) => stage.sleep(*wait).await?,
            Step::Consume(usage) => stage.record_usage(*usage, model).await?,
            Step::Tool { name, args } => {
                let name = fill(name)?;
                let input = args.fill(captures, &mut room)?.to_string();
                // Whoever watches sees what came of it; the script goes on either way.
                let _ = stage.call_tool(&name, &input).await?;
            }
            Step::Subagent { name, task, steps } => {
                let part = Part { name: fill(name)?, steps, captures };
                let _ = stage.delegate(&part.name, &fill(task)?, &part).await?;
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

/// A subagent: some steps of a script, with the captures of the prompt that led to them.
struct Part<'a> {
    name: String,
    steps: &'a [Step],
    captures: &'a [&'a str],
}

#[async_trait]
impl Agent for Part<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs_history(&self) -> bool {
        false
    }

    async fn answer(&self, turn: &Turn, stage: &mut dyn AgentContext) -> Result<(), TurnError> {
        perform(self.steps, self.captures, turn.model.as_deref(), stage).await
    }
}

impl From<Overfull> for TurnError {
    fn from(overfull: Overfull) -> Self {
        let code = FailureCode::ScriptStepTooLarge;
        Self::Failed(Failure { code, message: overfull.to_string(), retryable: false })
    }
}
