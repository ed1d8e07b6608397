//! Questions and the list of sessions.

use parlor_vocab::{
    Question, QuestionAnswer, QuestionEvent, QuestionId, QuestionKind, QuestionOutcome, SessionId, ToolCallId,
};

use super::super::picker::SessionChoice;
use super::super::state::QUESTION_DELAY;
use super::*;

fn question(detail: &str) -> Question {
    Question {
        id: QuestionId::parse("q").unwrap(),
        kind: QuestionKind::Call,
        call: ToolCallId::parse("call").unwrap(),
        tool: "shell".to_owned(),
        title: "Run `rm\u{1b}[8m`".to_owned(),
        reason: "a rule\u{202e} says so".to_owned(),
        detail: detail.to_owned(),
        remembered: None,
        is_repeatable: true,
    }
}

fn ask(emulated: &mut Emulated, detail: &str) -> Vec<Effect> {
    emulated.start_run("x");
    emulated.run_event(RunEvent::Question(QuestionEvent::Asked(question(detail))))
}

fn answered(answer: QuestionAnswer) -> Vec<Effect> {
    vec![Effect::Answer { question: QuestionId::parse("q").unwrap(), answer }]
}

#[test]
fn a_question_shows_the_command_and_is_answered_by_a_key() {
    let mut emulated = Emulated::new(80, 24);
    let effects = ask(&mut emulated, "rm -r build\x1b[1A\n+added");
    assert!(matches!(&effects[..], [Effect::Notify(text)] if text.contains("parlor asks")));
    assert!(emulated.shows("? Run `rm\\u{1b}[8m`?"), "{:?}", emulated.rows());
    assert!(emulated.shows("    rm -r build\\u{1b}[1A") && emulated.shows("a rule\\u{202e} says so"));
    assert!(!emulated.shows("y yes"), "no key is taken yet");
    emulated.later(QUESTION_DELAY);
    assert!(emulated.shows("y yes, this time   n no") && !emulated.shows("always"), "{:?}", emulated.rows());
    assert_eq!(emulated.press(KeyCode::Char('y')), answered(QuestionAnswer::AllowOnce));
    let outcome = QuestionOutcome::Answered { answer: QuestionAnswer::AllowOnce, by: None };
    let id = QuestionId::parse("q").unwrap();
    emulated.run_event(RunEvent::Question(QuestionEvent::Settled { question: id, outcome }));
    assert!(emulated.shows("Allowed: Run `rm") && !emulated.shows("y yes"), "{:?}", emulated.rows());
}

#[test]
fn somebody_who_is_typing_does_not_answer_by_accident() {
    let mut emulated = Emulated::new(80, 24);
    ask(&mut emulated, "ls");
    assert_eq!(emulated.type_text("y"), [], "the question has just come");
    emulated.later(QUESTION_DELAY);
    assert_eq!(emulated.type_text("n"), [], "the user is writing");
    let effects = emulated.press(KeyCode::Enter);
    let message = Some("yn".to_owned());
    assert_eq!(effects[1..], answered(QuestionAnswer::Deny { message }));
}

#[test]
fn always_is_not_taken_where_it_is_not_offered() {
    let mut emulated = Emulated::new(80, 24);
    ask(&mut emulated, "ls");
    emulated.later(QUESTION_DELAY);
    assert_eq!(emulated.press(KeyCode::Char('a')), []);
    assert_eq!(emulated.screen.input.text(), "a");
}

#[test]
fn a_long_detail_is_cut_and_shown_in_full_on_request() {
    let mut emulated = Emulated::new(80, 24);
    let detail: String = (0..40).map(|number| format!("+line {number}\n")).collect();
    ask(&mut emulated, &detail);
    emulated.later(QUESTION_DELAY);
    assert!(
        emulated.shows("more lines; Ctrl-O shows all") && emulated.shows("y yes"),
        "{:?}",
        emulated.rows()
    );
    emulated.control('o');
    assert!(emulated.all_rows().iter().any(|row| row.contains("+line 39")));
}

#[test]
fn a_session_is_chosen_from_a_list() {
    let mut emulated = Emulated::new(80, 24);
    let choice = |id: &str, title: &str| SessionChoice {
        id: SessionId::parse(id).unwrap(),
        time: "2026-01-01 10:00".to_owned(),
        title: title.to_owned(),
        messages: 3,
    };
    emulated.event(ScreenEvent::Sessions(vec![choice("1", "Build"), choice("2", "Tests")]));
    assert!(emulated.shows("> 2026-01-01 10:00     3 messages  Build"), "{:?}", emulated.rows());
    emulated.type_text("te");
    assert!(emulated.shows("find: te") && !emulated.shows("Build"));
    assert_eq!(emulated.press(KeyCode::Enter), [Effect::Switch(SessionId::parse("2").unwrap())]);
    assert!(!emulated.shows("find:"));
}
