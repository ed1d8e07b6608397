//! `parlor serve` with the supex doors: its addresses, `serve.json`, errors at the start, and its end.

use std::net::TcpListener;
use std::process::{Command, Output};

use crate::server::{Client, Server, command, hello};

/// Runs a server that must not start, and returns its stderr.
fn start_error(prepare: impl FnOnce(&mut Command)) -> String {
    let home = tempfile::tempdir().unwrap();
    let mut command = command(home.path());
    prepare(&mut command);
    let Output { status, stderr, .. } = command.output().unwrap();
    assert!(!status.success(), "the server should not start");
    assert!(!home.path().join("serve.json").exists());
    String::from_utf8(stderr).unwrap()
}

#[test]
fn the_server_listens_on_other_addresses_only_if_allowed_and_with_a_token() {
    let any_address = ["--supex", "0.0.0.0:0"];
    let stderr = start_error(|command| {
        command.args(any_address);
    });
    assert!(stderr.contains("SUPEX_ALLOW_REMOTE=1"), "{stderr}");
    let stderr = start_error(|command| {
        command.args(any_address).env("SUPEX_ALLOW_REMOTE", "1");
    });
    assert!(stderr.contains("SUPEX_AUTH_TOKEN"), "{stderr}");
    let stderr = start_error(|command| {
        command.args(["--supex-repl", "0.0.0.0:0"]);
    });
    assert!(stderr.contains("127.0.0.1"), "{stderr}");
    let mut server = Server::with(|command, _| {
        command.args(any_address).env("SUPEX_ALLOW_REMOTE", "1").env("SUPEX_AUTH_TOKEN", "s3cret");
    });
    assert!(server.supex.ip().is_unspecified());
    assert!(server.stop().success());
}

#[test]
fn a_port_in_use_and_a_home_in_use_are_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let stderr = start_error(|command| {
        command.args(["--supex", &address]);
    });
    assert!(stderr.contains(&format!("{address} is in use")) && stderr.contains("--supex ADDR"), "{stderr}");
    let server = Server::start();
    let stderr = start_error(|command| {
        command.env("PARLOR_HOME", &server.home);
    });
    assert!(stderr.contains("another parlor serves") && stderr.contains("PARLOR_HOME"), "{stderr}");
    server.client_after_hello(1);
}

#[test]
fn variables_set_the_addresses_and_flags_override_them() {
    let free_port = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let port = free_port();
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(crate::server::PARLOR);
    command.args(["serve", "--no-http"]).env("PARLOR_HOME", home.path()).env("SUPEX_PORT", port.to_string());
    command
        .env("SUPEX_REPL_DISABLED", "1")
        .env_remove("SUPEX_AUTH_TOKEN")
        .stderr(std::process::Stdio::piped());
    let mut server = Server::spawn(command, home.path()).unwrap();
    assert_eq!(server.supex.port(), port);
    let text = std::fs::read_to_string(home.path().join("serve.json")).unwrap();
    assert!(!text.contains("supex_repl"), "{text}");
    assert!(server.stop().success());
    assert!(!home.path().join("serve.json").exists());
    let stderr = start_error(|command| {
        command.env("SUPEX_NO_AUTOSTART", "1").args(["--no-supex"]);
    });
    assert!(stderr.contains("cannot be used with"), "{stderr}");
}

#[test]
fn a_server_without_doors_does_not_start() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(crate::server::PARLOR);
    let output =
        command.args(["serve", "--no-supex", "--no-http"]).env("PARLOR_HOME", home.path()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && stderr.contains("no door is to be opened"), "{stderr}");
}

