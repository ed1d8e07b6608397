//! A [`Peer`] that talks to a running program over its Unix socket.

use std::any::Any;
use std::path::{Path, PathBuf};

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;

use crate::Peer;
use crate::program::{READ_AHEAD, read_lines};

/// A connection to a Unix socket. A frame is a line.
pub struct SocketConnection {
    path: PathBuf,
    writer: Option<OwnedWriteHalf>,
    lines: mpsc::Receiver<Vec<u8>>,
    /// Dropped after the connection: what keeps the program running.
    _program: Box<dyn Any + Send>,
}

impl SocketConnection {
    /// Connects to the socket at `path`, and keeps `program` until the connection is dropped. Must be called in a runtime,
    /// as [`crate::play_cases`] does.
    pub fn open(path: &Path, program: impl Any + Send) -> Result<Self, String> {
        let (writer, lines) = connect(path)?;
        Ok(Self { path: path.to_owned(), writer: Some(writer), lines, _program: Box::new(program) })
    }
}

fn connect(path: &Path) -> Result<(OwnedWriteHalf, mpsc::Receiver<Vec<u8>>), String> {
    let connected = std::os::unix::net::UnixStream::connect(path).and_then(|stream| {
        stream.set_nonblocking(true)?;
        UnixStream::from_std(stream)
    });
    let stream = connected.map_err(|error| format!("cannot connect to {}: {error}", path.display()))?;
    let (reader, writer) = stream.into_split();
    let (sender, lines) = mpsc::channel(READ_AHEAD);
    tokio::spawn(read_lines(reader, sender));
    Ok((writer, lines))
}

impl Peer for SocketConnection {
    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let writer = self.writer.as_mut().ok_or("the sending side is closed already")?;
        writer.write_all(bytes).await.map_err(|error| format!("cannot write to the socket: {error}"))
    }

    /// Dropping the half shuts down this direction only.
    async fn close(&mut self) -> Result<(), String> {
        self.writer = None;
        Ok(())
    }

    async fn frame(&mut self) -> Option<Vec<u8>> {
        self.lines.recv().await
    }

    async fn reconnect(&mut self, _args: &[String]) -> Result<(), String> {
        let (writer, lines) = connect(&self.path)?;
        (self.writer, self.lines) = (Some(writer), lines);
        Ok(())
    }

    /// The program serves other connections, so it does not end with this one.
    async fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn lines_are_passed_in_both_directions_and_each_connection_ends_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("echo");
        let listener = UnixListener::bind(&path).unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (reader, mut writer) = stream.split();
                let mut lines = BufReader::new(reader).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
                }
            }
        });
        let program = Arc::new(());
        let mut connection = SocketConnection::open(&path, Arc::clone(&program)).unwrap();
        for _ in 0..2 {
            connection.send(b"one\ntwo\n").await.unwrap();
            assert_eq!(connection.frame().await.unwrap(), b"one");
            connection.close().await.unwrap();
            assert_eq!(connection.frame().await.unwrap(), b"two");
            assert_eq!(connection.frame().await, None);
            connection.finish().await.unwrap();
            connection.reconnect(&[]).await.unwrap();
        }
        assert_eq!(Arc::strong_count(&program), 2, "it is kept");
        drop(connection);
        assert_eq!(Arc::strong_count(&program), 1);
        assert!(SocketConnection::open(&folder.path().join("none"), ()).is_err());
    }
}
