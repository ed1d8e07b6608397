//! The log in PostgreSQL: which commands use it, what happens without it, and what is shown of its password.

use parlor_log::postgres::test_server::TestServer;

use crate::client::Client;
use crate::node::{Database, NodeHome, wait_for_http};
use crate::takeover::{LONG_TOOL, wait_for_end, wait_for_pid};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_commands_use_the_log_of_the_settings_and_the_flag_overrides_it() {
    let database = Database::new().await;
    // The flag is enough for a server; other commands need the setting.
    let (flag, setting) = (NodeHome::new(""), NodeHome::new(&format!("[log]\nurl = {:?}\n", database.url)));
    let mut server = flag.serve(&["--log", &database.url]);
    let mut client = Client::open(&server, "shared").await;
    client.send("/say hello from the database").await;
    client.event("run.completed").await;
    assert!(server.stop().success());
    let listed = setting.prints(&["sessions", "--json"]);
    assert!(listed.contains("\"shared\""), "{listed}");
    assert!(setting.prints(&["replay", "shared"]).contains("hello from the database"));
    let answer = setting.prints(&["chat", "--session", "shared", "/say and again"]);
    assert!(answer.contains("and again"), "{answer}");
    assert!(setting.prints(&["doctor"]).contains("can be read and written"));
    for home in [&flag, &setting] {
        assert!(!home.path().join("parlor.db").exists(), "no second log");
    }
}

#[test]
fn an_unreachable_database_is_an_error_without_the_password() {
    let home = NodeHome::new(
        "[log]\nurl = \"postgres://me:pa55word-in-url@127.0.0.1:1/parlor\"\npassword_file = \"password\"\n",
    );
    let missing = String::from_utf8(home.run(&["sessions"]).stderr).unwrap();
    assert!(missing.contains("password_file") && missing.contains("cannot read the password"), "{missing}");
    std::fs::write(home.path().join("password"), "pa55word-in-file\n").unwrap();
    let flag = ["serve", "--listen", "127.0.0.1:0", "--no-supex", "--log", "postgres://127.0.0.1:1/other"];
    for (args, store) in [(&["sessions"][..], "parlor"), (&["doctor"], "parlor"), (&flag, "other")] {
        let output = home.run(args);
        assert!(!output.status.success());
        let shown =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(shown.contains(&format!("cannot open the log postgres://127.0.0.1:1/{store}")), "{shown}");
        assert!(!shown.contains("pa55word"), "{shown}");
    }
    let settings = home.prints(&["settings"]);
    assert!(settings.contains("log.url = \"postgres://127.0.0.1:1/parlor\""), "{settings}");
    assert!(!settings.contains("pa55word"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_ends_on_request_while_its_database_is_away() {
    let postgres = TestServer::start("");
    let database = Database::on(&postgres).await;
    let home = NodeHome::new(&format!("[log]\nurl = {:?}\n", database.url));
    let mut server = home.serve(&[]);
    let mut client = Client::open(&server, "s").await;
    client.send("/wait 600").await;
    client.event("run.started").await;
    postgres.kill();
    wait_for_http(&server, "/ready", |status, _| status == 503).await;
    assert!(server.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_database_a_node_keeps_its_clients_and_it_goes_on_when_the_database_is_back() {
    let postgres = TestServer::start("");
    let database = Database::on(&postgres).await;
    let home = NodeHome::new(&format!("[log]\nurl = {:?}\n", database.url));
    let server = home.serve(&[]);
    let mut client = Client::open(&server, "s").await;
    client.send("/say before").await;
    client.event("run.completed").await;
    client.send(LONG_TOOL).await;
    let interrupted = client.event("run.started").await.run_id;
    let tool = wait_for_pid(&home.path().join("tool.pid")).await;
    client.send("/say it was accepted before").await;
    client.frame("run.queued").await;
    postgres.kill();
    let reason = wait_for_http(&server, "/ready", |status, _| status == 503).await;
    assert!(reason.contains("the database cannot be reached"), "{reason}");
    // Only after that has the node given up its run for certain.
    wait_for_http(&server, "/ready", |_, body| body.contains("no heartbeat succeeded in time")).await;
    // What nobody can record any more has ended, while the database is still away.
    wait_for_end(tool).await;
    client.send("/say during").await;
    let refused = client.event("run.failed").await;
    assert!(format!("{:?}", refused.data).contains("the database cannot be reached"), "{:?}", refused.data);
    postgres.restart();
    wait_for_http(&server, "/ready", |status, _| status == 200).await;
    // The client was not disconnected, or it would be told.
    client.send("/say after").await;
    let failed = client.event("run.failed").await;
    assert_eq!(failed.run_id, interrupted);
    assert_eq!(failed.data["error_code"], "RUN_INTERRUPTED");
    for text in ["it was accepted before", "after"] {
        assert_eq!(client.event("message.completed").await.data["text"], text);
    }
    let replayed = home.prints(&["replay", "s"]);
    assert!(!replayed.contains("during"), "{replayed}");
}
