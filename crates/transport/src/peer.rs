//! The other end of one accepted connection: looked up once, when it is accepted.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::TcpStream;

use crate::{Accepted, PeerUser};

/// The other end of a connection. All that is asked on it shares what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    accepted: Accepted,
    user: PeerUser,
}

impl Peer {
    /// Looks at the other end of `stream`. Costs a question to the kernel if it is on this machine. Fails if the
    /// connection is over already.
    pub fn of(stream: &TcpStream) -> io::Result<Self> {
        let accepted = Accepted::new(stream)?;
        Ok(Self { accepted, user: accepted.peer_user() })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.accepted.peer()
    }

    /// Our own address.
    pub fn local(&self) -> SocketAddr {
        self.accepted.local()
    }

    /// Its user.
    pub fn user(&self) -> PeerUser {
        self.user
    }

    /// Its user, if it is on this machine, by whichever of its addresses it has come. Asks the kernel again for one that
    /// has not come by a loopback address.
    pub fn user_of_this_machine(&self) -> Option<PeerUser> {
        match self.address().ip().to_canonical().is_loopback() {
            true => Some(self.user),
            false => self.accepted.user_of_this_machine(),
        }
    }

    /// What it is counted with.
    pub fn account(&self) -> Account {
        Account::of(self.address().ip(), self.user)
    }
}

/// What is counted together: connections, and how often they ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Account {
    /// The user whose server it is, and root.
    Owner,
    /// All other users of this machine, and whoever on it cannot be known.
    OtherUsers,
    /// A client on another machine: its address, or the network of 64 bits that one client of IPv6 commands.
    Remote(IpAddr),
}

impl Account {
    fn of(address: IpAddr, user: PeerUser) -> Self {
        if user.is_owner() {
            return Self::Owner;
        }
        match address.to_canonical() {
            ip if ip.is_loopback() => Self::OtherUsers,
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
    fn who_is_counted_together() {
        let account = |address: &str, user| Account::of(address.parse().unwrap(), user);
        let unknown = PeerUser::Unknown("why");
        for user in [PeerUser::Ours, PeerUser::Root] {
            assert_eq!(account("127.0.0.1", user), Account::Owner);
        }
        for (address, user) in
            [("127.0.0.1", PeerUser::Other(5)), ("::1", unknown), ("::ffff:127.0.0.9", unknown)]
        {
            assert_eq!(account(address, user), Account::OtherUsers, "{address}");
        }
        let far = |address| account(address, unknown);
        assert_eq!(far("192.0.2.1"), far("::ffff:192.0.2.1"));
        assert_ne!(far("192.0.2.1"), far("192.0.2.2"));
        assert_eq!(far("2001:db8::1"), far("2001:db8::2"));
        assert_ne!(far("2001:db8::1"), far("2001:db8:0:1::1"));
    }
}
