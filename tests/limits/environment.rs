//! A server that was started with SIGCHLD ignored, or with few file descriptors.

use serde_json::json;

use crate::proc_info::{children_of, descriptors_of, ignores_sigchld, wait_until};
use crate::server::Server;

#[tokio::test]
async fn exit_codes_are_right_when_sigchld_was_ignored_at_the_start() {
    let mut server = Server::start_after("trap '' CHLD").await;
    assert!(ignores_sigchld(server.pid()), "the server inherited the ignored signal");
    for tty in [false, true] {
        for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
            server.start_process("p", script, tty).await;
            assert_eq!(server.output_of("p").await.exit_code, code, "{script}, tty: {tty}");
        }
        // The children do not inherit the ignored signal: a shell can wait for its own children.
        server.start_process("p", "(exit 5) & wait $!", tty).await;
        assert_eq!(server.output_of("p").await.exit_code, 5);
    }
}

#[tokio::test]
async fn without_free_descriptors_a_start_is_refused_and_leaks_nothing() {
    // A start needs several descriptors. Each limit makes it fail at another one.
    for limit in 18..=24 {
        for tty in [false, true] {
            run_out_of_descriptors(limit, tty).await;
        }
    }
}

async fn run_out_of_descriptors(limit: usize, tty: bool) {
    let mut server = Server::start_after(&format!("ulimit -n {limit}")).await;
    let mut running = 0;
    let (refused, descriptors) = loop {
        let descriptors = descriptors_of(server.pid());
        let reply = server.start_process(&running.to_string(), "exec sleep 300", tty).await;
        if reply["result"]["running"] != true {
            break (reply, descriptors);
        }
        running += 1;
    };
    assert!(running > 0);
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
    let message = refused["error"]["message"].as_str().expect("a message");
    assert!(message.to_lowercase().contains("too many open files"), "{message}");

    for _ in 0..20 {
        let reply = server.start_process("more", "exec sleep 300", tty).await;
        assert_eq!(reply["error"]["code"], -32603, "{reply}");
    }
    // The count before may include a descriptor that the server had open for a moment only, so fewer are no fault.
    let pid = server.pid();
    wait_until("a refused start leaves nothing open", || descriptors_of(pid) <= descriptors).await;
    wait_until("a refused start leaves no process", || children_of(pid).len() == running).await;

    for name in 0..running {
        assert_eq!(server.terminate(&name.to_string()).await["result"], json!({"running": true}));
        assert_eq!(server.output_of(&name.to_string()).await.exit_code, 137);
    }
    wait_until("the descriptors are closed", || descriptors_of(pid) < descriptors).await;
    let reply = server.start_process("again", "echo hello", tty).await;
    assert_eq!(reply["result"]["running"], true, "{reply}");
    assert_eq!(server.output_of("again").await.exit_code, 0);
}
