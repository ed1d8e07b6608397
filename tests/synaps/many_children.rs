//! Many children at once, as a parent with many chat threads starts them.

use serde_json::json;

use crate::child::Home;
use crate::proc_info::{memory_kib, threads, wait_until};

const CHILDREN: usize = 20;

/// The most threads that an idle child may have.
const IDLE_THREADS: u64 = 4;

/// The resident memory that an idle child of a release build may have, in KiB. A debug build is larger.
const IDLE_KIB: u64 = 12 << 10;

#[tokio::test]
async fn twenty_children_on_one_home_answer_and_are_small_when_idle() {
    let home = Home::new();
    let mut children = Vec::new();
    for _ in 0..CHILDREN {
        children.push(home.child(&[]).await);
    }
    for child in &mut children {
        child.start_turn("p", "/wait 1").await;
    }
    // All children have a running turn now.
    for child in &mut children {
        let state = child.call(json!({"type": "get_state", "id": "s"})).await;
        assert_eq!(state["session_id"], child.session, "{state}");
    }
    for child in &mut children {
        let frames = child.until_response("p").await;
        assert_eq!(frames.last().map(|last| &last["ok"]), Some(&json!(true)));
        assert!(child.run_turn("q", "!echo $((6 * 7))").await.starts_with("42"));
    }
    let wait_for_all = |what: &str, is_within: fn(u64, u64) -> bool, measure: fn(u32) -> u64, limit: u64| {
        let pids: Vec<u32> = children.iter().map(|child| child.pid()).collect();
        let what = format!("{what} of at most {limit}");
        async move { wait_until(&what, || pids.iter().all(|pid| is_within(measure(*pid), limit))).await }
    };
    wait_for_all("threads", |count, limit| count <= limit, threads, IDLE_THREADS).await;
    if !cfg!(debug_assertions) {
        wait_for_all("resident memory in KiB", |kib, limit| kib < limit, memory_kib, IDLE_KIB).await;
    }
    let largest = children.iter().map(|child| memory_kib(child.pid())).max();
    eprintln!("the largest of {CHILDREN} idle children has {largest:?} KiB resident");
}
