//! The listening sockets of a door.
//!
//! `localhost` stands for two addresses, 127.0.0.1 and ::1, and clients try one after the other. If a door listened at only
//! one of them, any user of the machine could listen at the other and receive requests that were meant for the door; to a
//! browser, that user's page would have the door's origin. So a door that listens at one of the two listens at both.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// How many ports are tried when the system chooses the port and its choice is free at one loopback address only.
pub const LISTEN_PORT_TRIES: usize = 16;

/// How many connections may wait in the kernel to be accepted. A client beyond that retries after a second, then after
/// longer and longer times, so the queue is long enough that one client with many connections does not delay the others.
pub const LISTEN_BACKLOG: u32 = 1024;

/// The sockets at which one door accepts connections.
#[derive(Debug)]
pub struct Listeners {
    first: TcpListener,
    /// The same port at the other loopback address.
    other: Option<TcpListener>,
}

/// The error of a socket that cannot listen at its address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {address}: {error}")]
pub struct ListenError {
    /// The address that was tried; it may be the second loopback address.
    pub address: SocketAddr,
    /// What the operating system said.
    #[source]
    pub error: io::Error,
}

impl ListenError {
    /// Whether another program listens at the address.
    pub fn is_in_use(&self) -> bool {
        self.error.kind() == io::ErrorKind::AddrInUse
    }
}

impl Listeners {
    /// Listens at `address`; if it is 127.0.0.1 or ::1, at both with the same port. On a machine that has only one of the
    /// two addresses, listens at that one.
    pub fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        let mut tries = LISTEN_PORT_TRIES;
        loop {
            tries -= 1;
            match Self::bind_once(address) {
                Err(error) if error.is_in_use() && address.port() == 0 && tries > 0 => {}
                result => return result,
            }
        }
    }

    fn bind_once(address: SocketAddr) -> Result<Self, ListenError> {
        let failed = |address| move |error| ListenError { address, error };
        let first = listen(address).map_err(failed(address))?;
        let Some(ip) = other_loopback(address.ip()) else { return Ok(Self { first, other: None }) };
        let port = first.local_addr().map_err(failed(address))?.port();
        let other_address = SocketAddr::new(ip, port);
        match listen(other_address) {
            Ok(other) => Ok(Self { first, other: Some(other) }),
            Err(error) if has_no_such_address(&error) => Ok(Self { first, other: None }),
            Err(error) => Err(failed(other_address)(error)),
        }
    }

    /// The address given to [`bind`](Self::bind), with the port that the system chose if it was 0.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.first.local_addr()
    }

    /// Waits for the next connection at any of the addresses. Cancel safe.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match &self.other {
            None => self.first.accept().await,
            Some(other) => tokio::select! {
                accepted = self.first.accept() => accepted,
                accepted = other.accept() => accepted,
            },
        }
    }
}

impl From<TcpListener> for Listeners {
    /// Listens at this one socket only.
    fn from(listener: TcpListener) -> Self {
        Self { first: listener, other: None }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A server that has ended leaves connections in TIME_WAIT, which would keep its successor from binding the port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(LISTEN_BACKLOG)
}

/// The second loopback address if `ip` is the first, and the other way round.
fn other_loopback(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => Some(Ipv6Addr::LOCALHOST.into()),
        IpAddr::V6(Ipv6Addr::LOCALHOST) => Some(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

/// Whether the machine lacks the address or the whole address family. Then no other program can listen there either.
fn has_no_such_address(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

    #[tokio::test]
    async fn listening_at_one_loopback_address_listens_at_both() {
        for (ip, other) in [(V4, V6), (V6, V4)] {
            let listeners = Listeners::bind((ip, 0).into()).unwrap();
            let bound = listeners.local_addr().unwrap();
            assert_eq!(bound.ip(), ip);
            for to in [ip, other] {
                let client = TcpStream::connect((to, bound.port())).await.unwrap();
                let (_stream, peer) = listeners.accept().await.unwrap();
                assert_eq!(peer, client.local_addr().unwrap());
            }
        }
    }

    #[tokio::test]
    async fn the_error_names_the_address_that_is_in_use() {
        for (ip, other) in [(V4, V6), (V6, V4)] {
            let taken = Listeners::bind((ip, 0).into()).unwrap();
            let port = taken.local_addr().unwrap().port();
            let refused = Listeners::bind((other, port).into()).unwrap_err();
            assert!(refused.is_in_use() && refused.address == (other, port).into(), "{refused}");
            // Now only the first address is in use.
            let Listeners { first, other: second } = taken;
            drop(second);
            let refused = Listeners::bind((other, port).into()).unwrap_err();
            assert!(refused.is_in_use() && refused.address == (ip, port).into(), "{refused}");
            drop(first);
        }
    }

    #[tokio::test]
    async fn addresses_other_than_localhost_get_one_socket() {
        for ip in [IpAddr::from([127, 0, 0, 2]), Ipv4Addr::UNSPECIFIED.into()] {
            assert!(Listeners::bind((ip, 0).into()).unwrap().other.is_none(), "{ip}");
        }
    }

    #[test]
    fn a_missing_address_is_distinguished_from_one_in_use() {
        use rustix::io::Errno;
        assert!(
            [Errno::ADDRNOTAVAIL, Errno::AFNOSUPPORT]
                .iter()
                .all(|errno| has_no_such_address(&(*errno).into()))
        );
        assert!(![Errno::ADDRINUSE, Errno::ACCESS].iter().any(|errno| has_no_such_address(&(*errno).into())));
    }
}
