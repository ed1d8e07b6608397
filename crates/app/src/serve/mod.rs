//! `parlor serve`: opens the doors on the network and serves them until it is asked to end.

mod address;
mod catalog;
mod cluster;
mod exec;
mod exec_work;
mod logging;
mod reload;
mod retention;
mod serve_lock;
mod sketchup;
mod stderr_writer;
mod supervisor;
mod supex;
mod web;

use std::io::{IsTerminal, Write, stderr};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::available_parallelism;

use anyhow::bail;
use clap::Args;
use parlor_transport::{AllowLocal, FrameMemory, ServerSignals};
use parlor_web::ONE_TIME_LINK_LIFE;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::console::Console;
use crate::doctor::enforced;
use crate::environment::Environment;
use crate::home::Home;
use crate::settings::Config;
use crate::state_folder_trust;
use crate::token;

use self::reload::Reloads;
use self::serve_lock::Addresses;
use self::supervisor::Supervisor;

pub(crate) use self::serve_lock::ServeLock;

/// How many threads serve, if the machine has as many cores. More than one, so that a client that sends a message does not
/// wait while a thousand others get an event. The threads live as long as the server, since the kernel kills a child
/// process when the thread that started it ends.
const MAX_THREADS: usize = 4;

/// The options of `parlor serve`: which doors to open, and at which addresses.
#[derive(Args)]
pub(crate) struct Options {
    /// Where the web page and the supr door listen; port 0 picks a free one [default: 127.0.0.1:18790]
    #[arg(long, value_name = "ADDR", overrides_with = "listen")]
    listen: Option<String>,
    /// Open neither the web page nor the supr door
    #[arg(long, conflicts_with = "listen")]
    no_http: bool,
    /// Where the Supex bridge listens; port 0 picks a free one [default: 127.0.0.1:9876]
    #[arg(long, value_name = "ADDR", overrides_with = "supex")]
    supex: Option<String>,
    /// Where the Supex REPL listens; port 0 picks a free one [default: 127.0.0.1:4433]
    #[arg(long, value_name = "ADDR", overrides_with = "supex_repl")]
    supex_repl: Option<String>,
    /// Open the exec door for today's codex CLI on a WebSocket, such as ws://127.0.0.1:7003; port 0 picks a free one
    ///
    /// Whoever may connect can run any program: this user, and clients with the token that `parlor token` prints.
    #[arg(long, value_name = "ADDR", overrides_with = "exec")]
    exec: Option<String>,
    /// Where the events of sessions are kept: sqlite: (in the state folder) or postgres://USER@HOST/DATABASE
    ///
    /// Overrides log.url in parlor.toml. Other users can see the arguments of a program: put the password into the file
    /// that log.password_file names, or into the variable PGPASSWORD.
    #[arg(long, value_name = "URL", overrides_with = "log")]
    log: Option<String>,
    /// How a line of the log on stderr looks
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t, overrides_with = "log_format")]
    log_format: logging::LogFormat,
    /// Open neither the Supex bridge nor the Supex REPL
    #[arg(long, conflicts_with_all = ["supex", "supex_repl"])]
    no_supex: bool,
}

/// Opens the doors and serves them until a signal asks the program to end.
pub(crate) fn serve(
    environment: &Environment,
    options: &Options,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let threads = available_parallelism().map_or(1, NonZeroUsize::get).min(MAX_THREADS);
    let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    let done = runtime.block_on(serve_doors(environment, options, console, out));
    // Does not wait for tasks that still wait for the disk.
    runtime.shutdown_background();
    done.map(|()| ExitCode::SUCCESS)
}

