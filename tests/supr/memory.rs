//! A connection in memory: the machine, a driver's loop and a whole house, with time that can be invented.
//!
//! One line is one message. What the handshake decides (who may come, and what stands in the address) is
//! left to the plays over the wire; here the query is taken as it stands, but for `%20`.

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
    house: Arc<Sessions>,
    /// Each connection begins with a copy.
    visit: ConnectionParams,
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
        let means = SessionDeps {
            log: Arc::new(MemoryLog::new(Arc::clone(&clock) as _)),
            agents: configured.agents,
            media: MediaStore::open(&case.home).map_err(|error| error.to_string())?,
            tools: Toolbox::standard(ShellTool::default()),
            env: Arc::new([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            clock: Arc::clone(&clock) as _,
            ids: Arc::clone(&ids),
        };
        let house = Arc::new(Sessions::new(means).with_fetch(Arc::new(Fetcher::new(false))));
        let visit = ConnectionParams {
            session: SessionId::parse("").map_err(|error| error.to_string())?,
            after: None,
            watch: Vec::new(),
            streams: false,
            may_send: configured.may_send,
            traceparent: None,
            agents: house.agents().into_iter().map(|(id, name)| (id.to_string(), name)).collect(),
            folder: case.tmp.clone(),
            clock,
            ids,
        };
        let connection = Connection::open(&house, visiting(&visit, &case.args)?);
        Ok(Self { house, visit, connection })
    }
}

/// The visit that a query asks for.
fn visiting(visit: &ConnectionParams, args: &[String]) -> Result<ConnectionParams, String> {
    let mut visit = visit.clone();
    let session = |id: &str| SessionId::parse(&id.replace("%20", " ")).map_err(|error| error.to_string());
    visit.session = session(&format!("made-up-{}", visit.ids.next()))?;
    for pair in args.iter().flat_map(|arg| arg.split('&')) {
        match pair.split_once('=').ok_or("a query has values")? {
            ("session_id", id) => visit.session = session(id)?,
            ("after" | "last_event_id", event) => {
                visit.after = Some(Some(event.to_owned()).filter(|event| !event.is_empty()));
            }
            ("watch", id) => visit.watch.push(session(id)?),
            ("stream", value) => visit.streams = value == "1",
            (name, _) => return Err(format!("nobody reads {name}")),
        }
    }
    Ok(visit)
}

/// What a `parlor.toml` says of agents and of who may send.
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
            let file = about.get("file").and_then(toml::Value::as_str).ok_or("an agent here has a file")?;
            let shown = about.get("name").and_then(toml::Value::as_str).unwrap_or(name);
            let path: PathBuf = home.join(file);
            let agent = ScriptAgent::load(&path, shown).map_err(|error| error.to_string())?;
            let agent: Arc<dyn Agent> = Arc::new(agent);
            agents = agents.with(id(name)?, agent);
        }
        let channel = table.get("channels").and_then(|channels| channels.get("supr"));
        let allowed = channel.and_then(|supr| supr.get("allow_from")).and_then(toml::Value::as_array);
        let is_us = |who: &toml::Value| who.as_str() == Some("supr:supr-user");
        Ok(Self { agents, may_send: allowed.is_none_or(|allowed| allowed.iter().any(is_us)) })
    }
}

impl Connection {
    fn open(house: &Arc<Sessions>, visit: ConnectionParams) -> Self {
        let (input, chunks) = mpsc::channel(INCOMING_CHUNKS);
        let incoming = Incoming { chunks, hung_up: oneshot::channel().1, refuses_foreign: false };
        let (outgoing, outlet) = outgoing();
        let guest = SessionClient::new(Arc::clone(house), OnDisconnect::Keep);
        let task =
            tokio::spawn(serve(SuprMachine::new(visit), guest, incoming, outgoing, std::future::pending()));
        Self { input: Some(input), outlet, task }
    }
}

impl Peer for Memory {
    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let input = self.connection.input.as_ref().ok_or("sent after the end")?;
        input.send(bytes.to_vec()).await.map_err(|_| "the connection is gone".to_owned())
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
        self.connection = Connection::open(&self.house, visiting(&self.visit, args)?);
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), String> {
        (&mut self.connection.task).await.map(|_| ()).map_err(|error| error.to_string())
    }
}
