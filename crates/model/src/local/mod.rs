//! The built-in agent, which needs neither a network nor a key.
//!
//! It executes the command in a message, so that clients can be developed, demonstrated and tested without a model.

mod command;

use std::iter;
use std::time::Duration;

use async_trait::async_trait;
use parlor_vocab::{Failure, FailureCode, HistoryItem, ToolUse, UserInput, truncate_chars};
use serde_json::{Value, json};

use crate::{Agent, AgentContext, DOT_INTERVAL, MAX_QUOTE_CHARS, ToolResult, Turn, TurnError};
use command::{COMMANDS, LocalCommand};

/// An example configuration of a model, for users who talk to this agent as if it were one.
const MODEL_SETTINGS: &str = r#"[models.fast]
provider = "openai"   # or openai-responses, anthropic, gemini, openrouter, ollama
model = "some-model"

[agents.main]
name = "Main Agent"
kind = "model"
model = "fast"
"#;

/// The built-in agent, the default when no model is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAgent {
    name: String,
    runs_commands: bool,
}

impl LocalAgent {
    /// The agent with this display name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), runs_commands: true }
    }

    /// The same agent, which refuses to run commands and Ruby.
    #[must_use]
    pub fn without_commands(self) -> Self {
        Self { runs_commands: false, ..self }
    }
}

impl Default for LocalAgent {
    fn default() -> Self {
        Self::new("Local")
    }
}

#[async_trait]
impl Agent for LocalAgent {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs_history(&self) -> bool {
        false
    }

    fn takes_models(&self) -> bool {
        false
    }

    fn follows_policy(&self) -> bool {
        false
    }

    async fn answer(&self, turn: &Turn, context: &mut dyn AgentContext) -> Result<(), TurnError> {
        // Each command makes one call, so a resumed turn has only its result left to write.
        if let Some(HistoryItem::ToolUse(ToolUse { result: Some(result), .. })) = turn.resumed.last() {
            return write_result(context, result.clone()).await;
        }
        match LocalCommand::parse(&turn.input.text) {
            LocalCommand::Shell(_) | LocalCommand::Ruby(_) if !self.runs_commands => {
                context.write_text("Commands are switched off: `commands = false` in `parlor.toml`.").await
            }
            LocalCommand::Shell(command) => call(context, "shell", json!({"command": command})).await,
            LocalCommand::Read(path) => call(context, "read_file", json!({"path": path})).await,
            LocalCommand::Ruby(code) => call(context, "ruby", json!({"code": code})).await,
            LocalCommand::Say(text) => {
                for word in words(text) {
                    context.write_text(word).await?;
                }
                Ok(())
            }
            LocalCommand::Think(text) => {
                for word in words(text) {
                    context.write_reasoning(word).await?;
                }
                context.write_text("I have thought about it.").await
            }
            LocalCommand::Wait(duration) => wait(context, duration).await,
            LocalCommand::Fail(text) => {
                let text = if text.trim().is_empty() { "failed, as asked" } else { text };
                let failure =
                    Failure { code: FailureCode::Failed, message: text.to_owned(), retryable: false };
                Err(TurnError::Failed(failure))
            }
            LocalCommand::Help => {
                context
                    .write_text(&format!("I am the local agent. I understand:\n\n{}", command_list()))
                    .await
            }
            LocalCommand::Misused(usage, problem) => {
                context
                    .write_text(&format!("It is written `{usage}`: {problem}. `/help` lists what I can do."))
                    .await
            }
            LocalCommand::Unknown(word) => {
                let word = truncate_chars(word, MAX_QUOTE_CHARS);
                context.write_text(&format!("I do not know `{word}`. `/help` lists what I can do.")).await
            }
            LocalCommand::Chat => context.write_text(&introduction(&turn.input)).await,
        }
    }
}

/// Calls a tool and writes its result.
async fn call(context: &mut dyn AgentContext, tool: &str, input: Value) -> Result<(), TurnError> {
    let result = context.call_tool(tool, &input.to_string()).await?;
    write_result(context, result).await
}

