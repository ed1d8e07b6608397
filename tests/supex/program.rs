//! `parlor serve` as a program: its addresses, its file, its refusals, its end.

use std::net::TcpListener;
use std::process::{Command, Output};

use crate::server::{Client, Server, command, hello};

/// Runs a server that is to refuse, and gives back what it said.
fn refused(prepare: impl FnOnce(&mut Command)) -> String {
    let home = tempfile::tempdir().unwrap();
    let mut command = command(home.path());
    prepare(&mut command);
    let Output { status, stderr, .. } = command.output().unwrap();
    assert!(!status.success(), "it should refuse");
    assert!(!home.path().join("serve.json").exists());
    String::from_utf8(stderr).unwrap()
}

#[test]
fn nothing_listens_for_other_machines_unless_that_is_wanted_and_safe() {
    let anywhere = ["--supex", "0.0.0.0:0"];
    let said = refused(|command| {
        command.args(anywhere);
    });
    assert!(said.contains("SUPEX_ALLOW_REMOTE=1"), "{said}");
    let said = refused(|command| {
        command.args(anywhere).env("SUPEX_ALLOW_REMOTE", "1");
    });
    assert!(said.contains("SUPEX_AUTH_TOKEN"), "{said}");
    let said = refused(|command| {
        command.args(["--supex-repl", "0.0.0.0:0"]);
    });
    assert!(said.contains("127.0.0.1"), "{said}");
    let mut server = Server::with(|command, _| {
        command.args(anywhere).env("SUPEX_ALLOW_REMOTE", "1").env("SUPEX_AUTH_TOKEN", "s3cret");
    });
    assert!(server.supex.ip().is_unspecified());
    assert!(server.end().success());
}

#[test]
fn a_port_in_use_and_a_home_in_use_are_told() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = refused(|command| {
        command.args(["--supex", &address]);
    });
    assert!(said.contains(&format!("{address} is in use")) && said.contains("--supex ADDR"), "{said}");
    let server = Server::start();
    let said = refused(|command| {
        command.env("PARLOR_HOME", &server.home);
    });
    assert!(said.contains("another parlor serves") && said.contains("PARLOR_HOME"), "{said}");
    server.greeted(1);
}

#[test]
fn variables_say_where_to_listen_and_flags_go_before() {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let port = free();
    let home = tempfile::tempdir().unwrap();
    let mut plain = Command::new(crate::server::PARLOR);
    plain.args(["serve", "--no-http"]).env("PARLOR_HOME", home.path()).env("SUPEX_PORT", port.to_string());
    plain.env("SUPEX_REPL_DISABLED", "1").env_remove("SUPEX_AUTH_TOKEN").stderr(std::process::Stdio::piped());
    let mut server = Server::spawn(plain, home.path()).unwrap();
    assert_eq!(server.supex.port(), port);
    let text = std::fs::read_to_string(home.path().join("serve.json")).unwrap();
    assert!(!text.contains("supex_repl"), "{text}");
    assert!(server.end().success());
    assert!(!home.path().join("serve.json").exists());
    let said = refused(|command| {
        command.env("SUPEX_NO_AUTOSTART", "1").args(["--no-supex"]);
    });
    assert!(said.contains("cannot be used with"), "{said}");
}

#[test]
fn without_doors_there_is_nothing_to_serve() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(crate::server::PARLOR);
    let output =
        command.args(["serve", "--no-supex", "--no-http"]).env("PARLOR_HOME", home.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("no door is to be opened"), "{said}");
}

#[test]
fn traffic_is_shown_on_request_without_the_token() {
    let mut server = Server::with(|command, _| {
        command
            .env("SUPEX_VERBOSE", "1")
            .env("SUPEX_AUTH_TOKEN", "s3cret")
            .env("SUPEX_RESPONSE_DELAY", "0.01");
    });
    let mut client = server.client();
    let hello = hello(1).replacen("\"pid\"", "\"token\":\"s3cret\",\"pid\"", 1);
    assert_eq!(client.ask(&hello)["result"]["success"], true);
    client.ask(r#"{"method":"ping","id":1}"#);
    assert!(server.end().success());
    let said = server.stderr();
    assert!(said.contains(r#"supex > {"method":"ping","id":1}"#) && said.contains("supex < "), "{said}");
    assert!(!said.contains("s3cret"), "{said}");
}

#[test]
fn traffic_that_nobody_looks_at_costs_nothing() {
    let mut server = Server::with(|command, _| {
        command.env("SUPEX_VERBOSE", "1");
    });
    server.close_stderr();
    let mut client = server.greeted(1);
    assert_eq!(client.ask(r#"{"method":"ping","id":1}"#)["result"]["status"], "ok");
    assert!(server.end().success());
}

#[test]
fn a_call_that_runs_at_the_end_is_answered() {
    let mut server = Server::start();
    let mut client = server.greeted(1);
    client.send_line(&crate::server::eval(1, "sleep"));
    while !server.console_log().contains("EVAL_RUBY START") {
        std::thread::yield_now();
    }
    assert!(server.end().success());
    let reply = client.reply();
    assert_eq!(reply["error"]["code"], -32603, "{reply}");
    assert_eq!(client.line(), None);
    assert!(server.console_log().contains("Session Ended"));
}

#[test]
fn each_start_is_another_instance() {
    let instance = || {
        let hello = hello(1).replacen("\"pid\"", "\"features\":[\"attach\"],\"pid\"", 1);
        let reply = Server::start().client().ask(&hello);
        reply["result"]["server"]["instance"].as_str().expect("an instance").to_owned()
    };
    assert_ne!(instance(), instance());
}

#[test]
fn times_are_those_of_the_place() {
    // Thirteen hours before UTC has it, which no machine has by chance.
    let zone = "FAR-13";
    let hour = || {
        let output = Command::new("date").arg("+%y%m%d-%H").env("TZ", zone).output().unwrap();
        format!("s{}", String::from_utf8(output.stdout).unwrap().trim())
    };
    let before = hour();
    let server = Server::with(|command, _| {
        command.env("TZ", zone);
    });
    let reply = Client::connect(server.repl).ask(r#"{"method":"hello","id":1}"#);
    let session = reply["result"]["session"].as_str().unwrap();
    assert!(session.starts_with(&before) || session.starts_with(&hour()), "{session} {before}");
    let hour = before.rsplit_once('-').unwrap().1.to_owned();
    let log = server.console_log();
    assert!(log.starts_with(&format!("{hour}:")) || !session.starts_with(&before), "{log}");
}

#[test]
fn an_evaluation_has_its_time() {
    let server = Server::with(|_, home| {
        std::fs::write(home.join("parlor.toml"), "[channels.supex]\neval_timeout = 1\n").unwrap();
    });
    let mut client = server.greeted(1);
    let reply = client.ask(&crate::server::eval(1, "loop {}"));
    assert_eq!(reply["error"]["code"], -32000);
    let (message, hint) = (reply["error"]["message"].as_str(), reply["error"]["data"]["hint"].as_str());
    assert!(message.unwrap().contains("execution expired") && hint.unwrap().contains("lost"), "{reply}");
    assert_eq!(client.eval(2, "1"), Ok("1".to_owned()));
}
