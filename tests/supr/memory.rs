//! A connection in memory for transcripts: the machine, the driver's loop and the sessions, with virtual time.
//!
//! One line is one message. The transcripts over the wire test the handshake (authorization and the parsing of the
//! URL); this module reads the query as it is, and decodes only `%20`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parlor_doors::lines::{Line, Lines};
use parlor_doors::supr::{ConnectionParams, SuprMachine};
use parlor_engine::{Agents, MediaStore, OnDisconnect, SessionClient, SessionDeps, Sessions};
use parlor_log::{MemoryLog, SystemClock, TimeOrderedIds};
use parlor_model::{Agent, LocalAgent, ScriptAgent};
use parlor_testkit::{Case, Peer, advance_time};
use parlor_tools::{ShellTool, Toolbox};
use parlor_transport::{ConnectionEnd, INCOMING_CHUNKS, Incoming, OutgoingReceiver, outgoing, serve};
use parlor_vocab::{AgentId, IdSource, SessionId};
use parlor_web::Fetcher;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

pub(crate) struct Memory {
    sessions: Arc<Sessions>,
    /// The parameters that all connections share; the query of each connection overrides some of them.
    params: ConnectionParams,
    connection: Connection,
}

struct Connection {
    input: Option<mpsc::Sender<Vec<u8>>>,
    outlet: OutgoingReceiver,
    task: JoinHandle<ConnectionEnd>,
}

impl Memory {
    pub(crate) fn start(case: &Case) -> Result<Self, String> {
        let configured = Configured::read(&case.home)?;
        let clock = Arc::new(SystemClock);
        let ids: Arc<dyn IdSource> = Arc::new(TimeOrderedIds::new(Arc::clone(&clock) as _));
        let deps = SessionDeps {
            log: Arc::new(MemoryLog::new(Arc::clone(&clock) as _)),
            agents: configured.agents,
            media: MediaStore::open(&case.home).map_err(|error| error.to_string())?,
            tools: Toolbox::standard(ShellTool::default()),
            env: Arc::new([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            clock: Arc::clone(&clock) as _,
            ids: Arc::clone(&ids),
        };
        let sessions = Arc::new(Sessions::new(deps).with_fetch(Arc::new(Fetcher::new(false))));
        let params = ConnectionParams {
            session: SessionId::parse("").map_err(|error| error.to_string())?,
            after: None,
            watch: Vec::new(),
            streams: false,
            may_send: configured.may_send,
            traceparent: None,
            agents: sessions.agents().into_iter().map(|(id, name)| (id.to_string(), name)).collect(),
            folder: case.tmp.clone(),
            clock,
            ids,
            frames: Arc::default(),
        };
        let connection = Connection::open(&sessions, with_query(&params, &case.args)?);
        Ok(Self { sessions, params, connection })
    }
}

/// `params` with the values of a query, which is in `args`.
fn with_query(params: &ConnectionParams, args: &[String]) -> Result<ConnectionParams, String> {
    let mut params = params.clone();
    let session = |id: &str| SessionId::parse(&id.replace("%20", " ")).map_err(|error| error.to_string());
    params.session = session(&format!("made-up-{}", params.ids.next()))?;
    for pair in args.iter().flat_map(|arg| arg.split('&')) {
        match pair.split_once('=').ok_or("a query parameter has no value")? {
            ("session_id", id) => params.session = session(id)?,
            ("after" | "last_event_id", event) => {
                params.after = Some(Some(event.to_owned()).filter(|event| !event.is_empty()));
            }
            ("watch", id) => params.watch.push(session(id)?),
            ("stream", value) => params.streams = value == "1",
            (name, _) => return Err(format!("unknown query parameter {name}")),
        }
    }
    Ok(params)
}

/// The agents of a `parlor.toml`, and whether its `allow_from` lets this client send.
struct Configured {
    agents: Agents,
    may_send: bool,
}

impl Configured {
    fn read(home: &Path) -> Result<Self, String> {
        let file = home.join("parlor.toml");
        let text = if file.exists() { std::fs::read_to_string(&file) } else { Ok(String::new()) };
        let table: toml::Table =
            toml::from_str(&text.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
        let id = |name: &str| AgentId::parse(name).map_err(|error| error.to_string());
        let default = table.get("default_agent").and_then(toml::Value::as_str).unwrap_or("local");
        let mut agents = Agents::new(id(default)?, Arc::new(LocalAgent::default()));
        if default != "local" {
            agents = agents.with(id("local")?, Arc::new(LocalAgent::default()));
        }
        for (name, about) in table.get("agents").and_then(toml::Value::as_table).into_iter().flatten() {
            let file = about
                .get("file")
                .and_then(toml::Value::as_str)
                .ok_or("an agent in a transcript must have a file")?;
            let shown = about.get("name").and_then(toml::Value::as_str).unwrap_or(name);
            let path: PathBuf = home.join(file);
            let agent = ScriptAgent::load(&path, shown).map_err(|error| error.to_string())?;
            let agent: Arc<dyn Agent> = Arc::new(agent);
            agents = agents.with(id(name)?, agent);
        }
        let channel = table.get("channels").and_then(|channels| channels.get("supr"));
        let allowed = channel.and_then(|supr| supr.get("allow_from")).and_then(toml::Value::as_array);
        let is_this_client = |sender: &toml::Value| sender.as_str() == Some("supr:supr-user");
        Ok(Self { agents, may_send: allowed.is_none_or(|allowed| allowed.iter().any(is_this_client)) })
    }
}

impl Connection {
    fn open(sessions: &Arc<Sessions>, params: ConnectionParams) -> Self {
        let (input, chunks) = mpsc::channel(INCOMING_CHUNKS);
        let incoming = Incoming { chunks, hung_up: oneshot::channel().1, refuses_foreign: false };
        let (outgoing, outlet) = outgoing();
        let client = SessionClient::new(Arc::clone(sessions), OnDisconnect::Keep);
        let task =
            tokio::spawn(serve(SuprMachine::new(params), client, incoming, outgoing, std::future::pending()));
        Self { input: Some(input), outlet, task }
    }
}

impl Peer for Memory {
    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let input = self.connection.input.as_ref().ok_or("sent after the input was closed")?;
        input.send(bytes.to_vec()).await.map_err(|_| "the connection is closed".to_owned())
    }

    async fn close(&mut self) -> Result<(), String> {
        self.connection.input = None;
        Ok(())
    }

    async fn frame(&mut self) -> Option<Vec<u8>> {
        let bytes = self.connection.outlet.next().await?;
        self.connection.outlet.written(bytes.len());
        let mut lines = Lines::new(bytes.len());
        lines.push(&bytes);
        match lines.next_line() {
            Some(Line::Whole(frame)) => Some(frame.to_vec()),
            Some(Line::Oversize) | None => panic!("not one line: {bytes:?}"),
        }
    }

    async fn advance(&mut self, time: Duration) -> Result<(), String> {
        advance_time(time).await;
        Ok(())
    }

    async fn reconnect(&mut self, args: &[String]) -> Result<(), String> {
        self.connection = Connection::open(&self.sessions, with_query(&self.params, args)?);
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), String> {
        (&mut self.connection.task).await.map(|_| ()).map_err(|error| error.to_string())
    }
}