async fn serve_doors(
    environment: &Environment,
    options: &Options,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut signals = ServerSignals::listen()?;
    // The user may add a key for any provider while the server runs.
    let home = Home::find(environment)?.with_all_providers().with_log_url(options.log.as_deref())?;
    let home = Arc::new(home);
    let redaction = home.redaction().clone();
    let _log_writer =
        logging::start(environment.log.as_deref(), stderr().is_terminal(), options.log_format, redaction)?;
    if enforced::is_root() {
        tracing::warn!("parlor runs as {}; {}", enforced::ROOT_RISK, enforced::ROOT_FIX);
    }
    let config = home.config();
    for unknown in &config.unknown_settings {
        tracing::warn!("a part of parlor.toml is ignored: {unknown}");
    }
    if let Some(file) = state_folder_trust::exposed_settings(home.path(), config) {
        let file = file.display();
        tracing::warn!("other users can read the token or password in {file}; run: chmod 600 {file}");
    }
    let web = match options.no_http {
        true => None,
        false => Some(web::plan(options.listen.as_deref(), &config.supr, &environment.supr)?),
    };
    let supex = match options.no_supex {
        true => supex::Plan::default(),
        false => {
            let (bridge, repl) = (options.supex.as_deref(), options.supex_repl.as_deref());
            supex::plan(bridge, repl, &config.supex, &environment.supex)?
        }
    };
    let exec = options.exec.as_deref().map(exec::plan).transpose()?;
    if web.is_none() && supex.is_empty() && exec.is_none() {
        bail!(
            "no door is to be opened; leave out --no-http or --no-supex, or name an address with --listen ADDR"
        );
    }
    let mut lock = ServeLock::take(home.path())?;
    // All doors share one budget for large frames.
    let limit = config.max_frame_memory.and_then(|bytes| usize::try_from(bytes).ok());
    let memory = FrameMemory::new(limit.unwrap_or(usize::MAX));
    let tokens = token::open_store(home.path(), &config.supr.with(&environment.supr)?)?;
    let tokens = Arc::new(tokens.with_learning(home.redaction().learner()));
    let web = match web {
        Some(plan) => {
            Some(web::open(plan, &home, environment, &tokens, &memory, console.stdout_is_terminal).await?)
        }
        None => None,
    };
    let sessions = web.as_ref().map(web::WebDoor::sessions);
    let exec = exec.map(|address| exec::open(address, &home, &tokens, &memory, sessions)).transpose()?;
    let supex = match supex.is_empty() {
        true => None,
        false => Some(supex::open(&supex, &home, environment, &tokens, memory).await?),
    };
    let addresses = Addresses {
        http: web.as_ref().map(web::WebDoor::address),
        supex: supex.as_ref().and_then(supex::Doors::bridge_address),
        supex_repl: supex.as_ref().and_then(supex::Doors::repl_address),
        exec: exec.as_ref().map(exec::ExecDoor::address),
    };
    lock.publish(&addresses)?;
    tracing::info!(
        http = addresses.http.map(tracing::field::display),
        supex = addresses.supex.map(tracing::field::display),
        supex_repl = addresses.supex_repl.map(tracing::field::display),
        exec = addresses.exec.map(tracing::field::display),
        "serving"
    );
    if console.stdout_is_terminal {
        print_addresses(out, &addresses, web.as_ref(), config)?;
    }
    parlor_process::unmap_code();
    let supervisor = Supervisor::new(environment.notify_socket.as_deref());
    supervisor.ready();
    let reloader = web.as_ref().map(web::WebDoor::reloader);
    let sessions = reloader.as_ref().map(|reloader| Arc::clone(&reloader.sessions));
    let (retention, retention_changes) = watch::channel(config.retention);
    let stop = CancellationToken::new();
    let serving = async {
        let web = async {
            if let Some(web) = web {
                web.serve(stop.clone()).await;
            }
        };
        let supex = async {
            if let Some(supex) = supex {
                supex.serve(stop.clone()).await;
            }
        };
        let exec = async {
            if let Some(exec) = exec {
                exec.serve(stop.clone()).await;
            }
        };
        let retention = async {
            if let Some(sessions) = sessions {
                retention::delete_old_sessions(&sessions, retention_changes, &stop).await;
            }
        };
        tokio::join!(web, supex, exec, retention);
    };
    let ending = async {
        let reloads = Reloads {
            reloader: reloader.map(Arc::new),
            environment: Arc::new(environment.clone()),
            log_url: options.log.clone(),
            retention,
        };
        reloads.until_end(Arc::clone(&home), &mut signals, &supervisor).await;
        supervisor.stopping();
        stop.cancel();
    };
    tokio::join!(serving, ending);
    lock.withdraw();
    Ok(())
}

/// Tells the person at the terminal how to connect. Programs read `serve.json`, which does not have the token.
fn print_addresses(
    out: &mut dyn Write,
    addresses: &Addresses,
    web: Option<&web::WebDoor>,
    config: &Config,
) -> anyhow::Result<()> {
    writeln!(out, "parlor is serving; Ctrl-C ends it.")?;
    let http = addresses.http.map(reachable);
    if let Some(address) = http {
        writeln!(out, "  Open in a browser  http://{address}/")?;
        writeln!(out, "  Socket             ws://{address}/supr/ws")?;
    }
    if let (Some(address), Some(code)) = (http, web.and_then(web::WebDoor::code)) {
        writeln!(out, "  One-time link      http://{address}/#code={code}")?;
        let minutes = ONE_TIME_LINK_LIFE.as_secs() / 60;
        writeln!(out, "                     lets any browser in, once, for {minutes} minutes")?;
    }
    if let Some(web) = web {
        writeln!(out, "  Token              {}", web.token())?;
    }
    if let Some(address) = addresses.supex {
        writeln!(out, "  Supex bridge       {address}")?;
    }
    if let Some(address) = addresses.supex_repl {
        writeln!(out, "  Supex REPL         {address}")?;
    }
    if let Some(address) = addresses.exec.map(reachable) {
        writeln!(out, "  Exec door          ws://{address}")?;
    }
    writeln!(out, "  Who may connect    {}", who_may_connect(config.allow_local))?;
    writeln!(out, "In another terminal:")?;
    if let Some(address) = http {
        let header = match config.allow_local {
            AllowLocal::User => "",
            AllowLocal::Token => "-H \"Authorization: Bearer $(parlor token)\" ",
        };
        writeln!(out, "  curl {header}http://{address}/api/supr/token")?;
        writeln!(out, "  websocat -H=\"Authorization: Bearer $(parlor token)\" ws://{address}/supr/ws")?;
    }
    if addresses.supex.is_some() {
        writeln!(out, "  parlor supex eval '1 + 1'    or    parlor supex status")?;
    }
    writeln!(out, "The protocols are described in docs/protocols/")?;
    out.flush()?;
    Ok(())
}

/// Who may connect, and what they need for it.
pub(crate) fn who_may_connect(allow_local: AllowLocal) -> &'static str {
    match allow_local {
        AllowLocal::User => {
            "this user and root without a token, everyone else with the token that `parlor token` prints"
        }
        AllowLocal::Token => "only clients with the token that `parlor token` prints ([serve] allow_local)",
    }
}

/// The address by which a person at this machine reaches a server that listens at `address`.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        IpAddr::V4(_) | IpAddr::V6(_) => {}
    }
    address
}
