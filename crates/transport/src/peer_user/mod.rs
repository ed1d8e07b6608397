//! Finds out which user owns the socket at the other end of a TCP connection.
//!
//! Any user of a machine can connect to its loopback addresses, so "from this machine" says little. The kernel knows which
//! user opened the peer's socket: [`sock_diag`] asks the kernel for that one socket, and where netlink is refused,
//! [`proc_net`] reads the whole socket table. In doubt the result is [`PeerUser::Unknown`], and an unknown peer needs a
//! token.
//!
//! Three traps are handled here. The kernel reports a socket that its process has closed with user 0, which is not root
//! ([`SocketEntry::is_owned`]). Between the peer's last byte and our lookup, the peer's port may have passed to another
//! process, so our own end is looked up afterwards: while it is alive, no other socket can be connected to it. And inside a
//! user namespace, user ids have another meaning ([`namespace`], [`open_files`]).

mod namespace;
mod open_files;
mod proc_net;
mod sock_diag;

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::process::geteuid;
use tokio::net::TcpStream;
use tokio::time::sleep;

pub use self::open_files::MAX_INSPECTED_FILES;
pub use self::proc_net::PROC_NET_BYTES;

use self::namespace::Namespace;
use self::open_files::is_open_in_visible_process;

/// The user who owns the socket at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerUser {
    /// The user that this process runs as.
    Ours,
    /// Root of this machine, who can do anything anyway.
    Root,
    /// Another user, with this user id.
    Other(u32),
    /// The user cannot be found out, for this reason.
    Unknown(&'static str),
}

impl PeerUser {
    /// Whether the peer may do everything that this process may do.
    pub fn is_owner(self) -> bool {
        matches!(self, Self::Ours | Self::Root)
    }
}

/// The setting `allow_local`: which peers need no token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllowLocal {
    /// Connections of the user that the server runs as, and of root, need no token.
    #[default]
    User,
    /// Every connection needs the token.
    Token,
}

impl AllowLocal {
    /// Whether the peer needs no token. Calls `peer` only if the answer depends on it.
    pub fn admits(self, peer: impl FnOnce() -> PeerUser) -> bool {
        match self {
            Self::User => peer().is_owner(),
            Self::Token => false,
        }
    }
}

/// The addresses and the socket of a connection, as of the time when it was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedConnection {
    local: SocketAddr,
    peer: SocketAddr,
    /// The inode of our own socket. No other socket has it while ours is open.
    inode: u64,
}

impl AcceptedConnection {
    /// Reads the addresses and the inode of an accepted `stream`. Fails if the connection has already ended.
    pub fn new(stream: &TcpStream) -> io::Result<Self> {
        let inode = rustix::fs::fstat(stream.as_fd())?.st_ino;
        Ok(Self { local: canonical(stream.local_addr()?), peer: canonical(stream.peer_addr()?), inode })
    }

    /// The peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The address on this machine that the peer connected to.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The user who owns the peer's socket now. Takes a few microseconds; where netlink is refused, up to the time to read
    /// [`PROC_NET_BYTES`].
    pub fn peer_user(&self) -> PeerUser {
        if !self.peer.ip().is_loopback() {
            return PeerUser::Unknown("the connection does not come from a loopback address");
        }
        self.look_up_user()
    }

    /// The user who owns the peer's socket, whichever address of this machine the peer came from. None if the peer is on
    /// another machine.
    pub fn local_user(&self) -> Option<PeerUser> {
        let (local, peer) = (self.local.ip(), self.peer.ip());
        let is_on_this_machine = peer.is_loopback() || local.is_loopback() || peer == local;
        // The machine may have several addresses. Then the peer is on it if the kernel knows the peer's socket.
        (is_on_this_machine || find(self.peer, self.local).is_some()).then(|| self.look_up_user())
    }

    fn look_up_user(&self) -> PeerUser {
        decide(self, find, is_open_in_visible_process, Namespace::current(), geteuid().as_raw())
    }
}

