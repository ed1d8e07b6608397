//! What is shared by clients whose server is a child of this program and speaks over its pipes: what is known of its
//! life, and how frames are written to it and its output is read.

use std::io;
use std::pin::Pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// How long the two signs of a child's death, the end of its output and its exit status, may be
/// apart. Both come from the same kernel at the same moment.
const DEATH_GRACE: Duration = Duration::from_millis(500);

/// How much is read at once: what a Linux pipe holds.
const READ_BYTES: usize = 64 * 1024;

/// What is known of the life of the child: nothing, if somebody else started it.
#[derive(Clone, Debug)]
pub(crate) struct Vitals(Option<watch::Receiver<Option<ExitStatus>>>);

impl Vitals {
    pub(crate) const UNKNOWN: Self = Self(None);

    /// Of a child whose end is reported here.
    pub(crate) fn told_by(report: watch::Receiver<Option<ExitStatus>>) -> Self {
        Self(Some(report))
    }

    /// Whether there will be news of the child's death.
    pub(crate) fn is_known(&self) -> bool {
        self.0.is_some()
    }

    /// Waits for the death of the child; for ever, if it would not be known.
    pub(crate) async fn death(&mut self) -> Option<ExitStatus> {
        match &mut self.0 {
            // If the keeper is gone without a word, so is the child, and nobody knows how.
            Some(report) => report.wait_for(Option::is_some).await.ok().and_then(|status| *status),
            None => std::future::pending().await,
        }
    }

    /// How the child died, if it did. It may have closed its output and live on, so this does not wait for long.
    pub(crate) async fn last(&mut self) -> Option<ExitStatus> {
        if !self.is_known() {
            return None;
        }
        timeout(DEATH_GRACE, self.death()).await.ok().flatten()
    }
}

/// Writes what is queued, each on a line. Returns when the child no longer takes anything, or nobody has anything to send.
pub(crate) async fn write_frames(
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
pub(crate) struct Output<'a, R> {
    reader: Pin<&'a mut R>,
    buffer: Box<[u8]>,
    vitals: Vitals,
}

impl<'a, R: AsyncRead> Output<'a, R> {
    pub(crate) fn new(reader: Pin<&'a mut R>, vitals: Vitals) -> Self {
        Self { reader, buffer: vec![0; READ_BYTES].into_boxed_slice(), vitals }
    }

    /// What has arrived next; nothing at the end.
    pub(crate) async fn read(&mut self) -> io::Result<&[u8]> {
        let count = self.fill().await?;
        Ok(self.buffer.get(..count).unwrap_or_default())
    }

    async fn fill(&mut self) -> io::Result<usize> {
        tokio::select! {
            biased;
            count = self.reader.read(&mut self.buffer) => return count,
            _ = self.vitals.death() => {}
        }
        // The child is dead, yet its output is not at its end: a descendant may hold it open for
        // ever. What the child itself wrote is there to be read without waiting.
        let rest = timeout(DEATH_GRACE, self.reader.read(&mut self.buffer));
        rest.await.unwrap_or(Ok(0))
    }
}
