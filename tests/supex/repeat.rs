//! Clients that ask again, clients that vanish, and who waits for whom.

use crate::server::{Server, eval, outcome};

/// Counts how often it is run, and takes until somebody makes the file.
fn waiting(server: &Server, file: &str) -> String {
    let path = server.home.join(file);
    format!("$runs = ($runs || 0) + 1; sleep 0.01 until File.exist?('{}'); $runs", path.display())
}

fn release(server: &Server, file: &str) {
    std::fs::write(server.home.join(file), "").unwrap();
}

/// Waits until Ruby has begun with the evaluation that was asked for last. A tool that is answered at once
/// shows that the request was read; the log shows that it was begun.
fn until_begun(server: &Server, count: usize) {
    while server.console_log().matches("EVAL_RUBY START").count() < count {
        std::thread::yield_now();
    }
}

#[test]
fn a_request_that_is_repeated_while_it_runs_is_run_once() {
    let server = Server::start();
    let mut first = server.greeted(1);
    let code = waiting(&server, "go");
    first.send_line(&eval(7, &code));
    until_begun(&server, 1);
    drop(first);
    let mut second = server.greeted(1);
    second.send_line(&eval(7, &code));
    let mut stranger = server.greeted(2);
    stranger.send_line(&eval(7, &code));
    release(&server, "go");
    assert_eq!(outcome(&second.reply()), Ok("1".to_owned()));
    assert_eq!(outcome(&stranger.reply()), Ok("2".to_owned()), "another client's is another call");
    assert_eq!(second.eval(7, &code), Ok("3".to_owned()), "it has arrived, so this is a new one");
}

#[test]
fn both_connections_of_a_client_that_asks_twice_are_answered() {
    let server = Server::start();
    let (mut first, mut second) = (server.greeted(1), server.greeted(1));
    let code = waiting(&server, "go");
    first.send_line(&eval(7, &code));
    until_begun(&server, 1);
    second.send_line(&eval(7, &code));
    // It was read: a connection serves one request after another.
    let mut other = server.greeted(3);
    assert_eq!(other.ask(r#"{"command":"ping","id":1}"#)["result"]["status"], "connected");
    release(&server, "go");
    assert_eq!(outcome(&first.reply()), Ok("1".to_owned()));
    assert!(matches!(outcome(&second.reply()).as_deref(), Ok("1" | "2")));
}

#[test]
fn a_result_that_did_not_arrive_is_kept_for_the_next_try() {
    let server = Server::start();
    let mut first = server.greeted(1);
    let code = waiting(&server, "go");
    first.send_line(&eval(7, &code));
    until_begun(&server, 1);
    drop(first);
    release(&server, "go");
    // Its turn is over before the next one's begins, and there is time to forget it by mistake.
    assert_eq!(server.greeted(2).eval(1, "sleep 0.5; $runs"), Ok("1".to_owned()));
    assert_eq!(server.greeted(1).eval(7, &code), Ok("1".to_owned()));
    assert_eq!(server.greeted(2).eval(2, "$runs"), Ok("1".to_owned()));
}

#[test]
fn a_result_that_was_read_is_not_given_again() {
    let server = Server::start();
    let code = "$n = ($n || 0) + 1";
    for expected in ["1", "2", "3"] {
        let mut client = server.greeted(1);
        client.send_line(&eval(7, code));
        client.half_close();
        assert_eq!(outcome(&client.reply()), Ok(expected.to_owned()));
        assert_eq!(client.line(), None);
    }
}

#[test]
fn what_a_client_that_vanished_has_begun_goes_to_its_end() {
    let server = Server::start();
    let mut first = server.greeted(1);
    first.send_line(&eval(1, &format!("{}; $x = :there", waiting(&server, "go"))));
    until_begun(&server, 1);
    drop(first);
    release(&server, "go");
    assert_eq!(server.greeted(2).eval(1, "$x"), Ok("there".to_owned()));
}

#[test]
fn a_long_evaluation_holds_up_evaluations_and_nothing_else() {
    let server = Server::start();
    let (mut busy, mut waits, mut other) = (server.greeted(1), server.greeted(2), server.greeted(3));
    busy.send_line(&eval(1, &waiting(&server, "go")));
    until_begun(&server, 1);
    waits.send_line(&eval(1, "$after = $runs + 1"));
    for line in [
        r#"{"method":"ping","id":1}"#,
        r#"{"command":"ping","id":1}"#,
        r#"{"command":"console_capture_status","id":1}"#,
        r#"{"command":"get_layers","id":1}"#,
        r#"{"command":"eval_ruby_file","parameters":{"file_path":"/etc/hostname"},"id":1}"#,
    ] {
        assert_eq!(other.ask(line)["id"], 1);
    }
    assert!(server.console_log().matches("EVAL_RUBY START").count() == 1, "the other one waits");
    release(&server, "go");
    assert_eq!(outcome(&busy.reply()), Ok("1".to_owned()));
    assert_eq!(outcome(&waits.reply()), Ok("2".to_owned()));
}

#[test]
fn a_client_that_does_not_read_costs_only_itself() {
    let server = Server::start();
    let mut deaf = server.greeted(1);
    for id in 0..8 {
        deaf.send_line(&eval(id, "'x' * 4_000_000"));
    }
    let mut other = server.greeted(2);
    for id in 0..20 {
        assert_eq!(other.ask(r#"{"method":"ping","id":1}"#)["result"]["status"], "ok");
        assert_eq!(other.eval(id, "1"), Ok("1".to_owned()));
    }
    for _ in 0..8 {
        assert_eq!(outcome(&deaf.reply()).unwrap().len(), 4_000_000);
    }
}