/// The user whose process has accepted a connection that this process has opened to a loopback address, for a client that is
/// about to send a secret. Waits until the connection is accepted, which may be long: callers limit it. Fails if the
/// connection has ended.
pub async fn accepting_user(stream: &TcpStream) -> io::Result<PeerUser> {
    let connection = AcceptedConnection::new(stream)?;
    let mut pause = MIN_ACCEPT_POLL;
    loop {
        let is_queued = |entry: SocketEntry| entry.inode == 0 && entry.state == ESTABLISHED;
        if !find(connection.peer, connection.local).is_some_and(is_queued) {
            return Ok(connection.peer_user());
        }
        sleep(pause).await;
        pause = (2 * pause).min(MAX_ACCEPT_POLL);
    }
}

/// The shortest and the longest pause between two looks whether a connection has been accepted. The kernel tells nobody.
const MIN_ACCEPT_POLL: Duration = Duration::from_millis(1);
const MAX_ACCEPT_POLL: Duration = Duration::from_millis(50);

/// The user who listens at `address`, a loopback address. For a client that is about to send a secret there. Unknown if
/// no user or several users listen.
pub fn listening_user(address: SocketAddr) -> PeerUser {
    let address = canonical(address);
    if !address.ip().is_loopback() {
        return PeerUser::Unknown("it is not a loopback address");
    }
    let (namespace, own_uid) = (Namespace::current(), geteuid().as_raw());
    let users = proc_net::listeners(address).unwrap_or_default().into_iter().map(|entry| match entry.inode {
        0 => PeerUser::Unknown("no process holds the socket"),
        _ => namespace.user_of(entry.uid, own_uid),
    });
    let common =
        users.reduce(|one, other| if one == other { one } else { PeerUser::Unknown("several users listen") });
    common.unwrap_or(PeerUser::Unknown("nobody listens"))
}

/// A socket, as the kernel describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SocketEntry {
    /// The TCP state; see the constants below.
    state: u8,
    uid: u32,
    /// 0 if no process has the socket open.
    inode: u64,
}

const ESTABLISHED: u8 = 1;
/// The socket has sent its last byte and still reads.
const FIN_WAIT1: u8 = 4;
const FIN_WAIT2: u8 = 5;
/// The socket has read the last byte and still writes.
const CLOSE_WAIT: u8 = 8;
/// The socket accepts connections.
const LISTEN: u8 = 10;

impl SocketEntry {
    /// Whether the socket is connected and a process has it open. For a socket that no process has open, the kernel reports
    /// user 0, which means nothing.
    fn is_owned(&self) -> bool {
        self.inode != 0 && matches!(self.state, ESTABLISHED | FIN_WAIT1 | FIN_WAIT2 | CLOSE_WAIT)
    }
}

/// The one socket that is bound to `local` and connected to `peer`. None if there is none, or more than one.
fn find(local: SocketAddr, peer: SocketAddr) -> Option<SocketEntry> {
    // The table is read only where netlink is refused or the kernel lacks the module: it may be long, and whoever connects
    // would make this process read it.
    sock_diag::find(local, peer).unwrap_or_else(|_| proc_net::find(local, peer).ok().flatten())
}

fn decide(
    connection: &AcceptedConnection,
    find: impl Fn(SocketAddr, SocketAddr) -> Option<SocketEntry>,
    is_open_in_visible_process: impl Fn(u64) -> bool,
    namespace: Namespace,
    own_uid: u32,
) -> PeerUser {
    let Some(theirs) = find(connection.peer, connection.local) else {
        return PeerUser::Unknown("its socket is not on this machine, or behind a forwarded port");
    };
    if !theirs.is_owned() {
        return PeerUser::Unknown("its socket has been closed");
    }
    let user = namespace.user_of(theirs.uid, own_uid);
    if user == PeerUser::Ours && namespace != Namespace::Initial && !is_open_in_visible_process(theirs.inode)
    {
        return PeerUser::Unknown("its process is outside of this container: it may forward a port");
    }
    // Our own end is looked up last: if it is still alive now, the socket found before is the one it is connected to.
    match find(connection.local, connection.peer) {
        Some(ours) if ours.is_owned() && ours.inode == connection.inode => user,
        Some(_) | None => PeerUser::Unknown("the connection is over"),
    }
}

