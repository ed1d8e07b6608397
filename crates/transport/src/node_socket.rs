//! The driver for line protocols between the nodes of a cluster: TCP with TLS, in which both sides prove that they know the
//! cluster's secret (`cluster_key.rs`) before the first line is read.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use parlor_doors::BackendFor;
use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use tokio_util::sync::CancellationToken;

use crate::accept::{CONNECTION_LOG_RATE, SendMachine, accept_connections};
use crate::cluster_key::ClusterKey;
use crate::frame_memory::FrameMemory;
use crate::log_limit::LogLimit;
use crate::unix_socket::{MAX_SOCKET_CONNECTIONS, serve_stream};

/// How long the handshake of a connection may take.
pub const HANDSHAKE_WAIT: Duration = Duration::from_secs(5);

/// How many connections may be in their handshake at a time, whoever opens them. Further ones are closed at once.
pub const MAX_NODE_HANDSHAKES: usize = 64;

/// How many connections from one address may be in their handshake at a time, so that one machine cannot take the place of
/// all others. Addresses of IPv6 count as one if their first 64 bits are the same.
pub const MAX_HANDSHAKES_OF_ADDRESS: usize = 8;

/// A connection whose other end acknowledges nothing for this long is lost: the machine is gone, or the network is cut.
pub const NODE_SILENCE_LIMIT: Duration = Duration::from_secs(3);

/// How often an idle connection is probed.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// A connection to another node, which has proved that it knows the secret.
pub type NodeStream = TlsStream<TcpStream>;

/// A listening socket for nodes with the same secret.
#[derive(Debug)]
pub struct NodeServer {
    listener: TcpListener,
    key: ClusterKey,
}

impl NodeServer {
    /// Listens at `address`; port 0 picks a free one.
    pub async fn bind(address: SocketAddr, key: ClusterKey) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address).await?, key })
    }

    /// The address that it listens at.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves each connection of a node that knows the secret with the result of `make`, or closes it if that is `None`,
    /// until `stop` is cancelled. All connections have ended when this returns.
    pub async fn serve<M, B>(
        self,
        memory: FrameMemory,
        make: impl Fn() -> Option<(M, B)> + Clone + Send + 'static,
        stop: CancellationToken,
    ) where
        M: SendMachine,
        B: BackendFor<M> + Send + 'static,
    {
        let Self { listener, key } = self;
        let acceptor = TlsAcceptor::from(key.server);
        let (handshakes, connections) =
            (Arc::new(Semaphore::new(MAX_NODE_HANDSHAKES)), Arc::new(Semaphore::new(MAX_SOCKET_CONNECTIONS)));
        let sources = HandshakeSources::default();
        let refusals = Arc::new(LogLimit::new(CONNECTION_LOG_RATE));
        let serve = |(stream, from): (TcpStream, SocketAddr)| {
            let handshake = (sources.enter(from.ip())?, Arc::clone(&handshakes).try_acquire_owned().ok()?);
            let (acceptor, connections, refusals) =
                (acceptor.clone(), Arc::clone(&connections), Arc::clone(&refusals));
            let (memory, make, stop) = (memory.clone(), make.clone(), stop.clone());
            Some(async move {
                let accepting = async {
                    set_options(&stream)?;
                    acceptor.accept(stream).await
                };
                let accepted = tokio::select! {
                    accepted = timeout(HANDSHAKE_WAIT, accepting) => accepted,
                    () = stop.cancelled() => return,
                };
                drop(handshake);
                let stream = match accepted {
                    Ok(Ok(stream)) => stream,
                    Ok(Err(error)) => return log_refused_node(&refusals, from, &describe(&error)),
                    Err(_) => return log_refused_node(&refusals, from, "it was silent for too long"),
                };
                let Ok(_permit) = connections.try_acquire_owned() else {
                    return log_refused_node(&refusals, from, "too many nodes are connected");
                };
                let Some((machine, backend)) = make() else { return };
                let (from_peer, to_peer) = tokio::io::split(stream);
                serve_stream(from_peer, to_peer, machine, backend, &memory, stop).await;
            })
        };
        let accept = async move || listener.accept().await;
        accept_connections(accept, serve, stop.clone()).await;
    }
}

/// Connects to the node at `address`. Fails with the reason if it does not know the secret. The caller limits the time.
pub async fn connect_node(address: SocketAddr, key: &ClusterKey) -> Result<NodeStream, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    set_options(&stream).map_err(|error| error.to_string())?;
    let connector = TlsConnector::from(Arc::clone(&key.client));
    let connected = connector.connect(ServerName::from(address.ip()), stream).await;
    connected.map(TlsStream::from).map_err(|error| describe(&error))
}

/// How many handshakes each address has.
#[derive(Clone, Default)]
struct HandshakeSources(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A handshake that counts until this is dropped.
struct CountedHandshake {
    sources: HandshakeSources,
    address: IpAddr,
}

impl HandshakeSources {
    /// Counts a handshake of this address; `None` if it has too many.
    fn enter(&self, address: IpAddr) -> Option<CountedHandshake> {
        let address = match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
            IpAddr::V4(address) => IpAddr::V4(address),
        };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= MAX_HANDSHAKES_OF_ADDRESS {
            return None;
        }
        *count += 1;
        Some(CountedHandshake { sources: self.clone(), address })
    }
}

