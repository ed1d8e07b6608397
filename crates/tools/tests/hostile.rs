//! Invalid inputs: every tool refuses them and explains what it accepts.

mod common;

use common::Fixture;
use parlor_tools::INPUT_BYTES;
use parlor_vocab::FailureCode;
use serde_json::json;

#[tokio::test]
async fn every_tool_lists_its_members_for_invalid_input() {
    let fixture = Fixture::new();
    let tools: Vec<&str> = fixture.toolbox.iter().map(|tool| tool.name()).collect();
    for tool in tools {
        for input in [
            "not json",
            "[]",
            "null",
            "7",
            "\"text\"",
            "{",
            "{\"path\": 5, \"command\": [], \"pattern\": {}, \"operation\": 1, \"depth\": \"x\"}",
            "{\"no such member\": 1}",
            "{\"path\": \"a\", \"path\": \"b\"}",
            "\u{0}",
            &format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)),
            "{\"path\": \"\\ud800\"}",
            "{\"limit\": -1}",
            "{\"limit\": 1e99}",
        ] {
            let failure = fixture.toolbox.call(tool, input, &fixture.context).await.unwrap_err();
            assert_eq!(failure.code, FailureCode::InvalidInput, "{tool} {}", failure.message);
            assert!(failure.message.contains(&format!("; {tool} takes {{")), "{}", failure.message);
        }
    }
    assert!(fixture.names("").is_empty());
}

#[tokio::test]
async fn a_missing_or_unknown_member_is_named() {
    let fixture = Fixture::new();
    let (_, message) = fixture.fail("read_file", json!({"file": "x"})).await;
    assert_eq!(
        message,
        "unknown field `file`, expected one of `path`, `offset`, `limit` at line 1 column 7; \
         read_file takes {\"path\": string, \"offset\"?: integer, \"limit\"?: integer}"
    );
    for blank in ["", " \n"] {
        let failure = fixture.toolbox.call("read_file", blank, &fixture.context).await.unwrap_err();
        assert!(failure.message.starts_with("missing field `path`"), "{}", failure.message);
        fixture.toolbox.call("list_dir", blank, &fixture.context).await.expect("no member is required");
    }
    let (_, message) = fixture.fail("processes", json!({"operation": "destroy"})).await;
    assert!(message.contains("expected one of `list`, `read`, `write`, `stop`"), "{message}");
    let (code, message) = fixture.fail("processes", json!({"operation": "read"})).await;
    assert_eq!(
        (code, message.as_str()),
        (FailureCode::InvalidInput, "`id` is missing: which process is it about?")
    );
}

#[tokio::test]
async fn the_largest_input_is_accepted_and_one_byte_more_is_refused() {
    let fixture = Fixture::new();
    let frame = json!({"path": "a", "content": ""}).to_string().len();
    let content = "x".repeat(INPUT_BYTES - frame);
    let input = json!({"path": "a", "content": content}).to_string();
    assert_eq!(input.len(), INPUT_BYTES);
    fixture.toolbox.call("write_file", &input, &fixture.context).await.unwrap();
    assert_eq!(fixture.content("a").len(), content.len());
    let failure =
        fixture.toolbox.call("write_file", &format!("{input} "), &fixture.context).await.unwrap_err();
    assert_eq!(failure.code, FailureCode::TooLarge);
}

#[tokio::test]
async fn an_unreadable_file_fails_with_tool_error() {
    // Root ignores permissions, but even root cannot read this file from offset 0.
    let fixture = Fixture::new();
    let mut context = fixture.context.clone();
    context.policy = std::sync::Arc::new(parlor_tools::Policy::new(["/proc"]).unwrap());
    let failure =
        fixture.toolbox.call("read_file", r#"{"path":"/proc/self/mem"}"#, &context).await.unwrap_err();
    assert_eq!(failure.code, FailureCode::ToolError);
    assert!(failure.message.starts_with("cannot read `/proc/self/mem`"), "{}", failure.message);
}
