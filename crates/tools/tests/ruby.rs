//! The `ruby` tool with a real interpreter.

use std::path::Path;
use std::sync::Arc;

use parlor_tools::{RubyTool, Tool, ToolContext};

fn context(folder: &Path) -> ToolContext {
    let mut context = ToolContext::new(folder).expect("the folder exists");
    context.env = Arc::new([("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())]);
    context
}

async fn ruby(code: &str, context: &ToolContext) -> Result<String, parlor_vocab::Failure> {
    let input = serde_json::json!({ "code": code }).to_string();
    RubyTool::new("ruby").call(&input, context).await.map(|output| output.text)
}

#[tokio::test]
async fn printed_output_precedes_the_value_and_definitions_stay() {
    let folder = tempfile::tempdir().unwrap();
    let context = context(folder.path());
    assert_eq!(ruby("1 + 1", &context).await.unwrap(), "=> 2");
    assert_eq!(ruby("print 'hi'; $kept = 7", &context).await.unwrap(), "hi\n=> 7");
    assert_eq!(ruby("$kept", &context).await.unwrap(), "=> 7");
    let error = ruby("raise ArgumentError, 'no'", &context).await.unwrap_err();
    assert!(error.message.contains("no"), "{}", error.message);
    context.ruby.stop().await;
    assert_eq!(
        ruby("$kept.inspect", &context).await.unwrap(),
        "=> nil",
        "a new interpreter has no definitions"
    );
    context.ruby.stop().await;
}

#[tokio::test]
async fn a_stopped_run_ends_the_evaluation() {
    let folder = tempfile::tempdir().unwrap();
    let context = context(folder.path());
    ruby("1", &context).await.unwrap();
    let cancel = context.cancel.clone();
    let endless = ruby("loop {}", &context);
    let (error, ()) = tokio::join!(endless, async { cancel.cancel() });
    assert_eq!(error.unwrap_err().code.as_str(), "CANCELLED");
    context.ruby.stop().await;
}

#[tokio::test]
async fn a_missing_interpreter_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let context = context(folder.path());
    let error = RubyTool::new("/no/such/ruby").call(r#"{"code":"1"}"#, &context).await.unwrap_err();
    assert!(error.message.contains("/no/such/ruby"), "{}", error.message);
}
