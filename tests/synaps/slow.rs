//! Parents that read late.

use serde_json::json;

use crate::child::{Home, said};
use crate::soak;
use crate::system::{peak_memory_kib, standstill};

/// Far less than what is said below, and more than a child ever needs.
const ENOUGH_KIB: u64 = 64 << 10;

#[tokio::test]
async fn a_parent_that_does_not_read_for_a_while_loses_nothing() {
    // Six bytes a letter on the wire: more than all queues and pipes hold.
    let text = "\u{20ac}uro ".repeat(120_000);
    let home = Home::new();
    for _ in 0..soak(1, 20) {
        // Each has its own child: what was said before is kept, and would be measured along.
        let mut child = home.child(&[]).await;
        child.prompt("p", &format!("/say {text}")).await;
        standstill(child.pid()).await;
        let frames = child.until_answered("p").await;
        assert!(said(&frames) == text, "not what was to be said");
        let peak = peak_memory_kib(child.pid());
        assert!(peak < ENOUGH_KIB, "{peak} KiB");
    }
}

#[tokio::test]
async fn many_answers_wait_for_a_parent_that_reads_none_of_them() {
    let home = Home::new();
    let mut child = home.child(&[]).await;
    child.begin("p", "/wait 2").await;
    let pid = child.pid();
    let commands = soak(20_000, 200_000);
    let line = b"{\"type\":\"get_state\",\"id\":\"s\"}\n";
    let mut written = 0;
    // Until the pipes and all queues are full.
    let write = async {
        while written < commands {
            child.write(line).await;
            written += 1;
        }
    };
    tokio::select! {
        () = write => {}
        () = standstill(pid) => {}
    }
    assert!(written < commands, "a parent that does not read must be held up");
    let peak = peak_memory_kib(pid);
    assert!(peak < ENOUGH_KIB, "{peak} KiB");
    let mut answered = 0;
    let mut is_over = false;
    while answered < written || !is_over {
        let frame = child.frame().await;
        if frame["id"] == "s" {
            answered += 1;
        }
        is_over = is_over || (frame["id"] == "p" && frame["ok"] == true);
    }
    assert_eq!(child.call(json!({"type": "abort", "id": "a"})).await["ok"], true);
}
