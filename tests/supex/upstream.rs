//! A SketchUp runtime behind the bridge: a stand-in that serves one call a connection, as the real one.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use serde_json::Value;

use crate::server::{Client, Server, hello};

/// Serves connections one after another with `answer`, and tells of all lines that it got.
fn runtime(answer: impl Fn(&Value) -> Option<String> + Send + 'static) -> (u16, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (port, serve_all(listener, answer))
}

fn serve_all(
    listener: TcpListener,
    answer: impl Fn(&Value) -> Option<String> + Send + 'static,
) -> Receiver<Value> {
    let (told, heard) = sync_channel(1000);
    thread::spawn(move || {
        for stream in listener.incoming() {
            serve(stream.unwrap(), &answer, &|line| told.send(line).unwrap());
        }
    });
    heard
}

fn serve(mut stream: TcpStream, answer: &dyn Fn(&Value) -> Option<String>, tell: &dyn Fn(Value)) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next()?.ok()?).ok();
    let Some(hello) = next() else { return };
    tell(hello);
    stream.write_all(b"{\"jsonrpc\":\"2.0\",\"result\":{\"success\":true},\"id\":\"hello\"}\n").unwrap();
    let Some(call) = next() else { return };
    let reply = answer(&call);
    tell(call);
    if let Some(reply) = reply {
        stream.write_all(reply.as_bytes()).unwrap();
        stream.write_all(b"\n").unwrap();
    }
}

fn server_before(port: u16, more: &str) -> Server {
    let toml = format!("[channels.supex]\nupstream = \"127.0.0.1:{port}\"\n{more}\n");
    Server::with(|_, home| std::fs::write(home.join("parlor.toml"), toml).unwrap())
}

