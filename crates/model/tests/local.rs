//! The commands of the local agent.

mod common;
#[path = "common/run_turn.rs"]
mod run;

use std::time::Duration;

use common::{Action, RecordingContext, turn};
use parlor_model::{Agent, DOT_INTERVAL, LocalAgent, MAX_QUOTE_CHARS, MAX_WAIT, ToolResult, TurnError};
use parlor_vocab::{Failure, FailureCode, Media, MediaId};
use proptest::prelude::*;
use run::{run_and_stop_everywhere, run_prompt, run_turn};
use serde_json::{Value, json};

/// The actions for `prompt`, if the first tool call returns `result`.
fn actions(prompt: &str, result: ToolResult) -> Vec<Action> {
    let mut context = RecordingContext { results: [result].into(), ..RecordingContext::default() };
    assert_eq!(run_prompt(&LocalAgent::default(), prompt, &mut context), Ok(()));
    context.actions
}

/// The text for `prompt`. The run must complete, and pass on a stop at every action.
fn answer(prompt: &str) -> String {
    let (context, end) = run_and_stop_everywhere(&LocalAgent::default(), prompt);
    assert_eq!(end, Ok(()));
    context.text()
}

fn call_and_text(tool: &str, input: Value, text: &str) -> [Action; 2] {
    [Action::ToolCall(tool.to_owned(), input), Action::Text(text.to_owned())]
}

fn failure(message: &str) -> Failure {
    Failure { code: "EXIT".into(), message: message.to_owned(), retryable: false }
}

#[test]
fn the_name_is_configurable() {
    assert_eq!(LocalAgent::default().name(), "Local");
    assert_eq!(LocalAgent::new("Echo").name(), "Echo");
}

#[test]
fn a_bang_runs_a_command_and_writes_its_output() {
    let ls = json!({"command": "ls -l"});
    assert_eq!(actions("!ls -l", Ok("a\nb\n".into())), call_and_text("shell", ls.clone(), "a\nb\n"));
    assert_eq!(actions("!ls -l", Ok(String::new())), call_and_text("shell", ls.clone(), "(no output)"));
    assert_eq!(actions("!ls -l", Err(failure("exit 2"))), call_and_text("shell", ls, "exit 2"));
    answer("!ls");
}

#[test]
fn quotes_in_a_command_stay_in_the_command() {
    let hostile = r#"echo "}, "command": "rm" \ "#;
    assert_eq!(
        actions(&format!("!{hostile}"), Ok("x".into()))[0],
        Action::ToolCall("shell".to_owned(), json!({"command": hostile.trim()}),)
    );
}

#[test]
fn say_streams_word_by_word() {
    let (context, end) = run_and_stop_everywhere(&LocalAgent::default(), "/say Hello, dear world");
    assert_eq!(end, Ok(()));
    assert_eq!(context.text_pieces(), ["Hello, ", "dear ", "world"]);
}

#[test]
fn think_writes_reasoning_and_then_answers() {
    let (context, end) = run_and_stop_everywhere(&LocalAgent::default(), "/think two words");
    assert_eq!(end, Ok(()));
    let reasoning = ["two ", "words"].map(|word| Action::Reasoning(word.to_owned()));
    assert_eq!(context.actions[..2], reasoning);
    assert_eq!(context.actions[2..], [Action::Text("I have thought about it.".to_owned())]);
}

#[test]
fn wait_writes_dots_and_reports_the_end() {
    let (context, end) = run_and_stop_everywhere(&LocalAgent::default(), "/wait 0.25");
    assert_eq!(end, Ok(()));
    let tick = || [Action::Sleep(DOT_INTERVAL), Action::Text(".".to_owned())];
    let rest =
        [Action::Sleep(Duration::from_millis(50)), Action::Text("\nDone: I waited 0.25 s.".to_owned())];
    assert_eq!(context.actions, [tick(), tick(), rest].concat());
    assert_eq!(DOT_INTERVAL, Duration::from_millis(100));

    assert_eq!(answer("/wait 0"), "\nDone: I waited 0 s.");
}

#[test]
fn wait_has_a_maximum() {
    let mut context = RecordingContext::default();
    assert_eq!(run_prompt(&LocalAgent::default(), "/wait 600", &mut context), Ok(()));
    let sleeps = context
        .actions
        .iter()
        .map(|action| if let Action::Sleep(duration) = action { *duration } else { Duration::ZERO });
    assert_eq!(sleeps.sum::<Duration>(), MAX_WAIT);
    assert_eq!(
        answer("/wait 601"),
        "It is written `/wait SECONDS`: SECONDS is a number from 0 to 600, such as 2 or 0.5. \
         `/help` lists what I can do."
    );
}

