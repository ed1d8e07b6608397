//! Background commands, through the `shell` and `processes` tools.

mod common;

use common::{Fixture, is_running, number, wait_for_end};
use parlor_tools::{BACKGROUND_KEPT, BACKGROUND_RUNNING, BACKGROUND_WAIT_MAX, BackgroundProcesses};
use parlor_vocab::{FailureCode, ProcessExit};
use serde_json::json;

impl Fixture {
    async fn start(&self, command: &str, tty: bool) -> String {
        let text = self.text("shell", json!({"command": command, "tty": tty, "background": true})).await;
        text.split('`').nth(1).expect("an id").to_owned()
    }

    /// Reads until the output contains `wanted`.
    async fn read_until(&self, id: &str, wanted: &str) -> String {
        let mut output = String::new();
        while !output.contains(wanted) {
            let max = BACKGROUND_WAIT_MAX.as_millis() as u64;
            let text = self.text("processes", json!({"operation": "read", "id": id, "wait_ms": max})).await;
            let (page, status) = text.rsplit_once("\n[`").expect("a status");
            output.push_str(page);
            output.push('\n');
            assert!(
                output.contains(wanted) || status.contains("running"),
                "ended before {wanted:?}: {output}"
            );
        }
        output
    }

    /// Reads until the process has ended; returns the line with its exit status.
    async fn exit_line(&self, id: &str) -> String {
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
    let fixture = Fixture::new();
    let command = "sleep 600 & echo child=$!; echo self=$$; wait";
    let id = fixture.start(command, false).await;
    assert_eq!(id, "p1");
    let output = fixture.read_until(&id, "self=").await;
    let list = fixture.text("processes", json!({"operation": "list"})).await;
    assert_eq!(list, format!("p1 [running] {command}"));
    let text = fixture.text("processes", json!({"operation": "read", "id": id})).await;
    assert_eq!(text, "[no new output]\n[`p1`: running]", "output is returned once");
    let text = fixture.text("processes", json!({"operation": "stop", "id": id})).await;
    assert_eq!(text, "`p1` is stopped [terminated]");
    assert!(!is_running(number(&output, "child")) && !is_running(number(&output, "self")));
    let text = fixture.text("processes", json!({"operation": "stop", "id": id})).await;
    assert_eq!(text, "`p1` had ended already [terminated]");
    assert_eq!(fixture.context.background.list()[0].exit, Some(ProcessExit::Terminated));
}

#[tokio::test]
async fn a_terminal_can_be_written_to() {
    let fixture = Fixture::new();
    let id = fixture
        .start("read name; echo hello $name; stty raw -echo; echo raw; head -c 1 | od -An -c", true)
        .await;
    fixture.text("processes", json!({"operation": "write", "id": id, "text": "wörld"})).await;
    // Both lines may arrive in one read.
    let output = fixture.read_until(&id, "raw").await;
    assert!(output.contains("hello wörld"), "{output}");
    let text =
        fixture.text("processes", json!({"operation": "write", "id": id, "text": "x", "enter": false})).await;
    assert_eq!(text, "wrote 1 bytes to `p1`");
    let output = fixture.read_until(&id, "x").await;
    assert!(!output.contains("\\r"), "Enter was not pressed: {output}");
    let empty = json!({"operation": "write", "id": id, "enter": false});
    assert_eq!(fixture.fail("processes", empty).await.0, FailureCode::InvalidInput);
}

#[tokio::test]
async fn ctrl_c_interrupts_the_process() {
    let fixture = Fixture::new();
    let id =
        fixture.start("trap 'echo caught; exit 5' INT; echo up; while :; do sleep 0.01; done", true).await;
    fixture.read_until(&id, "up").await;
    fixture.text("processes", json!({"operation": "write", "id": id, "text": "\u{3}", "enter": false})).await;
    fixture.read_until(&id, "caught").await;
    assert_eq!(fixture.exit_line(&id).await, "[`p1`: exit code 5]");
}

#[tokio::test]
async fn a_process_without_a_terminal_cannot_be_written_to() {
    let fixture = Fixture::new();
    let id = fixture.start("sleep 600", false).await;
    let (code, message) =
        fixture.fail("processes", json!({"operation": "write", "id": id, "text": "x"})).await;
    assert_eq!(code, FailureCode::InvalidInput);
    assert!(message.contains("\"tty\": true"), "{message}");
    fixture.context.background.stop_all().await;
}

#[tokio::test]
async fn the_last_output_can_be_read_after_the_end() {
    let fixture = Fixture::new();
    let id = fixture.start("echo last words; exit 4", false).await;
    let output = fixture.read_until(&id, "last words\n").await;
    assert!(output.starts_with("last words"));
    assert_eq!(fixture.exit_line(&id).await, "[`p1`: exit code 4]");
    let text = fixture.text("processes", json!({"operation": "read", "id": id, "wait_ms": 1})).await;
    assert_eq!(text, "[no new output]\n[`p1`: exit code 4]");
}

#[tokio::test]
async fn unread_output_is_limited_and_does_not_block_the_process() {
    let fixture = Fixture::new();
    let id = fixture.start("seq 1 200000; echo done > flag; sleep 600", false).await;
    // The process writes all of its output although no call reads it.
    let text = fixture.text("shell", json!({"command": "until test -s flag; do sleep 0.01; done"})).await;
    assert!(text.ends_with("[exit code 0]"), "{text}");
    let output = fixture.read_until(&id, "200000\n").await;
    assert!(
        output.starts_with("[… ") && output.contains(" older bytes were not read in time and are gone …]\n")
    );
    assert!(output.len() < 300_000, "{}", output.len());
    fixture.context.background.stop_all().await;
}

#[tokio::test]
async fn the_number_of_running_processes_is_limited() {
    let fixture = Fixture::new();
    for _ in 0..BACKGROUND_RUNNING {
        fixture.start("exec sleep 600", false).await;
    }
    let (code, message) = fixture.fail("shell", json!({"command": "true", "background": true})).await;
    assert_eq!(code, FailureCode::LimitReached);
    assert_eq!(message, "16 background processes run, which is the limit; stop one first");
    fixture.text("processes", json!({"operation": "stop", "id": "p3"})).await;
    assert_eq!(fixture.start("exec sleep 600", false).await, "p17");
    fixture.context.background.stop_all().await;
    assert!(fixture.context.background.list().iter().all(|status| status.exit.is_some()));
}

#[tokio::test]
async fn only_the_last_ended_processes_are_kept() {
    let fixture = Fixture::new();
    for _ in 0..BACKGROUND_KEPT + 3 {
        let id = fixture.start("true", false).await;
        fixture.text("processes", json!({"operation": "stop", "id": id})).await;
    }
    fixture.start("true", false).await;
    let list = fixture.context.background.list();
    assert_eq!(list.len(), BACKGROUND_KEPT + 1);
    assert_eq!(list[0].id, "p4");
    let (code, message) = fixture.fail("processes", json!({"operation": "read", "id": "p1"})).await;
    assert_eq!(code, FailureCode::NotFound);
    assert!(message.starts_with("there is no background process `p1`; there are: p4, p5"), "{message}");
}

#[tokio::test]
async fn sessions_do_not_share_processes_and_end_them_when_dropped() {
    let fixture = Fixture::new();
    let mut other = fixture.context.clone();
    other.background = BackgroundProcesses::default();
    let input = json!({"command": "echo self=$$; exec sleep 600", "background": true}).to_string();
    fixture.toolbox.call("shell", &input, &other).await.unwrap();
    assert_eq!(fixture.text("processes", json!({"operation": "list"})).await, "[no background processes]");
    let read = json!({"operation": "read", "id": "p1", "wait_ms": 60000}).to_string();
    let text = fixture.toolbox.call("processes", &read, &other).await.unwrap().text;
    drop(other);
    wait_for_end(number(&text, "self")).await;
}

#[tokio::test]
async fn a_wait_can_be_cancelled_and_has_a_limit() {
    let fixture = Fixture::new();
    let id = fixture.start("exec sleep 600", false).await;
    let over = BACKGROUND_WAIT_MAX.as_millis() as u64 + 1;
    let (code, _) = fixture.fail("processes", json!({"operation": "read", "id": id, "wait_ms": over})).await;
    assert_eq!(code, FailureCode::InvalidInput);
    fixture.context.cancel.cancel();
    let (code, _) = fixture.fail("processes", json!({"operation": "read", "id": id, "wait_ms": 60000})).await;
    assert_eq!(code, FailureCode::Cancelled);
    fixture.context.background.stop_all().await;
}
