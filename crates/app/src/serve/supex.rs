//! The two Supex doors, the bridge and the REPL: opens them (with their default ports), builds their backend, and serves
//! them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use chrono::{DateTime, Local};
use parlor_doors::supex::{AttachInfo, BridgeMachine, HelloToken, ReplMachine, redact_token};
use parlor_log::{SystemClock, TimeOrderedIds, random_u128};
use parlor_ruby::{
    AllowedRoots, EvaluateAt, RubyBackend, RubyBackendConfig, RubyConnection, RubySettings, ToolRunner,
    Upstream,
};
use parlor_tools::{Policy, ShellTool, ToolContext, Toolbox, ToolboxRunner};
use parlor_transport::{
    AllowLocal, ConnectedPeer, FrameMemory, HangUpProbe, Listeners, Service, TracedMachine, serve_tcp,
};
use parlor_vocab::{IdSource, Timestamp};
use parlor_web::TokenStore;
use tokio_util::sync::CancellationToken;

use super::address;
use super::sketchup::UpstreamClient;
use crate::environment::{Environment, SupexVariables};
use crate::home::Home;
use crate::settings::supex::SupexConfig;

/// The folder of the console log, in the state folder.
const FOLDER: &str = "supex";

/// The port of the console of a SketchUp, on the same machine as its bridge.
const CONSOLE_PORT: u16 = 4433;

/// The longest pause after a reply that `SUPEX_RESPONSE_DELAY` may ask for, in seconds.
const MAX_RESPONSE_DELAY: f64 = 60.0;

/// Which doors to open, and how.
#[derive(Default)]
pub(super) struct Plan {
    bridge: Option<SocketAddr>,
    repl: Option<SocketAddr>,
    token: Option<String>,
    response_delay: Duration,
    is_verbose: bool,
}

impl Plan {
    pub(super) fn is_empty(&self) -> bool {
        self.bridge.is_none() && self.repl.is_none()
    }
}

/// Merges flags, variables and settings. Flags override variables, and variables override settings.
pub(super) fn plan(
    bridge: Option<&str>,
    repl: Option<&str>,
    config: &SupexConfig,
    variables: &SupexVariables,
) -> anyhow::Result<Plan> {
    let pick =
        |flag: Option<&str>, host: &Option<String>, port: &Option<String>, set: &Option<String>, default| {
            let default = set.as_deref().map_or(Ok(default), address::parse)?;
            match flag {
                Some(flag) => address::parse(flag),
                None => address::join(host.as_deref(), port.as_deref(), default),
            }
        };
    let near = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let opens_bridge = bridge.is_some() || !variables.no_autostart;
    let opens_repl = repl.is_some() || !(variables.no_autostart || variables.repl_disabled);
    let plan = Plan {
        bridge: opens_bridge
            .then(|| pick(bridge, &variables.host, &variables.port, &config.listen, near(9876)))
            .transpose()?,
        repl: opens_repl
            .then(|| pick(repl, &variables.repl_host, &variables.repl_port, &config.repl_listen, near(4433)))
            .transpose()?,
        token: variables.token.clone().or_else(|| config.token.clone()),
        response_delay: response_delay(variables.response_delay.as_deref())?,
        is_verbose: variables.verbose,
    };
    for address in [plan.bridge, plan.repl].into_iter().flatten() {
        address::check(address, variables.allow_remote, plan.token.is_some())?;
    }
    if let Some(token) = &plan.token {
        address::warn_of_weak_token(token, "SUPEX_AUTH_TOKEN or [channels.supex]");
    }
    Ok(plan)
}

fn response_delay(seconds: Option<&str>) -> anyhow::Result<Duration> {
    let Some(text) = seconds else { return Ok(Duration::ZERO) };
    match text.trim().parse::<f64>() {
        Ok(seconds) if (0.0..=MAX_RESPONSE_DELAY).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) | Err(_) => {
            bail!("SUPEX_RESPONSE_DELAY is {text:?}; it takes 0 to {MAX_RESPONSE_DELAY} seconds")
        }
    }
}

/// The open doors and the backend that they share.
pub(super) struct Doors {
    bridge: Option<(Listeners, SocketAddr)>,
    repl: Option<(Listeners, SocketAddr)>,
    backend: RubyBackend,
    access: Access,
    response_delay: Duration,
    show: Option<fn(&[u8]) -> String>,
    memory: FrameMemory,
}

/// Which token a client must send.
struct Access {
    /// The token of these doors. If there is one, every client must send it.
    own: Option<Arc<HelloToken>>,
    /// The token of the server, for all clients that `allow_local` does not exempt.
    of_server: Arc<HelloToken>,
    /// Which users of this machine need not send the token of the server.
    allow_local: AllowLocal,
}

impl Access {
    /// The token that `peer` must send, if it must send one.
    fn token_for(&self, peer: &ConnectedPeer) -> Option<Arc<HelloToken>> {
        if let Some(own) = &self.own {
            return Some(Arc::clone(own));
        }
        (!self.allow_local.admits(|| peer.user())).then(|| Arc::clone(&self.of_server))
    }
}

