//! How a server is reached: over TCP, or in any way that a caller brings along.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use rustix::io::Errno;
use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;

/// How many addresses of one host name are tried.
pub const MAX_ADDRESSES: usize = 4;

/// A connection that is being made.
pub type DialFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn DialStream>>> + Send + 'a>>;

/// A way to a server, which can be gone more than once: a connection is opened when it is needed.
pub trait Dial: Send + Sync {
    /// Opens a connection. How long it may take is decided by whoever calls.
    fn dial(&self) -> DialFuture<'_>;
}

/// A connection: bytes in both directions, and a look at what came while nobody listened.
pub trait DialStream: AsyncRead + AsyncWrite + Send + Unpin {
    /// What the peer did since the last answer. A byte may be lost in finding out, because a
    /// connection on which the peer spoke unasked is not used again.
    fn idle(&mut self) -> IdleState {
        let mut byte = [0];
        let mut found = ReadBuf::new(&mut byte);
        match Pin::new(self).poll_read(&mut Context::from_waker(Waker::noop()), &mut found) {
            Poll::Pending => IdleState::Quiet,
            Poll::Ready(Ok(())) if found.filled().is_empty() => IdleState::Closed,
            Poll::Ready(Ok(())) => IdleState::Spoke,
            Poll::Ready(Err(_)) => IdleState::Closed,
        }
    }
}

/// What a peer did while nothing was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleState {
    /// Nothing, as it should.
    Quiet,
    /// It closed the connection.
    Closed,
    /// It said something. What it says next would be taken for the answer to another question.
    Spoke,
}

impl DialStream for TcpStream {
    // Asks the kernel: the runtime may not have looked since the peer has closed.
    fn idle(&mut self) -> IdleState {
        match rustix::net::recv(&*self, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((0, _)) => IdleState::Closed,
            Ok(_) => IdleState::Spoke,
            Err(Errno::AGAIN | Errno::INTR) => IdleState::Quiet,
            Err(_) => IdleState::Closed,
        }
    }
}

/// Both ends in one process, as tests have it.
impl DialStream for DuplexStream {}

/// The usual way.
#[derive(Clone, Debug)]
pub(super) struct Tcp {
    pub(super) host: String,
    pub(super) port: u16,
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
    /// IPv4 first: these servers listen on 127.0.0.1, and a `localhost` that is `::1` finds nobody.
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
        Tcp { host: host.to_owned(), port: 9876 }
    }

    #[tokio::test]
    async fn localhost_is_ipv4_and_addresses_are_taken_as_they_are() {
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
    fn ipv4_comes_first_and_few_are_tried() {
        let found =
            ["[::1]:1", "1.0.0.1:1", "[::2]:1", "1.0.0.2:1", "1.0.0.3:1"].map(|text| text.parse().unwrap());
        let preferred = preferred(found.into_iter());
        assert_eq!(preferred.len(), MAX_ADDRESSES);
        assert!(preferred[..3].iter().all(SocketAddr::is_ipv4), "{preferred:?}");
    }
}
