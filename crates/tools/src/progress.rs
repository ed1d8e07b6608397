//! A channel for the live output of a tool: the tool pushes text and says how far it is, one reader receives it.
//!
//! Of several reports only the newest is kept. No text is lost: pieces that the reader has not received yet are merged.
//! Once [`PROGRESS_BYTES`] are pending, the tool waits for the reader. After the reader is dropped, text is discarded and the tool never waits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// From this many pending bytes on, the tool waits for the reader. One more piece may exceed the limit.
pub const PROGRESS_BYTES: usize = 64 * 1024;

/// The sending half of the channel, for the tool.
#[derive(Clone, Debug, Default)]
pub struct ToolProgress {
    /// `None` if the channel has no reader.
    writer: Option<Arc<Writer>>,
}

/// The receiving half of the channel.
#[derive(Debug)]
pub struct ProgressReader {
    shared: Arc<Shared>,
}

/// How far a call is, as the tool reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgressReport {
    /// Grows with each report, in a unit of the tool's own.
    pub done: f64,
    /// The value of `done` at the end, if the tool knows it.
    pub total: Option<f64>,
    /// What the tool is doing, for people.
    pub message: Option<String>,
}

impl ProgressReport {
    /// The progress in percent, if the tool knows its total.
    pub fn percent(&self) -> Option<u8> {
        let total = self.total.filter(|total| total.is_finite() && *total > 0.0)?;
        let percent = (self.done / total * 100.0).clamp(0.0, 100.0);
        // A NaN becomes 0.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is from 0 to 100")]
        Some(percent as u8)
    }
}

/// What a reader receives.
#[derive(Clone, Debug, PartialEq)]
pub enum ProgressPiece {
    /// All text since the last piece.
    Text(String),
    /// The newest report.
    Report(ProgressReport),
}

/// Creates a channel.
pub fn progress() -> (ToolProgress, ProgressReader) {
    let shared = Arc::new(Shared::default());
    let writer = Arc::new(Writer { shared: Arc::clone(&shared) });
    (ToolProgress { writer: Some(writer) }, ProgressReader { shared })
}

impl ToolProgress {
    /// A sender that discards all text.
    pub fn without_reader() -> Self {
        Self::default()
    }

    /// Appends `text` to the pending text. Does not wait; see [`Self::room`].
    pub fn push(&self, text: &str) {
        let Some(writer) = &self.writer else { return };
        let mut state = writer.shared.lock();
        if !state.reader_gone && !text.is_empty() {
            state.text.push_str(text);
            drop(state);
            writer.shared.filled.notify_one();
        }
    }

    /// Replaces the report that the reader has not received yet. Does not wait.
    pub fn report(&self, report: ProgressReport) {
        let Some(writer) = &self.writer else { return };
        let mut state = writer.shared.lock();
        if !state.reader_gone {
            state.report = Some(report);
            drop(state);
            writer.shared.filled.notify_one();
        }
    }

    /// Waits until fewer than [`PROGRESS_BYTES`] are pending. Cancel safe.
    pub async fn room(&self) {
        let Some(writer) = &self.writer else { return };
        let mut waited = false;
        loop {
            let taken = writer.shared.taken.notified();
            if writer.shared.lock().text.len() < PROGRESS_BYTES {
                break;
            }
            taken.await;
            waited = true;
        }
        if waited {
            writer.shared.taken.notify_one(); // Another sender may wait too.
        }
    }
}

impl ProgressReader {
    /// Waits for text or a report; `None` once all senders are dropped. Cancel safe.
    pub async fn next(&mut self) -> Option<ProgressPiece> {
        loop {
            let filled = self.shared.filled.notified();
            match self.shared.take() {
                Taken::Piece(piece) => return Some(piece),
                Taken::End => return None,
                Taken::Nothing => filled.await,
            }
        }
    }

    /// Like [`next`](Self::next), and drops the reports.
    pub async fn next_text(&mut self) -> Option<String> {
        loop {
            if let ProgressPiece::Text(text) = self.next().await? {
                return Some(text);
            }
        }
    }

    /// Returns all text that is pending, without waiting.
    pub fn pending(&mut self) -> Option<String> {
        match self.shared.take() {
            Taken::Piece(ProgressPiece::Text(text)) => Some(text),
            Taken::Piece(ProgressPiece::Report(_)) | Taken::Nothing | Taken::End => None,
        }
    }
}

impl Drop for ProgressReader {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.reader_gone = true;
        state.text = String::new();
        state.report = None;
        drop(state);
        self.shared.taken.notify_one();
    }
}

