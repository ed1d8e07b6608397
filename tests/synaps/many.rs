//! Many children at once, as a parent of many chat threads has them.

use serde_json::json;

use crate::child::Home;
use crate::system::{memory_kib, threads, until};

const CHILDREN: usize = 20;

/// What an idle child may have.
const IDLE_THREADS: u64 = 4;

/// What an idle child may keep resident, as it is shipped. Code that is not optimised is larger.
const IDLE_KIB: u64 = 12 << 10;

#[tokio::test]
async fn twenty_children_on_one_home_answer_and_are_small_when_idle() {
    let home = Home::new();
    let mut children = Vec::new();
    for _ in 0..CHILDREN {
        children.push(home.child(&[]).await);
    }
    for child in &mut children {
        child.begin("p", "/wait 1").await;
    }
    // All at once: each has a turn running.
    for child in &mut children {
        let state = child.call(json!({"type": "get_state", "id": "s"})).await;
        assert_eq!(state["session_id"], child.session, "{state}");
    }
    for child in &mut children {
        let frames = child.until_answered("p").await;
        assert_eq!(frames.last().map(|last| &last["ok"]), Some(&json!(true)));
        assert!(child.say("q", "!echo $((6 * 7))").await.starts_with("42"));
    }
    let idle = |what: &str, figure: fn(u64, u64) -> bool, of: fn(u32) -> u64, limit: u64| {
        let pids: Vec<u32> = children.iter().map(|child| child.pid()).collect();
        let what = format!("{what} of at most {limit}");
        async move { until(&what, || pids.iter().all(|pid| figure(of(*pid), limit))).await }
    };
    idle("threads", |has, limit| has <= limit, threads, IDLE_THREADS).await;
    if !cfg!(debug_assertions) {
        idle("resident memory in KiB", |has, limit| has < limit, memory_kib, IDLE_KIB).await;
    }
    let largest = children.iter().map(|child| memory_kib(child.pid())).max();
    eprintln!("the largest of {CHILDREN} idle children has {largest:?} KiB resident");
}
