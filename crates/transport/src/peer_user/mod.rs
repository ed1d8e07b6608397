//! Which user holds the other end of a TCP connection, as far as the kernel can tell.
//!
//! Anybody on a machine can connect to its loopback addresses, so "from this machine" says little. The kernel knows
//! which user opened the socket at the other end: [`sock_diag`] asks for that one socket, [`proc_net`] reads the whole
//! table where netlink is refused. Whatever is in doubt is [`PeerUser::Unknown`], and whoever is unknown needs a token.
//!
//! Three traps are handled here. A socket that its process has closed is reported with user 0, which is not root
//! ([`Entry::is_held`]). Between the peer's last byte and our question its port may have passed to somebody else, so our
//! own end is looked at afterwards: while it lives, nobody else can be connected to it. And inside of a user namespace
//! the numbers of users mean something else ([`namespace`], [`holder`]).

mod holder;
mod namespace;
mod proc_net;
mod sock_diag;

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use rustix::process::geteuid;
use tokio::net::TcpStream;

pub use self::holder::LOOKED_AT_FILES;
pub use self::proc_net::PROC_NET_BYTES;

use self::holder::is_held_here;
use self::namespace::Namespace;

/// Who holds the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerUser {
    /// The user that this process runs as.
    Ours,
    /// Root of this machine, who can do everything anyway.
    Root,
    /// The user of this number.
    Other(u32),
    /// Nobody can say, for this reason.
    Unknown(&'static str),
}

impl PeerUser {
    /// Whether the other end may do what this process may do.
    pub fn is_owner(self) -> bool {
        matches!(self, Self::Ours | Self::Root)
    }
}

/// Who may do everything without a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllowLocal {
    /// Connections of the user that the server runs as, and of root.
    #[default]
    User,
    /// Nobody: everybody needs it.
    Token,
}

impl AllowLocal {
    /// Whether `peer` needs no token.
    pub fn admits(self, peer: impl FnOnce() -> PeerUser) -> bool {
        match self {
            Self::User => peer().is_owner(),
            Self::Token => false,
        }
    }
}

/// One accepted connection, as it was when it was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    local: SocketAddr,
    peer: SocketAddr,
    /// The number of our own end, which no other socket has while it is open.
    inode: u64,
}

impl Accepted {
    /// What is known of an accepted `stream`. Fails if it is over already.
    pub fn new(stream: &TcpStream) -> io::Result<Self> {
        let inode = rustix::fs::fstat(stream.as_fd())?.st_ino;
        Ok(Self { local: canonical(stream.local_addr()?), peer: canonical(stream.peer_addr()?), inode })
    }

    /// The address of the other end.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Our own address.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Who holds the other end now. Takes some microseconds; where netlink is refused, as long as it takes to read
    /// [`PROC_NET_BYTES`] at most.
    pub fn peer_user(&self) -> PeerUser {
        if !self.peer.ip().is_loopback() {
            return PeerUser::Unknown("the connection does not come from a loopback address");
        }
        self.user_here()
    }

    /// Who holds the other end, by whichever address of this machine it has come. None if it is on another machine.
    pub fn user_of_this_machine(&self) -> Option<PeerUser> {
        let (local, peer) = (self.local.ip(), self.peer.ip());
        let is_near = peer.is_loopback() || local.is_loopback() || peer == local;
        // A machine may have several addresses: then the socket itself tells that it is here.
        (is_near || find(self.peer, self.local).is_some()).then(|| self.user_here())
    }

    fn user_here(&self) -> PeerUser {
        decide(self, find, is_held_here, Namespace::now(), geteuid().as_raw())
    }
}

/// Who accepts connections to `address`, a loopback address: for a client that is about to show a secret. Unknown if
/// nobody does, or several users do.
pub fn listening_user(address: SocketAddr) -> PeerUser {
    let address = canonical(address);
    if !address.ip().is_loopback() {
        return PeerUser::Unknown("it is not a loopback address");
    }
    let (namespace, own_uid) = (Namespace::now(), geteuid().as_raw());
    let users = proc_net::listeners(address).unwrap_or_default().into_iter().map(|entry| match entry.inode {
        0 => PeerUser::Unknown("no process holds the socket"),
        _ => namespace.judge(entry.uid, own_uid),
    });
    let agreed =
        users.reduce(|one, other| if one == other { one } else { PeerUser::Unknown("several users listen") });
    agreed.unwrap_or(PeerUser::Unknown("nobody listens"))
}

/// A socket, as the kernel describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    state: u8,
    uid: u32,
    /// 0 if no process holds it.
    inode: u64,
}

