//! How a server is reached: over TCP, or in a way that the caller implements.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;

use super::SupexSettings;

/// How many addresses of one host name are tried.
pub const MAX_ADDRESSES: usize = 4;

/// The future of a connection that is being opened.
pub type DialFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn DialStream>>> + Send + 'a>>;

/// Opens connections to one server, each when it is needed.
pub trait Dial: Send + Sync {
    /// Opens a connection. The caller limits the time.
    fn dial(&self) -> DialFuture<'_>;
}

/// A byte stream in both directions that can be checked between two requests.
pub trait DialStream: AsyncRead + AsyncWrite + Send + Unpin {
    /// What the peer did since the last answer. This may consume a byte, because a connection on which the peer has sent
    /// something unrequested is not used again.
    fn idle(&mut self) -> IdleState {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        match Pin::new(self).poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer) {
            Poll::Pending => IdleState::Quiet,
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => IdleState::Closed,
            Poll::Ready(Ok(())) => IdleState::SentData,
            Poll::Ready(Err(_)) => IdleState::Closed,
        }
    }
}

/// What a peer did between two requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleState {
    /// Nothing, as expected.
    Quiet,
    /// The peer closed the connection.
    Closed,
    /// The peer sent data, which would be taken for the answer to the next request.
    SentData,
}

impl DialStream for TcpStream {
    // Asks the kernel, because the runtime may not have noticed yet that the peer has closed.
    fn idle(&mut self) -> IdleState {
        match rustix::net::recv(&*self, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((0, _)) => IdleState::Closed,
            Ok(_) => IdleState::SentData,
            Err(Errno::AGAIN | Errno::INTR) => IdleState::Quiet,
            Err(_) => IdleState::Closed,
        }
    }
}

/// For tests, which have both ends in one process.
impl DialStream for DuplexStream {}

/// The result of a [`PeerCheck`].
pub type PeerCheckFuture<'a> = Pin<Box<dyn Future<Output = io::Result<()>> + Send + 'a>>;

/// Decides for each new connection whether to use it, before anything is sent. It may take as long as connecting may.
#[derive(Clone)]
pub struct PeerCheck(Arc<dyn Fn(&TcpStream) -> PeerCheckFuture<'_> + Send + Sync>);

impl PeerCheck {
    /// A check that calls `check` for each connection.
    pub fn new(check: impl Fn(&TcpStream) -> PeerCheckFuture<'_> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }
}

impl fmt::Debug for PeerCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerCheck")
    }
}

/// Connects over TCP.
#[derive(Clone, Debug)]
pub(super) struct Tcp {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) check: Option<PeerCheck>,
}

impl Dial for Tcp {
    fn dial(&self) -> DialFuture<'_> {
        Box::pin(async {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for address in self.addresses().await? {
                match TcpStream::connect(address).await {
                    Ok(stream) => {
                        // A request is one write; waiting for more to send would only delay it.
                        stream.set_nodelay(true)?;
                        if let Some(PeerCheck(check)) = &self.check {
                            check(&stream).await?;
                        }
                        return Ok(Box::new(stream) as Box<dyn DialStream>);
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        })
    }
}

impl Tcp {
    pub(super) fn new(settings: &SupexSettings) -> Self {
        let SupexSettings { host, port, check, .. } = settings;
        Self { host: host.clone(), port: *port, check: check.clone() }
    }

    /// The addresses to try, IPv4 first: these servers listen on 127.0.0.1 only, so `localhost` must not become `::1`.
    async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        if self.host.eq_ignore_ascii_case("localhost") {
            return Ok(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))]);
        }
        if let Ok(address) = self.bare_host().parse::<IpAddr>() {
            return Ok(vec![SocketAddr::from((address, self.port))]);
        }
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await?;
        Ok(preferred(found))
    }

    fn bare_host(&self) -> &str {
        self.host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&self.host)
    }
}

impl fmt::Display for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.bare_host();
        if host.contains(':') {
            write!(f, "[{host}]:{}", self.port)
        } else {
            write!(f, "{host}:{}", self.port)
        }
    }
}

fn preferred(found: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let (mut addresses, others): (Vec<_>, Vec<_>) = found.partition(SocketAddr::is_ipv4);
    addresses.extend(others);
    addresses.truncate(MAX_ADDRESSES);
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str) -> Tcp {
        Tcp { host: host.to_owned(), port: 9876, check: None }
    }

    #[tokio::test]
    async fn localhost_is_ipv4_and_ip_addresses_are_used_as_given() {
        for (host, address) in [
            ("localhost", "127.0.0.1:9876"),
            ("LOCALHOST", "127.0.0.1:9876"),
            ("10.0.0.7", "10.0.0.7:9876"),
            ("::1", "[::1]:9876"),
            ("[::1]", "[::1]:9876"),
        ] {
            assert_eq!(tcp(host).addresses().await.unwrap(), [address.parse().unwrap()], "{host}");
        }
        assert_eq!(tcp("::1").to_string(), "[::1]:9876");
        assert_eq!(tcp("[::1]").to_string(), "[::1]:9876");
        assert_eq!(tcp("host").to_string(), "host:9876");
    }

    #[test]
    fn ipv4_comes_first_and_the_number_of_addresses_is_limited() {
        let found =
            ["[::1]:1", "1.0.0.1:1", "[::2]:1", "1.0.0.2:1", "1.0.0.3:1"].map(|text| text.parse().unwrap());
        let preferred = preferred(found.into_iter());
        assert_eq!(preferred.len(), MAX_ADDRESSES);
        assert!(preferred[..3].iter().all(SocketAddr::is_ipv4), "{preferred:?}");
    }
}
