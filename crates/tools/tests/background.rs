//! Commands in the background.

mod common;

use common::{Desk, ended, is_running, number};
use parlor_tools::{BACKGROUND_KEPT, BACKGROUND_RUNNING, BACKGROUND_WAIT_MAX, Shells};
use parlor_vocab::{FailureCode, ProcessExit};
use serde_json::json;

impl Desk {
    async fn start(&self, command: &str, tty: bool) -> String {
        let text = self.text("shell", json!({"command": command, "tty": tty, "background": true})).await;
        text.split('`').nth(1).expect("an id").to_owned()
    }

    /// Reads until the output has shown `wanted`.
    async fn until(&self, id: &str, wanted: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(wanted) {
            let max = BACKGROUND_WAIT_MAX.as_millis() as u64;
            let text = self.text("processes", json!({"operation": "read", "id": id, "wait_ms": max})).await;
            let (output, status) = text.rsplit_once("\n[`").expect("a status");
            seen.push_str(output);
            seen.push('\n');
            assert!(seen.contains(wanted) || status.contains("running"), "ended before {wanted:?}: {seen}");
        }
        seen
    }

    /// Reads on to the end; returns the line that tells of it.
    async fn last(&self, id: &str) -> String {
        loop {
            let text = self.text("processes", json!({"operation": "read", "id": id, "wait_ms": 60000})).await;
            let status = text.lines().last().expect("a status");
            if !status.contains("running") {
                return status.to_owned();
            }
        }
    }
}

#[tokio::test]
async fn a_process_is_listed_read_and_stopped_with_its_group() {
    let desk = Desk::new();
    let command = "sleep 600 & echo child=$!; echo self=$$; wait";
    let id = desk.start(command, false).await;
    assert_eq!(id, "p1");
    let seen = desk.until(&id, "self=").await;
    let list = desk.text("processes", json!({"operation": "list"})).await;
    assert_eq!(list, format!("p1 [running] {command}"));
    let text = desk.text("processes", json!({"operation": "read", "id": id})).await;
    assert_eq!(text, "[no new output]\n[`p1`: running]", "read once, and no more");
    let text = desk.text("processes", json!({"operation": "stop", "id": id})).await;
    assert_eq!(text, "`p1` is stopped [terminated]");
    assert!(!is_running(number(&seen, "child")) && !is_running(number(&seen, "self")));
    let text = desk.text("processes", json!({"operation": "stop", "id": id})).await;
    assert_eq!(text, "`p1` had ended already [terminated]");
    assert_eq!(desk.context.shells.list()[0].ending, Some(ProcessExit::Terminated));
}

#[tokio::test]
async fn a_terminal_can_be_written_to() {
    let desk = Desk::new();
    let id = desk
        .start("read name; echo hello $name; stty raw -echo; echo raw; head -c 1 | od -An -c", true)
        .await;
    desk.text("processes", json!({"operation": "write", "id": id, "text": "wörld"})).await;
    // Both may come in one piece.
    let seen = desk.until(&id, "raw").await;
    assert!(seen.contains("hello wörld"), "{seen}");
    let text =
        desk.text("processes", json!({"operation": "write", "id": id, "text": "x", "enter": false})).await;
    assert_eq!(text, "wrote 1 bytes to `p1`");
    let seen = desk.until(&id, "x").await;
    assert!(!seen.contains("\\r"), "Enter was not pressed: {seen}");
    let empty = json!({"operation": "write", "id": id, "enter": false});
    assert_eq!(desk.fail("processes", empty).await.0, FailureCode::InvalidInput);
}

#[tokio::test]
async fn an_interrupt_is_a_letter() {
    let desk = Desk::new();
    let id = desk.start("trap 'echo caught; exit 5' INT; echo up; while :; do sleep 0.01; done", true).await;
    desk.until(&id, "up").await;
    desk.text("processes", json!({"operation": "write", "id": id, "text": "\u{3}", "enter": false})).await;
    desk.until(&id, "caught").await;
    assert_eq!(desk.last(&id).await, "[`p1`: exit code 5]");
}

#[tokio::test]
async fn without_a_terminal_there_is_nothing_to_write_to() {
    let desk = Desk::new();
    let id = desk.start("sleep 600", false).await;
    let (code, message) = desk.fail("processes", json!({"operation": "write", "id": id, "text": "x"})).await;
    assert_eq!(code, FailureCode::InvalidInput);
    assert!(message.contains("\"tty\": true"), "{message}");
    desk.context.shells.end_all().await;
}

