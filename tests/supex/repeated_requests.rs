//! Clients that repeat a request or disconnect, and which requests wait for a running evaluation.

use serde_json::{Value, json};

use crate::server::{Client, Server, eval, hello, outcome};

/// Ruby code that counts its runs and waits until `file` exists.
fn code_that_waits_for(server: &Server, file: &str) -> String {
    let path = server.home.join(file);
    format!("$runs = ($runs || 0) + 1; sleep 0.01 until File.exist?('{}'); $runs", path.display())
}

fn create_file(server: &Server, file: &str) {
    std::fs::write(server.home.join(file), "").unwrap();
}

/// Waits until the console log shows that `count` evaluations have started.
fn wait_for_eval_start(server: &Server, count: usize) {
    while server.console_log().matches("EVAL_RUBY START").count() < count {
        std::thread::yield_now();
    }
}

#[test]
fn a_request_that_is_repeated_while_it_runs_runs_once() {
    let server = Server::start();
    let mut first = server.client_after_hello(1);
    let code = code_that_waits_for(&server, "go");
    first.send_line(&eval(7, &code));
    wait_for_eval_start(&server, 1);
    drop(first);
    let mut second = server.client_after_hello(1);
    second.send_line(&eval(7, &code));
    let mut other = server.client_after_hello(2);
    other.send_line(&eval(7, &code));
    create_file(&server, "go");
    assert_eq!(outcome(&second.reply()), Ok("1".to_owned()));
    assert_eq!(outcome(&other.reply()), Ok("2".to_owned()), "the same id of another client is another call");
    assert_eq!(second.eval(7, &code), Ok("3".to_owned()), "the result was delivered, so this is a new call");
}

#[test]
fn clients_that_describe_themselves_alike_each_run_their_call() {
    let server = Server::start();
    // Three containers: the client of each has the process id 1 and starts with the same id.
    let mut clients = [(); 3].map(|()| server.client_after_hello(1));
    let code = code_that_waits_for(&server, "go");
    for client in &mut clients {
        client.send_line(&eval(7, &code));
    }
    create_file(&server, "go");
    let mut values = clients.each_mut().map(|client| outcome(&client.reply()).unwrap());
    values.sort();
    assert_eq!(values, ["1", "2", "3"]);
}