const ESTABLISHED: u8 = 1;
/// It has sent its last byte, and still reads.
const FIN_WAIT1: u8 = 4;
const FIN_WAIT2: u8 = 5;
/// It has read the last byte, and still writes.
const CLOSE_WAIT: u8 = 8;
/// It accepts connections.
const LISTEN: u8 = 10;

impl Entry {
    /// Whether a process holds it, and it is connected. What no process holds has no user: the kernel says 0.
    fn is_held(&self) -> bool {
        self.inode != 0 && matches!(self.state, ESTABLISHED | FIN_WAIT1 | FIN_WAIT2 | CLOSE_WAIT)
    }
}

/// The one socket that is bound to `local` and connected to `peer`. None if there is none, or more than one.
fn find(local: SocketAddr, peer: SocketAddr) -> Option<Entry> {
    match sock_diag::find(local, peer) {
        Ok(entry) => Some(entry),
        // It is refused, it lacks the module, or the socket is bound to a device and is only in the table.
        Err(_) => proc_net::find(local, peer).ok().flatten(),
    }
}

fn decide(
    of: &Accepted,
    find: impl Fn(SocketAddr, SocketAddr) -> Option<Entry>,
    is_held_here: impl Fn(u64) -> bool,
    namespace: Namespace,
    own_uid: u32,
) -> PeerUser {
    let Some(theirs) = find(of.peer, of.local) else {
        return PeerUser::Unknown("its socket is not on this machine, or behind a forwarded port");
    };
    if !theirs.is_held() {
        return PeerUser::Unknown("its socket has been closed");
    }
    let user = namespace.judge(theirs.uid, own_uid);
    if user == PeerUser::Ours && namespace != Namespace::Initial && !is_held_here(theirs.inode) {
        return PeerUser::Unknown("its process is outside of this container: it may forward a port");
    }
    // Only now: while our own end is alive, the socket that was found is the one that it is connected to.
    match find(of.local, of.peer) {
        Some(ours) if ours.is_held() && ours.inode == of.inode => user,
        Some(_) | None => PeerUser::Unknown("the connection is over"),
    }
}