impl Drop for CountedHandshake {
    fn drop(&mut self) {
        let mut counts = self.sources.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

fn log_refused_node(limit: &LogLimit, from: SocketAddr, reason: &str) {
    if let Some(left_out) = limit.allow_line() {
        tracing::warn!(%from, reason, left_out, "refused a connection to the peer door");
    }
}

/// Notices a peer that is gone without a word.
fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_user_timeout(stream, NODE_SILENCE_LIMIT.as_millis() as u32)?;
    Ok(())
}

/// The reason of a failed handshake, in words for the operator.
fn describe(error: &io::Error) -> String {
    let is_key_refused =
        error.get_ref().and_then(|source| source.downcast_ref::<rustls::Error>()).is_some_and(|error| {
            matches!(
                error,
                rustls::Error::InvalidCertificate(_)
                    | rustls::Error::AlertReceived(
                        rustls::AlertDescription::BadCertificate
                            | rustls::AlertDescription::AccessDenied
                            | rustls::AlertDescription::CertificateUnknown
                    )
            )
        });
    match is_key_refused {
        true => "it has another cluster secret ([cluster] secret_file)".to_owned(),
        false => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use rustls::sign::CertifiedKey;

    use super::*;
    use crate::cluster_key::{certified_key, client_config, public_key};
    use crate::unix_socket::tests::{Echo, EmptyBackend};

    fn key(secret: &str) -> ClusterKey {
        ClusterKey::derive(secret.as_bytes()).unwrap()
    }

    async fn server(secret: &str) -> SocketAddr {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = NodeServer::bind(loopback, key(secret)).await.unwrap();
        let address = server.address().unwrap();
        let make = || Some((Echo::default(), EmptyBackend));
        tokio::spawn(server.serve(FrameMemory::default(), make, CancellationToken::new()));
        address
    }

    async fn echoes(stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin)) -> bool {
        let mut reply = [0; 3];
        let written = async {
            stream.write_all(b"hi\n").await?;
            stream.flush().await
        };
        written.await.is_ok() && stream.read_exact(&mut reply).await.is_ok() && reply == *b"hi\n"
    }

    #[tokio::test]
    async fn nodes_with_the_same_secret_connect() {
        let address = server("the secret").await;
        let mut stream = connect_node(address, &key("the secret")).await.unwrap();
        assert!(echoes(&mut stream).await);
    }

    #[tokio::test]
    async fn each_side_refuses_another_secret() {
        let address = server("the secret").await;
        let refused = connect_node(address, &key("another secret")).await.unwrap_err();
        assert!(refused.contains("another cluster secret"), "{refused}");
    }

    /// Strangers can see the public key. Neither a key of their own helps them, nor showing the right one.
    #[tokio::test]
    async fn who_cannot_sign_with_the_key_is_refused_by_the_server() {
        let address = server("the secret").await;
        let (right, wrong) =
            (certified_key(b"the secret").unwrap(), certified_key(b"another secret").unwrap());
        let forged = Arc::new(CertifiedKey::new(right.cert.clone(), Arc::clone(&wrong.key)));
        for (own, is_let_in) in [(&right, true), (&wrong, false), (&forged, false)] {
            let config = client_config(Arc::clone(own), public_key(&right)).unwrap();
            let stream = TcpStream::connect(address).await.unwrap();
            let connecting = TlsConnector::from(Arc::new(config)).connect(address.ip().into(), stream);
            // The client's side of the handshake ends before the server has looked at its key.
            let mut stream = connecting.await.unwrap();
            assert_eq!(echoes(&mut stream).await, is_let_in);
        }
    }

    #[tokio::test]
    async fn what_is_not_tls_is_refused() {
        let mut stream = TcpStream::connect(server("the secret").await).await.unwrap();
        assert!(!echoes(&mut stream).await);
    }

    #[tokio::test]
    async fn silent_connections_of_one_address_do_not_shut_others_out() {
        let address = server("one secret").await;
        let mut silent = Vec::new();
        for _ in 0..MAX_NODE_HANDSHAKES {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
            silent.push(socket.connect(address).await.unwrap());
        }
        // The server has looked at all of them once it has closed the last one.
        let mut last = silent.pop().unwrap();
        assert!(matches!(last.read(&mut [0]).await, Ok(0) | Err(_)));
        let mut stream = connect_node(address, &key("one secret")).await.unwrap();
        assert!(echoes(&mut stream).await);
    }

    #[test]
    fn an_address_has_a_limited_number_of_handshakes_and_gets_them_back() {
        let sources = HandshakeSources::default();
        let (one, same) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let open: Vec<_> = (0..MAX_HANDSHAKES_OF_ADDRESS).map(|_| sources.enter(one).unwrap()).collect();
        assert!(sources.enter(same).is_none() && sources.enter("2001:db8:0:1::1".parse().unwrap()).is_some());
        drop(open);
        assert!(sources.enter(same).is_some());
        assert!(sources.0.lock().unwrap().is_empty(), "nothing is kept of addresses that have none");
    }
}
