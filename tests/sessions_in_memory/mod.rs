//! Sessions for one transcript in memory: a log in memory, the agents of the case's `parlor.toml`, and real tools. The
//! transcripts over the wire test what the program itself decides (flags, folders, which session is continued).

pub(crate) mod acp;
pub(crate) mod loaf;
pub(crate) mod mcp;
pub(crate) mod peer;

use std::path::Path;
use std::sync::Arc;

use parlor_doors::ToolDescription;
use parlor_doors::synaps::{AvailableModel, ChildParams, SynapsMachine};
use parlor_engine::{Agents, MediaStore, OnDisconnect, SessionClient, SessionDeps};
use parlor_log::{MemoryLog, SystemClock, TimeOrderedIds};
use parlor_model::{Agent, LocalAgent, ScriptAgent};
use parlor_testkit::Case;
use parlor_tools::{ShellTool, Toolbox};
use parlor_vocab::{AgentChoice, AgentId, NewSession, Seq, SessionId};

/// Sessions in memory, and the parameters of a synaps child that uses them.
pub(crate) struct SessionsInMemory {
    sessions: Arc<parlor_engine::Sessions>,
    /// The log of `sessions`, as another process sees it.
    other_process: MemoryLog,
    child: ChildParams,
}

impl SessionsInMemory {
    /// Sessions with the settings of `case`.
    pub(crate) fn for_case(case: &Case) -> Result<Self, String> {
        let configured = Configured::read(&case.home)?;
        let clock = Arc::new(SystemClock);
        let tools = Toolbox::standard(ShellTool::default());
        let describe = |tool: &dyn parlor_tools::Tool| ToolDescription {
            name: tool.name().to_owned(),
            description: tool.description().to_owned(),
            schema: tool.schema(),
        };
        let mut child = ChildParams {
            session: SessionId::parse("").map_err(|error| error.to_string())?,
            head: Seq::START,
            is_new: true,
            active: None,
            key_prefix: "child".to_owned(),
            new_session: NewSession {
                title: None,
                door: "synaps".to_owned(),
                folder: case.tmp.clone(),
                choice: AgentChoice::default(),
                system: None,
                forked_from: None,
            },
            default_model: configured.default.to_string(),
            models: configured.models,
            routes: Vec::new(),
            tools: tools.iter().map(|tool| describe(&**tool)).collect(),
        };
        match case.args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            [] => {}
            ["--model", model] => child.new_session.choice = child.choice(model),
            other => return Err(format!("a transcript in memory cannot use {other:?}: add `#! only wire`")),
        }
        let log = MemoryLog::new(Arc::clone(&clock) as _);
        let other_process = log.as_other_process();
        let deps = SessionDeps {
            log: Arc::new(log),
            agents: configured.agents,
            media: MediaStore::open(&case.home).map_err(|error| error.to_string())?,
            tools,
            env: Arc::new([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            clock: Arc::clone(&clock) as _,
            ids: Arc::new(TimeOrderedIds::new(clock)),
        };
        Ok(Self { sessions: Arc::new(parlor_engine::Sessions::new(deps)), other_process, child })
    }

    /// The machine and the backend of a child with a new session.
    pub(crate) async fn child(mut self) -> (SynapsMachine, SessionClient) {
        self.child.session = self
            .sessions
            .create(None, self.child.new_session.clone())
            .await
            .expect("the log in memory accepts a session");
        self.child.head = Seq(1);
        (SynapsMachine::new(self.child), SessionClient::new(self.sessions, OnDisconnect::Stop))
    }
}

/// The agents of a `parlor.toml`, or only the local agent if there is no such file.
struct Configured {
    default: AgentId,
    agents: Agents,
    models: Vec<AvailableModel>,
}

impl Configured {
    fn read(home: &Path) -> Result<Self, String> {
        let file = home.join("parlor.toml");
        let text = if file.exists() { std::fs::read_to_string(&file) } else { Ok(String::new()) };
        let table: toml::Table =
            toml::from_str(&text.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
        let id = |name: &str| AgentId::parse(name).map_err(|error| error.to_string());
        let default = id(table.get("default_agent").and_then(toml::Value::as_str).unwrap_or("local"))?;
        let mut agents: Vec<(AgentId, Arc<dyn Agent>)> =
            vec![(id("local")?, Arc::new(LocalAgent::default()))];
        for (name, about) in table.get("agents").and_then(toml::Value::as_table).into_iter().flatten() {
            let file = about
                .get("file")
                .and_then(toml::Value::as_str)
                .ok_or("an agent in a transcript must have a file")?;
            let shown = about.get("name").and_then(toml::Value::as_str).unwrap_or(name);
            let agent = ScriptAgent::load(&home.join(file), shown).map_err(|error| error.to_string())?;
            agents.push((id(name)?, Arc::new(agent)));
        }
        let model = |(id, agent): &(AgentId, Arc<dyn Agent>)| AvailableModel {
            provider: "parlor".to_owned(),
            id: id.to_string(),
            name: agent.name().to_owned(),
            agent: Some(id.clone()),
        };
        let mut models: Vec<AvailableModel> = agents.iter().map(model).collect();
        models.sort_by(|a, b| a.id.cmp(&b.id));
        let chosen = agents.iter().find(|(id, _)| *id == default).ok_or("no such default agent")?.1.clone();
        let all = agents
            .into_iter()
            .fold(Agents::new(default.clone(), chosen), |all, (id, agent)| all.with(id, agent));
        Ok(Self { default, agents: all, models })
    }
}
