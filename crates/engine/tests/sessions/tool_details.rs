//! What a tool returned beside its text is recorded, within limits and without secrets.

use std::sync::Arc;

use async_trait::async_trait;
use parlor_engine::{MediaStore, SessionDeps, Sessions};
use parlor_log::{MemoryLog, SystemClock};
use parlor_model::{Agent, AgentContext, Turn, TurnError};
use parlor_tools::{OfferedTools, Redact, Tool, ToolContext, ToolSource};
use parlor_vocab::{
    Failure, RunEvent, Seq, TOOL_STRUCTURED_BYTES, ToolAnnotations, ToolDetails, ToolDiff, ToolEvent,
    ToolImage, ToolOutput, ToolResource,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{TestSession, deps, new_session, run_event};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
const SECRET: &str = "s3cret-token";

/// A tool of somebody else whose result has everything.
struct RichTool {
    structured: String,
}

#[async_trait]
impl Tool for RichTool {
    fn name(&self) -> &str {
        "rich"
    }

    fn description(&self) -> &str {
        "Returns everything."
    }

    fn schema(&self) -> Value {
        json!({"type": "object"})
    }

    fn annotations(&self) -> ToolAnnotations {
        ToolAnnotations::READ_ONLY
    }

    async fn call(&self, _: &str, _: &ToolContext) -> Result<ToolOutput, Failure> {
        let image = ToolImage { mime: "image/png".to_owned(), bytes: PNG.to_vec() };
        let leak = ToolImage { bytes: [PNG, SECRET.as_bytes()].concat(), ..image.clone() };
        let uri = format!("https://h/?key={SECRET}");
        Ok(ToolOutput {
            structured: Some(self.structured.clone()),
            images: std::iter::once(leak).chain(std::iter::repeat_n(image, 20)).collect(),
            resources: vec![ToolResource { uri, name: Some("one".to_owned()), mime: None }],
            diffs: vec![ToolDiff { path: "f".to_owned(), text: format!("@@ -1 +1 @@\n-a\n+{SECRET}\n") }],
            ..ToolOutput::text("done")
        })
    }
}

struct RichSource(String);

#[async_trait]
impl ToolSource for RichSource {
    async fn tools(&self, _: &std::path::Path) -> OfferedTools {
        let tool = Arc::new(RichTool { structured: self.0.clone() });
        OfferedTools { tools: vec![tool], notices: Vec::new() }
    }
}

struct CallingAgent;

#[async_trait]
impl Agent for CallingAgent {
    fn name(&self) -> &str {
        "Caller"
    }

    async fn answer(&self, _: &Turn, context: &mut dyn AgentContext) -> Result<(), TurnError> {
        let result = context.call_tool("rich", "{}").await?;
        context.write_text(&result.unwrap_or_else(|failure| failure.message)).await
    }
}

#[derive(Debug)]
struct OneSecret;

impl Redact for OneSecret {
    fn redact<'t>(&self, text: &'t str) -> std::borrow::Cow<'t, str> {
        text.replace(SECRET, "[redacted]").into()
    }

    fn redact_prefix<'t>(&self, text: &'t str) -> (std::borrow::Cow<'t, str>, usize) {
        (self.redact(text), 0)
    }

    fn contains_secret(&self, bytes: &[u8]) -> bool {
        bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
    }
}

async fn details_of(folder: &TempDir, structured: String) -> (Sessions, ToolDetails) {
    let clock = Arc::new(SystemClock);
    let log = Arc::new(MemoryLog::new(Arc::clone(&clock) as _));
    let sessions = Sessions::new(SessionDeps {
        media: MediaStore::open(folder.path()).unwrap(),
        ..deps(&log, Arc::new(CallingAgent), clock)
    });
    let sessions = sessions.with_tool_source(Arc::new(RichSource(structured)));
    let sessions = sessions.with_redaction(Arc::new(OneSecret));
    let session = sessions.create(None, new_session()).await.unwrap();
    let watcher = sessions.watch(&session, Seq::START).await;
    let mut test = TestSession { sessions, session, watcher };
    let run = test.send("go").await;
    let (updates, _) = test.end_of(&run).await;
    let details = updates.iter().find_map(|update| match run_event(update, &run)? {
        (_, _, RunEvent::Tool(ToolEvent::Completed { details, .. })) => details.clone(),
        _ => None,
    });
    (test.sessions, *details.expect("the result has details"))
}

#[tokio::test]
async fn a_result_keeps_what_it_has_beside_its_text() {
    let folder = TempDir::new().unwrap();
    let (sessions, details) = details_of(&folder, format!("{{\"key\":\"{SECRET}\"}}")).await;
    assert_eq!(details.annotations, Some(ToolAnnotations::READ_ONLY));
    assert_eq!(details.structured.as_deref(), Some("{\"key\":\"[redacted]\"}"));
    assert_eq!(details.resources[0].uri, "https://h/?key=[redacted]");
    assert_eq!(details.diffs[0].text, "@@ -1 +1 @@\n-a\n+[redacted]\n");
    assert_eq!(details.images.len(), 7, "the first 8 without the one that has a secret");
    assert_eq!(
        (details.images[0].mime.as_str(), details.images[0].name.as_str()),
        ("image/png", "image-2.png")
    );
    let stored = sessions.read_media(&[details.images[0].id.clone()], 1 << 20).await;
    assert_eq!(stored, [Some(PNG.to_vec())]);
}

#[tokio::test]
async fn structured_content_that_is_too_long_is_left_out() {
    let folder = TempDir::new().unwrap();
    let long = format!("\"{}\"", "x".repeat(TOOL_STRUCTURED_BYTES));
    let (_, details) = details_of(&folder, long).await;
    assert_eq!(details.structured, None);
    assert!(!details.resources.is_empty(), "the rest is kept");
}
