//! Live text on its way from a tool to whoever watches.
//!
//! Nothing is dropped: what the reader has not taken yet is merged into one piece. Once
//! [`PROGRESS_BYTES`] wait, the tool waits too; a reader that is gone takes everything at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The most text that waits for a reader before the tool waits for it. One more piece may be ahead.
pub const PROGRESS_BYTES: usize = 64 * 1024;

/// The tool's end.
#[derive(Clone, Debug, Default)]
pub struct ToolProgress {
    /// `None` if nobody ever watches.
    writer: Option<Arc<Writer>>,
}

/// The watcher's end.
#[derive(Debug)]
pub struct ProgressReader {
    shared: Arc<Shared>,
}

/// Makes both ends.
pub fn progress() -> (ToolProgress, ProgressReader) {
    let shared = Arc::new(Shared::default());
    let writer = Arc::new(Writer { shared: Arc::clone(&shared) });
    (ToolProgress { writer: Some(writer) }, ProgressReader { shared })
}

impl ToolProgress {
    /// For a call that nobody watches.
    pub fn unwatched() -> Self {
        Self::default()
    }

    /// Adds `text` to what the reader will see next. Does not wait; see [`Self::room`].
    pub fn push(&self, text: &str) {
        let Some(writer) = &self.writer else { return };
        let mut state = writer.shared.lock();
        if !state.unread && !text.is_empty() {
            state.text.push_str(text);
            drop(state);
            writer.shared.filled.notify_one();
        }
    }

    /// Waits until fewer than [`PROGRESS_BYTES`] wait for the reader. Cancel safe.
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
            writer.shared.taken.notify_one(); // There may be another one who waits.
        }
    }
}

impl ProgressReader {
    /// All text since the last time, as soon as there is some; `None` once every writer is gone.
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<String> {
        loop {
            let filled = self.shared.filled.notified();
            match self.shared.take() {
                Taken::Text(text) => return Some(text),
                Taken::End => return None,
                Taken::Nothing => filled.await,
            }
        }
    }
}

impl Drop for ProgressReader {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.unread = true;
        state.text = String::new();
        drop(state);
        self.shared.taken.notify_one();
    }
}

/// Tells the reader when the last clone of a [`ToolProgress`] is gone.
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
    /// A plain mutex: it is held for moments, never across a wait.
    state: Mutex<State>,
    filled: Notify,
    taken: Notify,
}

#[derive(Debug, Default)]
struct State {
    text: String,
    /// All writers are gone.
    finished: bool,
    /// The reader is gone.
    unread: bool,
}

/// What the reader found.
enum Taken {
    Text(String),
    Nothing,
    End,
}

impl Shared {
    fn take(&self) -> Taken {
        let mut state = self.lock();
        if state.text.is_empty() {
            return if state.finished { Taken::End } else { Taken::Nothing };
        }
        let text = std::mem::take(&mut state.text);
        drop(state);
        // Not `notify_waiters`: the permit is kept for a writer that is about to wait.
        self.taken.notify_one();
        Taken::Text(text)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pieces_merge_while_the_reader_is_away_and_none_is_lost() {
        let (progress, mut reader) = progress();
        progress.push("a");
        progress.push("b");
        assert_eq!(reader.next().await.as_deref(), Some("ab"));
        progress.push("c");
        drop(progress);
        assert_eq!(reader.next().await.as_deref(), Some("c"));
        assert_eq!(reader.next().await, None);
    }

    #[tokio::test]
    async fn a_full_buffer_makes_the_writer_wait_for_the_reader() {
        let (progress, mut reader) = progress();
        progress.push(&"x".repeat(PROGRESS_BYTES - 1));
        progress.room().await;
        progress.push("x");
        let waiting = [progress.clone(), progress.clone()]
            .map(|progress| tokio::spawn(async move { progress.room().await }));
        tokio::task::yield_now().await;
        assert!(waiting.iter().all(|writer| !writer.is_finished()));
        assert_eq!(reader.next().await.map(|text| text.len()), Some(PROGRESS_BYTES));
        for writer in waiting {
            writer.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_reader_that_leaves_holds_nobody_up() {
        let (progress, reader) = progress();
        progress.push(&"x".repeat(2 * PROGRESS_BYTES));
        drop(reader);
        progress.room().await;
        progress.push("nobody keeps this");
        assert!(progress.writer.unwrap().shared.lock().text.is_empty());
    }
}
