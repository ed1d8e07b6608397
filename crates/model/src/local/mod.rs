//! The agent that needs no network and no key.
//!
//! It does what a message orders, word for word, so that every client can be built, shown and tested
//! without a model. It keeps nothing and decides nothing.

mod order;

use std::iter;
use std::time::Duration;

use async_trait::async_trait;
use parlor_vocab::{Failure, FailureCode, UserInput};
use serde_json::{Value, json};

use crate::quote::cut;
use crate::{Agent, AgentContext, MAX_QUOTE_CHARS, TICK, Turn, TurnError};
use order::{ORDERS, Order};

/// How a model is configured. Shown to those who talk to this agent as if it were one.
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
}

impl LocalAgent {
    /// The agent, under a name for people.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
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

    async fn answer(&self, turn: &Turn, stage: &mut dyn AgentContext) -> Result<(), TurnError> {
        match Order::parse(&turn.input.text) {
            Order::Shell(command) => call(stage, "shell", json!({"command": command})).await,
            Order::Read(path) => call(stage, "read_file", json!({"path": path})).await,
            Order::Ruby(code) => call(stage, "ruby", json!({"code": code})).await,
            Order::Say(text) => {
                for word in words(text) {
                    stage.write_text(word).await?;
                }
                Ok(())
            }
            Order::Think(text) => {
                for word in words(text) {
                    stage.write_reasoning(word).await?;
                }
                stage.write_text("I have thought about it.").await
            }
            Order::Wait(duration) => wait(stage, duration).await,
            Order::Fail(text) => {
                let text = if text.trim().is_empty() { "failed, as asked" } else { text };
                let failure =
                    Failure { code: FailureCode::Failed, message: text.to_owned(), retryable: false };
                Err(TurnError::Failed(failure))
            }
            Order::Help => {
                stage.write_text(&format!("I am the local agent. I understand:\n\n{}", orders())).await
            }
            Order::Misused(usage, flaw) => {
                stage
                    .write_text(&format!("It is written `{usage}`: {flaw}. `/help` lists what I can do."))
                    .await
            }
            Order::Unknown(word) => {
                let word = cut(word, MAX_QUOTE_CHARS);
                stage.write_text(&format!("I do not know `{word}`. `/help` lists what I can do.")).await
            }
            Order::Talk => stage.write_text(&introduction(&turn.input)).await,
        }
    }
}

/// Calls a tool and says what it gave back.
async fn call(stage: &mut dyn AgentContext, tool: &str, input: Value) -> Result<(), TurnError> {
    match stage.call_tool(tool, &input.to_string()).await? {
        Ok(text) if text.is_empty() => stage.write_text("(no output)").await,
        Ok(text) => stage.write_text(&text).await,
        Err(failure) => stage.write_text(&failure.message).await,
    }
}

/// Ticks until `duration` is over, and acknowledges what is said meanwhile.
async fn wait(stage: &mut dyn AgentContext, duration: Duration) -> Result<(), TurnError> {
    let mut left = duration;
    while !left.is_zero() {
        let pause = left.min(TICK);
        stage.sleep(pause).await?;
        left -= pause;
        // What is left over at the end is shorter than a tick, and is none.
        if pause == TICK {
            stage.write_text(".").await?;
        }
        let heard = stage.take_steering();
        if !heard.is_empty() {
            // What joins a turn does so between two steps.
            stage.next_step().await?;
        }
        for text in heard {
            stage.write_text(&format!("\nI heard “{}”.\n", cut(&text, MAX_QUOTE_CHARS))).await?;
        }
    }
    stage.write_text(&format!("\nDone: I waited {} s.", duration.as_secs_f64())).await
}

/// The words of `text`, each with the space that follows it: together they are `text`.
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

fn orders() -> String {
    ORDERS.iter().map(|(usage, meaning)| format!("- `{usage}` {meaning}\n")).collect()
}

/// The answer to a message that is not an order.
fn introduction(input: &UserInput) -> String {
    let said = match (input.text.trim(), input.media.len()) {
        ("", 0) => "You said nothing.".to_owned(),
        ("", 1) => "You sent a file and no words.".to_owned(),
        ("", files) => format!("You sent {files} files and no words."),
        (text, _) => format!("You said “{}”.", cut(text, MAX_QUOTE_CHARS)),
    };
    format!(
        "{said} I am the local agent and no model, but I understand:\n\n{}\nFor a model, start parlor with a key \
         in the environment, as `ANTHROPIC_API_KEY`, `OPENAI_API_KEY`, `GEMINI_API_KEY` or `OPENROUTER_API_KEY`, \
         or describe one in `parlor.toml`, like this; `parlor doctor` says more:\n\n```toml\n{MODEL_SETTINGS}```",
        orders()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_takes_the_space_after_it_along() {
        let pieces = |text| words(text).collect::<Vec<_>>();
        assert_eq!(pieces("one two  three\n"), ["one ", "two  ", "three\n"]);
        assert_eq!(pieces("  one"), ["  ", "one"]);
        assert_eq!(pieces("größer ist"), ["größer ", "ist"]);
        assert_eq!(pieces(" "), [" "]);
        assert!(pieces("").is_empty());
    }

    #[test]
    fn the_settings_that_are_shown_are_toml() {
        let settings: toml::Table = toml::from_str(MODEL_SETTINGS).unwrap();
        assert_eq!(settings["agents"]["main"]["model"].as_str(), Some("fast"));
    }
}