fn call(name: &str, arguments: &str) -> String {
    format!(r#"{{"method":"tools/call","params":{{"name":"{name}","arguments":{arguments}}},"id":5}}"#)
}

#[test]
fn results_pass_untouched_and_calls_one_after_another() {
    let (port, heard) = runtime(|call| {
        let name = call["params"]["name"].as_str().unwrap_or_default();
        Some(format!(r#"{{"jsonrpc":"2.0","result":{{"area": 1.50,"name":"{name}","content":[]}},"id":1}}"#))
    });
    let server = server_before(port, "upstream_token = \"theirs\"");
    let mut client = server.greeted(1);
    client.send_line(&call("get_selection", r#"{"x": 1.0}"#));
    let reply = client.line().unwrap();
    assert_eq!(
        reply,
        r#"{"jsonrpc":"2.0","result":{"area": 1.50,"name":"get_selection","content":[]},"id":5}"#
    );
    let theirs = heard.recv().unwrap();
    assert_eq!(theirs["params"]["token"], "theirs");
    assert_eq!(
        (theirs["params"]["agent"].as_str(), theirs["params"]["name"].as_str()),
        (Some("user"), Some("parlor"))
    );
    assert_eq!(heard.recv().unwrap()["params"]["arguments"]["x"], 1.0);
    assert_eq!(client.ask(&call("eval_ruby", r#"{"code":"1"}"#))["result"]["name"], "eval_ruby");
    let mut clients: Vec<_> = (0..20).map(|pid| server.greeted(pid)).collect();
    clients.iter_mut().for_each(|client| client.send_line(&call("get_layers", "{}")));
    assert!(clients.iter_mut().all(|client| client.reply()["result"]["name"] == "get_layers"));
    let denied = client.ask(&call("open_model", r#"{"path":"/etc/x.skp"}"#));
    assert_eq!(denied["error"]["code"], -32002, "our own rule comes first");
}

#[test]
fn errors_of_the_runtime_get_their_numbers() {
    let (port, _heard) = runtime(|call| {
        let message = call["params"]["arguments"]["code"].as_str()?;
        if message == "nothing" {
            return None;
        }
        let error =
            serde_json::json!({"code": -32603, "message": message, "data": {"success": false, "x": 1}});
        Some(serde_json::json!({"jsonrpc": "2.0", "error": error, "id": 1}).to_string())
    });
    let server = server_before(port, "");
    let mut client = server.greeted(1);
    let mut ask = |code: &str| {
        let reply = client.ask(&call("eval_ruby", &serde_json::json!({"code": code}).to_string()));
        (reply["error"]["code"].as_i64().unwrap(), reply["error"]["data"]["x"].as_i64())
    };
    assert_eq!(ask("Ruby evaluation error: x"), (-32000, Some(1)));
    assert_eq!(ask("Failed to x: Path access denied for x: /"), (-32002, Some(1)));
    assert_eq!(ask("something else"), (-32603, Some(1)));
    assert_eq!(ask("nothing"), (-32000, None), "no answer: it is not asked again");
}

#[test]
fn a_half_read_call_is_sent_once_more_and_an_unanswered_one_is_not() {
    let tries = std::sync::atomic::AtomicUsize::new(0);
    let (port, heard) = runtime(move |call| {
        if call["params"]["name"] == "get_layers" {
            return None;
        }
        Some(match tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"},"id":null}"#.to_owned(),
            _ => r#"{"jsonrpc":"2.0","result":{"success":true},"id":1}"#.to_owned(),
        })
    });
    let server = server_before(port, "");
    let mut client = server.greeted(1);
    assert_eq!(client.ask(&call("get_selection", "{}"))["result"]["success"], true);
    assert_eq!(heard.try_iter().filter(|line| line["method"] == "tools/call").count(), 2);
    let reply = client.ask(&call("get_layers", "{}"));
    assert!(reply["error"]["message"].as_str().unwrap().contains("gave no answer"), "{reply}");
    assert_eq!(heard.try_iter().filter(|line| line["method"] == "tools/call").count(), 1);
}

/// The console of the runtime: answers each line with a result of its own, until one of them is `close`.
fn serve_console(mut stream: TcpStream) {
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
fn consoles_have_a_connection_each_to_that_of_the_runtime() {
    // Its console has a fixed port, which another address of this machine has to itself.
    let host = "127.44.33.1";
    let console = TcpListener::bind((host, 4433)).unwrap();
    thread::spawn(move || {
        for stream in console.incoming() {
            thread::spawn(move || serve_console(stream.unwrap()));
        }
    });
    let toml = |more: &str| format!("[channels.supex]\nupstream = \"{host}:9876\"\n{more}\n");
    let server = Server::with(|_, home| std::fs::write(home.join("parlor.toml"), toml("")).unwrap());
    let console = |server: &Server| {
        let mut console = Client::connect(server.repl);
        assert_eq!(console.ask(r#"{"method":"hello","id":1}"#)["result"]["server"]["name"], "supex-repl");
        console
    };
    let eval = |client: &mut Client, code: &str| {
        let line = serde_json::json!({"method": "eval", "params": {"code": code}, "id": 2});
        client.ask(&line.to_string())
    };
    let (mut one, mut other) = (console(&server), console(&server));
    assert_eq!(eval(&mut one, "a")["result"]["output"], "1 a");
    assert_eq!(eval(&mut one, "b")["result"]["output"], "2 b", "the same connection");
    assert_eq!(eval(&mut other, "c")["result"]["output"], "1 c", "another one's is another");
    let lost = eval(&mut one, "close");
    assert_eq!(lost["error"]["code"], -32000, "it may have run: {lost}");
    assert!(lost["error"].get("data").is_none(), "{lost}");
    assert_eq!(eval(&mut one, "d")["result"]["output"], "1 d", "a new connection");
    let here =
        Server::with(|_, home| std::fs::write(home.join("parlor.toml"), toml("eval = \"here\"")).unwrap());
    assert_eq!(eval(&mut console(&here), "1 + 1")["result"]["output"], "=> 2\n");
}

#[test]
fn without_the_runtime_the_error_says_so_and_ruby_may_stay_here() {
    let port = {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let server = server_before(port, "eval = \"here\"");
    let mut client = server.greeted(1);
    let reply = client.ask(&call("get_layers", "{}"));
    let message = reply["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("Failed to get layers: SketchUp cannot be reached"), "{reply}");
    assert_eq!(client.eval(1, "1 + 1"), Ok("2".to_owned()));
    assert_eq!(client.ask(&hello(1))["result"]["success"], true);
}
