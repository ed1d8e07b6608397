//! The task of a connection: it writes queued frames, and reads lines and passes them to the dialect's handler.
//!
//! Both halves run side by side, so the output of a child that stops reading is still handled.

use std::fmt::Debug;
use std::io;
use std::pin::Pin;
use std::process::ExitStatus;
use std::sync::Arc;

use parlor_doors::lines::{Line, Lines};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::link::{Link, PendingTable};
use super::process::{ChildStatus, DEATH_GRACE};

/// How much is read at once: the capacity of a Linux pipe.
const READ_BYTES: usize = 64 * 1024;

/// An error of a dialect's client. It is cloned, because every handle on a connection learns why the connection ended.
pub(crate) trait ConnectionError: Clone + Debug + Send + 'static {
    /// The connection ended: with this exit status if the child has exited, and with this I/O error if there was one.
    fn closed(status: Option<ExitStatus>, source: Option<Arc<io::Error>>) -> Self;
}

/// Handles the frames of a dialect.
pub(crate) trait FrameHandler: Send + 'static {
    /// Why the connection ends.
    type Error: ConnectionError;

    /// The longest frame that the child may send.
    const MAX_FRAME_BYTES: usize;

    /// The error for a frame that is longer.
    fn oversize() -> Self::Error;

    /// Handles a frame, which is never empty. An error ends the connection.
    fn on_frame(&mut self, frame: &[u8]) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Serves the connection until it ends, and then fails everything that still waits.
pub(super) async fn drive<R, W, T, H>(
    (reader, writer): (R, W),
    queue: mpsc::Receiver<Vec<u8>>,
    link: Arc<Link<T>>,
    status: ChildStatus,
    mut handler: H,
) where
    R: AsyncRead,
    W: AsyncWrite,
    T: PendingTable,
    H: FrameHandler<Error = T::Error>,
{
    // Also if the task is aborted.
    let _end_on_drop = EndOnDrop(Arc::clone(&link));
    let write = async {
        let error = write_frames(std::pin::pin!(writer), queue).await;
        // What the child wrote before it closed its input can still be read, so only calls fail.
        let exit = status.clone().after_output().await;
        link.fail_calls(T::Error::closed(exit, Some(error)));
        std::future::pending::<()>().await;
    };
    let read = async {
        let reader = std::pin::pin!(reader);
        let mut output = ChildOutput::new(reader, status.clone());
        let reason = read_frames(&mut output, &mut handler).await;
        link.end(reason);
    };
    tokio::select! {
        // The writer first: it seldom has work, and a flood of output must not delay an abort.
        biased;
        () = write => {}
        () = read => {}
    }
}

/// Passes frames to the handler until the connection ends, and returns the reason.
async fn read_frames<H: FrameHandler>(
    output: &mut ChildOutput<'_, impl AsyncRead>,
    handler: &mut H,
) -> H::Error {
    let mut lines = Lines::new(H::MAX_FRAME_BYTES);
    loop {
        match output.read().await {
            Ok([]) => break,
            Ok(bytes) => lines.push(bytes),
            Err(error) => return H::Error::closed(output.status.after_output().await, Some(Arc::new(error))),
        }
        while let Some(line) = lines.next_line() {
            if let Err(error) = handle_line(handler, line).await {
                return error;
            }
        }
    }
    if let Some(line) = lines.finish() {
        // A line that the child's death cut off is no protocol error.
        let _ = handle_line(handler, line).await;
    }
    H::Error::closed(output.status.after_output().await, None)
}

async fn handle_line<H: FrameHandler>(handler: &mut H, line: Line<'_>) -> Result<(), H::Error> {
    match line {
        Line::Whole(frame) => match frame.trim_ascii() {
            [] => Ok(()),
            frame => handler.on_frame(frame).await,
        },
        Line::Oversize => Err(H::oversize()),
    }
}

/// Writes each queued frame as a line. Returns when a write fails, or when no handle is left that could queue a frame.
async fn write_frames(
    mut writer: Pin<&mut impl AsyncWrite>,
    mut queue: mpsc::Receiver<Vec<u8>>,
) -> Arc<io::Error> {
    while let Some(mut frame) = queue.recv().await {
        frame.push(b'\n');
        let written = async {
            writer.write_all(&frame).await?;
            writer.flush().await
        };
        if let Err(error) = written.await {
            return Arc::new(error);
        }
    }
    Arc::new(io::ErrorKind::NotConnected.into())
}

/// The child's output.
struct ChildOutput<'a, R> {
    reader: Pin<&'a mut R>,
    buffer: Box<[u8]>,
    status: ChildStatus,
}

impl<'a, R: AsyncRead> ChildOutput<'a, R> {
    fn new(reader: Pin<&'a mut R>, status: ChildStatus) -> Self {
        Self { reader, buffer: vec![0; READ_BYTES].into_boxed_slice(), status }
    }

    /// The next bytes; empty at the end.
    async fn read(&mut self) -> io::Result<&[u8]> {
        let count = self.fill().await?;
        Ok(self.buffer.get(..count).unwrap_or_default())
    }

    async fn fill(&mut self) -> io::Result<usize> {
        tokio::select! {
            biased;
            count = self.reader.read(&mut self.buffer) => return count,
            _ = self.status.exited() => {}
        }
        // The child has exited, yet its output has not ended: a descendant may hold it open forever. What the child itself
        // wrote can be read without waiting.
        let rest = timeout(DEATH_GRACE, self.reader.read(&mut self.buffer));
        rest.await.unwrap_or(Ok(0))
    }
}

/// Fails everything that waits when the task ends, for whatever reason.
struct EndOnDrop<T: PendingTable>(Arc<Link<T>>);

impl<T: PendingTable> Drop for EndOnDrop<T> {
    fn drop(&mut self) {
        self.0.end(self.0.end_reason());
    }
}
