//! What the local agent does with each order.

mod common;
#[path = "common/perform.rs"]
mod performing;

use std::time::Duration;

use common::{Act, Recorder, turn};
use parlor_model::{Agent, LocalAgent, MAX_QUOTE_CHARS, MAX_WAIT, TICK, ToolResult, TurnError};
use parlor_vocab::{Failure, FailureCode, Media, MediaId};
use performing::{perform, perform_and_stop_everywhere, perform_turn};
use proptest::prelude::*;
use serde_json::{Value, json};

/// What is done for `prompt`, if the first tool gives back `result`.
fn acts(prompt: &str, result: ToolResult) -> Vec<Act> {
    let mut stage = Recorder { results: [result].into(), ..Recorder::default() };
    assert_eq!(perform(&LocalAgent::default(), prompt, &mut stage), Ok(()));
    stage.acts
}

/// What is said for `prompt`, which must complete, and pass on a stop wherever it comes.
fn said(prompt: &str) -> String {
    let (stage, end) = perform_and_stop_everywhere(&LocalAgent::default(), prompt);
    assert_eq!(end, Ok(()));
    stage.said()
}

fn call_and_say(tool: &str, input: Value, said: &str) -> [Act; 2] {
    [Act::Call(tool.to_owned(), input), Act::Say(said.to_owned())]
}

fn failure(message: &str) -> Failure {
    Failure { code: "EXIT".into(), message: message.to_owned(), retryable: false }
}

#[test]
fn it_is_called_as_it_is_configured() {
    assert_eq!(LocalAgent::default().name(), "Local");
    assert_eq!(LocalAgent::new("Echo").name(), "Echo");
}

#[test]
fn a_bang_runs_a_command_and_says_what_came_out() {
    let ls = json!({"command": "ls -l"});
    assert_eq!(acts("!ls -l", Ok("a\nb\n".into())), call_and_say("shell", ls.clone(), "a\nb\n"));
    assert_eq!(acts("!ls -l", Ok(String::new())), call_and_say("shell", ls.clone(), "(no output)"));
    assert_eq!(acts("!ls -l", Err(failure("exit 2"))), call_and_say("shell", ls, "exit 2"));
    said("!ls");
}

#[test]
fn quotes_in_a_command_stay_in_the_command() {
    let hostile = r#"echo "}, "command": "rm" \ "#;
    assert_eq!(
        acts(&format!("!{hostile}"), Ok("x".into()))[0],
        Act::Call("shell".to_owned(), json!({"command": hostile.trim()}),)
    );
}

#[test]
fn say_streams_word_by_word() {
    let (stage, end) = perform_and_stop_everywhere(&LocalAgent::default(), "/say Hello, dear world");
    assert_eq!(end, Ok(()));
    assert_eq!(stage.says(), ["Hello, ", "dear ", "world"]);
}

#[test]
fn think_reasons_and_then_answers() {
    let (stage, end) = perform_and_stop_everywhere(&LocalAgent::default(), "/think two words");
    assert_eq!(end, Ok(()));
    let thoughts = ["two ", "words"].map(|word| Act::Think(word.to_owned()));
    assert_eq!(stage.acts[..2], thoughts);
    assert_eq!(stage.acts[2..], [Act::Say("I have thought about it.".to_owned())]);
}

#[test]
fn wait_ticks_and_says_when_it_is_over() {
    let (stage, end) = perform_and_stop_everywhere(&LocalAgent::default(), "/wait 0.25");
    assert_eq!(end, Ok(()));
    let tick = || [Act::Pause(TICK), Act::Say(".".to_owned())];
    let rest = [Act::Pause(Duration::from_millis(50)), Act::Say("\nDone: I waited 0.25 s.".to_owned())];
    assert_eq!(stage.acts, [tick(), tick(), rest].concat());
    assert_eq!(TICK, Duration::from_millis(100));

    assert_eq!(said("/wait 0"), "\nDone: I waited 0 s.");
}

#[test]
fn wait_takes_exactly_as_long_as_its_maximum_and_no_longer() {
    let mut stage = Recorder::default();
    assert_eq!(perform(&LocalAgent::default(), "/wait 600", &mut stage), Ok(()));
    let pauses =
        stage.acts.iter().map(|act| if let Act::Pause(pause) = act { *pause } else { Duration::ZERO });
    assert_eq!(pauses.sum::<Duration>(), MAX_WAIT);
    assert_eq!(
        said("/wait 601"),
        "It is written `/wait SECONDS`: SECONDS is a number from 0 to 600, such as 2 or 0.5. \
         `/help` lists what I can do."
    );
}

