//! The `ruby` tool: evaluates Ruby code in an interpreter that lives as long as the session.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use parlor_ruby::{Evaluation, PrintedOutput, RubyAnswer, RubyHost, RubySettings, RubySource};
use parlor_vocab::{Failure, FailureCode, ToolOutput, truncate_middle};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::{ToolAccess, ToolEffect};
use crate::failure::failure;
use crate::input::decode;
use crate::redact::clean;
use crate::tool::{Tool, ToolContext};

/// How many bytes of printed output and value the agent gets: the beginning and the end, with a note of how many
/// bytes are missing between them.
pub const RUBY_TEXT_BYTES: usize = 64 << 10;

/// Evaluates Ruby code.
#[derive(Clone, Debug)]
pub struct RubyTool {
    program: String,
}

impl RubyTool {
    /// A tool that starts `program` as interpreter: a path, or a name that is looked up in the `PATH` of commands.
    pub fn new(program: impl Into<String>) -> Self {
        Self { program: program.into() }
    }
}

/// The Ruby interpreter of one session, or of one run in a sandbox, since the next run may have another one. The first call
/// starts it, in the sandbox of that call; its definitions stay until it is stopped. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct RubyInterpreter {
    host: Arc<Mutex<Option<RubyHost>>>,
}

impl RubyInterpreter {
    fn host(&self, settings: impl FnOnce() -> RubySettings) -> RubyHost {
        let mut host = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        host.get_or_insert_with(|| RubyHost::new(settings())).clone()
    }

    /// Stops the interpreter, if it runs.
    pub async fn stop(&self) {
        let host = self.host.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(host) = host {
            host.stop().await;
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RubyInput {
    code: String,
}

#[async_trait]
impl Tool for RubyTool {
    fn name(&self) -> &str {
        "ruby"
    }

    fn title(&self) -> Option<&str> {
        Some("Run Ruby code")
    }

    fn description(&self) -> &str {
        "Evaluates Ruby code and gives back what it printed and its value. Methods, constants, globals and \
         instance variables stay for later calls; local variables do not."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {"code": {"type": "string", "description": "The code."}},
            "required": ["code"],
            "additionalProperties": false,
        })
    }

    fn access(&self, input: &str) -> ToolAccess {
        let code = decode::<RubyInput>(self, input).map_or_else(|_| input.to_owned(), |input| input.code);
        ToolAccess::new(ToolEffect::Confined, code)
    }

    async fn call(&self, input: &str, context: &ToolContext) -> Result<ToolOutput, Failure> {
        let RubyInput { code } = decode(self, input)?;
        let host = context.ruby.host(|| {
            let settings = RubySettings::new(context.folder.clone(), context.env.to_vec());
            RubySettings { program: self.program.clone(), sandbox: context.sandbox.clone(), ..settings }
        });
        let evaluation = Evaluation { source: RubySource::Snippet { code }, cancel: context.cancel.clone() };
        let RubyAnswer { outcome, output, restart_reason, losses: _ } = host.evaluate(evaluation).await;
        let printed: String = output.pieces.iter().map(|piece| piece.text.as_str()).collect();
        let mut text = match output.omitted_bytes {
            0 => clean(&*context.redact, printed),
            omitted_bytes => format!(
                "{}{}",
                context.redact.redact_truncated(&printed),
                PrintedOutput { pieces: Vec::new(), omitted_bytes }.text()
            ),
        };
        if let Some(reason) = restart_reason {
            text.insert_str(0, &format!("[{reason}]\n"));
        }
        match outcome {
            Ok(value) => {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                Ok(ToolOutput::text(truncated(context, format!("{text}=> {value}"))))
            }
            Err(error) => {
                let code = if context.cancel.is_cancelled() {
                    FailureCode::Cancelled
                } else {
                    FailureCode::ToolError
                };
                let hint = error.hint().map(|hint| format!("\n{hint}")).unwrap_or_default();
                Err(failure(code, truncated(context, format!("{text}{error}{hint}"))))
            }
        }
    }
}

/// Removes secrets from `text`, then limits it to [`RUBY_TEXT_BYTES`]. In this order, so that no part of a secret
/// stays.
fn truncated(context: &ToolContext, text: String) -> String {
    truncate_middle(&clean(&*context.redact, text), RUBY_TEXT_BYTES).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::assert_schema_fits;

    #[test]
    fn the_schema_matches_the_input_struct() {
        assert_schema_fits::<RubyInput>(&RubyTool::new("ruby"));
    }
}
