//! The remote end of an accepted connection: its address and its user, looked up once when the connection is accepted.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::TcpStream;

use crate::{AcceptedConnection, PeerUser};

/// The remote end of a connection. All requests on that connection share this one lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectedPeer {
    accepted: AcceptedConnection,
    user: PeerUser,
}

impl ConnectedPeer {
    /// Looks up the remote end of `stream`. If the peer's address is a loopback address, asks the kernel for its user.
    /// Fails if the connection has already ended.
    pub fn from_stream(stream: &TcpStream) -> io::Result<Self> {
        let accepted = AcceptedConnection::new(stream)?;
        Ok(Self { accepted, user: accepted.peer_user() })
    }

    /// The peer's address; an IPv4-mapped IPv6 address is given as IPv4.
    pub fn address(&self) -> SocketAddr {
        self.accepted.peer()
    }

    /// The address on this machine that the peer connected to.
    pub fn local(&self) -> SocketAddr {
        self.accepted.local()
    }

    /// The peer's user as of the accept. Unknown unless the peer came from a loopback address.
    pub fn user(&self) -> PeerUser {
        self.user
    }

    /// The peer's user if the peer runs on this machine, whichever of the machine's addresses it came from; None if it runs
    /// on another machine. For a peer with an address that is not loopback, this asks the kernel on each call.
    pub fn local_user(&self) -> Option<PeerUser> {
        match self.address().ip().to_canonical().is_loopback() {
            true => Some(self.user),
            false => self.accepted.local_user(),
        }
    }

    /// The group whose connection and request limits apply to this peer.
    pub fn group(&self) -> PeerGroup {
        PeerGroup::of(self.address().ip(), self.user)
    }
}

/// Peers that share one connection limit and one request rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerGroup {
    /// The user that the server runs as, and root.
    Owner,
    /// Another user of this machine.
    OtherUser(u32),
    /// The peers on this machine whose user cannot be found out.
    UnknownUsers,
    /// A client on another machine: its IPv4 address, or its IPv6 /64 network, since one IPv6 client usually controls a
    /// whole /64.
    Remote(IpAddr),
}

impl PeerGroup {
    fn of(address: IpAddr, user: PeerUser) -> Self {
        match (user, address.to_canonical()) {
            (PeerUser::Ours | PeerUser::Root, _) => Self::Owner,
            (PeerUser::Other(uid), _) => Self::OtherUser(uid),
            (PeerUser::Unknown(_), ip) if ip.is_loopback() => Self::UnknownUsers,
            (PeerUser::Unknown(_), ip) => Self::remote(ip),
        }
    }

    /// The group of a client at this address that has not connected itself, such as the client of a proxy.
    pub fn remote(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(ip) => Self::Remote(ip.into()),
            IpAddr::V6(ip) => {
                let [a, b, c, d, ..] = ip.segments();
                Self::Remote(IpAddr::from([a, b, c, d, 0, 0, 0, 0]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_grouped_by_user_on_this_machine_and_by_address_elsewhere() {
        let group = |address: &str, user| PeerGroup::of(address.parse().unwrap(), user);
        let unknown = PeerUser::Unknown("why");
        for user in [PeerUser::Ours, PeerUser::Root] {
            assert_eq!(group("127.0.0.1", user), PeerGroup::Owner);
        }
        assert_eq!(group("127.0.0.1", PeerUser::Other(5)), PeerGroup::OtherUser(5));
        for address in ["::1", "::ffff:127.0.0.9"] {
            assert_eq!(group(address, unknown), PeerGroup::UnknownUsers, "{address}");
        }
        let remote = |address| group(address, unknown);
        assert_eq!(remote("192.0.2.1"), remote("::ffff:192.0.2.1"));
        assert_ne!(remote("192.0.2.1"), remote("192.0.2.2"));
        assert_eq!(remote("2001:db8::1"), remote("2001:db8::2"));
        assert_ne!(remote("2001:db8::1"), remote("2001:db8:0:1::1"));
    }
}
