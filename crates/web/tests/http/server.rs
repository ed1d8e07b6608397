//! A server to test.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parlor_engine::Sessions;
use parlor_log::{EventLog, Lease, MemoryLog};
use parlor_transport::{AllowLocal, FrameMemory, Keepalive};
use parlor_web::{
    AgentInfo, Asset, CurrentCatalog, Metrics, ModelCatalog, ModelInfo, OneTimeLink, ProcessApi, Readiness,
    SkillInfo, Token, TokenConfig, TokenStore, WebDeps, WebLimits, WebSettings, serve_web, system_random,
};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::sessions::{ManualClock, seed, sessions};

/// The token of servers that have one in their settings.
pub(crate) const TOKEN: &str = "good-token-of-22-characters";

/// A page as `make page` builds it.
const BUILT: &[Asset] = &[
    Asset {
        path: "/assets/index-0a1b2c.js",
        tag: "\"1\"",
        plain: b"script",
        brotli: Some(b"brotli"),
        gzip: Some(b"gzip"),
    },
    Asset { path: "/assets/index-0a1b2c.css", tag: "\"2\"", plain: b"style", brotli: None, gzip: None },
    Asset { path: "/index.html", tag: "\"3\"", plain: b"<html>", brotli: None, gzip: Some(b"gzip") },
];

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) tokens: Arc<TokenStore>,
    pub(crate) one_time_link: Arc<OneTimeLink>,
    pub(crate) sessions: Arc<Sessions>,
    /// The log of the sessions that the server starts with.
    pub(crate) log: Arc<MemoryLog>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) memory: FrameMemory,
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<std::io::Result<()>>,
    pub(crate) folder: tempfile::TempDir,
    /// Keeps the session `b` open in what counts as another process.
    _lease: Lease,
}

/// What a test can change about its server.
pub(crate) struct Options {
    pub(crate) settings: WebSettings,
    pub(crate) configured: TokenConfig,
    pub(crate) page: &'static [Asset],
    /// The log of the sessions, instead of the one in memory.
    pub(crate) log: Option<Arc<dyn EventLog>>,
    /// Whether clients may start terminals.
    pub(crate) may_start: bool,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let settings = WebSettings {
            is_enabled: true,
            allow_token_query: false,
            max_connections: 100,
            allow_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            allow_local: AllowLocal::User,
            may_send: true,
            keepalive: Keepalive {
                ping_interval: Duration::from_secs(30),
                read_timeout: Duration::from_secs(60),
                write_timeout: Duration::from_secs(10),
            },
            folder: "/".into(),
            limits: WebLimits::default(),
        };
        let configured = TokenConfig { token: Some(Token::parse(TOKEN).unwrap()), allow_origins: Vec::new() };
        let mut options = Options { settings, configured, page: BUILT, log: None, may_start: true };
        change(&mut options);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("supr.json");
        let tokens = Arc::new(TokenStore::open(file, options.configured, system_random()).unwrap());
        let clock = ManualClock::new();
        let memory_log = Arc::new(MemoryLog::new(Arc::clone(&clock) as _));
        let log = options.log.unwrap_or_else(|| Arc::clone(&memory_log) as _);
        let sessions = Arc::new(sessions(Arc::clone(&log), folder.path(), &clock));
        let lease = seed(&sessions, &memory_log, &clock).await;
        let metrics = Arc::new(Metrics::default());
        let one_time_link = Arc::new(OneTimeLink::new(&system_random()));
        let memory = FrameMemory::default();
        let env = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
        let processes = ProcessApi::new(
            "/".into(),
            env,
            folder.path().to_owned(),
            options.may_start,
            Arc::clone(&clock) as _,
        );
        let deps = WebDeps {
            settings: options.settings,
            tokens: Arc::clone(&tokens),
            one_time_link: Some(Arc::clone(&one_time_link)),
            sessions: Arc::clone(&sessions),
            readiness: Readiness::new(log, folder.path()),
            check_title: |title| match title {
                "" => Err("a title needs a letter".to_owned()),
                title => Ok(title.to_owned()),
            },
            catalog: Arc::new(CurrentCatalog::new(catalog())),
            skills: Arc::new(|| {
                let skill = |name: &str, is_of_project| SkillInfo {
                    name: name.to_owned(),
                    description: "what for".to_owned(),
                    file: format!("/skills/{name}/SKILL.md").into(),
                    text: "# How".to_owned(),
                    is_of_project,
                };
                vec![skill("deploy", true), skill("mine", false)]
            }),
            processes: Arc::new(processes),
            serve_acp: Arc::new(|_| Box::pin(async {})),
            serve_mcp: Arc::new(|_| Box::pin(async {})),
            metrics: Arc::clone(&metrics),
            memory: memory.clone(),
            random: counting(),
            clock: Arc::clone(&clock) as _,
            page: options.page,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve_web(listener, deps, stop.clone(), stop.clone()));
        Self {
            address,
            tokens,
            one_time_link,
            sessions,
            log: memory_log,
            clock,
            metrics,
            memory,
            stop,
            task,
            folder,
            _lease: lease,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Two agents and a model that have what they need, and one of each that has no key.
fn catalog() -> ModelCatalog {
    let model = |name: &str, provider: &str, model: &str| {
        let [name, provider, model] = [name, provider, model].map(str::to_owned);
        ModelInfo { name, provider, model }
    };
    ModelCatalog {
        agents: vec![
            AgentInfo { is_default: true, needs_key: false, ..agent("local", "Local", "local", None) },
            agent("demo", "Demo", "model", Some("fast")),
            agent("locked", "Locked", "model", Some("dear")),
        ],
        models: vec![model("fast", "ollama", "small"), model("dear", "openai", "large")],
        reasoning: vec!["off", "low"],
        settings_file: "~/.parlor/parlor.toml".to_owned(),
        agent_has_key: Arc::new(|id| id != "locked"),
        model_has_key: Arc::new(|name| {
            let has_key = name != "dear";
            Box::pin(async move { has_key })
        }),
    }
}

fn agent(id: &str, name: &str, kind: &'static str, model: Option<&str>) -> AgentInfo {
    let model = model.map(str::to_owned);
    AgentInfo {
        id: id.to_owned(),
        name: name.to_owned(),
        kind,
        model,
        is_default: false,
        needs_key: kind == "model",
    }
}

fn counting() -> parlor_web::RandomSource {
    let count = AtomicU64::new(1);
    Arc::new(move || u128::from(count.fetch_add(1, Ordering::Relaxed)).to_be_bytes())
}