#[test]
fn messages_during_a_wait_are_acknowledged() {
    let long = "x".repeat(MAX_QUOTE_CHARS + 1);
    let steering = [(0, "hurry".to_owned()), (4, "stay".to_owned()), (4, long)];
    let mut context = RecordingContext { steering: steering.into(), ..RecordingContext::default() };
    assert_eq!(run_prompt(&LocalAgent::default(), "/wait 0.21", &mut context), Ok(()));
    let long = format!("\nI heard “{}…”.\n", "x".repeat(MAX_QUOTE_CHARS));
    assert_eq!(
        context.text_pieces(),
        [".", "\nI heard “hurry”.\n", ".", "\nI heard “stay”.\n", &long, "\nDone: I waited 0.21 s."]
    );
    let next = context.actions.iter().filter(|action| matches!(action, Action::FinishStep)).count();
    assert_eq!(next, 2, "messages join between two steps");
    for stop_after in 0..context.actions.len() {
        let steering = [(0, "hurry".to_owned())].into();
        let mut stopped =
            RecordingContext { steering, stop_after: Some(stop_after), ..RecordingContext::default() };
        let end = run_prompt(&LocalAgent::default(), "/wait 0.5", &mut stopped);
        assert_eq!(end, Err(TurnError::Stopped));
    }
}

#[test]
fn read_and_ruby_call_their_tools() {
    let path = json!({"path": "notes \"1\".txt"});
    assert_eq!(
        actions("/read notes \"1\".txt", Ok("text".into())),
        call_and_text("read_file", path.clone(), "text")
    );
    let missing = Err(failure("no such file"));
    assert_eq!(actions("/read notes \"1\".txt", missing), call_and_text("read_file", path, "no such file"));
    let code = json!({"code": "puts [1,\n2].sum"});
    assert_eq!(actions("/ruby puts [1,\n2].sum", Ok("3".into())), call_and_text("ruby", code, "3"));
    answer("/read a");
    answer("/ruby 1");
}

#[test]
fn fail_fails_the_run_with_its_text() {
    let end = |prompt: &str| {
        let (context, end) = run_and_stop_everywhere(&LocalAgent::default(), prompt);
        assert_eq!(context.actions, []);
        end
    };
    let failed = |message: &str| {
        Err(TurnError::Failed(Failure {
            code: FailureCode::Failed,
            message: message.to_owned(),
            retryable: false,
        }))
    };
    assert_eq!(end("/fail no luck today"), failed("no luck today"));
    assert_eq!(end("/fail"), failed("failed, as asked"));
}

#[test]
fn help_and_the_docs_list_every_command() {
    let help = answer("/help");
    let page = include_str!("../../../docs/agents.md");
    for command in [
        "!CMD",
        "/say TEXT",
        "/think TEXT",
        "/wait SECONDS",
        "/read PATH",
        "/ruby CODE",
        "/fail TEXT",
        "/help",
    ] {
        assert!(help.contains(&format!("\n- `{command}` ")), "{help}");
        assert!(page.contains(&format!("| `{command}` |")), "docs/agents.md does not describe {command}");
    }
    assert_eq!(help.matches("\n- ").count(), 8, "this test does not know all commands");
    assert!(
        help.contains("every 100 ms, for at most 600 seconds"),
        "the numbers must match the constants: {help}"
    );
}

#[test]
fn an_unknown_command_points_to_help() {
    assert_eq!(answer("/deploy now"), "I do not know `/deploy`. `/help` lists what I can do.");
    let long = answer(&format!("/{}", "x".repeat(10_000)));
    assert!(long.chars().count() < MAX_QUOTE_CHARS + 100, "{long}");
}

#[test]
fn other_messages_get_the_commands_and_an_example_configuration() {
    let text = answer("What is the weather?\n");
    assert!(text.starts_with("You said “What is the weather?”. "), "{text}");
    assert!(text.contains("- `/wait SECONDS` "), "{text}");
    assert!(text.contains("parlor.toml") && text.contains("[models.fast]"), "{text}");

    let long = answer(&"ä".repeat(MAX_QUOTE_CHARS + 1));
    assert!(long.contains(&format!("“{}…”", "ä".repeat(MAX_QUOTE_CHARS))), "{long}");
    assert!(answer(" ").starts_with("You said nothing. "));
}

#[test]
fn files_without_text_are_mentioned() {
    let id = MediaId::parse("1").unwrap();
    let media = Media { id, name: "a.png".into(), mime: "image/png".into(), size: 1 };
    for (count, text) in [(1, "You sent a file and no words. "), (2, "You sent 2 files and no words. ")] {
        let mut turn = turn("");
        turn.input.media = vec![media.clone(); count];
        let mut context = RecordingContext::default();
        assert_eq!(run_turn(&LocalAgent::default(), &turn, &mut context), Ok(()));
        assert!(context.text().starts_with(text), "{}", context.text());
    }
}

proptest! {
    #[test]
    fn say_streams_the_text_unchanged(text in prop_oneof![any::<String>(), "[a \n\u{e4}\u{a0}]{1,30}"]) {
        prop_assume!(!text.is_empty());
        let mut context = RecordingContext::default();
        prop_assert_eq!(run_prompt(&LocalAgent::default(), &format!("/say {text}"), &mut context), Ok(()));
        prop_assert_eq!(context.text(), text);
        for piece in context.text_pieces() {
            prop_assert!(piece.split_whitespace().count() <= 1 && !piece.is_empty(), "{:?}", piece);
        }
    }

    #[test]
    fn every_message_has_an_answer(text in prop_oneof![any::<String>(), "[/!a-z .0-9]{0,12}"]) {
        let mut context = RecordingContext::default();
        let end = run_prompt(&LocalAgent::default(), &text, &mut context);
        let failed = matches!(end, Err(TurnError::Failed(_)));
        prop_assert!(failed || (end == Ok(()) && !context.text().is_empty()), "{:?}: {:?}", text, end);
    }
}