#[test]
fn a_repeat_with_the_nonce_of_the_first_connection_attaches_while_that_is_open() {
    let server = Server::start();
    let client_with = |nonce: Option<&str>| {
        let mut client = server.client();
        let mut hello: Value = serde_json::from_str(&hello(1)).unwrap();
        hello["params"]["features"] = json!(["attach"]);
        hello["params"]["nonce"] = json!(nonce);
        let reply = client.request(&hello.to_string());
        (client, reply["result"]["server"]["nonce"].as_str().unwrap().to_owned())
    };
    let (mut first, nonce) = client_with(None);
    let (mut stranger, other_nonce) = client_with(None);
    assert_ne!(nonce, other_nonce);
    let code = code_that_waits_for(&server, "go");
    first.send_line(&eval(7, &code));
    wait_for_eval_start(&server, 1);
    let (mut repeat, same_nonce) = client_with(Some(&nonce));
    assert_eq!(same_nonce, nonce);
    for client in [&mut repeat, &mut stranger] {
        // The server handles both lines of this write before it sends the first reply.
        client.send_line(&format!("{}\n{}", r#"{"method":"ping","id":1}"#, eval(7, &code)));
        assert_eq!(client.reply()["result"]["status"], "ok");
    }
    create_file(&server, "go");
    assert_eq!(outcome(&stranger.reply()), Ok("2".to_owned()), "another nonce is another client");
    assert_eq!(outcome(&first.reply()), Ok("1".to_owned()));
    assert_eq!(outcome(&repeat.reply()), Ok("1".to_owned()));
}

#[test]
fn consoles_without_a_name_never_attach() {
    let server = Server::start();
    let console = || {
        let mut client = Client::connect(server.repl);
        assert_eq!(client.request(r#"{"method":"hello","id":1}"#)["result"]["success"], true);
        client
    };
    let begun = server.home.join("begun");
    let code = format!("File.write('{}', ''); {}", begun.display(), code_that_waits_for(&server, "go"));
    let line = json!({"method": "eval", "params": {"code": code}, "id": 2}).to_string();
    let (mut first, mut second) = (console(), console());
    first.send_line(&line);
    while !begun.exists() {
        std::thread::yield_now();
    }
    // A console with a name would attach to the call of a console that is gone.
    drop(first);
    second.send_line(&line);
    create_file(&server, "go");
    assert_eq!(second.reply()["result"]["output"], "=> 2\n");
}

#[test]
fn a_result_that_was_not_delivered_is_kept_for_the_next_try() {
    let server = Server::start();
    let mut first = server.client_after_hello(1);
    let code = code_that_waits_for(&server, "go");
    first.send_line(&eval(7, &code));
    wait_for_eval_start(&server, 1);
    drop(first);
    create_file(&server, "go");
    // Evaluations run one after another, so the first one ends before this one; the sleep leaves time in which the
    // server could wrongly drop its result.
    assert_eq!(server.client_after_hello(2).eval(1, "sleep 0.5; $runs"), Ok("1".to_owned()));
    assert_eq!(server.client_after_hello(1).eval(7, &code), Ok("1".to_owned()));
    assert_eq!(server.client_after_hello(2).eval(2, "$runs"), Ok("1".to_owned()));
}

#[test]
fn a_result_that_was_delivered_is_not_sent_again() {
    let server = Server::start();
    let code = "$n = ($n || 0) + 1";
    for expected in ["1", "2", "3"] {
        let mut client = server.client_after_hello(1);
        client.send_line(&eval(7, code));
        client.half_close();
        assert_eq!(outcome(&client.reply()), Ok(expected.to_owned()));
        assert_eq!(client.line(), None);
    }
}

#[test]
fn an_evaluation_of_a_client_that_disconnects_runs_to_its_end() {
    let server = Server::start();
    let mut first = server.client_after_hello(1);
    first.send_line(&eval(1, &format!("{}; $x = :there", code_that_waits_for(&server, "go"))));
    wait_for_eval_start(&server, 1);
    drop(first);
    create_file(&server, "go");
    assert_eq!(server.client_after_hello(2).eval(1, "$x"), Ok("there".to_owned()));
}

#[test]
fn a_long_evaluation_delays_other_evaluations_and_nothing_else() {
    let server = Server::start();
    let (mut busy, mut waiting, mut other) =
        (server.client_after_hello(1), server.client_after_hello(2), server.client_after_hello(3));
    busy.send_line(&eval(1, &code_that_waits_for(&server, "go")));
    wait_for_eval_start(&server, 1);
    waiting.send_line(&eval(1, "$after = $runs + 1"));
    for line in [
        r#"{"method":"ping","id":1}"#,
        r#"{"command":"ping","id":1}"#,
        r#"{"command":"console_capture_status","id":1}"#,
        r#"{"command":"get_layers","id":1}"#,
        r#"{"command":"eval_ruby_file","parameters":{"file_path":"/etc/hostname"},"id":1}"#,
    ] {
        assert_eq!(other.request(line)["id"], 1);
    }
    assert!(server.console_log().matches("EVAL_RUBY START").count() == 1, "the second evaluation waits");
    create_file(&server, "go");
    assert_eq!(outcome(&busy.reply()), Ok("1".to_owned()));
    assert_eq!(outcome(&waiting.reply()), Ok("2".to_owned()));
}

#[test]
fn a_client_that_does_not_read_does_not_delay_others() {
    let server = Server::start();
    let mut slow = server.client_after_hello(1);
    for id in 0..8 {
        slow.send_line(&eval(id, "'x' * 4_000_000"));
    }
    let mut other = server.client_after_hello(2);
    for id in 0..20 {
        assert_eq!(other.request(r#"{"method":"ping","id":1}"#)["result"]["status"], "ok");
        assert_eq!(other.eval(id, "1"), Ok("1".to_owned()));
    }
    for _ in 0..8 {
        assert_eq!(outcome(&slow.reply()).unwrap().len(), 4_000_000);
    }
}
