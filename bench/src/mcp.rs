//! MCP servers whose tools agents call: what a call costs beside a bare one, and how long a long list of tools takes.
//!
//! Two servers answer: a small one in Python, as most are, and this program, which answers at once and so shows parlor's own share.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use parlor_tools::{McpLaunch, McpServerConfig, McpServers, Tool, ToolContext, ToolSource};
use serde_json::{Value, json};

use crate::stats::{Spread, median, verdict};

/// With this argument, the program is an MCP server that answers at once.
pub(crate) const SERVE: &str = "mcp-serve";

/// How many rounds are measured. Each alternates between the two ways.
const ROUNDS: usize = 7;

/// How many calls of each way a round has.
const CALLS: usize = 300;

/// How many times a bare call a call through parlor may cost.
const MAX_RATIO: f64 = 1.5;

/// How many tools are listed.
const TOOLS: usize = 1000;

/// How long starting a server and listing its tools may take, in milliseconds.
const MAX_LIST: f64 = 50.0;

/// A server in Python that does nothing else than to answer.
const PYTHON: &str = r#"
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    method, number = request.get("method"), request.get("id")
    if number is None:
        continue
    answer = {"jsonrpc": "2.0", "id": number}
    if method == "initialize":
        answer["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "bench", "version": "1"}}
    elif method == "tools/list":
        answer["result"] = {"tools": [{"name": "tool_0", "description": "Echoes.", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        answer["result"] = {"content": [{"type": "text", "text": json.dumps(request["params"]["arguments"])}]}
    else:
        answer["error"] = {"code": -32601, "message": "unknown"}
    print(json.dumps(answer), flush=True)
"#;

/// The figures.
pub(crate) struct McpFigures {
    python: CallFigures,
    instant: CallFigures,
    /// Milliseconds from the start of the server to its tools.
    list: Spread,
}

/// The p50 of each round in microseconds, and their ratio.
struct CallFigures {
    bare: Spread,
    parlor: Spread,
    ratio: Spread,
}

/// Measures all of it.
pub(crate) fn measure() -> anyhow::Result<McpFigures> {
    let own = std::env::current_exe()?.to_str().context("the path is UTF-8")?.to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let python = ("python3".to_owned(), vec!["-c".to_owned(), PYTHON.to_owned()]);
    let instant = (own, vec![SERVE.to_owned()]);
    Ok(McpFigures {
        python: runtime.block_on(calls(&python))?,
        instant: runtime.block_on(calls(&instant))?,
        list: runtime.block_on(lists(&instant))?,
    })
}

/// The table.
pub(crate) fn table(figures: &McpFigures) -> String {
    let row = |name: &str, figures: &CallFigures, bound: &str| {
        let CallFigures { bare, parlor, ratio } = figures;
        let shown =
            |spread: &Spread| format!("{:.0} ({:.0} to {:.0})", spread.median, spread.least, spread.most);
        let ratios = format!("{:.2} ({:.2} to {:.2})", ratio.median, ratio.least, ratio.most);
        format!("| {name} | {} µs | {} µs | {ratios}{bound} |\n", shown(bare), shown(parlor))
    };
    let bound = format!(", at most {MAX_RATIO}: {}", verdict(figures.python.ratio.median <= MAX_RATIO));
    let list = &figures.list;
    format!(
        "| MCP servers, {ROUNDS} rounds: median (least to most) | bare | parlor | parlor : bare |\n|---|---|---|---|\n{}{}\
         | {TOOLS} tools: start of the server to the tools of a run | - | {:.1} ({:.1} to {:.1}) ms | at most {MAX_LIST} ms: {} |\n",
        row("`tools/call` of a server in Python", &figures.python, &bound),
        row("`tools/call` of a server that answers at once", &figures.instant, ""),
        list.median,
        list.least,
        list.most,
        verdict(list.median <= MAX_LIST),
    )
}

fn servers((program, args): &(String, Vec<String>)) -> McpServers {
    let env = std::env::vars().filter(|(name, _)| name == "PATH").collect();
    let (program, args, folder) = (program.clone(), args.clone(), Path::new("/").to_owned());
    McpServers::new(vec![McpServerConfig {
        name: "bench".to_owned(),
        launch: McpLaunch::Command { program, args, env, folder },
        tools: None,
        timeout: Duration::from_secs(60),
    }])
}

async fn calls(command: &(String, Vec<String>)) -> anyhow::Result<CallFigures> {
    let (mut bare, servers) = (BareClient::start(command)?, servers(command));
    let context =
        ToolContext::new(std::env::temp_dir()).map_err(|failure| anyhow::anyhow!(failure.message))?;
    let offered = servers.tools(Path::new("/")).await;
    let tool: &Arc<dyn Tool> = offered.tools.first().with_context(|| format!("{:?}", offered.notices))?;
    let (mut bares, mut parlors) = (Vec::new(), Vec::new());
    // The first round warms everything up.
    for round in 0..=ROUNDS {
        let (mut of_bare, mut of_parlor) = (Vec::with_capacity(CALLS), Vec::with_capacity(CALLS));
        for _ in 0..CALLS {
            let begun = Instant::now();
            bare.call()?;
            of_bare.push(micros(begun));
            let begun = Instant::now();
            let output = tool.call(r#"{"text":"hello"}"#, &context).await;
            of_parlor.push(micros(begun));
            ensure!(output.is_ok_and(|output| output.text.contains("hello")), "the server echoes");
        }
        if round > 0 {
            bares.push(median(of_bare));
            parlors.push(median(of_parlor));
        }
    }
    let ratios = bares.iter().zip(&parlors).map(|(bare, parlor)| parlor / bare).collect();
    Ok(CallFigures { bare: Spread::of(bares), parlor: Spread::of(parlors), ratio: Spread::of(ratios) })
}

async fn lists(command: &(String, Vec<String>)) -> anyhow::Result<Spread> {
    let mut times = Vec::new();
    for round in 0..=ROUNDS {
        let servers = servers(command);
        let begun = Instant::now();
        let offered = servers.tools(Path::new("/")).await;
        let time = begun.elapsed().as_secs_f64() * 1e3;
        ensure!(offered.notices.is_empty() && !offered.tools.is_empty(), "{:?}", offered.notices);
        if round > 0 {
            times.push(time);
        }
        for server in servers.iter() {
            server.stop().await;
        }
    }
    Ok(Spread::of(times))
}

fn micros(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e6
}

/// Writes requests into a pipe and reads the answers, as little as a client can do.
struct BareClient {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl BareClient {
    fn start((program, args): &(String, Vec<String>)) -> anyhow::Result<Self> {
        let mut child =
            Command::new(program).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().context("it is piped")?;
        let stdout = BufReader::new(child.stdout.take().context("it is piped")?);
        Ok(Self { child, stdin, stdout })
    }

    fn call(&mut self) -> anyhow::Result<()> {
        let params = json!({"name": "tool_0", "arguments": {"text": "hello"}});
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        self.stdin.write_all(format!("{request}\n").as_bytes())?;
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line)?;
        ensure!(answer["result"]["content"][0]["text"].is_string(), "the server answers {line}");
        Ok(())
    }
}

impl Drop for BareClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves [`TOOLS`] tools until the input ends.
pub(crate) fn serve() -> anyhow::Result<()> {
    let schema =
        json!({"type": "object", "properties": {"text": {"type": "string", "description": "What to echo."}}});
    let tool = |number: usize| json!({"name": format!("tool_{number}"), "description": "Echoes.", "inputSchema": schema});
    let tools: Vec<Value> = (0..TOOLS).map(tool).collect();
    let (stdin, mut out) = (std::io::stdin().lock(), std::io::stdout().lock());
    for line in stdin.lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let id = &request["id"];
        if id.is_null() {
            continue;
        }
        let answer = match request["method"].as_str() {
            Some("initialize") => {
                let info = json!({"name": "bench", "version": "1"});
                json!({"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}})
            }
            Some("tools/list") => json!({"result": {"tools": tools}}),
            Some("tools/call") => {
                let text = request["params"]["arguments"].to_string();
                json!({"result": {"content": [{"type": "text", "text": text}]}})
            }
            _ => json!({"error": {"code": -32601, "message": "unknown"}}),
        };
        let mut answer = answer;
        answer["jsonrpc"] = "2.0".into();
        answer["id"] = id.clone();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}
