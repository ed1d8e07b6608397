//! The web side: HTTP, the WebSocket of the supr door, and what stands behind them.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, bail};
use parlor_engine::Sessions;
use parlor_log::SystemClock;
use parlor_transport::{AllowLocal, FrameMemory, Listeners};
use parlor_vocab::Clock;
use parlor_web::{
    Fetcher, Metrics, OneTimeLink, PAGE, TokenStore, Web, WebLimits, WebSettings, serve_web, system_chance,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio_util::sync::CancellationToken;

use super::address;
use super::archive::SessionArchive;
use super::choices::ModelMenuSource;
use super::measured::MeasuredLog;
use super::readiness::Readiness;
use super::supr::{SuprSockets, may_send};
use super::terminals::ServerTerminals;
use crate::environment::{Environment, SuprVariables};
use crate::home::Home;
use crate::settings::supr::SuprConfig;

/// Where it listens if nobody says where.
const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 18_790);

/// Descriptors for everything but sockets: files, processes, the log, other doors.
const OTHER_DESCRIPTORS: u64 = 1024;

/// How the web side is to be opened.
pub(super) struct Plan {
    listen: SocketAddr,
    config: SuprConfig,
}

/// Puts flags, variables and settings together: the first one that says something counts.
pub(super) fn plan(
    flag: Option<&str>,
    config: &SuprConfig,
    variables: &SuprVariables,
) -> anyhow::Result<Plan> {
    let config = config.with(variables)?;
    let set = config.listen.as_deref().map_or(Ok(DEFAULT), address::parse)?;
    let listen = match flag {
        Some(flag) => address::parse(flag)?,
        None => address::join(variables.host.as_deref(), variables.port.as_deref(), set)?,
    };
    Ok(Plan { listen, config })
}

/// The web side, open, and the sessions behind it.
pub(super) struct Door {
    listeners: Listeners,
    address: SocketAddr,
    tokens: Arc<TokenStore>,
    invitation: Option<Arc<OneTimeLink>>,
    sessions: Arc<Sessions>,
    readiness: Arc<Readiness>,
    metrics: Arc<Metrics>,
    settings: WebSettings,
    menu: Arc<ModelMenuSource>,
    reception: SuprSockets,
    terminals: Arc<ServerTerminals>,
    memory: FrameMemory,
}

/// Opens it. Nobody is served yet. If somebody sees what is printed, they get a link that lets them in.
pub(super) async fn open(
    plan: Plan,
    home: &Home,
    environment: &Environment,
    tokens: &Arc<TokenStore>,
    memory: &FrameMemory,
    is_seen: bool,
) -> anyhow::Result<Door> {
    let Plan { listen, config } = plan;
    let tokens = Arc::clone(tokens);
    address::check_token(listen, &tokens.now().token)?;
    let listeners = bind(listen)?;
    let address = listeners.local_addr()?;
    let metrics = Arc::new(Metrics::default());
    metrics.started.set(SystemClock.now().0 as f64 / 1000.0);
    let mut readiness = None;
    let sessions = home.sessions_over(environment, |log| {
        let readiness = readiness.insert(Readiness::of(Arc::clone(&log), home.path()));
        Arc::new(MeasuredLog::new(log, Arc::clone(&metrics), Arc::clone(readiness)))
    })?;
    let readiness = readiness.context("a sessions has a log")?;
    raise_descriptor_limit(config.max_connections as u64);
    let keepalive = &config.keepalive;
    if keepalive.read_timeout <= keepalive.ping_interval {
        tracing::warn!(
            "read_timeout is not longer than ping_interval in [channels.supr]: idle clients will be lost before \
             they are pinged"
        );
    }
    let fetch = Arc::new(Fetcher::new(config.allow_private_urls).within(memory.clone()));
    let sessions = Arc::new(sessions.with_fetch(fetch));
    let menu = Arc::new(ModelMenuSource::new(home, environment));
    let reception = SuprSockets::new(&config, &sessions, &metrics, Arc::clone(&menu))?;
    let folder = std::env::current_dir().context("the working folder is gone")?;
    let terminals = Arc::new(ServerTerminals::new(folder, home, environment, may_send(&config.allow_from)));
    let settings = settings(config, home.config().allow_local);
    let invitation = is_seen.then(|| Arc::new(OneTimeLink::new(&system_chance())));
    if let Some(invitation) = &invitation {
        home.redaction().learner()(invitation.code());
    }
    let memory = memory.clone();
    Ok(Door {
        listeners,
        address,
        tokens,
        invitation,
        sessions,
        readiness,
        metrics,
        settings,
        menu,
        reception,
        terminals,
        memory,
    })
}