/// Wakes the reader when the last clone of a [`ToolProgress`] is dropped.
#[derive(Debug)]
struct Writer {
    shared: Arc<Shared>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().finished = true;
        self.shared.filled.notify_one();
    }
}

#[derive(Debug, Default)]
struct Shared {
    /// A plain mutex, because no task holds it across an await.
    state: Mutex<State>,
    filled: Notify,
    taken: Notify,
}

#[derive(Debug, Default)]
struct State {
    text: String,
    report: Option<ProgressReport>,
    /// All senders are dropped.
    finished: bool,
    /// The reader is dropped.
    reader_gone: bool,
}

/// What [`Shared::take`] found.
enum Taken {
    Piece(ProgressPiece),
    Nothing,
    End,
}

impl Shared {
    fn take(&self) -> Taken {
        let mut state = self.lock();
        if state.text.is_empty() {
            return match state.report.take() {
                Some(report) => Taken::Piece(ProgressPiece::Report(report)),
                None if state.finished => Taken::End,
                None => Taken::Nothing,
            };
        }
        let text = std::mem::take(&mut state.text);
        drop(state);
        // Not `notify_waiters`: `notify_one` stores a permit for a sender that is about to wait.
        self.taken.notify_one();
        Taken::Piece(ProgressPiece::Text(text))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pending_pieces_are_merged_and_none_is_lost() {
        let (progress, mut reader) = progress();
        progress.push("a");
        progress.push("b");
        assert_eq!(reader.next().await, Some(ProgressPiece::Text("ab".to_owned())));
        progress.push("c");
        drop(progress);
        assert_eq!(reader.next().await, Some(ProgressPiece::Text("c".to_owned())));
        assert_eq!(reader.next().await, None);
    }

    #[tokio::test]
    async fn pending_text_can_be_taken_while_senders_exist() {
        let (progress, mut reader) = progress();
        assert_eq!(reader.pending(), None);
        progress.push("a");
        assert_eq!(reader.pending().as_deref(), Some("a"));
        drop(progress);
        assert_eq!(reader.pending(), None);
    }

    #[tokio::test]
    async fn a_full_buffer_makes_senders_wait_for_the_reader() {
        let (progress, mut reader) = progress();
        progress.push(&"x".repeat(PROGRESS_BYTES - 1));
        progress.room().await;
        progress.push("x");
        let waiting = [progress.clone(), progress.clone()]
            .map(|progress| tokio::spawn(async move { progress.room().await }));
        tokio::task::yield_now().await;
        assert!(waiting.iter().all(|writer| !writer.is_finished()));
        let piece = reader.next().await;
        assert!(matches!(piece, Some(ProgressPiece::Text(text)) if text.len() == PROGRESS_BYTES));
        for writer in waiting {
            writer.await.unwrap();
        }
    }

    #[tokio::test]
    async fn senders_do_not_wait_after_the_reader_is_dropped() {
        let (progress, reader) = progress();
        progress.push(&"x".repeat(2 * PROGRESS_BYTES));
        drop(reader);
        progress.room().await;
        progress.push("discarded");
        assert!(progress.writer.unwrap().shared.lock().text.is_empty());
    }

    #[tokio::test]
    async fn only_the_newest_report_is_kept_and_it_comes_after_the_text() {
        let (progress, mut reader) = progress();
        let report = |done| ProgressReport { done, total: Some(4.0), message: None };
        progress.report(report(1.0));
        progress.push("text");
        progress.report(report(3.0));
        drop(progress);
        assert_eq!(reader.next().await, Some(ProgressPiece::Text("text".to_owned())));
        assert_eq!(reader.next().await, Some(ProgressPiece::Report(report(3.0))));
        assert_eq!(reader.next().await, None);
    }

    #[test]
    fn a_report_has_a_percentage_if_its_total_is_usable() {
        let percent = |done, total| ProgressReport { done, total, message: None }.percent();
        assert_eq!(percent(1.0, Some(3.0)), Some(33));
        assert_eq!(percent(9.0, Some(3.0)), Some(100));
        assert_eq!(percent(-9.0, Some(3.0)), Some(0));
        assert_eq!(percent(f64::NAN, Some(3.0)), Some(0));
        assert_eq!(percent(1.0, None), None);
        assert_eq!(percent(1.0, Some(0.0)), None);
        assert_eq!(percent(1.0, Some(f64::INFINITY)), None);
    }
}
