//! The tools of MCP servers, with real processes that behave and that misbehave.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parlor_tools::{
    FileChanges, MCP_OUTPUT_BYTES, MCP_SHOWN_TOOLS, McpLaunch, McpServerConfig, McpServerState, McpServers,
    OfferedTools, Tool, ToolContext, ToolSource, Toolbox, shown_tools,
};
use parlor_vocab::{FailureCode, ToolOutput};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A server named `name` that misbehaves in these ways.
fn server(name: &str, ways: &[&str]) -> McpServerConfig {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_mcp_server.py");
    let script = script.to_str().expect("the path is UTF-8").to_owned();
    let args = std::iter::once(script).chain(ways.iter().map(|way| (*way).to_owned()));
    McpServerConfig {
        name: name.to_owned(),
        launch: McpLaunch::Command {
            program: "python3".to_owned(),
            args: args.collect(),
            env: vec![
                ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
                ("GIVEN".to_owned(), "yes".to_owned()),
            ],
            folder: PathBuf::from("/"),
        },
        tools: None,
        timeout: Duration::from_secs(60),
    }
}

struct Servers {
    servers: McpServers,
    folder: TempDir,
}

impl Servers {
    fn new(configs: Vec<McpServerConfig>) -> Self {
        Self { servers: McpServers::new(configs), folder: TempDir::new().expect("a temporary folder") }
    }

    async fn offered(&self) -> OfferedTools {
        let offered = self.servers.tools(self.folder.path()).await;
        OfferedTools { tools: shown_tools(offered.tools), ..offered }
    }

    async fn tool(&self, name: &str) -> Arc<dyn Tool> {
        let offered = self.offered().await;
        let found = offered.tools.iter().find(|tool| tool.name() == name);
        Arc::clone(found.unwrap_or_else(|| panic!("no tool {name}; {:?}", offered.notices)))
    }

    fn context(&self) -> ToolContext {
        ToolContext::new(self.folder.path()).expect("the folder exists")
    }

    async fn call(&self, tool: &str, input: &str) -> Result<ToolOutput, parlor_vocab::Failure> {
        self.tool(tool).await.call(input, &self.context()).await
    }

