//! Messages, tools and reasoning on the screen.

use parlor_vocab::{
    Failure, FailureCode, QueuedInput, Sender, StepEvent, StepId, ToolCallId, ToolEvent, Usage,
};

use super::*;

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 50)];

fn call() -> ToolCallId {
    ToolCallId::parse("call").unwrap()
}

fn step() -> StepId {
    StepId::parse("step").unwrap()
}

fn called(tool: &str, input: &str) -> RunEvent {
    let (tool, input) = (tool.to_owned(), input.to_owned());
    RunEvent::Tool(ToolEvent::Called { step: step(), call: call(), tool, input })
}

#[test]
fn an_answer_streams_and_ends_as_the_same_lines() {
    for (columns, rows) in SIZES {
        let mut emulated = Emulated::new(columns, rows);
        emulated.start_run("hello");
        emulated.answer("# Title\n\nSome **bold** text\n\n- one\n");
        assert!(emulated.shows("> hello") && emulated.shows("Title") && emulated.shows("• one"));
        assert!(emulated.shows("Working (0 s · Esc stops)"), "{:?}", emulated.rows());
        emulated.answer("- two\n");
        let text = "# Title\n\nSome **bold** text\n\n- one\n- two\n";
        emulated.complete(text);
        emulated.end_run(5);
        let rows = emulated.rows();
        assert_eq!(
            rows[..7],
            ["> hello", "", "Title", "", "Some bold text", "", "• one"],
            "{columns}x{rows:?}"
        );
        let rule = "─".repeat(columns.into());
        let rest = ["• two", "", &rule, "> Type a message, /help for commands", &rule, " local · workspace"];
        assert_eq!(rows[7..], rest);
        let (row, column) = emulated.terminal.screen().cursor_position();
        assert_eq!((row, column), (10, 2));
    }
}

#[test]
fn a_long_answer_goes_into_the_scrollback_in_full_and_once() {
    for (columns, rows) in SIZES {
        let mut emulated = Emulated::new(columns, rows);
        emulated.start_run("count");
        let paragraphs: String = (0..100).map(|number| format!("paragraph-{number:03}\n\n")).collect();
        for piece in paragraphs.as_bytes().chunks(7) {
            emulated.answer(std::str::from_utf8(piece).unwrap());
        }
        emulated.complete(&paragraphs);
        emulated.end_run(5);
        let shown = emulated.all_rows().join("\n");
        for number in 0..100 {
            assert_eq!(shown.matches(&format!("paragraph-{number:03}")).count(), 1, "{shown}");
        }
    }
}

#[test]
fn a_block_that_is_higher_than_the_screen_shows_its_end_while_it_grows() {
    let mut emulated = Emulated::new(40, 12);
    emulated.start_run("code");
    let code: String = (0..50).map(|number| format!("line-{number:02}\n")).collect();
    emulated.answer("```\n");
    emulated.answer(&code);
    assert!(emulated.shows("line-49") && !emulated.shows("line-00"));
    emulated.complete(&format!("```\n{code}```\n"));
    let shown = emulated.all_rows().join("\n");
    assert_eq!((shown.matches("line-00").count(), shown.matches("line-49").count()), (1, 1), "{shown}");
}