async fn write_result(context: &mut dyn AgentContext, result: ToolResult) -> Result<(), TurnError> {
    match result {
        Ok(text) if text.is_empty() => context.write_text("(no output)").await,
        Ok(text) => context.write_text(&text).await,
        Err(failure) => context.write_text(&failure.message).await,
    }
}

/// Writes a dot at every tick until `duration` is over, and acknowledges the messages that arrive meanwhile.
async fn wait(context: &mut dyn AgentContext, duration: Duration) -> Result<(), TurnError> {
    let mut left = duration;
    while !left.is_zero() {
        let pause = left.min(DOT_INTERVAL);
        context.sleep(pause).await?;
        left -= pause;
        // The last sleep may be shorter than the interval; it writes no dot.
        if pause == DOT_INTERVAL {
            context.write_text(".").await?;
        }
        let messages = context.take_steering();
        if !messages.is_empty() {
            // A message joins the turn between two steps.
            context.finish_step().await?;
        }
        for text in messages {
            context.write_text(&format!("\nI heard “{}”.\n", truncate_chars(&text, MAX_QUOTE_CHARS))).await?;
        }
    }
    context.write_text(&format!("\nDone: I waited {} s.", duration.as_secs_f64())).await
}

/// Splits `text` into words. Each one includes the white space after it, so that together they are `text`.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    iter::from_fn(move || {
        let mut in_space = false;
        let next_word = rest.char_indices().find(|(_, letter)| {
            let after_space = in_space;
            in_space = letter.is_whitespace();
            after_space && !in_space
        });
        let (word, tail) = rest.split_at(next_word.map_or(rest.len(), |(start, _)| start));
        rest = tail;
        (!word.is_empty()).then_some(word)
    })
}

impl LocalAgent {
    /// Its slash commands: the usage, such as `/say TEXT`, and what the command does.
    pub fn commands() -> impl Iterator<Item = (&'static str, &'static str)> {
        COMMANDS.into_iter().filter(|(usage, _)| usage.starts_with('/'))
    }

    /// The names of its commands, such as `/say`.
    pub fn command_names() -> impl Iterator<Item = &'static str> {
        COMMANDS.iter().filter_map(|(usage, _)| usage.split(' ').next()).filter(|name| name.starts_with('/'))
    }
}

fn command_list() -> String {
    COMMANDS.iter().map(|(usage, meaning)| format!("- `{usage}` {meaning}\n")).collect()
}

/// The answer to a message that is not a command.
fn introduction(input: &UserInput) -> String {
    let quoted = match (input.text.trim(), input.media.len()) {
        ("", 0) => "You said nothing.".to_owned(),
        ("", 1) => "You sent a file and no words.".to_owned(),
        ("", files) => format!("You sent {files} files and no words."),
        (text, _) => format!("You said “{}”.", truncate_chars(text, MAX_QUOTE_CHARS)),
    };
    format!(
        "{quoted} I am the local agent and no model, but I understand:\n\n{}\nFor a model, start parlor with a key \
         in the environment, as `ANTHROPIC_API_KEY`, `OPENAI_API_KEY`, `GEMINI_API_KEY` or `OPENROUTER_API_KEY`, \
         or describe one in `parlor.toml`, like this; `parlor doctor` says more:\n\n```toml\n{MODEL_SETTINGS}```",
        command_list()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_includes_the_space_after_it() {
        let pieces = |text| words(text).collect::<Vec<_>>();
        assert_eq!(pieces("one two  three\n"), ["one ", "two  ", "three\n"]);
        assert_eq!(pieces("  one"), ["  ", "one"]);
        assert_eq!(pieces("größer ist"), ["größer ", "ist"]);
        assert_eq!(pieces(" "), [" "]);
        assert!(pieces("").is_empty());
    }

    #[test]
    fn the_example_settings_are_valid_toml() {
        let settings: toml::Table = toml::from_str(MODEL_SETTINGS).unwrap();
        assert_eq!(settings["agents"]["main"]["model"].as_str(), Some("fast"));
    }
}
