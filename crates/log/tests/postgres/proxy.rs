//! A TCP proxy in front of the server, which cuts connections.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// Forwards connections on a port of its own to another port.
pub(crate) struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    target: u16,
    connections: Mutex<HashMap<u64, AbortHandle>>,
    next: AtomicU64,
    is_blocked: AtomicBool,
    /// After this many bytes, all connections are cut once; 0 for never.
    cut_after: AtomicU64,
    cuts: AtomicU64,
}

impl Proxy {
    pub(crate) async fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            target,
            connections: Mutex::default(),
            next: AtomicU64::new(0),
            is_blocked: AtomicBool::new(false),
            cut_after: AtomicU64::new(0),
            cuts: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&state);
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                if !accepting.is_blocked.load(Ordering::SeqCst) {
                    accepting.forward(client);
                }
            }
        });
        Self { address, state }
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://parlor@{}/{database}", self.address)
    }

    /// Closes all connections in the middle of what they do.
    pub(crate) fn cut(&self) {
        self.state.cut();
    }

    /// Cuts all connections, and refuses new ones until [`unblock`](Self::unblock).
    pub(crate) fn block(&self) {
        self.state.is_blocked.store(true, Ordering::SeqCst);
        self.cut();
    }

    pub(crate) fn unblock(&self) {
        self.state.is_blocked.store(false, Ordering::SeqCst);
    }

    /// Cuts all connections once, when this many further bytes were forwarded.
    pub(crate) fn cut_after(&self, bytes: u64) {
        self.state.cut_after.store(bytes, Ordering::SeqCst);
    }

    pub(crate) fn cuts(&self) -> u64 {
        self.state.cuts.load(Ordering::SeqCst)
    }
}

impl State {
    fn forward(self: &Arc<Self>, client: TcpStream) {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let state = Arc::clone(self);
        let task = tokio::spawn(async move {
            let Ok(server) = TcpStream::connect(("127.0.0.1", state.target)).await else { return };
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::select! {
                () = state.copy(&mut from_client, &mut to_server) => {}
                () = state.copy(&mut from_server, &mut to_client) => {}
            }
        });
        self.connections.lock().unwrap().insert(number, task.abort_handle());
    }

    async fn copy(&self, from: &mut (impl AsyncReadExt + Unpin), to: &mut (impl AsyncWriteExt + Unpin)) {
        let mut buffer = [0; 512];
        while let Ok(count) = from.read(&mut buffer).await
            && count > 0
        {
            self.count(count as u64);
            if to.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    }

    fn count(&self, bytes: u64) {
        let left = self.cut_after.load(Ordering::SeqCst);
        if left > 0 {
            self.cut_after.store(left.saturating_sub(bytes), Ordering::SeqCst);
            if left <= bytes {
                self.cut();
            }
        }
    }

    fn cut(&self) {
        self.cuts.fetch_add(1, Ordering::SeqCst);
        for (_, connection) in self.connections.lock().unwrap().drain() {
            connection.abort();
        }
    }
}
