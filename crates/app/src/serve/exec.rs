//! The exec door over WebSockets (`--exec`): opens it, and serves it on a thread of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, bail};
use parlor_engine::Sessions;
use parlor_process::WorkObserver;
use parlor_transport::{FrameMemory, Listeners};
use parlor_web::{ExecDoorDeps, ExecutorHttp, TokenStore, serve_exec};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{address, exec_work};
use crate::home::Home;

/// The open door.
pub(super) struct ExecDoor {
    listeners: Listeners,
    address: SocketAddr,
    deps: ExecDoorDeps,
}

/// Parses `ws://HOST:PORT` or `HOST:PORT`.
pub(super) fn plan(flag: &str) -> anyhow::Result<SocketAddr> {
    let address = flag.strip_prefix("ws://").unwrap_or(flag);
    address::parse(address.strip_suffix('/').unwrap_or(address))
}

/// Opens the door. It serves no clients yet. What they do is recorded in `sessions`, if there are any.
pub(super) fn open(
    address: SocketAddr,
    home: &Home,
    tokens: &Arc<TokenStore>,
    memory: &FrameMemory,
    sessions: Option<Arc<Sessions>>,
) -> anyhow::Result<ExecDoor> {
    address::check_token(address, &tokens.now().token)?;
    let listeners = match Listeners::bind(address) {
        Ok(listeners) => listeners,
        Err(error) if error.is_in_use() => bail!(
            "{} is in use{}: choose another port with --exec ADDR",
            error.address,
            address::why_it_matters(error.address, address),
        ),
        Err(error) => return Err(error).context("cannot open the door (--exec)"),
    };
    let address = listeners.local_addr()?;
    let (tokens, allow_local) = (Arc::clone(tokens), home.config().allow_local);
    let http = ExecutorHttp::new(home.config().exec_allows_private_urls);
    let observer = sessions.map(|sessions| exec_work::record(sessions) as Arc<dyn WorkObserver>);
    let deps = ExecDoorDeps { tokens, allow_local, memory: memory.clone(), http, observer };
    Ok(ExecDoor { listeners, address, deps })
}

impl ExecDoor {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves clients until `stop` is cancelled, then ends all their processes.
    pub(super) async fn serve(self, stop: CancellationToken) {
        let (done, ended) = oneshot::channel();
        let serve = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(serve_exec(self.listeners, self.deps, stop)),
                Err(error) => tracing::error!(%error, "the exec door failed"),
            }
            // The server waits for it, unless it has failed itself.
            let _ = done.send(());
        };
        // The thread that starts child processes must live as long as they do, and those of the server's runtime can end.
        match std::thread::Builder::new().name("exec".to_owned()).spawn(serve) {
            // An error means that the thread has panicked.
            Ok(_) => drop(ended.await),
            Err(error) => tracing::error!(%error, "the exec door has no thread"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_may_be_a_websocket_url() {
        for text in ["127.0.0.1:7003", "ws://127.0.0.1:7003", "ws://127.0.0.1:7003/", "7003"] {
            assert_eq!(plan(text).unwrap().to_string(), "127.0.0.1:7003");
        }
        for text in ["wss://127.0.0.1:7003", "ws://", "stdio", "ws://127.0.0.1:7003/x"] {
            assert!(plan(text).is_err(), "{text}");
        }
    }
}
