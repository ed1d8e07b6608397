//! Inputs that no schema allows, from agents that do not mind.

mod common;

use common::Desk;
use parlor_tools::INPUT_BYTES;
use parlor_vocab::FailureCode;
use serde_json::json;

#[tokio::test]
async fn every_tool_says_what_it_takes() {
    let desk = Desk::new();
    let tools: Vec<&'static str> = desk.toolbox.iter().map(|tool| tool.name()).collect();
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
            let failure = desk.toolbox.call(tool, input, &desk.context).await.unwrap_err();
            assert_eq!(failure.code, FailureCode::InvalidInput, "{tool} {}", failure.message);
            assert!(failure.message.contains(&format!("; {tool} takes {{")), "{}", failure.message);
        }
    }
    assert!(desk.names("").is_empty());
}

#[tokio::test]
async fn a_missing_member_is_named_with_all_that_there_are() {
    let desk = Desk::new();
    let (_, message) = desk.fail("read_file", json!({"file": "x"})).await;
    assert_eq!(
        message,
        "unknown field `file`, expected one of `path`, `offset`, `limit` at line 1 column 7; \
         read_file takes {\"path\": string, \"offset\"?: integer, \"limit\"?: integer}"
    );
    for blank in ["", " \n"] {
        let failure = desk.toolbox.call("read_file", blank, &desk.context).await.unwrap_err();
        assert!(failure.message.starts_with("missing field `path`"), "{}", failure.message);
        desk.toolbox.call("list_dir", blank, &desk.context).await.expect("it needs nothing");
    }
    let (_, message) = desk.fail("processes", json!({"operation": "destroy"})).await;
    assert!(message.contains("expected one of `list`, `read`, `write`, `stop`"), "{message}");
    let (code, message) = desk.fail("processes", json!({"operation": "read"})).await;
    assert_eq!(
        (code, message.as_str()),
        (FailureCode::InvalidInput, "`id` is missing: which process is it about?")
    );
}

#[tokio::test]
async fn the_largest_input_is_taken_and_one_byte_more_is_not() {
    let desk = Desk::new();
    let frame = json!({"path": "a", "content": ""}).to_string().len();
    let content = "x".repeat(INPUT_BYTES - frame);
    let input = json!({"path": "a", "content": content}).to_string();
    assert_eq!(input.len(), INPUT_BYTES);
    desk.toolbox.call("write_file", &input, &desk.context).await.unwrap();
    assert_eq!(desk.content("a").len(), content.len());
    let failure = desk.toolbox.call("write_file", &format!("{input} "), &desk.context).await.unwrap_err();
    assert_eq!(failure.code, FailureCode::TooLarge);
}

#[tokio::test]
async fn an_unreadable_file_is_told_as_such() {
    // Permissions do not bind root, but some files cannot be read by anybody.
    let desk = Desk::new();
    let mut context = desk.context.clone();
    context.policy = std::sync::Arc::new(parlor_tools::Policy::new(["/proc"]).unwrap());
    let failure = desk.toolbox.call("read_file", r#"{"path":"/proc/self/mem"}"#, &context).await.unwrap_err();
    assert_eq!(failure.code, FailureCode::ToolError);
    assert!(failure.message.starts_with("cannot read `/proc/self/mem`"), "{}", failure.message);
}