/// Converts an IPv4-mapped IPv6 address to IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use tokio::net::TcpListener;

    use super::*;

    const OWN_UID: u32 = 1000;

    /// Both ends of a connection to the address `to` of a listener at `listen`.
    async fn connected(listen: IpAddr, to: IpAddr) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((listen, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect((to, port)).await.unwrap();
        (listener.accept().await.unwrap().0, client)
    }

    #[tokio::test]
    async fn netlink_and_the_table_find_the_same_socket_of_each_family() {
        let v4 = IpAddr::from(Ipv4Addr::LOCALHOST);
        let mapped = IpAddr::from(Ipv4Addr::LOCALHOST.to_ipv6_mapped());
        let (v6, all) = (IpAddr::from(Ipv6Addr::LOCALHOST), IpAddr::from(Ipv6Addr::UNSPECIFIED));
        for (listen, to) in [(v4, v4), (v4, mapped), (v6, v6), (all, v4), (all, mapped)] {
            let (stream, client) = connected(listen, to).await;
            let accepted = AcceptedConnection::new(&stream).unwrap();
            assert_eq!(accepted.peer_user(), PeerUser::Ours, "{listen}");
            let by_table = proc_net::find(accepted.peer, accepted.local).unwrap().unwrap();
            assert_eq!(by_table.uid, geteuid().as_raw());
            assert_eq!(by_table.inode, rustix::fs::fstat(&client).unwrap().st_ino);
            match sock_diag::find(accepted.peer, accepted.local) {
                Ok(by_netlink) => assert_eq!(by_netlink, Some(by_table)),
                Err(refused) => eprintln!("netlink is refused here: {refused}"),
            }
        }
    }

    #[tokio::test]
    async fn netlink_finds_a_socket_that_is_bound_to_the_loopback_device() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind_device(Some(b"lo")).unwrap();
        let client = socket.connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let accepted = AcceptedConnection::new(&stream).unwrap();
        assert_eq!(accepted.peer_user(), PeerUser::Ours);
        match sock_diag::find(accepted.peer, accepted.local) {
            Ok(found) => assert_eq!(found.unwrap().inode, rustix::fs::fstat(&client).unwrap().st_ino),
            Err(refused) => eprintln!("netlink is refused here: {refused}"),
        }
    }

    #[tokio::test]
    async fn a_connection_that_nobody_has_accepted_has_no_user_yet() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut user = std::pin::pin!(accepting_user(&stream));
        tokio::select! {
            biased;
            user = &mut user => panic!("{user:?}"),
            () = tokio::task::yield_now() => {}
        }
        let accepted = listener.accept().await.unwrap();
        assert_eq!(user.await.unwrap(), PeerUser::Ours);
        drop(accepted);
    }

    #[tokio::test]
    async fn a_closed_socket_has_no_known_user() {
        let here = IpAddr::from(Ipv4Addr::LOCALHOST);
        let (stream, client) = connected(here, here).await;
        let accepted = AcceptedConnection::new(&stream).unwrap();
        drop(client);
        assert!(matches!(accepted.peer_user(), PeerUser::Unknown(_)), "{:?}", accepted.peer_user());
        // The table reports user 0 for it.
        let in_table = proc_net::find(accepted.peer, accepted.local).unwrap();
        assert!(in_table.is_none_or(|entry| entry.inode == 0 && !entry.is_owned()), "{in_table:?}");
    }

    #[tokio::test]
    async fn the_listening_user_is_known_until_the_listener_closes() {
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

    fn accepted() -> AcceptedConnection {
        AcceptedConnection {
            local: "127.0.0.1:80".parse().unwrap(),
            peer: "127.0.0.1:4000".parse().unwrap(),
            inode: 7,
        }
    }

    /// The decision if the kernel reports these two entries for the peer's socket and ours.
    fn decided(theirs: Option<SocketEntry>, ours: Option<SocketEntry>) -> PeerUser {
        let connection = accepted();
        let find = |local: SocketAddr, _| if local == connection.peer { theirs } else { ours };
        let is_visible = |_| unreachable!("outside of containers the user id is enough");
        decide(&connection, find, is_visible, Namespace::Initial, OWN_UID)
    }

    fn entry(state: u8, uid: u32, inode: u64) -> Option<SocketEntry> {
        Some(SocketEntry { state, uid, inode })
    }

    #[test]
    fn only_the_owner_of_a_connected_socket_is_known() {
        let ours = entry(ESTABLISHED, OWN_UID, 7);
        for state in [ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT] {
            assert_eq!(decided(entry(state, OWN_UID, 9), ours), PeerUser::Ours);
            assert_eq!(decided(entry(state, 0, 9), ours), PeerUser::Root);
            assert_eq!(decided(entry(state, 1001, 9), ours), PeerUser::Other(1001));
            // A socket that no process has open.
            assert!(matches!(decided(entry(state, 0, 0), ours), PeerUser::Unknown(_)));
        }
        // SYN_SENT, SYN_RECV, TIME_WAIT, CLOSE, LAST_ACK, LISTEN, CLOSING, NEW_SYN_RECV.
        for state in [2, 3, 6, 7, 9, 10, 11, 12] {
            assert!(matches!(decided(entry(state, OWN_UID, 9), ours), PeerUser::Unknown(_)), "{state}");
        }
        assert!(matches!(decided(None, ours), PeerUser::Unknown(_)));
    }

    #[test]
    fn a_port_that_has_passed_to_another_connection_is_not_trusted() {
        let theirs = entry(ESTABLISHED, OWN_UID, 9);
        // Our end is gone, or the socket with its addresses belongs to another connection.
        for ours in [None, entry(ESTABLISHED, OWN_UID, 8), entry(7, OWN_UID, 7), entry(ESTABLISHED, 0, 0)] {
            assert!(matches!(decided(theirs, ours), PeerUser::Unknown(_)), "{ours:?}");
        }
        assert_eq!(decided(theirs, entry(CLOSE_WAIT, OWN_UID, 7)), PeerUser::Ours);
    }

    #[test]
    fn in_a_container_only_the_user_of_a_process_inside_is_known() {
        let (connection, inside) = (accepted(), Namespace::Nested { overflow: 65_534 });
        let find = |local: SocketAddr, _| {
            if local == connection.peer { entry(ESTABLISHED, 0, 9) } else { entry(ESTABLISHED, 0, 7) }
        };
        assert_eq!(decide(&connection, find, |inode| inode == 9, inside, 0), PeerUser::Ours);
        assert!(matches!(decide(&connection, find, |_| false, inside, 0), PeerUser::Unknown(_)));
    }

    #[test]
    fn the_user_of_an_address_other_than_loopback_is_unknown() {
        let remote = AcceptedConnection { peer: "192.0.2.1:9".parse().unwrap(), ..accepted() };
        assert!(matches!(remote.peer_user(), PeerUser::Unknown(_)));
    }

    #[test]
    fn a_peer_on_another_machine_is_no_local_user() {
        let local_user = |local: &str, peer: &str| {
            let of =
                AcceptedConnection { local: local.parse().unwrap(), peer: peer.parse().unwrap(), inode: 7 };
            of.local_user()
        };
        assert_eq!(local_user("192.0.2.2:80", "192.0.2.1:9"), None);
        for (local, peer) in
            [("192.0.2.2:80", "192.0.2.2:9"), ("127.0.0.1:80", "192.0.2.1:9"), ("192.0.2.2:80", "[::1]:9")]
        {
            assert!(matches!(local_user(local, peer), Some(PeerUser::Unknown(_))), "{local} {peer}");
        }
    }

    #[test]
    fn no_user_is_looked_up_where_every_peer_needs_the_token() {
        assert!(AllowLocal::User.admits(|| PeerUser::Ours) && AllowLocal::User.admits(|| PeerUser::Root));
        assert!(!AllowLocal::User.admits(|| PeerUser::Other(5)));
        assert!(!AllowLocal::User.admits(|| PeerUser::Unknown("")));
        assert!(!AllowLocal::Token.admits(|| unreachable!("the user does not matter")));
    }
}
