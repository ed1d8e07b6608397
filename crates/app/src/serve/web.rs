//! Opens and serves the web server: HTTP, the page, and the WebSockets of the supr and ACP doors.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use parlor_engine::Sessions;
use parlor_frontend::ClientTools;
use parlor_log::SystemClock;
use parlor_model::{SkillText, UserFolders, read_skills};
use parlor_transport::{AllowLocal, FrameMemory, Listeners, remove_stale_sockets};
use parlor_vocab::Clock;
use parlor_web::{
    CurrentCatalog, Fetcher, ListSkills, LogMetrics, Metrics, OneTimeLink, PAGE, ProcessApi, Readiness,
    SkillInfo, TokenStore, WebDeps, WebLimits, WebSettings, is_origin, serve_web, system_random,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio_util::sync::CancellationToken;

use super::address;
use super::catalog::model_catalog;
use super::cluster;
use super::reload::Reloader;
use crate::environment::{Environment, SuprVariables};
use crate::home::Home;
use crate::models::Builder;
use crate::sessions::checked_title;
use crate::settings::supr::SuprConfig;
use crate::{acp, mcp};

/// The address to listen at if neither a flag, a variable nor a setting names one.
const DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 18_790);

/// How many file descriptors everything but sockets needs: files, processes, the log, other doors.
const OTHER_DESCRIPTORS: u64 = 1024;

/// The name of every client in `allow_from`. There is one token, so there is one user.
const USER: &str = "supr-user";
const CANONICAL_USER: &str = "supr:supr-user";

/// How to open the web server.
pub(super) struct Plan {
    listen: SocketAddr,
    config: SuprConfig,
}

/// Merges flags, variables and settings. Flags override variables, and variables override settings.
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

/// The web server, listening but not serving yet.
pub(super) struct WebDoor {
    listeners: Listeners,
    address: SocketAddr,
    deps: WebDeps,
    /// The tools of clients of the MCP door.
    mcp_tools: Arc<ClientTools>,
}

/// Opens the web server. If `shows_link`, it makes a one-time link for the person at the terminal.
pub(super) async fn open(
    plan: Plan,
    home: &Home,
    environment: &Environment,
    tokens: &Arc<TokenStore>,
    memory: &FrameMemory,
    shows_link: bool,
) -> anyhow::Result<WebDoor> {
    let Plan { listen, config } = plan;
    address::check_token(listen, &tokens.now().token)?;
    if let Some(token) = &config.token {
        address::warn_of_weak_token(token.reveal(), "[channels.supr]");
    }
    address::check_proxied_token(!config.trusted_proxies.is_empty(), &tokens.now().token)?;
    let listeners = bind(listen)?;
    let address = listeners.local_addr()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let metrics = Arc::new(Metrics::default());
    metrics.started.set(clock.now().0 as f64 / 1000.0);
    let mut readiness = None;
    let sessions = home.sessions_for_server(environment, |log| {
        let readiness = readiness.insert(Readiness::new(Arc::clone(&log), home.path()));
        Arc::new(LogMetrics::new(Arc::clone(&metrics), Arc::clone(readiness)).observe(log))
    });
    let (sessions, opened) = sessions.await?;
    let readiness = readiness.context("the sessions were opened without a log")?;
    raise_descriptor_limit(config.max_connections as u64);
    let keepalive = &config.keepalive;
    if keepalive.read_timeout <= keepalive.ping_interval {
        tracing::warn!(
            "read_timeout is not longer than ping_interval in [channels.supr]: idle clients will be disconnected \
             before they are pinged"
        );
    }
    for origin in config.allow_origins.iter().filter(|origin| *origin != "*" && !is_origin(origin)) {
        tracing::warn!(
            origin,
            "allow_origins in [channels.supr] has what is no origin and opens nothing: an origin is http://HOST or \
             https://HOST, with :PORT unless it is 80 or 443, in lower case and without a path"
        );
    }
    let fetch = Fetcher::new(config.allow_private_urls).with_memory(memory.clone());
    let folder = std::env::current_dir().context("the working folder is gone")?;
    remove_stale_sockets(home.path()).await;
    let processes = ProcessApi::new(
        folder.clone(),
        home.command_environment(environment),
        home.path().to_owned(),
        may_send(&config.allow_from) && config.has_terminals,
        Arc::clone(&clock),
    );
    let one_time_link = shows_link.then(|| Arc::new(OneTimeLink::new(&system_random())));
    if let Some(link) = &one_time_link {
        home.redaction().learner()(link.code());
    }
    let skills = skills(Builder::new(home, environment).user_folders(), folder.clone());
    let sessions = Arc::new(sessions.with_fetch(Arc::new(fetch)));
    opened.door.serve(&sessions);
    cluster::start(&opened.log, &sessions, tokens).await?;
    let serve_acp = acp::serve_sockets(home, environment, Arc::clone(&sessions), folder.clone());
    let (serve_mcp, mcp_tools) =
        mcp::serve_requests(home, environment, Arc::clone(&sessions), folder.clone())?;
    let deps = WebDeps {
        settings: settings(config, home.config().allow_local, folder),
        tokens: Arc::clone(tokens),
        one_time_link,
        sessions,
        readiness,
        check_title: |title| checked_title(title).map_err(|error| error.to_string()),
        catalog: Arc::new(CurrentCatalog::new(model_catalog(home, environment))),
        skills,
        processes: Arc::new(processes),
        serve_acp,
        serve_mcp,
        metrics,
        memory: memory.clone(),
        random: system_random(),
        clock,
        page: PAGE,
    };
    Ok(WebDoor { listeners, address, deps, mcp_tools })
}

