//! A child ends, well or badly, and so does all that it started.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::child::{Child, Home, said};
use crate::system::{pids_in, runs, signal, until};

/// A command that starts a family: a shell, a child of it, and one that ignores what asks it to end.
/// Each writes its number to the file `family`.
pub(crate) const FAMILY: &str = "!echo $$ >> family; sleep 300 & echo $! >> family; \
     sh -c 'trap \"\" TERM HUP INT; echo $$ >> family; while :; do sleep 1; done' & wait";

/// How many are in a family.
pub(crate) const FAMILY_SIZE: usize = 3;

async fn with_family(home: &Home) -> (Child, Vec<u32>) {
    let mut child = home.child(&[]).await;
    child.prompt("p", FAMILY).await;
    let family = pids_in(&home.folder().join("family"), FAMILY_SIZE).await;
    assert!(family.iter().all(|pid| runs(*pid)), "{family:?}");
    (child, family)
}

#[tokio::test]
async fn a_child_that_is_asked_to_end_ends_its_turn_first() {
    for asked in [Signal::TERM, Signal::INT, Signal::HUP] {
        let home = Home::new();
        let (mut child, family) = with_family(&home).await;
        signal(child.pid(), asked);
        let (_, status) = child.end().await;
        assert_eq!(status.code(), Some(0), "{asked:?}");
        assert!(!family.iter().any(|pid| runs(*pid)), "{asked:?}: {family:?}");
        let mut child = home.child(&["--continue", &child.session]).await;
        let history = child.history().await;
        assert_eq!(history.first(), Some(&json!(FAMILY)), "{history:?}");
        assert_eq!(history.last(), Some(&json!("[Request interrupted]")), "{history:?}");
    }
}

#[tokio::test]
async fn a_parent_that_hangs_up_in_mid_turn_ends_it() {
    let home = Home::new();
    let (mut child, family) = with_family(&home).await;
    child.close_stdin();
    let (_, status) = child.end().await;
    assert_eq!(status.code(), Some(0));
    assert!(!family.iter().any(|pid| runs(*pid)), "{family:?}");
    let mut child = home.child(&["--continue", &child.session]).await;
    assert_eq!(child.history().await.first(), Some(&json!(FAMILY)));
}

#[tokio::test]
async fn a_parent_that_closes_its_reading_side_has_left() {
    let home = Home::new();
    let (mut child, family) = with_family(&home).await;
    child.close_stdout();
    child.send(json!({"type": "get_state", "id": "s"})).await;
    assert_eq!(child.end_unread().await.code(), Some(0));
    assert!(!family.iter().any(|pid| runs(*pid)), "{family:?}");
}

#[tokio::test]
async fn a_killed_child_takes_its_shell_along() {
    let home = Home::new();
    let (mut child, family) = with_family(&home).await;
    signal(child.pid(), Signal::KILL);
    child.end_unread().await;
    // The shell is told by the kernel; what it started is not.
    until("the shell is gone", || !runs(family[0])).await;
    for left in family.into_iter().filter(|pid| runs(*pid)) {
        signal(left, Signal::KILL);
    }
}

#[tokio::test]
async fn shutdown_in_mid_turn_delivers_the_whole_turn() {
    let home = Home::new();
    let mut child = home.child(&[]).await;
    child.begin("p", "/wait 1").await;
    child.send(json!({"type": "shutdown", "id": "ignored"})).await;
    // Nothing more is read.
    child.send(json!({"type": "abort", "id": "late"})).await;
    let (frames, status) = child.end().await;
    assert_eq!(status.code(), Some(0));
    assert!(said(&frames).ends_with("Done: I waited 1 s."), "{frames:?}");
    let types: Vec<&Value> = frames.iter().rev().take(2).map(|frame| &frame["type"]).collect();
    assert_eq!(types, ["response", "agent_end"]);
    assert_eq!(frames.last().map(|last| (&last["id"], &last["ok"])), Some((&json!("p"), &json!(true))));
}

#[tokio::test]
async fn shutdown_when_idle_says_nothing() {
    let home = Home::new();
    let mut child = home.child(&[]).await;
    child.send(json!({"type": "shutdown"})).await;
    let (frames, status) = child.end().await;
    assert_eq!((frames.len(), status.code()), (0, Some(0)));
}

#[tokio::test]
async fn the_last_line_needs_no_end() {
    let home = Home::new();
    let mut child = home.child(&[]).await;
    child.write(br#"{"type":"get_state","id":"s"}"#).await;
    child.close_stdin();
    let (frames, status) = child.end().await;
    assert_eq!(frames.iter().map(|frame| &frame["id"]).collect::<Vec<_>>(), ["s"]);
    assert_eq!(status.code(), Some(0));
}
