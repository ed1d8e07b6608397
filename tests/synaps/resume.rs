//! Sessions that another child continues.

use rustix::process::Signal;
use serde_json::json;

use crate::child::{Child, Home};
use crate::proc_info::signal;

async fn kill(child: &mut Child) {
    signal(child.pid(), Signal::KILL);
    child.wait_without_reading().await;
}

#[tokio::test]
async fn a_turn_that_a_crash_interrupted_is_marked_and_the_next_turn_works() {
    let home = Home::new();
    let mut child = home.child(&["--model", "some-model"]).await;
    assert_eq!(child.run_turn("0", "/say before").await, "before");
    child.start_turn("p", "/wait 300").await;
    kill(&mut child).await;

    let mut again = home.child(&["--continue", &child.session]).await;
    assert_eq!((&again.session, again.model.as_str()), (&child.session, "some-model"));
    let history = again.history().await;
    assert_eq!(history[0], "/say before");
    assert_eq!(history[2], "/wait 300");
    assert_eq!(history.last(), Some(&json!("[Request interrupted: Synaps stopped unexpectedly]")));
    assert_eq!(again.run_turn("q", "/say after").await, "after");
    assert!(again.history().await.len() > history.len());
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
async fn only_one_child_at_a_time_can_use_a_session() {
    let home = Home::new();
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