/// Opens the doors. They serve no clients yet.
pub(super) async fn open(
    plan: &Plan,
    home: &Home,
    environment: &Environment,
    tokens: &Arc<TokenStore>,
    memory: FrameMemory,
) -> anyhow::Result<Doors> {
    let config = &home.config().supex;
    let bridge = bind(plan.bridge, "--supex")?;
    let repl = bind(plan.repl, "--supex-repl")?;
    let state = home.path().join(FOLDER);
    let upstream = upstream(config, [&bridge, &repl].map(|door| door.as_ref().map(|(_, address)| *address)))?;
    let backend = RubyBackend::open(backend_config(plan, home, &state, environment, upstream)?)
        .with_context(|| format!("cannot keep the console log in {}", state.display()))?;
    let tokens = Arc::clone(tokens);
    let access = Access {
        own: plan.token.as_deref().and_then(HelloToken::new).map(Arc::new),
        of_server: Arc::new(HelloToken::for_server(move |given| tokens.now().token.is(given))),
        allow_local: home.config().allow_local,
    };
    let show = plan.is_verbose.then_some(redact_token as fn(&[u8]) -> String);
    Ok(Doors { bridge, repl, backend, access, response_delay: plan.response_delay, show, memory })
}

fn bind(address: Option<SocketAddr>, flag: &str) -> anyhow::Result<Option<(Listeners, SocketAddr)>> {
    let Some(address) = address else { return Ok(None) };
    let listeners = match Listeners::bind(address) {
        Ok(listeners) => listeners,
        Err(error) if error.is_in_use() => bail!(
            "{} is in use{}: is SketchUp running, or another parlor? Choose another port with {flag} ADDR",
            error.address,
            address::why_it_matters(error.address, address),
        ),
        Err(error) => return Err(error).with_context(|| format!("cannot open the door ({flag})")),
    };
    let bound = listeners.local_addr()?;
    Ok(Some((listeners, bound)))
}

fn backend_config(
    plan: &Plan,
    home: &Home,
    state: &Path,
    environment: &Environment,
    upstream: Option<(Arc<dyn Upstream>, EvaluateAt)>,
) -> anyhow::Result<RubyBackendConfig> {
    let config = &home.config().supex;
    let folder = std::env::current_dir().context("the working folder is gone")?;
    let user_home = environment.user_home.as_ref().map(Into::into);
    let variables = &environment.supex;
    let mut roots = AllowedRoots::new(folder.clone(), user_home);
    let listed = variables.allowed_roots.as_deref().or(config.allowed_roots.as_deref()).unwrap_or_default();
    for root in listed.split(':').chain(variables.project_root.as_deref()).filter(|root| !root.is_empty()) {
        roots = roots.with(root);
    }
    let env = home.command_environment(environment);
    let mut ruby = RubySettings::new(folder.clone(), env.clone());
    if let Some(program) = &environment.ruby {
        ruby.program = program.to_string_lossy().into_owned();
    }
    ruby.time_limit = config.eval_timeout;
    ruby.memory_limit = config.memory_limit.unwrap_or(u64::MAX);
    // Without a token, clients get Ruby and no other tools, as clients of this protocol expect.
    let tools = match plan.token {
        Some(_) => {
            let policy = Policy::new([&folder]).map_err(|failure| anyhow::anyhow!(failure.message))?;
            let policy = policy.with_home_of(&env).without_state(home.path());
            let context = ToolContext::with_policy(folder, policy);
            let context = ToolContext { env: env.into(), ..context };
            Some(Arc::new(ToolboxRunner::new(Toolbox::standard(ShellTool::default()), context))
                as Arc<dyn ToolRunner>)
        }
        None => None,
    };
    Ok(RubyBackendConfig {
        ruby,
        state: state.to_owned(),
        roots,
        upstream,
        tools,
        clock: Arc::new(SystemClock),
        format_time: local_time,
    })
}

/// The SketchUp to forward calls to, if the settings name one. `ours` are the addresses of our own bridge and REPL: a
/// server that forwarded calls to itself would wait for ever.
fn upstream(
    config: &SupexConfig,
    ours: [Option<SocketAddr>; 2],
) -> anyhow::Result<Option<(Arc<dyn Upstream>, EvaluateAt)>> {
    let Some(address) = &config.upstream else { return Ok(None) };
    let [bridge, repl] =
        ours.map(|door| move |address: &str| door.is_some_and(|door| leads_to(address, door)));
    if bridge(address) {
        bail!("upstream = {address:?} in [channels.supex] is this server itself; name that of SketchUp");
    }
    let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
    let console = format!("{host}:{CONSOLE_PORT}");
    let mut upstream = UpstreamClient::new(address.clone(), config.upstream_token.clone());
    if !repl(&console) {
        upstream = upstream.with_console(console);
    }
    let evaluate_at = if config.evaluates_upstream { EvaluateAt::Upstream } else { EvaluateAt::Local };
    Ok(Some((Arc::new(upstream), evaluate_at)))
}

