//! The bridge and the REPL of the supex doors, and `parlor supex`.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use serde_json::{Value, json};

use crate::server::{Installation, Server};
use crate::users::{OTHER_USER, OWNER, ROOT, as_user};

/// The hello line of a client.
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

/// Ruby code that creates the file `marker` and returns 42.
fn marker_code(marker: &Path) -> String {
    format!("File.write({:?}, 'was here'); 6 * 7", marker.to_str().unwrap())
}

/// The hello line and an evaluation that creates `marker`, as a client sends them that does not wait for replies.
pub(crate) fn evaluate_at_once(method: &str, marker: &Path) -> Vec<u8> {
    format!("{}\n{}\n", hello(None), evaluate(method, &marker_code(marker))).into_bytes()
}

/// Sends hello and an evaluation that creates `marker`. Returns the replies: two, or fewer if the door closes the connection.
pub(crate) fn try_evaluate(to: SocketAddr, method: &str, token: Option<&str>, marker: &Path) -> Vec<Value> {
    let mut stream = TcpStream::connect(to).unwrap();
    let lines = format!("{}\n{}\n", hello(token), evaluate(method, &marker_code(marker)));
    stream.write_all(lines.as_bytes()).unwrap();
    // If the door closes before it has read all, reading ends with an error.
    let replies = BufReader::new(stream).lines().take(2).map_while(Result::ok);
    replies.map(|line| serde_json::from_str(&line).unwrap()).collect()
}

/// Both doors, each with its method for evaluations.
pub(crate) fn doors(server: &Server) -> [(&'static str, SocketAddr); 2] {
    [("tools/call", server.bridge), ("eval", server.repl)]
}

#[test]
fn another_user_without_the_token_cannot_evaluate() {
    for ip in [std::net::Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
        let Some(server) = Server::listening(ip, "") else { return };
        for (method, door) in doors(&server) {
            let mut addresses = vec![door];
            if let std::net::IpAddr::V4(v4) = ip {
                addresses.push(SocketAddr::new(v4.to_ipv6_mapped().into(), door.port()));
            }
            for to in addresses {
                let marker = server.marker(&format!("other-{}-{method}", to.is_ipv6()).replace('/', "-"));
                let replies = as_user(OTHER_USER, || try_evaluate(to, method, None, &marker));
                assert_eq!(replies.len(), 1, "{to}: {replies:?}");
                assert_eq!(replies[0]["error"]["code"], -32001, "{to}: {replies:?}");
                let reply = replies[0].to_string();
                assert!(reply.contains("Authentication failed: invalid or missing token"), "{reply}");
                assert!(reply.contains("parlor token"), "{reply}");
                assert!(!marker.exists(), "{to}");
            }
        }
    }
}

#[test]
fn another_user_can_evaluate_with_the_current_token_but_not_with_an_old_one() {
    let Some(server) = Server::start("") else { return };
    let old = server.token();
    for (method, door) in doors(&server) {
        let marker = server.marker(&method.replace('/', "-"));
        let replies = as_user(OTHER_USER, || try_evaluate(door, method, Some(&old), &marker));
        assert!(replies.len() == 2 && replies[1].to_string().contains("42"), "{replies:?}");
        std::fs::remove_file(&marker).unwrap();
    }
    assert!(server.parlor(OWNER, &["token", "--rotate"]).status.success());
    for (method, door) in doors(&server) {
        let marker = server.marker(&method.replace('/', "-"));
        let replies = as_user(OTHER_USER, || try_evaluate(door, method, Some(&old), &marker));
        assert_eq!(replies[0]["error"]["code"], -32001, "{replies:?}");
        assert!(!marker.exists());
    }
}

#[test]
fn a_repl_connection_needs_the_token_that_is_current_at_its_hello() {
    let Some(server) = Server::start("") else { return };
    let (old, repl) = (server.token(), server.repl);
    let mut stream = as_user(OTHER_USER, || TcpStream::connect(repl).unwrap());
    assert!(server.parlor(OWNER, &["token", "--rotate"]).status.success());
    stream.write_all(format!("{}\n", hello(Some(&old))).as_bytes()).unwrap();
    let response = BufReader::new(stream).lines().next().unwrap().unwrap();
    assert!(response.contains("-32001"), "{response}");
}

#[test]
fn the_owner_and_root_evaluate_without_a_token() {
    let Some(server) = Server::start("") else { return };
    for user in [OWNER, ROOT] {
        for (method, door) in doors(&server) {
            let marker = server.marker(&format!("{user}-{method}").replace('/', "-"));
            let replies = as_user(user, || try_evaluate(door, method, None, &marker));
            assert!(replies.len() == 2 && replies[1].to_string().contains("42"), "{user}: {replies:?}");
            assert!(marker.exists());
        }
    }
}

#[test]
fn every_user_needs_the_supex_token_if_one_is_configured() {
    let Some(server) = Server::start("[channels.supex]\ntoken = \"its-own-token\"\n") else { return };
    let of_parlor = server.token();
    for user in [OWNER, OTHER_USER, ROOT] {
        for (method, door) in doors(&server) {
            let marker = server.marker(&format!("own-{user}-{method}").replace('/', "-"));
            for wrong in [None, Some(of_parlor.as_str())] {
                let replies = as_user(user, || try_evaluate(door, method, wrong, &marker));
                assert_eq!(replies[0]["error"]["code"], -32001, "{replies:?}");
                // Clients of this protocol compare this text.
                let text = "Authentication failed: invalid or missing token";
                assert_eq!(replies[0]["error"]["message"], text);
            }
            let replies = as_user(user, || try_evaluate(door, method, Some("its-own-token"), &marker));
            assert_eq!(replies.len(), 2, "{replies:?}");
        }
    }
}

/// Runs `parlor supex` as the owner while another user listens on the port of `serve.json`. Returns the output and the
/// first line that the other user received.
fn run_with_foreign_listener(args: &[&str], is_named: bool) -> Option<(std::process::Output, String)> {
    let installation = Installation::new("")?;
    let listener = as_user(OTHER_USER, || TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    // The file of a server that was killed.
    let served = installation.home.join("serve.json");
    std::fs::write(&served, format!("{{\"pid\":1,\"supex\":\"{address}\"}}\n")).unwrap();
    std::os::unix::fs::chown(&served, Some(OWNER), Some(OWNER)).unwrap();
    let mut command = installation.command(OWNER, args);
    command.env("SUPEX_RETRIES", "0");
    if is_named {
        command.args(["--host", "127.0.0.1", "--port", &address.port().to_string()]);
    }
    let reader = std::thread::spawn(move || {
        let mut received = String::new();
        let (stream, _) = as_user(OTHER_USER, || listener.accept().unwrap());
        let _ = BufReader::new(stream).read_line(&mut received);
        received
    });
    let output = command.output().unwrap();
    // If parlor has not connected, this ends the reader.
    let _ = TcpStream::connect(address).and_then(|mut stream| stream.write_all(b"no connection\n"));
    Some((output, reader.join().unwrap()))
}

#[test]
fn code_is_not_sent_to_another_user_who_listens_on_the_port_of_a_dead_server() {
    let Some((output, received)) = run_with_foreign_listener(&["supex", "eval", "secret"], false) else {
        return;
    };
    assert_eq!(received, "", "nothing was sent");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(&format!("user {OTHER_USER}")) && stderr.contains("--host"), "{stderr}");
}

#[test]
fn an_explicit_host_and_port_may_be_those_of_another_user() {
    let Some((_, received)) = run_with_foreign_listener(&["supex", "status"], true) else { return };
    assert!(received.contains("hello"), "{received}");
}