#[test]
fn verbose_mode_logs_traffic_without_the_token() {
    let mut server = Server::with(|command, _| {
        command
            .env("SUPEX_VERBOSE", "1")
            .env("SUPEX_AUTH_TOKEN", "s3cret")
            .env("SUPEX_RESPONSE_DELAY", "0.01");
    });
    let mut client = server.client();
    let hello = hello(1).replacen("\"pid\"", "\"token\":\"s3cret\",\"pid\"", 1);
    assert_eq!(client.request(&hello)["result"]["success"], true);
    client.request(r#"{"method":"ping","id":1}"#);
    assert!(server.stop().success());
    let stderr = server.stderr();
    assert!(
        stderr.contains(r#"supex > {"method":"ping","id":1}"#) && stderr.contains("supex < "),
        "{stderr}"
    );
    assert!(!stderr.contains("s3cret"), "{stderr}");
}

#[test]
fn verbose_mode_does_not_block_when_stderr_is_closed() {
    let mut server = Server::with(|command, _| {
        command.env("SUPEX_VERBOSE", "1");
    });
    server.close_stderr();
    let mut client = server.client_after_hello(1);
    assert_eq!(client.request(r#"{"method":"ping","id":1}"#)["result"]["status"], "ok");
    assert!(server.stop().success());
}

#[test]
fn a_call_that_runs_when_the_server_stops_is_answered() {
    let mut server = Server::start();
    let mut client = server.client_after_hello(1);
    let begun = server.home.join("begun");
    let code = format!("File.write('{}', ''); sleep", begun.display());
    client.send_line(&crate::server::eval(1, &code));
    while !begun.exists() {
        std::thread::yield_now();
    }
    let mut waiting = server.client_after_hello(2);
    // The server handles both lines of this write before it sends the first reply.
    let ping = r#"{"method":"ping","id":1}"#;
    waiting.send_line(&format!("{ping}\n{}", crate::server::eval(2, "1")));
    assert_eq!(waiting.reply()["id"], 1);
    assert!(server.stop().success());
    let reply = client.reply();
    assert_eq!(reply["error"]["code"], -32000, "{reply}");
    assert!(reply["error"]["message"].as_str().unwrap().contains("the code had begun"), "{reply}");
    assert_eq!(client.line(), None);
    let reply = waiting.reply();
    assert_eq!(reply["error"]["code"], -32603, "{reply}");
    assert!(reply["error"]["message"].as_str().unwrap().contains("the code has not run"), "{reply}");
    assert!(server.console_log().contains("Session Ended"));
}

#[test]
fn each_start_has_another_instance_id() {
    let instance = || {
        let hello = hello(1).replacen("\"pid\"", "\"features\":[\"attach\"],\"pid\"", 1);
        let reply = Server::start().client().request(&hello);
        reply["result"]["server"]["instance"].as_str().expect("an instance").to_owned()
    };
    assert_ne!(instance(), instance());
}

#[test]
fn times_are_in_the_local_time_zone() {
    // UTC+13, which no test machine has by chance.
    let zone = "FAR-13";
    let hour = || {
        let output = Command::new("date").arg("+%y%m%d-%H").env("TZ", zone).output().unwrap();
        format!("s{}", String::from_utf8(output.stdout).unwrap().trim())
    };
    let before = hour();
    let server = Server::with(|command, _| {
        command.env("TZ", zone);
    });
    let reply = Client::connect(server.repl).request(r#"{"method":"hello","id":1}"#);
    let session = reply["result"]["session"].as_str().unwrap();
    assert!(session.starts_with(&before) || session.starts_with(&hour()), "{session} {before}");
    let hour = before.rsplit_once('-').unwrap().1.to_owned();
    let log = server.console_log();
    assert!(log.starts_with(&format!("{hour}:")) || !session.starts_with(&before), "{log}");
}

#[test]
fn an_evaluation_is_stopped_after_eval_timeout() {
    let server = Server::with(|_, home| {
        std::fs::write(home.join("parlor.toml"), "[channels.supex]\neval_timeout = 1\n").unwrap();
    });
    let mut client = server.client_after_hello(1);
    let reply = client.request(&crate::server::eval(1, "loop {}"));
    assert_eq!(reply["error"]["code"], -32000);
    let (message, hint) = (reply["error"]["message"].as_str(), reply["error"]["data"]["hint"].as_str());
    assert!(message.unwrap().contains("execution expired") && hint.unwrap().contains("lost"), "{reply}");
    assert_eq!(client.eval(2, "1"), Ok("1".to_owned()));
}
