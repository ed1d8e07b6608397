//! Tells a supervisor such as systemd what the server does (`sd_notify`), over the socket that it names.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// The socket of the supervisor; `None` if there is none, and then nothing is sent.
pub(super) struct Supervisor(Option<(UnixDatagram, SocketAddr)>);

impl Supervisor {
    /// Prepares messages to the socket `address`: a path, or `@` and an abstract name. An address that cannot be used is
    /// logged, and the server goes on without a supervisor.
    pub(super) fn new(address: Option<&str>) -> Self {
        let open = |address: &str| -> io::Result<_> {
            let to = match address.strip_prefix('@') {
                Some(name) => SocketAddr::from_abstract_name(name)?,
                None => SocketAddr::from_pathname(address)?,
            };
            let socket = UnixDatagram::unbound()?;
            // A supervisor that does not read must not stop the server.
            socket.set_nonblocking(true)?;
            Ok((socket, to))
        };
        let opened = address.map(open).transpose();
        Self(opened.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot use NOTIFY_SOCKET, so the supervisor is told nothing");
            None
        }))
    }

    /// All doors are open, or the settings were read again.
    pub(super) fn ready(&self) {
        self.send("READY=1");
    }

    /// The settings are being read again.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1000);
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// The server ends.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, state: &str) {
        let Some((socket, to)) = &self.0 else { return };
        if let Err(error) = socket.send_to_addr(state.as_bytes(), to) {
            tracing::warn!(%error, "cannot tell the supervisor {state:?}");
        }
    }
}
