//! The two Supex doors.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use serde_json::{Value, json};

use crate::server::{Place, Server};
use crate::users::{OWNER, ROOT, STRANGER, as_user};

/// The line that introduces a client.
fn hello(token: Option<&str>) -> Value {
    let mut params = json!({"name": "n", "version": "1", "agent": "a", "pid": 1});
    if let Some(token) = token {
        params["token"] = token.into();
    }
    json!({"jsonrpc": "2.0", "id": 1, "method": "hello", "params": params})
}

/// The line that evaluates `code`, by the method of the bridge or of the REPL.
fn evaluate(method: &str, code: &str) -> Value {
    let params = match method {
        "eval" => json!({"code": code}),
        _ => json!({"name": "eval_ruby", "arguments": {"code": code}}),
    };
    json!({"jsonrpc": "2.0", "id": 2, "method": method, "params": params})
}

fn leave(marker: &Path) -> String {
    format!("File.write({:?}, 'was here'); 6 * 7", marker.to_str().unwrap())
}

/// Both lines together, as a client sends them that does not wait for answers.
pub(crate) fn evaluate_at_once(method: &str, marker: &Path) -> Vec<u8> {
    format!("{}\n{}\n", hello(None), evaluate(method, &leave(marker))).into_bytes()
}

/// Evaluates something that leaves `marker` behind. What a door answers, line by line, until it closes or both lines are answered.
pub(crate) fn talk(to: SocketAddr, method: &str, token: Option<&str>, marker: &Path) -> Vec<Value> {
    let mut stream = TcpStream::connect(to).unwrap();
    let lines = format!("{}\n{}\n", hello(token), evaluate(method, &leave(marker)));
    stream.write_all(lines.as_bytes()).unwrap();
    // The door may close before it has read all, which is an end as well.
    let answers = BufReader::new(stream).lines().take(2).map_while(Result::ok);
    answers.map(|line| serde_json::from_str(&line).unwrap()).collect()
}

