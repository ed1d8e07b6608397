//! A SketchUp runtime behind the bridge. The runtime here is a mock that serves one call per connection, as the real
//! one does.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use serde_json::Value;

use crate::server::{Client, PARLOR, Server, hello};

/// Starts a mock runtime that serves connections one after another with `answer`. Returns its port and the lines that it
/// received.
fn mock_runtime(answer: impl Fn(&Value) -> Option<String> + Send + 'static) -> (u16, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (port, serve_all(listener, answer))
}

fn serve_all(
    listener: TcpListener,
    answer: impl Fn(&Value) -> Option<String> + Send + 'static,
) -> Receiver<Value> {
    let (sender, received) = sync_channel(1000);
    thread::spawn(move || {
        for stream in listener.incoming() {
            serve(stream.unwrap(), &answer, &|line| sender.send(line).unwrap());
        }
    });
    received
}

fn serve(mut stream: TcpStream, answer: &dyn Fn(&Value) -> Option<String>, report: &dyn Fn(Value)) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next()?.ok()?).ok();
    let Some(hello) = next() else { return };
    report(hello);
    stream.write_all(b"{\"jsonrpc\":\"2.0\",\"result\":{\"success\":true},\"id\":\"hello\"}\n").unwrap();
    let Some(call) = next() else { return };
    let reply = answer(&call);
    report(call);
    if let Some(reply) = reply {
        stream.write_all(reply.as_bytes()).unwrap();
        stream.write_all(b"\n").unwrap();
    }
}

fn server_with_upstream(port: u16, settings: &str) -> Server {
    let toml = format!("[channels.supex]\nupstream = \"127.0.0.1:{port}\"\n{settings}\n");
    Server::with(|_, home| std::fs::write(home.join("parlor.toml"), toml).unwrap())
}