    /// Whether the well-behaved server `good` still works.
    async fn good_works(&self) {
        let output = self.call("good__echo", r#"{"a":1}"#).await;
        assert_eq!(output, Ok(ToolOutput::text(r#"{"a": 1}"#)));
    }
}

fn names(offered: &OfferedTools) -> Vec<&str> {
    offered.tools.iter().map(|tool| tool.name()).collect()
}

#[tokio::test]
async fn tools_of_a_server_are_listed_and_called() {
    let servers = Servers::new(vec![server("good", &["banner", "stderr"])]);
    let offered = servers.offered().await;
    assert!(offered.notices.is_empty(), "{:?}", offered.notices);
    assert!(names(&offered).contains(&"good__echo"));
    servers.good_works().await;
    let picture = servers.call("good__picture", "").await.unwrap();
    assert_eq!(
        (picture.images[0].mime.as_str(), picture.images[0].bytes.as_slice()),
        ("image/png", &b"hi"[..])
    );
    let refused = servers.call("good__refuse", "{}").await.unwrap_err();
    assert_eq!((refused.code, refused.message.as_str()), (FailureCode::ToolError, "not like this"));
    let env = |name: &str| format!(r#"{{"name":"{name}"}}"#);
    assert_eq!(servers.call("good__env", &env("GIVEN")).await.unwrap().text, "yes");
    assert_eq!(servers.call("good__env", &env("HOME")).await.unwrap().text, "unset", "nothing is inherited");
    let invalid = servers.call("good__echo", "[1]").await.unwrap_err();
    assert_eq!(invalid.code, FailureCode::InvalidInput);
}

#[tokio::test]
async fn older_servers_work_whatever_they_answer_to_a_question_about_versions() {
    let ways = ["discover=-32601", "discover=-32602", "discover=-32600", "discover=garbage", "discover=exit"];
    let configs = ways.iter().enumerate().map(|(number, way)| server(&format!("s{number}"), &[way]));
    let servers = Servers::new(configs.collect());
    let offered = servers.offered().await;
    assert!(offered.notices.is_empty(), "{:?}", offered.notices);
    for (number, way) in ways.iter().enumerate() {
        let output = servers.call(&format!("s{number}__echo"), "{}").await.unwrap();
        assert_eq!(output.text, "{}", "{way}");
    }
}

#[tokio::test]
async fn a_server_of_a_later_version_is_told_apart() {
    let servers = Servers::new(vec![server("later", &["discover=later"])]);
    let notices = servers.offered().await.notices;
    assert!(notices[0].contains("2027-01-01"), "{notices:?}");
}

#[tokio::test]
async fn a_server_that_fails_is_missing_and_harms_no_other() {
    let servers = Servers::new(vec![
        server("dead", &["dead"]),
        server("lies", &["lies"]),
        server("deep", &["deep=20"]),
        server("abyss", &["deep=200"]),
        server("good", &[]),
        McpServerConfig {
            launch: McpLaunch::Command {
                program: "/no/such/program".to_owned(),
                args: Vec::new(),
                env: Vec::new(),
                folder: PathBuf::from("/"),
            },
            ..server("absent", &[])
        },
    ]);
    let offered = servers.offered().await;
    servers.good_works().await;
    let notice = |text: &str| offered.notices.iter().find(|notice| notice.contains(text)).cloned();
    let dead = notice("\"dead\"").expect("the dead server is named");
    assert!(dead.contains("code 1") && dead.contains("no configuration found"), "{dead}");
    assert!(notice("\"lies\"").is_some() && notice("\"absent\"").is_some(), "{:?}", offered.notices);
    let abyss = notice("\"abyss\"").expect("a message that cannot be read is an error");
    assert!(abyss.contains("nested deeper"), "{abyss}");
    assert!(notice("\"deep\" is left out").is_some(), "{:?}", offered.notices);
    assert!(names(&offered).contains(&"deep__echo"));
    let again = servers.offered().await.notices;
    assert!(again.iter().any(|notice| notice.contains("next attempt")), "{again:?}");
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_is_started_again_for_the_next_one() {
    let servers = Servers::new(vec![server("good", &[])]);
    let died = servers.call("good__die", "{}").await.unwrap_err();
    assert!(died.message.contains("may or may not have happened"), "{}", died.message);
    servers.good_works().await;
}

#[tokio::test]
async fn a_server_that_sends_a_hundred_megabytes_is_ended() {
    let servers = Servers::new(vec![server("large", &[]), server("good", &[])]);
    let long = servers.call("large__large", r#"{"bytes":1000000}"#).await.unwrap();
    assert!(long.text.len() < MCP_OUTPUT_BYTES + 100, "{}", long.text.len());
    let lost = servers.call("large__large", r#"{"bytes":100000000}"#).await.unwrap_err();
    assert!(lost.message.contains("message of more than"), "{}", lost.message);
    servers.good_works().await;
}

#[tokio::test]
async fn a_call_that_hangs_ends_at_its_limit_and_progress_moves_it() {
    let timeout = Duration::from_secs(1);
    let servers = Servers::new(vec![McpServerConfig { timeout, ..server("slow", &[]) }, server("good", &[])]);
    let (wait, steps) = (servers.tool("slow__wait").await, servers.tool("slow__steps").await);
    let context = servers.context();
    let (hung, kept) = tokio::join!(wait.call("{}", &context), steps.call("{}", &context));
    assert_eq!(hung.unwrap_err().code, FailureCode::Timeout);
    assert_eq!(kept.unwrap().text, "done");
    servers.good_works().await;
}

#[tokio::test]
async fn a_cancelled_call_ends_at_once_and_the_server_is_told() {
    let servers = Servers::new(vec![server("good", &[])]);
    let (wait, context) = (servers.tool("good__wait").await, servers.context());
    let cancel = context.cancel.clone();
    let call = tokio::spawn(async move { wait.call("{}", &context).await });
    // The server answers calls in any order, so this one shows that it has read the first.
    servers.good_works().await;
    cancel.cancel();
    assert_eq!(call.await.unwrap().unwrap_err().code, FailureCode::Cancelled);
    assert_eq!(servers.call("good__cancelled", "{}").await.unwrap().text, "True");
}

#[tokio::test]
async fn a_stopped_call_does_not_wait_for_a_server_that_does_not_list_its_tools() {
    let folder = TempDir::new().unwrap();
    let asked = folder.path().join("asked");
    let servers = Arc::new(Servers::new(vec![server("good", &[&format!("hang_list={}", asked.display())])]));
    let (wait, context) = (servers.tool("good__wait").await, servers.context());
    let echo = servers.tool("good__echo").await;
    servers.servers.iter().next().unwrap().check().await;
    let more = servers.tool("good__more").await;
    more.call("{}", &servers.context()).await.unwrap();
    let cancel = context.cancel.clone();
    let call = tokio::spawn(async move { wait.call("{}", &context).await });
    let listing = tokio::spawn({
        let servers = Arc::clone(&servers);
        async move { servers.offered().await }
    });
    while !asked.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(echo.call("{}", &servers.context()).await.unwrap().text, "{}", "calls go on meanwhile");
    cancel.cancel();
    assert_eq!(call.await.unwrap().unwrap_err().code, FailureCode::Cancelled);
    assert!(!listing.is_finished(), "the stop came first");
    listing.abort();
}

#[tokio::test]
async fn a_server_that_floods_is_ended_and_left_alone_for_a_while() {
    for kind in ["ping", "notification", "answer", "banner"] {
        let servers = Servers::new(vec![server("flood", &[]), server("good", &[])]);
        let few = servers.call("flood__flood", &format!(r#"{{"kind":"{kind}","count":100}}"#)).await;
        assert_eq!(few.map(|output| output.text), Ok("sent".to_owned()), "{kind}");
        let echo = servers.tool("flood__echo").await;
        let flooded = servers.call("flood__flood", &format!(r#"{{"kind":"{kind}"}}"#)).await.unwrap_err();
        assert!(flooded.message.contains("too much that nobody asked for"), "{kind}: {}", flooded.message);
        // On a slow machine the time may be over.
        if let Err(again) = echo.call("{}", &servers.context()).await {
            assert!(again.message.contains("next attempt"), "{kind}: {}", again.message);
        }
        servers.good_works().await;
    }
}

#[tokio::test]
async fn a_changed_list_of_tools_is_used_by_the_next_run() {
    let servers = Servers::new(vec![server("good", &[])]);
    assert!(!names(&servers.offered().await).contains(&"good__later"));
    servers.call("good__more", "{}").await.unwrap();
    assert!(names(&servers.offered().await).contains(&"good__later"));
}

#[tokio::test]
async fn more_tools_than_a_model_is_shown_are_found_by_a_search() {
    let servers = Servers::new(vec![server("good", &["many"])]);
    let offered = servers.offered().await;
    assert_eq!(offered.tools.len(), MCP_SHOWN_TOOLS);
    assert_eq!(names(&offered)[MCP_SHOWN_TOOLS - 2..], ["mcp_search", "mcp_call"]);
    let found = servers.call("mcp_search", r#"{"query":"extra_177"}"#).await.unwrap().text;
    assert!(found.contains("good__extra_177"), "{found}");
    let called = servers.call("mcp_call", r#"{"tool":"good__extra_177"}"#).await.unwrap();
    assert_eq!(called.text, "extra_177");
    assert!(servers.call("mcp_call", r#"{"tool":"nothing"}"#).await.is_err());
    let mcp_call = servers.tool("mcp_call").await;
    let passed = mcp_call.passes_on(r#"{"tool":"good__extra_177","arguments":{"a":1}}"#).unwrap().unwrap();
    assert_eq!((passed.tool.name(), passed.input.as_str()), ("good__extra_177", r#"{"a":1}"#));
    assert!(
        mcp_call.passes_on(r#"{"tool":"nothing"}"#).is_err(),
        "the policy cannot judge what is not known"
    );
}

/// However many servers and sources there are, a model is shown a bounded list, and finds every tool.
#[tokio::test]
async fn the_tools_of_all_sources_together_have_one_limit() {
    let (one, two) = (Servers::new(vec![server("a", &["many"])]), Servers::new(vec![server("b", &["many"])]));
    let mut toolbox = Toolbox::standard(parlor_tools::ShellTool::default());
    let own = toolbox.iter().count();
    for servers in [&one, &two] {
        servers
            .servers
            .tools(servers.folder.path())
            .await
            .tools
            .into_iter()
            .for_each(|tool| toolbox.add(tool));
    }
    toolbox.hide_excess(own);
    assert_eq!(toolbox.iter().count(), own + MCP_SHOWN_TOOLS);
    let input = r#"{"query":"b__extra_177"}"#;
    let found = toolbox.call("mcp_search", input, &two.context()).await.unwrap().text;
    assert!(found.contains("b__extra_177"), "{found}");
}

#[tokio::test]
async fn the_word_of_a_server_does_not_switch_off_undo() {
    let servers = Servers::new(vec![server("good", &["read_only"])]);
    let tool = servers.tool("good__echo").await;
    assert!(tool.annotations().read_only);
    assert_eq!(tool.file_changes(), FileChanges::Searched);
}

/// A web service that answers every request with `head` and then spaces without end.
async fn endless(head: &'static str) -> (McpServerConfig, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/mcp?key=s3cret", listener.local_addr().expect("it listens"));
    let answering = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let mut chunk = format!("{:x}\r\n", 1 << 20).into_bytes();
                chunk.extend(vec![b' '; 1 << 20]);
                chunk.extend(b"\r\n");
                let _ = stream.write_all(head.as_bytes()).await;
                while stream.write_all(&chunk).await.is_ok() {}
            });
        }
    });
    let launch = McpLaunch::Url { url, headers: std::collections::BTreeMap::new() };
    (McpServerConfig { launch, ..server("endless", &[]) }, answering)
}

#[tokio::test]
async fn an_answer_over_http_without_an_end_is_refused_at_the_limit() {
    for (status, kind) in
        [("200 OK", "application/json"), ("400 Bad Request", "text/html"), ("200 OK", "text/event-stream")]
    {
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n");
        let (config, answering) = endless(head.leak()).await;
        let notices = Servers::new(vec![config]).offered().await.notices;
        assert!(notices[0].contains("\"endless\"") && !notices[0].contains("s3cret"), "{notices:?}");
        if kind != "text/event-stream" {
            assert!(notices[0].contains("more than 16777216 bytes"), "{notices:?}");
        }
        answering.abort();
    }
}

#[tokio::test]
async fn a_server_is_shared_tested_and_ended() {
    let folder = TempDir::new().unwrap();
    let pids = folder.path().join("pids");
    let config = server("good", &[&format!("pid={}", pids.display())]);
    let servers = Servers::new(vec![McpServerConfig { tools: Some(vec!["echo".to_owned()]), ..config }]);
    let (one, two) = tokio::join!(servers.offered(), servers.offered());
    assert_eq!((names(&one), names(&two)), (vec!["good__echo"], vec!["good__echo"]));
    let started = std::fs::read_to_string(&pids).unwrap();
    assert_eq!(started.lines().count(), 1, "two runs share one process");
    let good = servers.servers.iter().next().unwrap();
    let McpServerState::Up { description, tools } = good.check().await else { panic!() };
    assert!(description.contains("fake 1") && description.contains("2025-11-25"), "{description}");
    assert_eq!(tools, ["echo"]);
    drop((one, two));
    good.stop().await;
    let process = PathBuf::from("/proc").join(started.trim());
    while process.exists() {
        tokio::task::yield_now().await;
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads one HTTP request. Returns its first line with the headers, and its body.
async fn request(stream: &mut tokio::net::TcpStream) -> Option<(String, serde_json::Value)> {
    let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        read.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&read).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.split_once("content-length: ").map_or("0", |(_, rest)| rest);
        let length: usize = length.lines().next().and_then(|length| length.parse().ok()).unwrap_or(0);
        if body.len() >= length {
            let body = serde_json::from_slice(&read[head.len() + 4..]).unwrap_or_default();
            return Some((head.to_owned(), body));
        }
    }
}

/// A web service of an older version. It wants a header, and answers calls with a stream of events. A call of `flood` is
/// answered with notifications without end, a call of `pings` with many pings whose answers are not accepted.
async fn web_service() -> (McpServerConfig, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("it listens"));
    let answer = |head: &str, body: &serde_json::Value| {
        let id = &body["id"];
        let (status, kind, text) = match body["method"].as_str() {
            _ if !head.contains("authorization: bearer t0ken") => {
                ("401 Unauthorized", "text/plain", String::new())
            }
            None if head.starts_with("post") => return String::new(),
            None => ("405 Method Not Allowed", "text/plain", String::new()),
            Some("initialize") => {
                let info = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"web","version":"1"}}"#;
                ("200 OK", "application/json", format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{info}}}"#))
            }
            Some("tools/list") => {
                let list = r#"{"tools":[{"name":"echo","inputSchema":{}},{"name":"flood","inputSchema":{}},{"name":"pings","inputSchema":{}}]}"#;
                ("200 OK", "application/json", format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{list}}}"#))
            }
            Some("tools/call") if body["params"]["name"] != "echo" => {
                return "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
                    .to_owned();
            }
            Some("tools/call") => {
                let result = r#"{"content":[{"type":"text","text":"called"}]}"#;
                let event = format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n\n");
                ("200 OK", "text/event-stream", event)
            }
            Some(method) if method.starts_with("notifications/") => {
                ("202 Accepted", "text/plain", String::new())
            }
            Some(_) => {
                let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"no"}}"#;
                ("400 Bad Request", "application/json", error.to_owned())
            }
        };
        let length = text.len();
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
        )
    };
    let answering = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let Some((head, body)) = request(&mut stream).await else { return };
                let _ = stream.write_all(answer(&head, &body).as_bytes()).await;
                let tool = body["params"]["name"].as_str().unwrap_or_default();
                let notification = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
                let flood = format!("data: {notification}\n\n").repeat(100);
                while tool == "flood" && stream.write_all(flood.as_bytes()).await.is_ok() {}
                for number in 0..200 {
                    let ping =
                        format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{number},\"method\":\"ping\"}}\n\n");
                    if tool == "pings" && stream.write_all(ping.as_bytes()).await.is_err() {
                        return;
                    }
                }
                // An answer to a ping, or the call: both wait until parlor gives up.
                if tool == "pings" || (body["method"].is_null() && head.starts_with("post")) {
                    let _ = stream.read(&mut [0]).await;
                }
            });
        }
    });
    let headers = [("Authorization".to_owned(), "Bearer t0ken".to_owned())].into();
    (McpServerConfig { launch: McpLaunch::Url { url, headers }, ..server("web", &[]) }, answering)
}

#[tokio::test]
async fn tools_of_a_web_service_are_listed_and_called() {
    let (config, answering) = web_service().await;
    let servers = Servers::new(vec![config.clone()]);
    let offered = servers.offered().await;
    assert_eq!(names(&offered), ["web__echo", "web__flood", "web__pings"], "{:?}", offered.notices);
    assert_eq!(servers.call("web__echo", "{}").await.unwrap().text, "called");
    let McpLaunch::Url { url, .. } = config.launch.clone() else { panic!() };
    let launch = McpLaunch::Url { url, headers: std::collections::BTreeMap::new() };
    let notices = Servers::new(vec![McpServerConfig { launch, ..config }]).offered().await.notices;
    assert!(notices[0].contains("HTTP 401"), "{notices:?}");
    answering.abort();
}

#[tokio::test]
async fn a_web_service_that_floods_is_given_up() {
    for tool in ["web__flood", "web__pings"] {
        let (config, answering) = web_service().await;
        let servers = Servers::new(vec![config]);
        let flooded = servers.call(tool, "{}").await.unwrap_err();
        assert!(flooded.message.contains("too much that nobody asked for"), "{tool}: {}", flooded.message);
        answering.abort();
    }
}