fn bind(address: SocketAddr) -> anyhow::Result<Listeners> {
    match Listeners::bind(address) {
        Ok(listeners) => Ok(listeners),
        Err(error) if error.is_in_use() => bail!(
            "{} is in use{}: is another parlor or gateway running? Choose another port with --listen ADDR, or \
             leave HTTP out with --no-http",
            error.address,
            address::why_it_matters(error.address, address),
        ),
        Err(error) => Err(error).context("cannot open the door (--listen)"),
    }
}

fn settings(config: SuprConfig, allow_local: AllowLocal) -> WebSettings {
    WebSettings {
        is_enabled: config.is_enabled,
        allow_token_query: config.allow_token_query,
        max_connections: config.max_connections,
        allow_hosts: config.allow_hosts,
        allow_local,
        limits: WebLimits::default(),
    }
}

/// Each socket is a descriptor, and systems give out few of them unless they are asked.
fn raise_descriptor_limit(sockets: u64) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = sockets.saturating_add(OTHER_DESCRIPTORS).min(limit.maximum.unwrap_or(u64::MAX));
    if limit.current.is_some_and(|current| current < wanted) {
        // Without it, connections beyond the limit wait to be accepted.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum });
    }
}

impl Door {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The token that holds now.
    pub(super) fn token(&self) -> String {
        self.tokens.now().token.reveal().to_owned()
    }

    /// The code of the link that lets somebody in once.
    pub(super) fn code(&self) -> Option<&str> {
        self.invitation.as_ref().map(|invitation| invitation.code())
    }

    /// Serves whoever comes until `stop` is cancelled, then ends all runs and closes everything.
    pub(super) async fn serve(self, stop: CancellationToken) {
        let Self {
            listeners,
            tokens,
            invitation,
            sessions,
            readiness,
            metrics,
            settings,
            menu,
            reception,
            terminals,
            memory,
            ..
        } = self;
        let web = Web {
            settings,
            tokens,
            invitation,
            menu,
            reception: Arc::new(reception),
            archive: Arc::new(SessionArchive::of(Arc::clone(&sessions), readiness)),
            processes: Arc::clone(&terminals) as _,
            metrics,
            memory,
            chance: system_chance(),
            page: PAGE,
        };
        let (stop, goodbye) = (stop.child_token(), CancellationToken::new());
        let serving = async {
            if let Err(error) = serve_web(listeners, web, stop.clone(), goodbye.clone()).await {
                tracing::error!(%error, "the web side has ended");
                stop.cancel();
            }
        };
        let ending = async {
            stop.cancelled().await;
            // Those who listen hear how their runs end, then that the server does.
            tokio::join!(terminals.close(), end(&sessions));
            goodbye.cancel();
        };
        tokio::join!(serving, ending);
    }
}

async fn end(sessions: &Sessions) {
    if tokio::time::timeout(crate::CLOSE_WAIT, sessions.end()).await.is_err() {
        tracing::warn!(
            "not all that happened could be recorded; it is put right when the session is used again"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan_of(flag: Option<&str>, set: Option<&str>, host: Option<&str>, port: Option<&str>) -> String {
        let config = SuprConfig { listen: set.map(str::to_owned), ..SuprConfig::default() };
        let [host, port] = [host, port].map(|text| text.map(str::to_owned));
        let variables = SuprVariables { host, port, ..SuprVariables::default() };
        plan(flag, &config, &variables).unwrap().listen.to_string()
    }

    #[test]
    fn flags_go_before_variables_and_these_before_settings() {
        assert_eq!(plan_of(None, None, None, None), "127.0.0.1:18790");
        assert_eq!(plan_of(None, Some("127.0.0.1:7"), None, None), "127.0.0.1:7");
        assert_eq!(plan_of(None, Some("127.0.0.1:7"), Some("::1"), None), "[::1]:7");
        assert_eq!(plan_of(None, None, Some("0.0.0.0"), Some("8")), "0.0.0.0:8");
        assert_eq!(plan_of(Some(":0"), Some("127.0.0.1:7"), Some("::1"), Some("8")), "127.0.0.1:0");
    }
}
