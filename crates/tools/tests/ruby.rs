//! The `ruby` tool with a real interpreter.

use std::path::Path;
use std::sync::Arc;

use parlor_testkit::folder_outside_tmp;
use parlor_tools::{RubyTool, Sandbox, Tool, ToolContext};
use parlor_vocab::PolicyMode;

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

/// A project and a secret beside it. Not in `/tmp`, which is private in a sandbox.
fn project() -> (tempfile::TempDir, ToolContext) {
    let folder = folder_outside_tmp(env!("CARGO_TARGET_TMPDIR"));
    let root = folder.path().canonicalize().expect("it exists");
    std::fs::create_dir(root.join("project")).expect("a folder");
    std::fs::write(root.join("secret"), "hidden").expect("a file");
    (folder, context(&root.join("project")))
}

fn sandbox(mode: PolicyMode, context: &ToolContext) -> Option<Arc<Sandbox>> {
    let mut sandbox = Sandbox::new(mode, &context.folder, None);
    sandbox.hidden.extend(context.folder.parent().map(|root| root.join("secret")));
    Some(Arc::new(sandbox))
}

#[tokio::test]
async fn in_a_sandbox_code_works_in_the_project_and_does_not_leave_it() {
    let (folder, mut context) = project();
    context.sandbox = sandbox(PolicyMode::Workspace, &context);
    assert_eq!(ruby("print 'hi'; $kept = 7", &context).await.unwrap(), "hi\n=> 7");
    assert_eq!(ruby("$kept", &context).await.unwrap(), "=> 7");
    assert_eq!(ruby("$stdin.read", &context).await.unwrap(), "=> ");
    assert_eq!(ruby("File.write('made', 'x'); File.read('made')", &context).await.unwrap(), "=> x");
    assert_eq!(ruby("warn 'e'; system('echo child')", &context).await.unwrap(), "e\nchild\n=> true");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a port").port();
    for attempt in [
        // A hidden file is an empty one.
        "File.read('../secret').include?('hidden') or raise 'nothing'".to_owned(),
        "File.write('../made', 'x')".to_owned(),
        "File.symlink('..', 'up'); File.write('up/made', 'x')".to_owned(),
        format!("require 'socket'; TCPSocket.new('127.0.0.1', {port})"),
        "UNIXSocket.pair(:DGRAM)".to_owned(),
        "UNIXServer.new('here.sock')".to_owned(),
        format!("Process.kill(0, {})", std::process::id()),
        "File.write('/proc/self/oom_score_adj', '-1000')".to_owned(),
        "File.chmod(04755, 'made')".to_owned(),
    ] {
        assert!(ruby(&attempt, &context).await.is_err(), "{attempt}");
    }
    // The socket over which the worker got its pipes leads to parlor, which reads nothing from it.
    let sent = ruby("ParlorWorker::HOST_SOCKET.send_io(STDOUT); $kept", &context).await.unwrap();
    assert_eq!(sent, "=> 7", "the interpreter is the same");
    ruby("Dir.mkdir('.codex')", &context).await.unwrap();
    context.ruby.stop().await;
    assert!(!context.folder.join(".codex").exists(), "what other agents obey is put aside");
    assert!(!folder.path().join("made").exists());
}

#[tokio::test]
async fn a_read_only_sandbox_lets_ruby_read() {
    let (_folder, mut context) = project();
    std::fs::write(context.folder.join("file"), "text").expect("a file");
    context.sandbox = sandbox(PolicyMode::ReadOnly, &context);
    assert_eq!(ruby("File.read('file')", &context).await.unwrap(), "=> text");
    assert!(ruby("File.write('file', 'x')", &context).await.is_err());
    assert_eq!(ruby("File.write('/tmp/x', 'private')", &context).await.unwrap(), "=> 7");
    context.ruby.stop().await;
}

/// Nothing runs outside of a sandbox that cannot be set up.
#[tokio::test]
async fn without_its_sandbox_ruby_does_not_start() {
    let (_folder, mut context) = project();
    context.sandbox = Some(Arc::new(Sandbox::new(PolicyMode::Workspace, "/", None)));
    let error = ruby("1", &context).await.unwrap_err();
    assert!(error.message.contains("choose a folder of your own"), "{}", error.message);
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