#[tokio::test]
async fn the_last_output_can_be_read_after_the_end() {
    let desk = Desk::new();
    let id = desk.start("echo last words; exit 4", false).await;
    let seen = desk.until(&id, "last words\n").await;
    assert!(seen.starts_with("last words"));
    assert_eq!(desk.last(&id).await, "[`p1`: exit code 4]");
    let text = desk.text("processes", json!({"operation": "read", "id": id, "wait_ms": 1})).await;
    assert_eq!(text, "[no new output]\n[`p1`: exit code 4]");
}

#[tokio::test]
async fn much_unread_output_costs_little_and_does_not_hold_the_process_up() {
    let desk = Desk::new();
    let id = desk.start("seq 1 200000; echo done > flag; sleep 600", false).await;
    // The process gets to its end although nobody reads.
    let text = desk.text("shell", json!({"command": "until test -s flag; do sleep 0.01; done"})).await;
    assert!(text.ends_with("[exit code 0]"), "{text}");
    let seen = desk.until(&id, "200000\n").await;
    assert!(seen.starts_with("[… ") && seen.contains(" older bytes were not read in time and are gone …]\n"));
    assert!(seen.len() < 300_000, "{}", seen.len());
    desk.context.shells.end_all().await;
}

#[tokio::test]
async fn the_number_of_running_processes_is_limited() {
    let desk = Desk::new();
    for _ in 0..BACKGROUND_RUNNING {
        desk.start("exec sleep 600", false).await;
    }
    let (code, message) = desk.fail("shell", json!({"command": "true", "background": true})).await;
    assert_eq!(code, FailureCode::LimitReached);
    assert_eq!(message, "16 background processes run, which is the limit; stop one first");
    desk.text("processes", json!({"operation": "stop", "id": "p3"})).await;
    assert_eq!(desk.start("exec sleep 600", false).await, "p17");
    desk.context.shells.end_all().await;
    assert!(desk.context.shells.list().iter().all(|status| status.ending.is_some()));
}

#[tokio::test]
async fn of_those_that_have_ended_the_last_are_remembered() {
    let desk = Desk::new();
    for _ in 0..BACKGROUND_KEPT + 3 {
        let id = desk.start("true", false).await;
        desk.text("processes", json!({"operation": "stop", "id": id})).await;
    }
    desk.start("true", false).await;
    let list = desk.context.shells.list();
    assert_eq!(list.len(), BACKGROUND_KEPT + 1);
    assert_eq!(list[0].id, "p4");
    let (code, message) = desk.fail("processes", json!({"operation": "read", "id": "p1"})).await;
    assert_eq!(code, FailureCode::NotFound);
    assert!(message.starts_with("there is no background process `p1`; there are: p4, p5"), "{message}");
}

#[tokio::test]
async fn sessions_do_not_see_each_other_and_take_their_processes_along() {
    let desk = Desk::new();
    let mut other = desk.context.clone();
    other.shells = Shells::default();
    let input = json!({"command": "echo self=$$; exec sleep 600", "background": true}).to_string();
    desk.toolbox.call("shell", &input, &other).await.unwrap();
    assert_eq!(desk.text("processes", json!({"operation": "list"})).await, "[no background processes]");
    let read = json!({"operation": "read", "id": "p1", "wait_ms": 60000}).to_string();
    let text = desk.toolbox.call("processes", &read, &other).await.unwrap().text;
    drop(other);
    ended(number(&text, "self")).await;
}

#[tokio::test]
async fn a_wait_can_be_cancelled_and_has_a_limit() {
    let desk = Desk::new();
    let id = desk.start("exec sleep 600", false).await;
    let over = BACKGROUND_WAIT_MAX.as_millis() as u64 + 1;
    let (code, _) = desk.fail("processes", json!({"operation": "read", "id": id, "wait_ms": over})).await;
    assert_eq!(code, FailureCode::InvalidInput);
    desk.context.cancel.cancel();
    let (code, _) = desk.fail("processes", json!({"operation": "read", "id": id, "wait_ms": 60000})).await;
    assert_eq!(code, FailureCode::Cancelled);
    desk.context.shells.end_all().await;
}