#[test]
fn what_is_said_during_a_wait_is_acknowledged() {
    let long = "x".repeat(MAX_QUOTE_CHARS + 1);
    let steering = [(0, "hurry".to_owned()), (4, "stay".to_owned()), (4, long)];
    let mut stage = Recorder { steering: steering.into(), ..Recorder::default() };
    assert_eq!(perform(&LocalAgent::default(), "/wait 0.21", &mut stage), Ok(()));
    let long = format!("\nI heard “{}…”.\n", "x".repeat(MAX_QUOTE_CHARS));
    assert_eq!(
        stage.says(),
        [".", "\nI heard “hurry”.\n", ".", "\nI heard “stay”.\n", &long, "\nDone: I waited 0.21 s."]
    );
    let next = stage.acts.iter().filter(|act| matches!(act, Act::NextStep)).count();
    assert_eq!(next, 2, "what is heard joins between two steps");
    for stop_after in 0..stage.acts.len() {
        let steering = [(0, "hurry".to_owned())].into();
        let mut stopped = Recorder { steering, stop_after: Some(stop_after), ..Recorder::default() };
        let end = perform(&LocalAgent::default(), "/wait 0.5", &mut stopped);
        assert_eq!(end, Err(TurnError::Stopped));
    }
}

#[test]
fn read_and_ruby_call_their_tools() {
    let path = json!({"path": "notes \"1\".txt"});
    assert_eq!(
        acts("/read notes \"1\".txt", Ok("text".into())),
        call_and_say("read_file", path.clone(), "text")
    );
    let missing = Err(failure("no such file"));
    assert_eq!(acts("/read notes \"1\".txt", missing), call_and_say("read_file", path, "no such file"));
    let code = json!({"code": "puts [1,\n2].sum"});
    assert_eq!(acts("/ruby puts [1,\n2].sum", Ok("3".into())), call_and_say("ruby", code, "3"));
    said("/read a");
    said("/ruby 1");
}

#[test]
fn fail_fails_the_run_with_its_text() {
    let end = |prompt: &str| {
        let (stage, end) = perform_and_stop_everywhere(&LocalAgent::default(), prompt);
        assert_eq!(stage.acts, []);
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
fn help_lists_every_order_and_so_does_the_page() {
    let help = said("/help");
    let page = include_str!("../../../docs/agents.md");
    for order in [
        "!CMD",
        "/say TEXT",
        "/think TEXT",
        "/wait SECONDS",
        "/read PATH",
        "/ruby CODE",
        "/fail TEXT",
        "/help",
    ] {
        assert!(help.contains(&format!("\n- `{order}` ")), "{help}");
        assert!(page.contains(&format!("| `{order}` |")), "docs/agents.md does not describe {order}");
    }
    assert_eq!(help.matches("\n- ").count(), 8, "an order that this test does not know");
    assert!(help.contains("every 100 ms, for at most 600 seconds"), "as the constants say: {help}");
}

#[test]
fn an_unknown_order_says_so_and_points_to_help() {
    assert_eq!(said("/deploy now"), "I do not know `/deploy`. `/help` lists what I can do.");
    let long = said(&format!("/{}", "x".repeat(10_000)));
    assert!(long.chars().count() < MAX_QUOTE_CHARS + 100, "{long}");
}

#[test]
fn anything_else_is_answered_with_what_it_can_do_and_how_to_configure_a_model() {
    let answer = said("What is the weather?\n");
    assert!(answer.starts_with("You said “What is the weather?”. "), "{answer}");
    assert!(answer.contains("- `/wait SECONDS` "), "{answer}");
    assert!(answer.contains("parlor.toml") && answer.contains("[models.fast]"), "{answer}");

    let long = said(&"ä".repeat(MAX_QUOTE_CHARS + 1));
    assert!(long.contains(&format!("“{}…”", "ä".repeat(MAX_QUOTE_CHARS))), "{long}");
    assert!(said(" ").starts_with("You said nothing. "));
}

#[test]
fn files_without_words_are_noticed() {
    let id = MediaId::parse("1").unwrap();
    let media = Media { id, name: "a.png".into(), mime: "image/png".into(), size: 1 };
    for (count, said) in [(1, "You sent a file and no words. "), (2, "You sent 2 files and no words. ")] {
        let mut turn = turn("");
        turn.input.media = vec![media.clone(); count];
        let mut stage = Recorder::default();
        assert_eq!(perform_turn(&LocalAgent::default(), &turn, &mut stage), Ok(()));
        assert!(stage.said().starts_with(said), "{}", stage.said());
    }
}

proptest! {
    #[test]
    fn what_say_streams_is_the_text(text in prop_oneof![any::<String>(), "[a \n\u{e4}\u{a0}]{1,30}"]) {
        prop_assume!(!text.is_empty());
        let mut stage = Recorder::default();
        prop_assert_eq!(perform(&LocalAgent::default(), &format!("/say {text}"), &mut stage), Ok(()));
        prop_assert_eq!(stage.said(), text);
        for piece in stage.says() {
            prop_assert!(piece.split_whitespace().count() <= 1 && !piece.is_empty(), "{:?}", piece);
        }
    }

    #[test]
    fn every_message_has_an_answer(text in prop_oneof![any::<String>(), "[/!a-z .0-9]{0,12}"]) {
        let mut stage = Recorder::default();
        let end = perform(&LocalAgent::default(), &text, &mut stage);
        let failed = matches!(end, Err(TurnError::Failed(_)));
        prop_assert!(failed || (end == Ok(()) && !stage.said().is_empty()), "{:?}: {:?}", text, end);
    }
}