fn call(name: &str, arguments: &str) -> String {
    format!(r#"{{"method":"tools/call","params":{{"name":"{name}","arguments":{arguments}}},"id":5}}"#)
}

#[test]
fn results_of_the_runtime_are_forwarded_byte_for_byte_and_calls_are_serialized() {
    let (port, received) = mock_runtime(|call| {
        let name = call["params"]["name"].as_str().unwrap_or_default();
        Some(format!(r#"{{"jsonrpc":"2.0","result":{{"area": 1.50,"name":"{name}","content":[]}},"id":1}}"#))
    });
    let server = server_with_upstream(port, "upstream_token = \"theirs\"");
    let mut client = server.client_after_hello(1);
    client.send_line(&call("get_selection", r#"{"x": 1.0}"#));
    let reply = client.line().unwrap();
    assert_eq!(
        reply,
        r#"{"jsonrpc":"2.0","result":{"area": 1.50,"name":"get_selection","content":[]},"id":5}"#
    );
    let hello = received.recv().unwrap();
    assert_eq!(hello["params"]["token"], "theirs");
    assert_eq!(
        (hello["params"]["agent"].as_str(), hello["params"]["name"].as_str()),
        (Some("user"), Some("parlor"))
    );
    assert_eq!(received.recv().unwrap()["params"]["arguments"]["x"], 1.0);
    assert_eq!(client.request(&call("eval_ruby", r#"{"code":"1"}"#))["result"]["name"], "eval_ruby");
    let mut clients: Vec<_> = (0..20).map(|pid| server.client_after_hello(pid)).collect();
    clients.iter_mut().for_each(|client| client.send_line(&call("get_layers", "{}")));
    assert!(clients.iter_mut().all(|client| client.reply()["result"]["name"] == "get_layers"));
    let denied = client.request(&call("open_model", r#"{"path":"/etc/x.skp"}"#));
    assert_eq!(denied["error"]["code"], -32002, "parlor checks the path first");
}

#[test]
fn errors_of_the_runtime_get_error_codes() {
    let (port, _heard) = mock_runtime(|call| {
        let message = call["params"]["arguments"]["code"].as_str()?;
        if message == "nothing" {
            return None;
        }
        let error =
            serde_json::json!({"code": -32603, "message": message, "data": {"success": false, "x": 1}});
        Some(serde_json::json!({"jsonrpc": "2.0", "error": error, "id": 1}).to_string())
    });
    let server = server_with_upstream(port, "");
    let mut client = server.client_after_hello(1);
    let mut error_of = |code: &str| {
        let reply = client.request(&call("eval_ruby", &serde_json::json!({"code": code}).to_string()));
        (reply["error"]["code"].as_i64().unwrap(), reply["error"]["data"]["x"].as_i64())
    };
    assert_eq!(error_of("Ruby evaluation error: x"), (-32000, Some(1)));
    assert_eq!(error_of("Failed to x: Path access denied for x: /"), (-32002, Some(1)));
    assert_eq!(error_of("something else"), (-32603, Some(1)));
    assert_eq!(error_of("nothing"), (-32000, None), "no answer: parlor does not repeat the call");
}

#[test]
fn a_call_that_the_runtime_could_not_parse_is_repeated_once_and_an_unanswered_one_is_not() {
    let tries = std::sync::atomic::AtomicUsize::new(0);
    let (port, received) = mock_runtime(move |call| {
        if call["params"]["name"] == "get_layers" {
            return None;
        }
        Some(match tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"},"id":null}"#.to_owned(),
            _ => r#"{"jsonrpc":"2.0","result":{"success":true},"id":1}"#.to_owned(),
        })
    });
    let server = server_with_upstream(port, "");
    let mut client = server.client_after_hello(1);
    assert_eq!(client.request(&call("get_selection", "{}"))["result"]["success"], true);
    assert_eq!(received.try_iter().filter(|line| line["method"] == "tools/call").count(), 2);
    let reply = client.request(&call("get_layers", "{}"));
    assert!(reply["error"]["message"].as_str().unwrap().contains("gave no answer"), "{reply}");
    assert_eq!(received.try_iter().filter(|line| line["method"] == "tools/call").count(), 1);
}

/// The REPL of the mock runtime: answers each line with a result, until the code of one is `close`.
fn serve_repl(mut stream: TcpStream) {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    for (number, line) in lines.map_while(Result::ok).enumerate() {
        let line: Value = serde_json::from_str(&line).unwrap();
        let result = match (line["method"].as_str(), line["params"]["code"].as_str()) {
            (Some("hello"), _) => {
                serde_json::json!({"success": true, "session": "s1", "token": line["params"]["token"]})
            }
            (_, Some("close")) => return,
            (_, code) => {
                serde_json::json!({"output": format!("{number} {}", code.unwrap()), "success": true})
            }
        };
        let reply = serde_json::json!({"jsonrpc": "2.0", "id": line["id"], "result": result});
        stream.write_all(format!("{reply}\n").as_bytes()).unwrap();
    }
}

#[test]
fn each_repl_client_has_its_own_connection_to_the_repl_of_the_runtime() {
    // The runtime's REPL has a fixed port, so the mock of each test process uses a loopback address of its own.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 64 | high, middle, low);
    let listener = TcpListener::bind((host, 4433)).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve_repl(stream.unwrap()));
        }
    });
    let toml = |settings: &str| format!("[channels.supex]\nupstream = \"{host}:9876\"\n{settings}\n");
    let server = Server::with(|_, home| std::fs::write(home.join("parlor.toml"), toml("")).unwrap());
    let repl_client = |server: &Server| {
        let mut client = Client::connect(server.repl);
        assert_eq!(client.request(r#"{"method":"hello","id":1}"#)["result"]["server"]["name"], "supex-repl");
        client
    };
    let eval = |client: &mut Client, code: &str| {
        let line = serde_json::json!({"method": "eval", "params": {"code": code}, "id": 2});
        client.request(&line.to_string())
    };
    let (mut one, mut other) = (repl_client(&server), repl_client(&server));
    assert_eq!(eval(&mut one, "a")["result"]["output"], "1 a");
    assert_eq!(eval(&mut one, "b")["result"]["output"], "2 b", "the same connection");
    assert_eq!(eval(&mut other, "c")["result"]["output"], "1 c", "another client has another connection");
    let lost = eval(&mut one, "close");
    assert_eq!(lost["error"]["code"], -32000, "the code may have run: {lost}");
    assert!(lost["error"].get("data").is_none(), "{lost}");
    assert_eq!(eval(&mut one, "d")["result"]["output"], "1 d", "a new connection");
    let here =
        Server::with(|_, home| std::fs::write(home.join("parlor.toml"), toml("eval = \"here\"")).unwrap());
    assert_eq!(eval(&mut repl_client(&here), "1 + 1")["result"]["output"], "=> 2\n");
}

/// Runs `parlor supex status` for the server. Returns whether it succeeded, its text and its JSON.
fn status(server: &Server) -> (bool, String, Value) {
    let run = |json: Option<&str>| {
        let mut command = std::process::Command::new(PARLOR);
        command.args(["supex", "status"]).args(json).env("PARLOR_HOME", &server.home);
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let (is_success, text) = run(None);
    (is_success, text, serde_json::from_str(&run(Some("--json")).1).unwrap())
}

#[test]
fn ping_and_status_tell_the_state_of_the_runtime() {
    // None is configured: the text that clients know, and `status` says who evaluates.
    let alone = Server::start();
    let reply = alone.client_after_hello(1).request(&call("ping", "{}"));
    assert_eq!(reply["result"]["message"], "SketchUp extension is running");
    let (is_success, text, json) = status(&alone);
    assert!(is_success && text.contains("SketchUp  none: parlor evaluates Ruby by itself\n"), "{text}");
    assert_eq!(json["sketchup"], "none");

    // It runs.
    let (entered, has_entered) = sync_channel(1);
    let (release, released) = sync_channel::<()>(1);
    let released = std::sync::Mutex::new(released);
    let (port, _received) = mock_runtime(move |call| {
        if call["params"]["name"] == "get_layers" {
            entered.send(()).unwrap();
            released.lock().unwrap().recv().unwrap();
        }
        let pong = serde_json::json!({"success": true, "version": "0.2.1", "sketchup_version": "26.1.5"});
        Some(serde_json::json!({"jsonrpc": "2.0", "result": pong, "id": 1}).to_string())
    });
    let server = server_with_upstream(port, "");
    let reply = server.client_after_hello(1).request(&call("ping", "{}"));
    let result = &reply["result"];
    assert_eq!((&result["version"], &result["upstream"]), (&"0.2.1".into(), &"running".into()), "{reply}");
    let (is_success, text, json) = status(&server);
    assert!(is_success && text.contains("SketchUp  26.1.5\n"), "{text}");
    assert_eq!(json["sketchup"], "running");

    // It is busy with a call.
    let mut busy = server.client_after_hello(2);
    busy.send_line(&call("get_layers", "{}"));
    has_entered.recv().unwrap();
    let reply = server.client_after_hello(1).request(&call("ping", "{}"));
    assert_eq!(reply["result"]["upstream"], "busy", "{reply}");
    let (is_success, text, json) = status(&server);
    assert!(is_success && text.contains("SketchUp  running, busy with another call\n"), "{text}");
    assert_eq!(json["sketchup"], "busy");
    release.send(()).unwrap();
    assert_eq!(busy.reply()["result"]["success"], true);

    // Nothing listens there.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = server_with_upstream(port, "");
    let reply = server.client_after_hello(1).request(&call("ping", "{}"));
    let message = reply["error"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("SketchUp cannot be reached: 127.0.0.1:"), "{reply}");
    assert_eq!(reply["error"]["data"]["upstream"], "unreachable");
    let (is_success, text, json) = status(&server);
    assert!(!is_success && text.contains("SketchUp  SketchUp cannot be reached"), "{text}");
    assert_eq!(json["sketchup"], "unreachable");
}

#[test]
fn without_the_runtime_tools_fail_and_ruby_can_still_run_here() {
    let port = {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let server = server_with_upstream(port, "eval = \"here\"");
    let mut client = server.client_after_hello(1);
    let reply = client.request(&call("get_layers", "{}"));
    let message = reply["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("Failed to get layers: SketchUp cannot be reached"), "{reply}");
    assert_eq!(client.eval(1, "1 + 1"), Ok("2".to_owned()));
    assert_eq!(client.request(&hello(1))["result"]["success"], true);
}
