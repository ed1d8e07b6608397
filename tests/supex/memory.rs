//! A connection in memory for transcripts: the machine, the driver's loop and the backend, with virtual time.

use std::path::PathBuf;
use std::sync::Arc;

use parlor_doors::lines::{Line, Lines};
use parlor_doors::supex::{AttachInfo, BridgeMachine, HelloToken, ReplMachine};
use parlor_log::{SystemClock, random_u128};
use parlor_ruby::{AllowedRoots, RubyBackend, RubyBackendConfig, RubySettings, ToolRunner};
use parlor_testkit::{Case, Peer, advance_time};
use parlor_tools::{ShellTool, ToolContext, Toolbox, ToolboxRunner};
use parlor_transport::{ConnectionEnd, INCOMING_CHUNKS, Incoming, OutgoingReceiver, outgoing, serve};
use parlor_vocab::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) struct Memory {
    backend: RubyBackend,
    token: Option<Arc<HelloToken>>,
    connection: Connection,
}

struct Connection {
    input: Option<mpsc::Sender<Vec<u8>>>,
    outlet: OutgoingReceiver,
    /// Frames that arrived in the same chunk as the last one.
    frames: Lines,
    task: JoinHandle<ConnectionEnd>,
}

impl Memory {
    pub(crate) fn start(case: &Case) -> Result<Self, String> {
        let variable = |wanted: &str| {
            let found = case.env.iter().find(|(name, _)| name == wanted);
            found.and_then(|(_, value)| value.clone()).filter(|value| !value.is_empty())
        };
        let token = variable("SUPEX_AUTH_TOKEN").as_deref().and_then(HelloToken::new).map(Arc::new);
        let backend = RubyBackend::open(config(case, &variable, token.is_some())?)
            .map_err(|error| error.to_string())?;
        let connection = Connection::open(&backend, token.clone(), &case.args);
        Ok(Self { backend, token, connection })
    }
}

fn config(
    case: &Case,
    variable: &dyn Fn(&str) -> Option<String>,
    has_tools: bool,
) -> Result<RubyBackendConfig, String> {
    let env: Vec<(String, String)> = std::env::vars().collect();
    let mut ruby = RubySettings::new(case.tmp.clone(), env.clone());
    if let Some(program) = variable("PARLOR_RUBY") {
        ruby.program = program;
    }
    let mut allowed = AllowedRoots::new(case.tmp.clone(), None::<PathBuf>);
    let roots = variable("SUPEX_ALLOWED_ROOTS").unwrap_or_default();
    for root in roots.split(':').map(str::to_owned).chain(variable("SUPEX_PROJECT_ROOT")) {
        if !root.is_empty() {
            allowed = allowed.with(root);
        }
    }
    let context = || ToolContext::new(&case.tmp).map_err(|failure| failure.message);
    let tools = match has_tools {
        true => {
            let context = ToolContext { env: env.into(), ..context()? };
            Some(Arc::new(ToolboxRunner::new(Toolbox::standard(ShellTool::default()), context))
                as Arc<dyn ToolRunner>)
        }
        false => None,
    };
    Ok(RubyBackendConfig {
        ruby,
        state: case.home.join("supex"),
        roots: allowed,
        upstream: None,
        tools,
        clock: Arc::new(SystemClock),
        // Only minutes and seconds matter here: they keep the names of sessions apart.
        format_time: |at: Timestamp| {
            format!("2026-03-14T09:{:02}:{:02}.000", at.0 / 60_000 % 60, at.0 / 1000 % 60)
        },
    })
}

impl Connection {
    fn open(backend: &RubyBackend, token: Option<Arc<HelloToken>>, args: &[String]) -> Self {
        let (input, chunks) = mpsc::channel(INCOMING_CHUNKS);
        let incoming = Incoming { chunks, hung_up: oneshot::channel().1, refuses_foreign: true };
        let (outgoing, outlet) = outgoing();
        let (ruby, never_stopped) = (backend.connect(Box::new(|| false)), std::future::pending());
        let task = if args.iter().any(|arg| arg == "repl") {
            tokio::spawn(serve(ReplMachine::new(token), ruby, incoming, outgoing, never_stopped))
        } else {
            let machine = BridgeMachine::new(
                token,
                AttachInfo::new("memory", format!("{:032x}", random_u128())),
                Instant::now().into_std(),
            );
            tokio::spawn(serve(machine, ruby, incoming, outgoing, never_stopped))
        };
        Self { input: Some(input), outlet, frames: Lines::new(usize::MAX), task }
    }
}

impl Peer for Memory {
    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let input = self.connection.input.as_ref().ok_or("sent after the input was closed")?;
        // The server may have closed the connection; a transcript may still send.
        let _ = input.send(bytes.to_vec()).await;
        Ok(())
    }

    async fn close(&mut self) -> Result<(), String> {
        self.connection.input = None;
        Ok(())
    }

    async fn frame(&mut self) -> Option<Vec<u8>> {
        loop {
            match self.connection.frames.next_line() {
                Some(Line::Whole(frame)) => return Some(frame.to_vec()),
                Some(Line::Oversize) => unreachable!("no line is too long"),
                None => {}
            }
            let bytes = self.connection.outlet.next().await?;
            self.connection.outlet.written(bytes.len());
            self.connection.frames.push(&bytes);
        }
    }

    async fn advance(&mut self, time: std::time::Duration) -> Result<(), String> {
        advance_time(time).await;
        Ok(())
    }

    async fn reconnect(&mut self, args: &[String]) -> Result<(), String> {
        self.connection = Connection::open(&self.backend, self.token.clone(), args);
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), String> {
        (&mut self.connection.task).await.map(|_| ()).map_err(|error| error.to_string())
    }
}
