//! When a child stops or is killed, the processes of its tools end too.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::child::{Child, Home, answer_text};
use crate::proc_info::{is_running, read_pids, signal, wait_until};

/// A command that starts a tree of processes: a shell, a child of it, and a child that ignores SIGTERM, SIGHUP and
/// SIGINT. Each appends its process id to the file `processes`.
pub(crate) const PROCESS_TREE: &str = "!echo $$ >> processes; sleep 300 & echo $! >> processes; \
     sh -c 'trap \"\" TERM HUP INT; echo $$ >> processes; while :; do sleep 1; done' & wait";

/// The number of processes of [`PROCESS_TREE`].
pub(crate) const PROCESS_TREE_SIZE: usize = 3;

async fn child_with_processes(home: &Home) -> (Child, Vec<u32>) {
    let mut child = home.child(&[]).await;
    child.prompt("p", PROCESS_TREE).await;
    let processes = read_pids(&home.folder().join("processes"), PROCESS_TREE_SIZE).await;
    assert!(processes.iter().all(|pid| is_running(*pid)), "{processes:?}");
    (child, processes)
}

#[tokio::test]
async fn a_signal_interrupts_the_turn_and_kills_its_processes() {
    for sent in [Signal::TERM, Signal::INT, Signal::HUP] {
        let home = Home::new();
        let (mut child, processes) = child_with_processes(&home).await;
        signal(child.pid(), sent);
        let (_, status) = child.wait_for_exit().await;
        assert_eq!(status.code(), Some(0), "{sent:?}");
        assert!(!processes.iter().any(|pid| is_running(*pid)), "{sent:?}: {processes:?}");
        let mut child = home.child(&["--continue", &child.session]).await;
        let history = child.history().await;
        assert_eq!(history.first(), Some(&json!(PROCESS_TREE)), "{history:?}");
        assert_eq!(history.last(), Some(&json!("[Request interrupted]")), "{history:?}");
    }
}

#[tokio::test]
async fn closing_stdin_during_a_turn_ends_the_child_and_its_processes() {
    let home = Home::new();
    let (mut child, processes) = child_with_processes(&home).await;
    child.close_stdin();
    let (_, status) = child.wait_for_exit().await;
    assert_eq!(status.code(), Some(0));
    assert!(!processes.iter().any(|pid| is_running(*pid)), "{processes:?}");
    let mut child = home.child(&["--continue", &child.session]).await;
    assert_eq!(child.history().await.first(), Some(&json!(PROCESS_TREE)));
}

#[tokio::test]
async fn closing_stdout_during_a_turn_ends_the_child_and_its_processes() {
    let home = Home::new();
    let (mut child, processes) = child_with_processes(&home).await;
    child.close_stdout();
    child.send(json!({"type": "get_state", "id": "s"})).await;
    assert_eq!(child.wait_without_reading().await.code(), Some(0));
    assert!(!processes.iter().any(|pid| is_running(*pid)), "{processes:?}");
}

#[tokio::test]
async fn the_shell_of_a_killed_child_is_killed_too() {
    let home = Home::new();
    let (mut child, processes) = child_with_processes(&home).await;
    signal(child.pid(), Signal::KILL);
    child.wait_without_reading().await;
    // The kernel signals the shell (PR_SET_PDEATHSIG), but not the processes that the shell started.
    wait_until("the shell has ended", || !is_running(processes[0])).await;
    for pid in processes.into_iter().filter(|pid| is_running(*pid)) {
        signal(pid, Signal::KILL);
    }
}

/// Kills a process that a failed test left running.
struct KillOnDrop(u32);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if is_running(self.0) {
            signal(self.0, Signal::KILL);
        }
    }
}

#[tokio::test]
async fn a_command_that_ignores_sigterm_ends_with_a_killed_child() {
    let home = Home::new();
    let mut child = home.child(&[]).await;
    // The ignored signal stays ignored in the program that replaces the shell.
    child.prompt("p", "!trap '' TERM; echo $$ >> processes; exec sleep 300").await;
    let command = KillOnDrop(read_pids(&home.folder().join("processes"), 1).await[0]);
    signal(child.pid(), Signal::KILL);
    child.wait_without_reading().await;
    wait_until("the command has ended", || !is_running(command.0)).await;
}

#[tokio::test]
async fn shutdown_during_a_turn_delivers_the_whole_turn() {
    let home = Home::new();
    let mut child = home.child(&[]).await;
    child.start_turn("p", "/wait 1").await;
    child.send(json!({"type": "shutdown", "id": "ignored"})).await;
    // After shutdown the child reads no more commands.
    child.send(json!({"type": "abort", "id": "late"})).await;
    let (frames, status) = child.wait_for_exit().await;
    assert_eq!(status.code(), Some(0));
    assert!(answer_text(&frames).ends_with("Done: I waited 1 s."), "{frames:?}");
    let types: Vec<&Value> = frames.iter().rev().take(2).map(|frame| &frame["type"]).collect();
    assert_eq!(types, ["response", "agent_end"]);
    assert_eq!(frames.last().map(|last| (&last["id"], &last["ok"])), Some((&json!("p"), &json!(true))));
}

#[tokio::test]
async fn shutdown_when_idle_sends_no_frame() {
    let home = Home::new();
    let mut child = home.child(&[]).await;
    child.send(json!({"type": "shutdown"})).await;
    let (frames, status) = child.wait_for_exit().await;
    assert_eq!((frames.len(), status.code()), (0, Some(0)));
}

#[tokio::test]
async fn the_last_line_needs_no_newline() {
    let home = Home::new();
    let mut child = home.child(&[]).await;
    child.write(br#"{"type":"get_state","id":"s"}"#).await;
    child.close_stdin();
    let (frames, status) = child.wait_for_exit().await;
    assert_eq!(frames.iter().map(|frame| &frame["id"]).collect::<Vec<_>>(), ["s"]);
    assert_eq!(status.code(), Some(0));
}