/// Whether `address` leads to our own `door`. Does not resolve names, which can take long. A door that listens at one
/// loopback address listens at the other too.
fn leads_to(address: &str, door: SocketAddr) -> bool {
    let address = address.replacen("localhost", "127.0.0.1", 1);
    address.parse::<SocketAddr>().is_ok_and(|address| {
        let is_loopback =
            (door.ip().is_unspecified() || door.ip().is_loopback()) && address.ip().is_loopback();
        address.port() == door.port() && (address.ip() == door.ip() || is_loopback)
    })
}

/// A time in the time zone of this machine, such as `2026-03-04T12:00:00.123`.
fn local_time(at: Timestamp) -> String {
    let moment = DateTime::from_timestamp_millis(at.0).unwrap_or_default();
    moment.with_timezone(&Local).format("%Y-%m-%dT%H:%M:%S%.3f").to_string()
}

impl Doors {
    pub(super) fn bridge_address(&self) -> Option<SocketAddr> {
        self.bridge.as_ref().map(|(_, address)| *address)
    }

    pub(super) fn repl_address(&self) -> Option<SocketAddr> {
        self.repl.as_ref().map(|(_, address)| *address)
    }

    /// Serves clients until `stop` is cancelled, then closes the backend.
    pub(super) async fn serve(self, stop: CancellationToken) {
        let Self { bridge, repl, backend, access, response_delay, show, memory } = self;
        let instance: Arc<str> = TimeOrderedIds::new(Arc::new(SystemClock)).next().to_string().into();
        let bridge = async {
            let Some((listeners, _)) = bridge else { return };
            let make = |peer: &ConnectedPeer, probe: HangUpProbe| {
                let attach = AttachInfo::new(Arc::clone(&instance), format!("{:032x}", random_u128()));
                let machine = BridgeMachine::new(access.token_for(peer), attach, Instant::now());
                service(
                    TracedMachine::new(machine, "supex", show),
                    backend.connect(Box::new(move || probe.has_hung_up())),
                    response_delay,
                    &memory,
                )
            };
            serve_tcp(listeners, make, stop.clone()).await;
        };
        let repl = async {
            let Some((listeners, _)) = repl else { return };
            let make = |peer: &ConnectedPeer, probe: HangUpProbe| {
                let machine = ReplMachine::new(access.token_for(peer));
                let machine = match peer.user().is_owner() {
                    true => machine,
                    false => machine.with_hello_deadline(Instant::now()),
                };
                service(
                    TracedMachine::new(machine, "supex-repl", show),
                    backend.connect(Box::new(move || probe.has_hung_up())),
                    response_delay,
                    &memory,
                )
            };
            serve_tcp(listeners, make, stop.clone()).await;
        };
        let closing = async {
            stop.cancelled().await;
            backend.close().await;
        };
        tokio::join!(bridge, repl, closing);
    }
}

fn service<M>(
    machine: M,
    connection: RubyConnection,
    response_delay: Duration,
    memory: &FrameMemory,
) -> Service<M, RubyConnection> {
    let receipt = connection.receipt();
    let on_delivered = Box::new(move || receipt.confirm());
    Service {
        machine,
        backend: connection,
        on_delivered,
        write_pause: response_delay,
        memory: memory.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(upstream: &str) -> SupexConfig {
        SupexConfig { upstream: Some(upstream.to_owned()), ..SupexConfig::default() }
    }

    fn forwards_consoles(upstream_address: &str, repl: &str) -> bool {
        let ours = [None, Some(repl.parse().unwrap())];
        let (upstream, _) = upstream(&config(upstream_address), ours).unwrap().unwrap();
        upstream.console().is_some()
    }

    #[test]
    fn a_server_does_not_forward_to_itself() {
        for (address, door) in [
            ("127.0.0.1:9876", "127.0.0.1:9876"),
            ("localhost:9876", "127.0.0.1:9876"),
            ("127.0.0.1:9876", "0.0.0.0:9876"),
            ("[::1]:9876", "[::1]:9876"),
            ("[::1]:9876", "127.0.0.1:9876"),
            ("localhost:9876", "[::1]:9876"),
        ] {
            let refused = upstream(&config(address), [Some(door.parse().unwrap()), None]);
            let message = refused.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(message.contains("is this server itself"), "{address} {door}: {message}");
        }
        assert!(upstream(&config("127.0.0.1:9876"), [Some("127.0.0.1:9877".parse().unwrap()), None]).is_ok());
    }

    #[test]
    fn consoles_are_forwarded_to_the_console_port_unless_it_is_our_own() {
        assert!(forwards_consoles("127.0.0.1:9876", "127.0.0.1:4434"));
        assert!(forwards_consoles("upstream.example:9876", "127.0.0.1:4433"));
        assert!(!forwards_consoles("127.0.0.1:9876", "127.0.0.1:4433"));
    }
}
