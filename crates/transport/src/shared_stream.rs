//! A TCP stream that its connection shares with probes: others can ask the kernel whether the peer has hung up, even
//! before the connection's own task has noticed it.

use std::io;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// The stream of one connection. The connection owns it; a [`HangUpProbe`] does not keep it open.
pub(crate) struct SharedStream(Arc<TcpStream>);

impl SharedStream {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self(Arc::new(stream))
    }

    pub(crate) fn probe(&self) -> HangUpProbe {
        HangUpProbe(Arc::downgrade(&self.0))
    }

    /// Reads what has arrived, or waits for it. Cancel safe.
    pub(crate) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.0.readable().await?;
            match self.try_read_all(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }

    /// Reads what has arrived. If that is less than the buffer takes, nothing is left, and tokio learns that here: otherwise
    /// each message would cost one more call of the kernel, only to hear that there is nothing.
    fn try_read_all(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (room, mut last) = (buffer.len(), None);
        let read = self.0.try_io(Interest::READABLE, || {
            let count = rustix::io::read(&self.0, &mut *buffer)?;
            if (1..room).contains(&count) {
                last = Some(count);
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(count)
        });
        last.map_or(read, Ok)
    }

    /// Writes as much as the kernel takes, and waits until it takes something. Cancel safe.
    pub(crate) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.0.writable().await?;
            match self.0.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return written,
            }
        }
    }

    /// Tells the peer that nothing more will be sent.
    pub(crate) fn shutdown(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.0, rustix::net::Shutdown::Write)?)
    }

    /// Makes the close of this stream discard what the peer has not received. Otherwise the kernel would keep that data,
    /// up to megabytes, for as long as the peer does not read.
    pub(crate) fn discard_unsent(&self) {
        let _ = rustix::net::sockopt::set_socket_linger(&self.0, Some(std::time::Duration::ZERO));
    }
}

impl Deref for SharedStream {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.0
    }
}

/// Asks whether the peer of a connection has hung up.
#[derive(Clone, Debug)]
pub struct HangUpProbe(Weak<TcpStream>);

impl HangUpProbe {
    /// Whether the peer has closed the connection or its sending side, or the connection has ended. Asks the kernel, which
    /// knows it before the connection's task has run.
    pub fn has_hung_up(&self) -> bool {
        let Some(stream) = self.0.upgrade() else { return true };
        let flags = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut watched = [PollFd::new(&stream, flags)];
        loop {
            match poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
                Err(Errno::INTR) => {}
                Ok(ready) => return ready > 0,
                Err(_) => return true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    async fn connected() -> (SharedStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (SharedStream::new(listener.accept().await.unwrap().0), client)
    }

    #[tokio::test]
    async fn a_probe_sees_a_hang_up_at_once_and_behind_unread_input() {
        let (stream, mut client) = connected().await;
        let probe = stream.probe();
        assert!(!probe.has_hung_up());
        client.write_all(b"unread").await.unwrap();
        assert!(!probe.has_hung_up());
        drop(client);
        assert!(probe.has_hung_up());
        let mut buffer = [0; 16];
        assert_eq!(stream.read(&mut buffer).await.unwrap(), 6);
        assert_eq!(stream.read(&mut buffer).await.unwrap(), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn pieces_that_arrive_around_a_read_are_all_read() {
        const BYTES: usize = 20_000;
        let (stream, mut client) = connected().await;
        client.set_nodelay(true).unwrap();
        let writing = tokio::spawn(async move {
            for number in 0..BYTES {
                client.write_all(&[number as u8]).await.unwrap();
            }
        });
        let (mut read, mut buffer) = (Vec::new(), [0; 16]);
        loop {
            match stream.read(&mut buffer).await.unwrap() {
                0 => break,
                count => read.extend_from_slice(buffer.get(..count).unwrap()),
            }
        }
        writing.await.unwrap();
        assert!(read.iter().enumerate().all(|(number, byte)| *byte == number as u8));
        assert_eq!(read.len(), BYTES);
    }

    #[tokio::test]
    async fn what_a_peer_has_not_received_can_be_discarded() {
        let (stream, client) = connected().await;
        // Fill the buffers of the kernel.
        while stream.try_write(&[0; 65536]).is_ok() {}
        stream.discard_unsent();
        drop(stream);
        let mut buffer = vec![0; 1 << 20];
        let error = loop {
            client.readable().await.unwrap();
            match client.try_read(&mut buffer) {
                Ok(0) => panic!("the peer got everything"),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => break error,
                Ok(_) | Err(_) => {}
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn a_probe_does_not_keep_the_connection_open() {
        let (stream, client) = connected().await;
        let probe = stream.probe();
        drop(stream);
        assert!(probe.has_hung_up());
        client.readable().await.unwrap();
        assert_eq!(client.try_read(&mut [0]).unwrap(), 0);
    }
}
