//! Sessions that another child continues.

use rustix::process::Signal;
use serde_json::json;

use crate::child::{Child, Home, within_timeout};
use crate::kept_text::kept_text;
use crate::proc_info::signal;

async fn kill(child: &mut Child) {
    signal(child.pid(), Signal::KILL);
    child.wait_without_reading().await;
}

#[tokio::test]
async fn a_turn_that_a_crash_interrupted_is_marked_and_the_next_turn_works() {
    let home = Home::new();
    let mut child = home.child(&["--model", "local"]).await;
    assert_eq!(child.run_turn("0", "/say before").await, "before");
    child.start_turn("p", "/wait 300").await;
    kill(&mut child).await;

    let mut again = home.child(&["--continue", &child.session]).await;
    assert_eq!((&again.session, again.model.as_str()), (&child.session, "local"));
    let history = again.history().await;
    assert_eq!(history[0], "/say before");
    assert_eq!(history[2], "/wait 300");
    assert_eq!(history.last(), Some(&json!("[Request interrupted: Synaps stopped unexpectedly]")));
    assert_eq!(again.run_turn("q", "/say after").await, "after");
    assert!(again.history().await.len() > history.len());
}

#[tokio::test]
async fn the_text_of_an_unfinished_message_survives_a_crash() {
    let home = Home::new();
    let mut child = home.child(&[]).await;
    child.start_turn("p", "/wait 300").await;
    let kept = within_timeout("kept text", kept_text(&home.state(), &child.session)).await;
    kill(&mut child).await;

    for _ in 0..2 {
        let mut again = home.child(&["--continue", &child.session]).await;
        let history = again.history().await;
        assert_eq!(history.len(), 3, "{history:?}");
        assert_eq!(history[0], "/wait 300");
        assert!(history[1][0]["text"].as_str().unwrap().starts_with(&kept), "{history:?}");
        assert_eq!(history[2], "[Request interrupted: Synaps stopped unexpectedly]");
        kill(&mut again).await;
    }
}

#[tokio::test]
async fn a_session_without_messages_can_be_continued() {
    let home = Home::new();
    let mut child = home.child(&[]).await;
    kill(&mut child).await;
    let mut again = home.child(&["--continue", &child.session]).await;
    assert_eq!(again.session, child.session);
    assert!(again.history().await.is_empty());
}

#[tokio::test]
async fn only_one_child_at_a_time_can_use_a_session_if_the_settings_say_so() {
    let home = Home::new();
    home.configure("[sessions]\njoin = false\n");
    let mut first = home.child(&[]).await;
    assert_eq!(first.run_turn("p", "/say mine").await, "mine");
    let second = home.run_to_end(&["--continue", &first.session]).await;
    assert_eq!(second.status.code(), Some(1));
    assert!(second.stdout.is_empty(), "{:?}", String::from_utf8_lossy(&second.stdout));
    let reason = String::from_utf8_lossy(&second.stderr);
    assert!(reason.contains(&first.session), "{reason}");

    assert_eq!(first.run_turn("q", "/say still mine").await, "still mine");
    first.close_stdin();
    first.wait_for_exit().await;
    let mut third = home.child(&["--continue", &first.session]).await;
    assert_eq!(third.history().await.len(), 4);
}

#[tokio::test]
async fn new_session_releases_the_old_session() {
    let home = Home::new();
    let mut first = home.child(&[]).await;
    first.run_turn("p", "/say old").await;
    let new = first.call(json!({"type": "new_session", "id": "n"})).await;
    assert_ne!(new["session_id"], first.session);
    let mut second = home.child(&["--continue", &first.session]).await;
    assert_eq!(second.history().await.len(), 2);
    assert!(first.history().await.is_empty());
}

#[tokio::test]
async fn continue_takes_an_unambiguous_part_of_the_session_id() {
    let home = Home::new();
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut child = home.child(&[]).await;
        child.send(json!({"type": "shutdown"})).await;
        child.wait_for_exit().await;
        ids.push(child.session);
    }
    let common: String =
        ids[0].chars().zip(ids[1].chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
    assert!(!common.is_empty(), "{ids:?}");
    for (wanted, reason) in [("nosuch", "nosuch"), (common.as_str(), ids[1].as_str())] {
        let refused = home.run_to_end(&["--continue", wanted]).await;
        assert_eq!(refused.status.code(), Some(1), "{wanted}");
        assert!(refused.stdout.is_empty(), "{wanted}");
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert!(stderr.contains(reason), "{wanted}: {stderr}");
    }
    let (_, tail) = ids[0].split_at(common.len());
    let child = home.child(&["--continue", tail]).await;
    assert_eq!(child.session, ids[0], "a part of the id is enough");
}

#[tokio::test]
async fn a_model_on_the_command_line_overrides_that_of_the_session() {
    let home = Home::new();
    let mut child = home.child(&["--model", "one"]).await;
    let set = child.call(json!({"type": "set_model", "id": "m", "model": "two"})).await;
    assert_eq!(set["model"], "two", "{set}");
    kill(&mut child).await;
    let mut again = home.child(&["--continue", &child.session]).await;
    assert_eq!(again.model, "two");
    kill(&mut again).await;
    assert_eq!(home.child(&["--continue", &child.session, "--model", "three"]).await.model, "three");
}

/// Lets a child answer these commands, ends it with `end`, and returns whether its session can be continued.
async fn is_kept_after(home: &Home, commands: &[&str], end: Signal) -> bool {
    let mut child = home.child(&[]).await;
    for command in commands {
        // The bridge sends no id; then the answer has an empty one.
        child.send(json!({"op": command, "type": command, "id": ""})).await;
        assert_eq!(child.frame().await["command"], *command);
    }
    signal(child.pid(), end);
    child.wait_for_exit().await;
    let again = home.run_to_end(&["--continue", &child.session]).await;
    again.status.code() == Some(0)
}

#[tokio::test]
async fn a_probe_for_the_tools_leaves_no_session() {
    let home = Home::new();
    assert!(!is_kept_after(&home, &["tools_list"], Signal::TERM).await);
    assert!(!is_kept_after(&home, &["tools_list", "tools_list"], Signal::INT).await);
    // Whoever does more than that may come back, and so may a parent whose child was killed.
    assert!(is_kept_after(&home, &["tools_list", "get_state"], Signal::TERM).await);
    assert!(is_kept_after(&home, &["get_state", "tools_list"], Signal::TERM).await);
    assert!(is_kept_after(&home, &[], Signal::TERM).await);
    assert!(is_kept_after(&home, &["tools_list"], Signal::KILL).await);
    // A session that is continued is kept, whatever its parent asks for.
    let mut child = home.child(&[]).await;
    kill(&mut child).await;
    let mut again = home.child(&["--continue", &child.session]).await;
    again.call(json!({"type": "tools_list", "id": "t"})).await;
    signal(again.pid(), Signal::TERM);
    again.wait_for_exit().await;
    assert_eq!(home.child(&["--continue", &child.session]).await.session, child.session);
}
