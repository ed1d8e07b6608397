//! Where a door listens.
//!
//! `localhost` is two addresses, 127.0.0.1 and ::1, and clients try one after the other. If a door had only one of them,
//! any user of the machine could listen at the other, and would be sent what was meant for the door; for a browser its
//! page would be of the door's own origin. So a door that listens at one of the two listens at both.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// How often another port is tried, if the system's choice is free at one loopback address only.
pub const LISTEN_PORT_TRIES: usize = 16;

/// How many connections wait in the kernel to be accepted. Of more, each comes again after a second, and later each
/// time; so there is room for who comes while somebody else makes many.
pub const LISTEN_BACKLOG: u32 = 1024;

/// The sockets of one door that accept connections.
#[derive(Debug)]
pub struct Listeners {
    first: TcpListener,
    /// The same port at the other loopback address.
    other: Option<TcpListener>,
}

/// An address at which nothing can listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {address}: {error}")]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// Why not.
    #[source]
    pub error: io::Error,
}

impl ListenError {
    /// Whether somebody else listens there.
    pub fn is_in_use(&self) -> bool {
        self.error.kind() == io::ErrorKind::AddrInUse
    }
}

impl Listeners {
    /// Listens at `address`; if it is 127.0.0.1 or ::1, at both with one port. A machine that has only one of the two
    /// is content with it.
    pub fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        let mut tries = LISTEN_PORT_TRIES;
        loop {
            tries -= 1;
            match Self::bind_once(address) {
                Err(taken) if taken.is_in_use() && address.port() == 0 && tries > 0 => {}
                done => return done,
            }
        }
    }

    fn bind_once(address: SocketAddr) -> Result<Self, ListenError> {
        let failed = |address| move |error| ListenError { address, error };
        let first = listen(address).map_err(failed(address))?;
        let Some(ip) = other_loopback(address.ip()) else { return Ok(Self { first, other: None }) };
        let port = first.local_addr().map_err(failed(address))?.port();
        let beside = SocketAddr::new(ip, port);
        match listen(beside) {
            Ok(other) => Ok(Self { first, other: Some(other) }),
            Err(error) if has_no_such_address(&error) => Ok(Self { first, other: None }),
            Err(error) => Err(failed(beside)(error)),
        }
    }

    /// The address that was asked for, with its port.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.first.local_addr()
    }

    /// The next connection, whichever address it comes to. Loses none when it is dropped.
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
    /// The one socket, as it is.
    fn from(listener: TcpListener) -> Self {
        Self { first: listener, other: None }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A server that was ended leaves connections behind, which would keep the next one from its port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(LISTEN_BACKLOG)
}

/// The other address that `localhost` may stand for.
fn other_loopback(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => Some(Ipv6Addr::LOCALHOST.into()),
        IpAddr::V6(Ipv6Addr::LOCALHOST) => Some(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

/// Whether the machine lacks the address or its whole family: then nobody else can listen there either.
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
    async fn a_door_at_one_loopback_address_is_at_both() {
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
    async fn an_address_that_is_taken_is_named() {
        for (ip, other) in [(V4, V6), (V6, V4)] {
            let taken = Listeners::bind((ip, 0).into()).unwrap();
            let port = taken.local_addr().unwrap().port();
            let refused = Listeners::bind((other, port).into()).unwrap_err();
            assert!(refused.is_in_use() && refused.address == (other, port).into(), "{refused}");
            // Only the other address is taken.
            let Listeners { first, other: beside } = taken;
            drop(beside);
            let refused = Listeners::bind((other, port).into()).unwrap_err();
            assert!(refused.is_in_use() && refused.address == (ip, port).into(), "{refused}");
            drop(first);
        }
    }

    #[tokio::test]
    async fn other_addresses_stay_alone() {
        for ip in [IpAddr::from([127, 0, 0, 2]), Ipv4Addr::UNSPECIFIED.into()] {
            assert!(Listeners::bind((ip, 0).into()).unwrap().other.is_none(), "{ip}");
        }
    }

    #[test]
    fn a_machine_without_the_address_is_told_from_one_where_it_is_taken() {
        use rustix::io::Errno;
        assert!(
            [Errno::ADDRNOTAVAIL, Errno::AFNOSUPPORT]
                .iter()
                .all(|errno| has_no_such_address(&(*errno).into()))
        );
        assert!(![Errno::ADDRINUSE, Errno::ACCESS].iter().any(|errno| has_no_such_address(&(*errno).into())));
    }
}