/// Lists the skills that agents have in `folder`.
fn skills(user: UserFolders, folder: PathBuf) -> ListSkills {
    let info = |SkillText { name, description, file, text, in_project }| SkillInfo {
        name,
        description,
        file,
        text,
        is_of_project: in_project,
    };
    Arc::new(move || read_skills(&user, &folder).into_iter().map(info).collect())
}

/// Whether clients may send messages and start terminals, or only read.
fn may_send(allow_from: &[String]) -> bool {
    let is_user = |who: &String| who == USER || who.eq_ignore_ascii_case(CANONICAL_USER);
    allow_from.is_empty() || allow_from.iter().any(is_user)
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

fn settings(config: SuprConfig, allow_local: AllowLocal, folder: PathBuf) -> WebSettings {
    WebSettings {
        is_enabled: config.is_enabled,
        allow_token_query: config.allow_token_query,
        max_connections: config.max_connections,
        allow_hosts: config.allow_hosts,
        trusted_proxies: config.trusted_proxies,
        allow_local,
        may_send: may_send(&config.allow_from),
        keepalive: config.keepalive,
        folder,
        limits: WebLimits::default(),
    }
}

/// Raises the limit of file descriptors, of which each socket needs one. Its default is often 1024.
fn raise_descriptor_limit(sockets: u64) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = sockets.saturating_add(OTHER_DESCRIPTORS).min(limit.maximum.unwrap_or(u64::MAX));
    if limit.current.is_some_and(|current| current < wanted) {
        // If this fails, connections beyond the limit wait until they are accepted.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum });
    }
}

impl WebDoor {
    /// The address that the server listens at.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The sessions of the server.
    pub(super) fn sessions(&self) -> Arc<Sessions> {
        Arc::clone(&self.deps.sessions)
    }

    /// Replaces what a reload of the settings changes.
    pub(super) fn reloader(&self) -> Reloader {
        Reloader { sessions: Arc::clone(&self.deps.sessions), catalog: Arc::clone(&self.deps.catalog) }
    }

    /// The token that is valid now.
    pub(super) fn token(&self) -> String {
        self.deps.tokens.now().token.reveal().to_owned()
    }

    /// The code of the one-time link, if there is one.
    pub(super) fn code(&self) -> Option<&str> {
        self.deps.one_time_link.as_ref().map(|link| link.code())
    }

    /// Serves clients until `stop` is cancelled, then stops all runs and closes everything.
    pub(super) async fn serve(self, stop: CancellationToken) {
        let Self { listeners, deps, mcp_tools, .. } = self;
        let (sessions, processes) = (Arc::clone(&deps.sessions), Arc::clone(&deps.processes));
        let (stop, goodbye) = (stop.child_token(), CancellationToken::new());
        let serving = async {
            if let Err(error) = serve_web(listeners, deps, stop.clone(), goodbye.clone()).await {
                tracing::error!(%error, "the web server failed");
                stop.cancel();
            }
        };
        let ending = async {
            stop.cancelled().await;
            // Clients get the ends of their runs before the server closes their sockets.
            tokio::join!(processes.close(), mcp_tools.close(), end(&sessions));
            goodbye.cancel();
        };
        tokio::join!(serving, ending);
    }
}

/// Stops all runs and records their ends.
async fn end(sessions: &Sessions) {
    if tokio::time::timeout(crate::CLOSE_WAIT, sessions.shut_down()).await.is_err() {
        tracing::warn!(
            "could not record the end of every run in time; a session records it when it is opened again"
        );
    }
    sessions.close_log().await;
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
    fn flags_override_variables_and_variables_override_settings() {
        assert_eq!(plan_of(None, None, None, None), "127.0.0.1:18790");
        assert_eq!(plan_of(None, Some("127.0.0.1:7"), None, None), "127.0.0.1:7");
        assert_eq!(plan_of(None, Some("127.0.0.1:7"), Some("::1"), None), "[::1]:7");
        assert_eq!(plan_of(None, None, Some("0.0.0.0"), Some("8")), "0.0.0.0:8");
        assert_eq!(plan_of(Some(":0"), Some("127.0.0.1:7"), Some("::1"), Some("8")), "127.0.0.1:0");
    }

    #[test]
    fn clients_may_send_if_allow_from_is_empty_or_names_the_user() {
        let may = |names: &[&str]| may_send(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert!(may(&[]) && may(&["telegram:1", "supr-user"]) && may(&["SUPR:supr-USER"]));
        assert!(!may(&["telegram:1"]) && !may(&["Supr-User"]));
    }
}
