//! The `write_file` tool: writes the whole content of a file.

use async_trait::async_trait;
use parlor_vocab::{Failure, ToolAnnotations, ToolOutput};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::{ToolAccess, ToolEffect, marked};
use crate::file::replace::{Before, replace};
use crate::input::decode;
use crate::tool::{FileChanges, Tool, ToolContext};

/// Creates files or replaces their content.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteFileTool;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteInput {
    path: String,
    content: String,
}

#[async_trait]
impl Tool for WriteFileTool {
    fn name(&self) -> &str {
        "write_file"
    }

    fn title(&self) -> Option<&str> {
        Some("Write a file")
    }

    fn annotations(&self) -> ToolAnnotations {
        ToolAnnotations { idempotent: true, open_world: false, ..ToolAnnotations::default() }
    }

    fn file_changes(&self) -> FileChanges {
        FileChanges::Reported
    }

    fn description(&self) -> &str {
        "Writes a file: creates it, with the folders above it, or replaces all of its content. \
         To change a part of a file use edit_file."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file; relative paths start in the working folder."},
                "content": {"type": "string", "description": "All that the file is to hold."},
            },
            "required": ["path", "content"],
            "additionalProperties": false,
        })
    }

    fn access(&self, input: &str) -> ToolAccess {
        let Ok(input) = decode::<WriteInput>(self, input) else {
            return ToolAccess::new(ToolEffect::Changes, input);
        };
        ToolAccess::new(ToolEffect::Changes, format!("{}\n{}", input.path, marked('+', &input.content)))
            .at(input.path)
    }

    async fn call(&self, input: &str, context: &ToolContext) -> Result<ToolOutput, Failure> {
        let WriteInput { path, content } = decode(self, input)?;
        context
            .write_blocking(move |context| {
                let what = match replace(context, &path, content.as_bytes(), None)? {
                    Before::Missing => "new file",
                    Before::File => "content replaced",
                };
                Ok(ToolOutput::text(format!("wrote {} bytes to `{path}` ({what})", content.len())))
            })
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_matches_the_input_struct() {
        crate::input::assert_schema_fits::<WriteInput>(&WriteFileTool);
    }
}