/// Both doors, each with its method of evaluating.
pub(crate) fn doors(server: &Server) -> [(&'static str, SocketAddr); 2] {
    [("tools/call", server.bridge), ("eval", server.repl)]
}

#[test]
fn another_user_cannot_evaluate_anything() {
    for ip in [std::net::Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
        let Some(server) = Server::listening(ip, "") else { return };
        for (method, door) in doors(&server) {
            let mut ways = vec![door];
            if let std::net::IpAddr::V4(v4) = ip {
                ways.push(SocketAddr::new(v4.to_ipv6_mapped().into(), door.port()));
            }
            for to in ways {
                let marker = server.marker(&format!("other-{}-{method}", to.is_ipv6()).replace('/', "-"));
                let answers = as_user(STRANGER, || talk(to, method, None, &marker));
                assert_eq!(answers.len(), 1, "{to}: {answers:?}");
                assert_eq!(answers[0]["error"]["code"], -32001, "{to}: {answers:?}");
                let said = answers[0].to_string();
                assert!(said.contains("Authentication failed: invalid or missing token"), "{said}");
                assert!(said.contains("parlor token"), "{said}");
                assert!(!marker.exists(), "{to}");
            }
        }
    }
}

#[test]
fn another_user_with_the_token_evaluates_and_with_an_old_one_does_not() {
    let Some(server) = Server::start("") else { return };
    let old = server.token();
    for (method, door) in doors(&server) {
        let marker = server.marker(&method.replace('/', "-"));
        let answers = as_user(STRANGER, || talk(door, method, Some(&old), &marker));
        assert!(answers.len() == 2 && answers[1].to_string().contains("42"), "{answers:?}");
        std::fs::remove_file(&marker).unwrap();
    }
    assert!(server.parlor(OWNER, &["token", "--rotate"]).status.success());
    for (method, door) in doors(&server) {
        let marker = server.marker(&method.replace('/', "-"));
        let answers = as_user(STRANGER, || talk(door, method, Some(&old), &marker));
        assert_eq!(answers[0]["error"]["code"], -32001, "{answers:?}");
        assert!(!marker.exists());
    }
}

#[test]
fn a_console_that_waited_before_its_hello_needs_the_token_that_holds_by_then() {
    let Some(server) = Server::start("") else { return };
    let (old, repl) = (server.token(), server.repl);
    let mut stream = as_user(STRANGER, || TcpStream::connect(repl).unwrap());
    assert!(server.parlor(OWNER, &["token", "--rotate"]).status.success());
    stream.write_all(format!("{}\n", hello(Some(&old))).as_bytes()).unwrap();
    let answer = BufReader::new(stream).lines().next().unwrap().unwrap();
    assert!(answer.contains("-32001"), "{answer}");
}

#[test]
fn the_owner_and_root_evaluate_without_a_token() {
    let Some(server) = Server::start("") else { return };
    for user in [OWNER, ROOT] {
        for (method, door) in doors(&server) {
            let marker = server.marker(&format!("{user}-{method}").replace('/', "-"));
            let answers = as_user(user, || talk(door, method, None, &marker));
            assert!(answers.len() == 2 && answers[1].to_string().contains("42"), "{user}: {answers:?}");
            assert!(marker.exists());
        }
    }
}

#[test]
fn where_supex_has_its_own_token_that_one_counts_for_everybody() {
    let Some(server) = Server::start("[channels.supex]\ntoken = \"its-own-token\"\n") else { return };
    let of_parlor = server.token();
    for user in [OWNER, STRANGER, ROOT] {
        for (method, door) in doors(&server) {
            let marker = server.marker(&format!("own-{user}-{method}").replace('/', "-"));
            for wrong in [None, Some(of_parlor.as_str())] {
                let answers = as_user(user, || talk(door, method, wrong, &marker));
                assert_eq!(answers[0]["error"]["code"], -32001, "{answers:?}");
                // Word for word what clients of this protocol know.
                let text = "Authentication failed: invalid or missing token";
                assert_eq!(answers[0]["error"]["message"], text);
            }
            let answers = as_user(user, || talk(door, method, Some("its-own-token"), &marker));
            assert_eq!(answers.len(), 2, "{answers:?}");
        }
    }
}

/// `parlor supex eval` of the owner, with what the listener of another user has received.
fn evaluate_at_a_stranger(args: &[&str], is_named: bool) -> Option<(std::process::Output, String)> {
    let place = Place::new("")?;
    let listener = as_user(STRANGER, || TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    // What a server leaves behind that was killed.
    let served = place.home.join("serve.json");
    std::fs::write(&served, format!("{{\"pid\":1,\"supex\":\"{address}\"}}\n")).unwrap();
    std::os::unix::fs::chown(&served, Some(OWNER), Some(OWNER)).unwrap();
    let mut command = place.command(OWNER, args);
    command.env("SUPEX_RETRIES", "0");
    if is_named {
        command.args(["--host", "127.0.0.1", "--port", &address.port().to_string()]);
    }
    let hearing = std::thread::spawn(move || {
        let mut heard = String::new();
        let (stream, _) = listener.accept().unwrap();
        let _ = BufReader::new(stream).read_line(&mut heard);
        heard
    });
    let output = command.output().unwrap();
    // One who hears nothing until now is let go by an empty line.
    let _ = TcpStream::connect(address).and_then(|mut stream| stream.write_all(b"\n"));
    Some((output, hearing.join().unwrap()))
}

#[test]
fn code_is_not_sent_to_another_user_who_has_taken_the_port_of_a_server_that_is_gone() {
    let Some((output, heard)) = evaluate_at_a_stranger(&["supex", "eval", "secret"], false) else { return };
    assert_eq!(heard, "\n", "nothing was sent");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("user {STRANGER}")) && said.contains("--host"), "{said}");
}

#[test]
fn who_names_the_bridge_of_another_user_reaches_it() {
    let Some((_, heard)) = evaluate_at_a_stranger(&["supex", "status"], true) else { return };
    assert!(heard.contains("hello"), "{heard}");
}