#[test]
fn a_tool_call_shows_its_last_line_and_unfolds() {
    let mut emulated = Emulated::new(80, 24);
    emulated.start_run("go");
    emulated.run_event(called("shell", r#"{"command":"make test"}"#));
    emulated.delta(StreamKind::ToolOutput(call()), "first\nsecond\n");
    assert!(emulated.shows("● shell make test") && emulated.shows("└ second") && !emulated.shows("first"));
    let output = "first\nsecond\n[exit code 0]".to_owned();
    emulated.run_event(RunEvent::Tool(ToolEvent::Completed {
        call: call(),
        output,
        details: None,
        duration_ms: 1200,
    }));
    assert!(emulated.shows("└ 3 lines · 1.2 s · [exit code 0]"), "{:?}", emulated.rows());
    emulated.complete("Done.");
    emulated.end_run(5);
    emulated.control('o');
    assert!(emulated.shows("    first"), "{:?}", emulated.rows());
    emulated.control('o');
    assert!(emulated.shows("Nothing is folded."));
}

#[test]
fn the_output_of_a_command_is_not_taken_for_markdown() {
    let mut emulated = Emulated::new(80, 24);
    emulated.start_run("!ls");
    emulated.run_event(called("shell", r#"{"command":"ls"}"#));
    let output = "# a\n* b\n[exit code 0]".to_owned();
    emulated.run_event(RunEvent::Tool(ToolEvent::Completed {
        details: None,
        call: call(),
        output: output.clone(),
        duration_ms: 1,
    }));
    emulated.answer("# a\n");
    emulated.complete(&output);
    assert!(emulated.shows("  # a") && emulated.shows("  * b"), "{:?}", emulated.rows());
}

#[test]
fn reasoning_is_folded_and_unfolds() {
    let mut emulated = Emulated::new(80, 24);
    emulated.start_run("think");
    emulated.delta(StreamKind::Reasoning(step()), "first thought\nsecond thought");
    emulated.later(Duration::from_secs(3));
    assert!(emulated.shows("✻ Thinking, 3 s") && emulated.shows("second thought"));
    let text = "first thought\nsecond thought".to_owned();
    emulated.run_event(RunEvent::Step(StepEvent::Reasoned { step: step(), text }));
    assert!(emulated.shows("Thought for 3 s") && !emulated.shows("second thought"));
    emulated.complete("Answer.");
    emulated.end_run(5);
    emulated.control('o');
    assert!(emulated.shows("first thought"), "{:?}", emulated.rows());
}

#[test]
fn failures_are_shown() {
    let mut emulated = Emulated::new(80, 24);
    emulated.start_run("x");
    let failure =
        Failure { code: FailureCode::Failed, message: "out of luck\x1b[2J".to_owned(), retryable: false };
    emulated.run_event(RunEvent::Ended { ending: RunEnding::Failed(failure), duration_ms: 1 });
    assert!(emulated.shows("Failed: out of luck (FAILED)"), "{:?}", emulated.rows());
}

#[test]
fn tokens_and_cost_are_in_the_status_line() {
    let mut emulated = Emulated::new(100, 24);
    emulated.start_run("x");
    let usage = Usage { input_tokens: 1234, output_tokens: 56, cost_micros: 12_345, ..Usage::default() };
    emulated.run_event(RunEvent::UsageAdded { usage, model: None });
    assert!(emulated.rows().last().unwrap().ends_with("1.2k in, 56 out · $0.01"), "{:?}", emulated.rows());
}

#[test]
fn only_a_long_run_is_announced() {
    let mut emulated = Emulated::new(80, 24);
    emulated.start_run("x");
    assert_eq!(emulated.end_run(9_999), []);
    emulated.start_run("x");
    assert_eq!(emulated.end_run(10_000), [Effect::Notify("local has answered".to_owned())]);
}

#[test]
fn waiting_messages_are_listed_until_they_start() {
    let mut emulated = Emulated::new(80, 24);
    emulated.start_run("first");
    let input = UserInput { text: "second\x07".to_owned(), ..UserInput::default() };
    let queued = QueuedInput { run: RunId::parse("next").unwrap(), input };
    emulated.session_event(SessionEvent::Queued(queued));
    assert!(emulated.shows("waiting: second"));
    assert_eq!(emulated.press(KeyCode::Up), [Effect::TakeBack(RunId::parse("next").unwrap())]);
    emulated.session_event(SessionEvent::Unqueued { runs: vec![RunId::parse("next").unwrap()] });
    emulated.event(ScreenEvent::TakenBack("second".to_owned()));
    assert!(!emulated.shows("waiting:") && emulated.shows("> second"));
}

#[test]
fn messages_of_other_clients_name_their_sender() {
    let mut emulated = Emulated::new(80, 24);
    let by = Some(Sender { door: "supr".to_owned(), client: Some("page\x1b[1m".to_owned()) });
    emulated.run_event(RunEvent::Started {
        parent: None,
        agent: AgentId::parse("local").unwrap(),
        model: None,
        missing_agent: None,
        input: UserInput { text: "hi".to_owned(), by, ..UserInput::default() },
        message: MessageId::parse("input").unwrap(),
    });
    assert_eq!(emulated.rows()[..2], ["page:", "> hi"]);
}

#[test]
fn nothing_that_models_tools_or_titles_say_controls_the_terminal() {
    let evil = "a\x1b[2J\x1b]0;t\x07\u{9b}31m\u{202e}\r\tb";
    let mut screen = Emulated::new(80, 24).screen;
    let mut emulated = Emulated::new(80, 24);
    std::mem::swap(&mut screen, &mut emulated.screen);
    emulated.start_run(evil);
    emulated.session_event(SessionEvent::Renamed { title: evil.to_owned() });
    emulated.run_event(called(evil, evil));
    emulated.delta(StreamKind::ToolOutput(call()), evil);
    emulated.delta(StreamKind::Reasoning(step()), evil);
    // A sequence may be cut in two.
    emulated.answer("x\x1b");
    emulated.answer("[2Jy");
    let finished = emulated.screen.take_finished();
    let region = emulated.screen.region();
    let lines = finished.iter().chain(&region.lines);
    for line in lines {
        let text = line.to_string();
        assert!(!text.contains(|letter: char| letter.is_control() || letter == '\u{202e}'), "{text:?}");
    }
    assert!(emulated.shows("xy"));
}

#[test]
fn without_colours_there_are_no_styles() {
    let mut emulated = Emulated::new(80, 24);
    emulated.screen.theme.has_colours = false;
    emulated.start_run("x");
    emulated.answer("# Title\n\n`code` **bold**\n\n```rust\nlet x = 1;\n```\n");
    let finished = emulated.screen.take_finished();
    let region = emulated.screen.region();
    let frame = Painter::default().frame(&finished, &region, 80);
    assert!(!frame.contains("m\u{1b}") && !frame.contains("[1m") && !frame.contains("[36"), "{frame:?}");
}

#[test]
fn any_size_of_the_terminal_is_survived() {
    for (columns, rows) in [(1, 1), (2, 2), (5, 3), (10, 4), (400, 3), (3, 100)] {
        let mut emulated = Emulated::new(columns, rows);
        emulated.start_run("hello there");
        emulated.type_text("some text that is long");
        emulated.answer("| a | b |\n|---|---|\n| 1 | 2 |\n\ntext");
        let height = emulated.screen.region().lines.len();
        assert!(height <= usize::from(rows), "{columns}x{rows}: {height}");
        emulated.event(ScreenEvent::Resize { columns: 80, rows: 24 });
        emulated.complete("text");
    }
}
