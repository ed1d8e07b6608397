//! `ruby`: evaluates Ruby code in an interpreter that the session keeps.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use parlor_ruby::{Evaluation, PrintedOutput as Printed, RubyAnswer, RubyHost, RubySettings, RubySource};
use parlor_vocab::{Failure, FailureCode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::code::failure;
use crate::input::decode;
use crate::redact::clean;
use crate::tool::{Tool, ToolContext, ToolResultOutput};

/// How much of what an evaluation printed and gave back is handed to the agent: the start and the
/// end, with a note of what is missing in between.
pub const RUBY_TEXT_BYTES: usize = 64 << 10;

/// Evaluates Ruby code.
#[derive(Clone, Debug)]
pub struct RubyTool {
    program: String,
}

impl RubyTool {
    /// The tool, with the interpreter that is called `program`: a path, or a name in the `PATH` of
    /// commands.
    pub fn new(program: impl Into<String>) -> Self {
        Self { program: program.into() }
    }
}

/// The interpreter of one session. Started when it is first needed; what it has defined stays until
/// the session is closed. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Interpreter {
    host: Arc<Mutex<Option<RubyHost>>>,
}

impl Interpreter {
    fn host(&self, settings: impl FnOnce() -> RubySettings) -> RubyHost {
        let mut host = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        host.get_or_insert_with(|| RubyHost::new(settings())).clone()
    }

    /// Ends it, if it was started.
    pub async fn end(&self) {
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
    fn name(&self) -> &'static str {
        "ruby"
    }

    fn description(&self) -> &'static str {
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

    async fn call(&self, input: &str, context: &ToolContext) -> Result<ToolResultOutput, Failure> {
        let RubyInput { code } = decode(self, input)?;
        let host = context.ruby.host(|| {
            let settings = RubySettings::new(context.folder.clone(), context.env.to_vec());
            RubySettings { program: self.program.clone(), ..settings }
        });
        let evaluation = Evaluation { source: RubySource::Snippet { code }, cancel: context.cancel.clone() };
        let RubyAnswer { outcome, output, lost_before } = host.evaluate(evaluation).await;
        let printed: String = output.pieces.iter().map(|piece| piece.text.as_str()).collect();
        let mut text = match output.cut {
            0 => clean(&*context.redact, printed),
            cut => format!(
                "{}{}",
                context.redact.redact_cut(&printed),
                Printed { pieces: Vec::new(), cut }.text()
            ),
        };
        if let Some(lost) = lost_before {
            text.insert_str(0, &format!("[{lost}]\n"));
        }
        match outcome {
            Ok(value) => {
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                Ok(ToolResultOutput::text(shortened(&clean(&*context.redact, format!("{text}=> {value}")))))
            }
            Err(error) => {
                let code = if context.cancel.is_cancelled() {
                    FailureCode::Cancelled
                } else {
                    FailureCode::ToolError
                };
                let hint = error.hint().map(|hint| format!("\n{hint}")).unwrap_or_default();
                Err(failure(code, shortened(&clean(&*context.redact, format!("{text}{error}{hint}")))))
            }
        }
    }
}

/// The start and the end of a long text.
fn shortened(text: &str) -> String {
    if text.len() <= RUBY_TEXT_BYTES {
        return text.to_owned();
    }
    let start = text.floor_char_boundary(RUBY_TEXT_BYTES / 2);
    let end = text.ceil_char_boundary(text.len() - RUBY_TEXT_BYTES / 2);
    let (first, rest) = text.split_at(start);
    let (middle, last) = rest.split_at(end - start);
    format!("{first}\n[… {} bytes are left out …]\n{last}", middle.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::assert_schema_fits;

    #[test]
    fn the_schema_says_what_is_taken() {
        assert_schema_fits::<RubyInput>(&RubyTool::new("ruby"));
    }

    #[test]
    fn a_long_text_keeps_its_start_and_its_end() {
        let text = format!("a{}z", "\u{e4}".repeat(RUBY_TEXT_BYTES));
        let short = shortened(&text);
        assert!(short.starts_with('a') && short.ends_with('z') && short.contains("bytes are left out"));
        assert!(short.len() < RUBY_TEXT_BYTES + 100);
        assert_eq!(shortened("short"), "short");
    }
}
