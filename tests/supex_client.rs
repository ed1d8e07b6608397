//! `parlor supex` and the Rust driver, against `parlor serve` and against small mock servers.
#![expect(clippy::disallowed_methods, reason = "these tests start the program as a shell would")]
#![allow(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

#[allow(dead_code, reason = "these tests use the driver instead of plain connections")]
#[path = "supex/server.rs"]
mod server;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parlor_client::supex::{CallFate, Driver, DriverError, ReplClient, SupexSettings, SupexToken};
use serde_json::{Value, json};
use server::{PARLOR, Server};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

/// `parlor supex` on a state folder, without the `SUPEX_` variables of this process.
fn supex(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(PARLOR);
    command.arg("supex").args(args).env("PARLOR_HOME", home).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SUPEX_") {
            command.env_remove(name);
        }
    }
    command
}

/// The exit code, stdout and stderr.
fn parts(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn run(home: &Path, args: &[&str]) -> (i32, String, String) {
    parts(&supex(home, args).output().unwrap())
}

/// The stdout of a command that must succeed and print nothing to stderr.
fn prints(home: &Path, args: &[&str]) -> String {
    let (code, out, err) = run(home, args);
    assert_eq!((code, err.as_str()), (0, ""), "{args:?}: {out}");
    out
}

fn run_with_input(home: &Path, args: &[&str], input: &[u8]) -> (i32, String, String) {
    let mut child = supex(home, args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The command may fail before it has read all.
    let _ = child.stdin.take().unwrap().write_all(input);
    parts(&child.wait_with_output().unwrap())
}

#[test]
fn the_command_finds_the_server_of_its_home() {
    let server = Server::start();
    let home = server.home.as_path();
    let status = prints(home, &["status"]);
    for line in [&format!("address   {}", server.supex), "server    supex-runtime", "version   0.2.0"] {
        assert!(status.contains(line), "{status}");
    }
    let status: Value = serde_json::from_str(&prints(home, &["status", "--json"])).unwrap();
    assert_eq!((&status["version"], &status["attach"]), (&json!("0.2.0"), &json!(true)));
    assert!(status["latency_ms"].as_f64().unwrap() > 0.0, "{status}");

    assert_eq!(prints(home, &["eval", "1 + 1"]), "2\n");
    assert_eq!(prints(home, &["eval", "nil"]), "\n");
    assert_eq!(prints(home, &["eval", "-1"]), "-1\n");
    assert_eq!(
        prints(home, &["eval", "--json", "\"P\u{159}íliš\""]),
        "{\"success\":true,\"result\":\"Příliš\"}\n"
    );
    for args in [&["eval"][..], &["eval", "-"]] {
        let piped = run_with_input(home, args, b"x = 20\nx * 2 + 2\n");
        assert_eq!(piped, (0, "42\n".to_owned(), String::new()));
    }
    let capture = prints(home, &["call", "console_capture_status"]);
    assert!(capture.contains("\"capturing\":true"), "{capture}");
    let piped = run_with_input(home, &["call", "eval_ruby", "-"], b"{\"code\":\"3\"}");
    assert_eq!(piped.1, "{\"success\":true,\"result\":\"3\"}\n");
}

#[test]
fn errors_name_the_file_the_line_and_a_hint() {
    let server = Server::with(|command, home| {
        command.env("SUPEX_ALLOWED_ROOTS", home.join("scripts"));
    });
    let home = server.home.as_path();
    let (code, out, err) = run(home, &["eval", "raise ArgumentError, \"no\\nway\""]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.starts_with("Error: Ruby evaluation error: no\nway\nFile: (eval"), "{err}");
    assert!(err.contains("\nLine: 1\n"), "{err}");

    std::fs::create_dir(home.join("scripts")).unwrap();
    let script = home.join("scripts/t.rb");
    std::fs::write(&script, "a = 1\nb = 2\nraise 'bad'\n").unwrap();
    let arguments = json!({"file_path": script}).to_string();
    let (code, _, err) = run(home, &["call", "eval_ruby_file", &arguments]);
    assert_eq!(code, 1);
    assert!(err.starts_with("Error: Error in t.rb: bad\nFile: "), "{err}");
    assert_eq!(err.matches("File: ").count(), 1, "{err}");
    assert_eq!(err.matches("Line: 3").count(), 1, "{err}");

    let (code, _, err) = run(home, &["call", "get_layers"]);
    assert_eq!(code, 1);
    assert!(err.contains("SketchUp is not available\nHint: "), "{err}");
    for (args, hint) in [
        (&["call", "ping", "[]"][..], "are a JSON object, such as"),
        (&["call", "ping", "{"], "are a JSON object, such as"),
        (&["eval", "--timeout", "0", "1"], "--timeout is \"0\"; it takes a number of seconds"),
    ] {
        let (code, _, err) = run(home, args);
        assert!(code == 1 && err.contains(hint), "{args:?}: {err}");
    }
    let (code, _, err) = run_with_input(home, &["eval"], &vec![b' '; (1 << 20) + 1]);
    assert!(code == 1 && err.contains("longer than 1048576 bytes"), "{err}");
    let (code, _, err) = run_with_input(home, &["eval"], b"\xff");
    assert!(code == 1 && err.contains("not valid UTF-8"), "{err}");
}

#[test]
fn the_token_is_read_from_the_environment_and_never_printed() {
    let server = Server::with(|command, _| {
        command.env("SUPEX_AUTH_TOKEN", "s3cret");
    });
    let home = server.home.as_path();
    let (code, out, err) = run(home, &["status"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("Hint: set SUPEX_AUTH_TOKEN to the token"), "{err}");
    let with = |token: &str, args: &[&str]| {
        parts(&supex(home, args).env("SUPEX_AUTH_TOKEN", token).output().unwrap())
    };
    assert_eq!(with("s3cret", &["eval", "1"]), (0, "1\n".to_owned(), String::new()));
    let (code, _, err) = with("wr0ng", &["eval", "1"]);
    assert_eq!(code, 1);
    assert!(!err.contains("wr0ng") && !err.contains("s3cret"), "{err}");
}

/// A loopback port on which nothing listens.
fn unused_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

#[test]
fn a_failed_connection_gets_a_hint() {
    let home = tempfile::tempdir().unwrap();
    let port = unused_port();
    let (code, out, err) = run(home.path(), &["status", "--port", &port]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.starts_with(&format!("Error: cannot connect to localhost:{port}: ")), "{err}");
    assert!(err.contains("\nHint: start a bridge with `parlor serve`"), "{err}");
    let output =
        supex(home.path(), &["eval", "1"]).env("SUPEX_PORT", &port).env("SUPEX_RETRIES", "0").output();
    assert!(parts(&output.unwrap()).2.contains(&format!("localhost:{port}")));
    for (name, value) in [("SUPEX_PORT", "x"), ("SUPEX_TIMEOUT", "soon"), ("SUPEX_MAX_RESPONSE", "0")] {
        let (code, _, err) = parts(&supex(home.path(), &["status"]).env(name, value).output().unwrap());
        assert!(code == 1 && err.contains(&format!("{name} is {value:?}")), "{err}");
    }
    assert!(!home.path().join("parlor.db").exists(), "`parlor supex` creates no database");
}

/// A mock server for one connection: answers hello, and one call with `result`. Returns both requests.
fn answer_once(listener: &TcpListener, result: &str) -> (Value, Value) {
    let stream = listener.accept().unwrap().0;
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut answer = |result: &str, mut stream: &TcpStream| -> Value {
        let request: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        writeln!(stream, "{{\"jsonrpc\":\"2.0\",\"result\":{result},\"id\":{}}}", request["id"]).unwrap();
        request
    };
    (answer("{}", &stream), answer(result, &stream))
}

#[test]
fn the_variables_choose_server_agent_and_limits() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let home = tempfile::tempdir().unwrap();
    // The file names another server, which SUPEX_PORT overrides.
    std::fs::write(home.path().join("serve.json"), "{\"pid\":1,\"supex\":\"127.0.0.1:1\"}").unwrap();
    let mut command = supex(home.path(), &["call", "save_model", "{\"path\":\"/x\"}"]);
    command.env("SUPEX_HOST", "localhost").env("SUPEX_PORT", &port).env("SUPEX_AGENT", "robot");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let result = "{ \"success\": false, \"error\": \"No active\\u001b[2J model\", \"n\": 1.0 }";
    let (hello, call) = answer_once(&listener, result);
    assert_eq!((&hello["params"]["agent"], &hello["params"]["name"]), (&json!("robot"), &json!("parlor")));
    assert_eq!((&hello["id"], hello["params"]["token"].is_null()), (&json!("hello"), true));
    assert_eq!(call["params"], json!({"name": "save_model", "arguments": {"path": "/x"}}));
    let (code, out, err) = parts(&child.wait_with_output().unwrap());
    // stdout has the bytes of the server for programs; stderr has no control characters, since it is for people.
    assert_eq!((code, out), (1, format!("{result}\n")));
    assert_eq!(err, "Error: save_model failed: No active model\n");

    let mut command = supex(home.path(), &["eval", "1", "--host", "127.0.0.1", "--port", &port]);
    let child = command.env("SUPEX_MAX_RESPONSE", "100").stderr(Stdio::piped()).spawn().unwrap();
    answer_once(&listener, &format!("{{\"result\":\"{}\"}}", "x".repeat(100)));
    let (code, _, err) = parts(&child.wait_with_output().unwrap());
    assert!(code == 1 && err.contains("longer than 100 bytes"), "{err}");
    assert!(err.contains("Hint: set SUPEX_MAX_RESPONSE"), "{err}");
}

fn driver(server: &Server) -> Driver {
    Driver::new(SupexSettings {
        port: server.supex.port(),
        timeout: Duration::from_secs(60),
        ..SupexSettings::bridge()
    })
}

#[tokio::test]
async fn the_driver_keeps_one_connection_through_errors() {
    let server = Server::start();
    let driver = driver(&server);
    let info = driver.server().await.unwrap();
    assert!(info.name == "supex-runtime" && info.attach, "{info:?}");
    for number in 0..20 {
        assert_eq!(driver.eval(&format!("{number} + 1")).await.unwrap(), (number + 1).to_string());
        let error = driver.eval("raise 'no'").await.unwrap_err();
        assert!(matches!(error, DriverError::Remote { code: -32000, .. }), "{error:?}");
    }
    assert_eq!(driver.ping().await.unwrap().version.as_deref(), Some("0.2.0"));
    let file = server.home.join("f.rb");
    std::fs::write(&file, "6 * 7").unwrap();
    let error = driver.eval_file(file.to_str().unwrap()).await.unwrap_err();
    assert!(matches!(error, DriverError::Remote { code: -32002, .. }), "{error:?}");
}

#[tokio::test]
async fn many_tasks_can_share_a_driver() {
    let server = Server::start();
    let driver = Arc::new(driver(&server));
    let callers: Vec<_> = (0..50)
        .map(|number| {
            let driver = Arc::clone(&driver);
            tokio::spawn(async move { (number, driver.eval(&format!("{number} * 2")).await) })
        })
        .collect();
    for caller in callers {
        let (number, result) = caller.await.unwrap();
        assert_eq!(result.unwrap(), (number * 2).to_string());
    }
}

#[tokio::test]
async fn an_evaluation_longer_than_the_timeout_runs_once() {
    let server = Server::start();
    // Start the worker first, so that its start does not count in the timeout.
    driver(&server).eval("$n = 0").await.unwrap();
    let short = SupexSettings {
        port: server.supex.port(),
        timeout: Duration::from_secs(1),
        ..SupexSettings::bridge()
    };
    let short = Driver::new(SupexSettings { retries: 20, ..short });
    assert_eq!(short.eval("$n += 1; sleep 2.5; $n").await.unwrap(), "1");
    assert_eq!(driver(&server).eval("$n").await.unwrap(), "1");
}

#[tokio::test]
async fn a_call_whose_connection_is_lost_is_not_run_twice() {
    let server = Server::start();
    let relay = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = relay.local_addr().unwrap().port();
    let target = server.supex;
    let relay_task = tokio::spawn(async move {
        for round in 0.. {
            let (client, _) = relay.accept().await.unwrap();
            let (from, mut to) = client.into_split();
            let (mut back, mut forth) = tokio::net::TcpStream::connect(target).await.unwrap().into_split();
            let mut from = tokio::io::BufReader::new(from);
            let mut line = Vec::new();
            from.read_until(b'\n', &mut line).await.unwrap();
            forth.write_all(&line).await.unwrap();
            let mut welcome = vec![0; 1024];
            let count = back.read(&mut welcome).await.unwrap();
            to.write_all(&welcome[..count]).await.unwrap();
            line.clear();
            from.read_until(b'\n', &mut line).await.unwrap();
            forth.write_all(&line).await.unwrap();
            // The first two times the call reaches the server, but its reply does not reach the client.
            if round >= 2 {
                tokio::io::copy(&mut back, &mut to).await.unwrap();
            }
        }
    });
    let cut =
        Driver::new(SupexSettings { port, timeout: Duration::from_secs(60), ..SupexSettings::bridge() });
    assert_eq!(cut.eval("$n = ($n || 0) + 1; sleep 0.2; $n").await.unwrap(), "1");
    relay_task.abort();
    assert_eq!(driver(&server).eval("$n").await.unwrap(), "1");
}

#[tokio::test]
async fn the_error_says_whether_a_call_may_have_run() {
    let mut server = Server::start();
    let driver = Driver::new(SupexSettings {
        port: server.supex.port(),
        timeout: Duration::from_secs(60),
        retries: 1,
        ..SupexSettings::bridge()
    });
    driver.eval("1").await.unwrap();
    let flag = server.home.join("started");
    let code = format!("File.write({:?}, ''); sleep 60", flag.to_str().unwrap());
    let killer = tokio::task::spawn_blocking(move || {
        while !flag.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        server.stop();
    });
    let error = driver.eval(&code).await.unwrap_err();
    killer.await.unwrap();
    // A server that stops normally may still answer the call with an error.
    assert_eq!(error.fate(), CallFate::Unknown, "{error:?}");
    let error = driver.eval("2").await.unwrap_err();
    assert!(matches!(error, DriverError::Connect { .. }), "{error:?}");
    assert_eq!(error.fate(), CallFate::NotRun);
}

#[tokio::test]
async fn repl_clients_share_variables_and_see_exceptions() {
    let server = Server::with(|command, _| {
        command.env("SUPEX_AUTH_TOKEN", "s3cret");
    });
    let settings = SupexSettings {
        port: server.repl.port(),
        token: Some(SupexToken::new("s3cret")),
        ..SupexSettings::repl()
    };
    let (one, other) = (ReplClient::new(settings.clone()), ReplClient::new(settings));
    let session = one.session().await.unwrap();
    assert!(session.ends_with(&format!("-{}", std::process::id())), "{session}");
    assert_eq!(one.eval("puts 'hi'; x = 5").await.unwrap().output, "hi\n=> 5\n");
    assert_eq!(other.eval("x").await.unwrap().output, "=> 5\n");
    assert!(one.eval("raise 'e'").await.unwrap().output.starts_with("#<RuntimeError: e>\n"));
    other.ping().await.unwrap();
    let without_token = ReplClient::new(SupexSettings { port: server.repl.port(), ..SupexSettings::repl() });
    let refused = without_token.eval("1").await.unwrap_err();
    assert!(matches!(refused, DriverError::Unauthorized { .. }), "{refused:?}");
}