/// An IPv4 address stays one when a socket of IPv6 has it.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use tokio::net::TcpListener;

    use super::*;

    const SELF: u32 = 1000;

    /// Both ends of a connection to a listener at `listen` by the address `to`.
    async fn connected(listen: IpAddr, to: IpAddr) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((listen, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect((to, port)).await.unwrap();
        (listener.accept().await.unwrap().0, client)
    }

    #[tokio::test]
    async fn both_ways_of_asking_find_the_same_socket_of_each_family() {
        let v4 = IpAddr::from(Ipv4Addr::LOCALHOST);
        let mapped = IpAddr::from(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
        let (v6, all) = (IpAddr::from(Ipv6Addr::LOCALHOST), IpAddr::from(Ipv6Addr::UNSPECIFIED));
        for (listen, to) in [(v4, v4), (v4, mapped), (v6, v6), (all, v4), (all, mapped)] {
            let (stream, client) = connected(listen, to).await;
            let accepted = Accepted::new(&stream).unwrap();
            assert_eq!(accepted.peer_user(), PeerUser::Ours, "{listen}");
            let by_table = proc_net::find(accepted.peer, accepted.local).unwrap().unwrap();
            assert_eq!(by_table.uid, geteuid().as_raw());
            assert_eq!(by_table.inode, rustix::fs::fstat(&client).unwrap().st_ino);
            match sock_diag::find(accepted.peer, accepted.local) {
                Ok(by_netlink) => assert_eq!(by_netlink, by_table),
                Err(refused) => eprintln!("netlink is refused here: {refused}"),
            }
        }
    }

    #[tokio::test]
    async fn a_socket_that_was_closed_belongs_to_nobody() {
        let here = IpAddr::from(Ipv4Addr::LOCALHOST);
        let (stream, client) = connected(here, here).await;
        let accepted = Accepted::new(&stream).unwrap();
        drop(client);
        assert!(matches!(accepted.peer_user(), PeerUser::Unknown(_)), "{:?}", accepted.peer_user());
        // In the table it is user 0.
        let in_table = proc_net::find(accepted.peer, accepted.local).unwrap();
        assert!(in_table.is_none_or(|entry| entry.inode == 0 && !entry.is_held()), "{in_table:?}");
    }

    #[tokio::test]
    async fn who_listens_is_known_until_nobody_does() {
        for ip in
            [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::LOCALHOST.into()]
        {
            let listener = TcpListener::bind((ip, 0)).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let to =
                if ip.is_ipv6() { IpAddr::from(Ipv6Addr::LOCALHOST) } else { Ipv4Addr::LOCALHOST.into() };
            assert_eq!(listening_user((to, port).into()), PeerUser::Ours, "{ip}");
            drop(listener);
            assert!(matches!(listening_user((to, port).into()), PeerUser::Unknown(_)), "{ip}");
        }
        assert!(matches!(listening_user("192.0.2.1:80".parse().unwrap()), PeerUser::Unknown(_)));
    }

    fn accepted() -> Accepted {
        Accepted { local: "127.0.0.1:80".parse().unwrap(), peer: "127.0.0.1:4000".parse().unwrap(), inode: 7 }
    }

    /// What is decided if the kernel says this of the other end and of ours.
    fn decided(theirs: Option<Entry>, ours: Option<Entry>) -> PeerUser {
        let of = accepted();
        let find = |local: SocketAddr, _| if local == of.peer { theirs } else { ours };
        let is_held_here = |_| unreachable!("outside of containers the user says enough");
        decide(&of, find, is_held_here, Namespace::Initial, SELF)
    }

    fn entry(state: u8, uid: u32, inode: u64) -> Option<Entry> {
        Some(Entry { state, uid, inode })
    }

    #[test]
    fn only_who_holds_a_connected_socket_is_known() {
        let ours = entry(ESTABLISHED, SELF, 7);
        for state in [ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT] {
            assert_eq!(decided(entry(state, SELF, 9), ours), PeerUser::Ours);
            assert_eq!(decided(entry(state, 0, 9), ours), PeerUser::Root);
            assert_eq!(decided(entry(state, 1001, 9), ours), PeerUser::Other(1001));
            // An orphan.
            assert!(matches!(decided(entry(state, 0, 0), ours), PeerUser::Unknown(_)));
        }
        // SYN_SENT, SYN_RECV, TIME_WAIT, CLOSE, LAST_ACK, LISTEN, CLOSING, NEW_SYN_RECV.
        for state in [2, 3, 6, 7, 9, 10, 11, 12] {
            assert!(matches!(decided(entry(state, SELF, 9), ours), PeerUser::Unknown(_)), "{state}");
        }
        assert!(matches!(decided(None, ours), PeerUser::Unknown(_)));
    }

    #[test]
    fn a_port_that_has_passed_to_somebody_else_is_not_believed() {
        let theirs = entry(ESTABLISHED, SELF, 9);
        // Our end is gone, or the one with its address is that of another connection.
        for ours in [None, entry(ESTABLISHED, SELF, 8), entry(7, SELF, 7), entry(ESTABLISHED, 0, 0)] {
            assert!(matches!(decided(theirs, ours), PeerUser::Unknown(_)), "{ours:?}");
        }
        assert_eq!(decided(theirs, entry(CLOSE_WAIT, SELF, 7)), PeerUser::Ours);
    }

    #[test]
    fn in_a_container_only_a_process_inside_of_it_is_known() {
        let (of, inside) = (accepted(), Namespace::Nested { overflow: 65_534 });
        let find = |local: SocketAddr, _| {
            if local == of.peer { entry(ESTABLISHED, 0, 9) } else { entry(ESTABLISHED, 0, 7) }
        };
        assert_eq!(decide(&of, find, |inode| inode == 9, inside, 0), PeerUser::Ours);
        assert!(matches!(decide(&of, find, |_| false, inside, 0), PeerUser::Unknown(_)));
    }

    #[test]
    fn only_loopback_is_asked_about() {
        let far = Accepted { peer: "192.0.2.1:9".parse().unwrap(), ..accepted() };
        assert!(matches!(far.peer_user(), PeerUser::Unknown(_)));
    }

    #[test]
    fn whoever_is_on_another_machine_is_no_user_of_this_one() {
        let at = |local: &str, peer: &str| {
            let of = Accepted { local: local.parse().unwrap(), peer: peer.parse().unwrap(), inode: 7 };
            of.user_of_this_machine()
        };
        assert_eq!(at("192.0.2.2:80", "192.0.2.1:9"), None);
        for (local, peer) in
            [("192.0.2.2:80", "192.0.2.2:9"), ("127.0.0.1:80", "192.0.2.1:9"), ("192.0.2.2:80", "[::1]:9")]
        {
            assert!(matches!(at(local, peer), Some(PeerUser::Unknown(_))), "{local} {peer}");
        }
    }

    #[test]
    fn nobody_is_looked_for_where_the_settings_ask_everybody_for_the_token() {
        assert!(AllowLocal::User.admits(|| PeerUser::Ours) && AllowLocal::User.admits(|| PeerUser::Root));
        assert!(!AllowLocal::User.admits(|| PeerUser::Other(5)));
        assert!(!AllowLocal::User.admits(|| PeerUser::Unknown("")));
        assert!(!AllowLocal::Token.admits(|| unreachable!("it does not matter who it is")));
    }
}
