//! What keys do.

use parlor_vocab::WhenBusy;

use super::super::commands::{ChatCommand, CommandName};
use super::*;

fn sent(text: &str, when_busy: WhenBusy) -> Vec<Effect> {
    vec![Effect::Remember(text.to_owned()), Effect::Send { text: text.to_owned(), when_busy }]
}

#[test]
fn enter_sends_and_alt_enter_begins_a_line() {
    let mut emulated = Emulated::new(80, 24);
    emulated.type_text("one");
    emulated.key(KeyCode::Enter, KeyModifiers::ALT);
    emulated.type_text("two");
    assert!(emulated.shows("> one") && emulated.shows("  two"));
    assert_eq!(emulated.press(KeyCode::Enter), sent("one\ntwo", WhenBusy::Enqueue));
    assert!(emulated.shows("> Type a message"));
    assert_eq!(emulated.press(KeyCode::Enter), []);
    emulated.press(KeyCode::Up);
    emulated.press(KeyCode::Up);
    emulated.press(KeyCode::Up);
    assert!(emulated.shows("> sent before"), "{:?}", emulated.rows());
}

#[test]
fn a_text_is_queued_or_steers_while_a_run_is_active() {
    let mut emulated = Emulated::new(80, 24);
    emulated.type_text("a");
    assert_eq!(emulated.control('s'), sent("a", WhenBusy::Enqueue), "nothing to steer");
    emulated.start_run("x");
    emulated.type_text("b");
    assert_eq!(emulated.press(KeyCode::Enter), sent("b", WhenBusy::Enqueue));
    emulated.type_text("c");
    assert_eq!(emulated.control('s'), sent("c", WhenBusy::Steer));
    emulated.type_text("/steer d");
    let steered = Effect::Send { text: "d".to_owned(), when_busy: WhenBusy::Steer };
    assert_eq!(emulated.press(KeyCode::Enter)[1], steered);
}

#[test]
fn typed_text_does_not_mix_with_output() {
    let mut emulated = Emulated::new(80, 24);
    emulated.start_run("x");
    for letter in ["d", "r", "a", "f", "t"] {
        emulated.type_text(letter);
        emulated.answer("word ");
    }
    assert!(emulated.shows("> draft") && emulated.shows("word word word word word"));
}

#[test]
fn escape_stops_and_ctrl_c_twice_leaves() {
    let mut emulated = Emulated::new(80, 24);
    emulated.start_run("x");
    assert_eq!(emulated.press(KeyCode::Esc), [Effect::Stop(run())]);
    assert!(emulated.shows("Stopping"));
    assert_eq!(emulated.control('c'), [Effect::Stop(run())]);
    assert!(emulated.shows("Press Ctrl-C again to leave"));
    assert_eq!(emulated.control('c'), [Effect::Quit]);
}

#[test]
fn ctrl_c_clears_the_text_first_and_another_key_disarms_it() {
    let mut emulated = Emulated::new(80, 24);
    emulated.type_text("half a line");
    assert_eq!(emulated.control('c'), []);
    assert!(!emulated.shows("half a line") && emulated.shows("Press Ctrl-C again or Ctrl-D to leave"));
    emulated.type_text("x");
    assert!(!emulated.shows("to leave"));
    assert_eq!(emulated.control('c'), []);
    assert_eq!(emulated.control('d'), [Effect::Quit]);
}

#[test]
fn commands_complete_and_run() {
    let mut emulated = Emulated::new(80, 24);
    emulated.type_text("/co");
    assert!(emulated.shows("> /compact") && emulated.shows("/cost"), "{:?}", emulated.rows());
    emulated.press(KeyCode::Down);
    let effects = emulated.press(KeyCode::Enter);
    let cost = ChatCommand { name: CommandName::Cost, argument: String::new() };
    assert_eq!(effects[1], Effect::Run(cost));
    emulated.type_text("/mo");
    emulated.press(KeyCode::Down);
    emulated.press(KeyCode::Tab);
    assert!(emulated.shows("> /mode") && emulated.shows("> full"), "{:?}", emulated.rows());
    emulated.press(KeyCode::Esc);
    assert!(!emulated.shows("> full"));
    let effects = emulated.control('u');
    assert_eq!(effects, []);
    emulated.type_text("/quit");
    assert_eq!(emulated.press(KeyCode::Enter)[1], Effect::Quit);
}

#[test]
fn commands_of_the_agent_reach_it() {
    let mut emulated = Emulated::new(80, 24);
    for (typed, expected) in [("/say hi", "/say hi"), ("//help", "/help")] {
        emulated.type_text(typed);
        let sent = Effect::Send { text: expected.to_owned(), when_busy: WhenBusy::Enqueue };
        assert_eq!(emulated.press(KeyCode::Enter)[1], sent);
    }
    emulated.type_text("!ls");
    assert_eq!(emulated.press(KeyCode::Enter)[1], Effect::Shell("!ls".to_owned()));
}

#[test]
fn a_mention_lists_files_and_completes_them() {
    let mut emulated = Emulated::new(80, 24);
    assert_eq!(emulated.type_text("see @"), [Effect::ListFiles]);
    emulated.event(ScreenEvent::Files(vec!["src/main.rs".to_owned(), "README.md".to_owned()]));
    emulated.type_text("mn");
    assert!(emulated.shows("> @src/main.rs"), "{:?}", emulated.rows());
    emulated.press(KeyCode::Enter);
    emulated.type_text("please");
    assert!(emulated.shows("> see @src/main.rs please"), "{:?}", emulated.rows());
}

#[test]
fn a_pasted_text_is_one_message_and_a_huge_one_is_refused() {
    let mut emulated = Emulated::new(80, 24);
    emulated.event(ScreenEvent::Paste("one\ntwo\x1b[2J".to_owned()));
    assert_eq!(emulated.press(KeyCode::Enter), sent("one\ntwo", WhenBusy::Enqueue));
    emulated.event(ScreenEvent::Paste("x".repeat(300 << 10)));
    assert!(emulated.shows("at most 256 KiB") && emulated.screen.input.is_empty());
}

#[test]
fn the_history_can_be_searched() {
    let mut emulated = Emulated::new(80, 24);
    emulated.control('r');
    emulated.type_text("before");
    assert!(emulated.shows("search before: sent before"), "{:?}", emulated.rows());
    emulated.press(KeyCode::Enter);
    assert_eq!(emulated.press(KeyCode::Enter)[0], Effect::Remember("sent before".to_owned()));
}

#[test]
fn a_long_text_scrolls_inside_its_lines() {
    let mut emulated = Emulated::new(80, 24);
    let text: String = (0..30).map(|number| format!("line {number}\n")).collect();
    emulated.event(ScreenEvent::Paste(text + "end"));
    assert!(emulated.shows("end") && !emulated.shows("line 0"));
    assert!(emulated.screen.region().lines.len() < 24);
}
