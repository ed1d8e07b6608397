//! Text that is being written right now: what deltas are made of.
//!
//! A delta is not queued for anybody. Whoever watches remembers how much of a text it has shown and
//! takes what has come since, so a slow watcher gets fewer, longer pieces, and what it saw, put
//! together, is the text.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use parlor_vocab::{RunId, SessionId, Subject};
use tokio::sync::watch;

/// How much of a tool's output is shown while it works. The rest is in its result.
pub const LIVE_TOOL_BYTES: usize = 1 << 20;

/// The texts of one session that are being written.
#[derive(Debug)]
pub(crate) struct Live {
    /// A plain mutex: held for a copy of some text, never across a wait.
    texts: Mutex<Vec<Text>>,
    /// Counts changes, to wake those who watch.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct Text {
    run: RunId,
    subject: Subject,
    text: String,
}

impl Default for Live {
    fn default() -> Self {
        Self { texts: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl Live {
    pub(crate) fn open(&self, run: &RunId, subject: Subject) {
        self.lock().push(Text { run: run.clone(), subject, text: String::new() });
    }

    /// Adds to an open text.
    pub(crate) fn push(&self, subject: &Subject, more: &str) {
        if let Some(text) = self.lock().iter_mut().find(|text| text.subject == *subject) {
            let is_full = matches!(subject, Subject::Tool(_)) && text.text.len() >= LIVE_TOOL_BYTES;
            if !is_full {
                text.text.push_str(more);
            }
        }
        self.changes.send_modify(|count| *count += 1);
    }

    /// The text is complete; the event that holds it is in the log.
    pub(crate) fn close(&self, subject: &Subject) {
        self.lock().retain(|text| text.subject != *subject);
    }

    /// What was added to a text after its first `shown` bytes.
    pub(crate) fn since(&self, subject: &Subject, shown: usize) -> Option<(RunId, String)> {
        let texts = self.lock();
        let text = texts.iter().find(|text| text.subject == *subject)?;
        let news = text.text.get(shown..).filter(|news| !news.is_empty())?;
        Some((text.run.clone(), news.to_owned()))
    }

    /// Wakes when any text has changed.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Text>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The live texts of each session that is open or watched: whoever comes first, the other finds it.
#[derive(Debug, Default)]
pub(crate) struct Lives(Mutex<HashMap<SessionId, Weak<Live>>>);

impl Lives {
    pub(crate) fn of(&self, session: &SessionId) -> Arc<Live> {
        let mut lives = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = lives.get(session).and_then(Weak::upgrade) {
            return live;
        }
        let live = Arc::<Live>::default();
        // Looked through only when the map would have to grow, so in the end once for each entry.
        if lives.len() == lives.capacity() {
            lives.retain(|_, live| live.strong_count() > 0);
        }
        lives.insert(session.clone(), Arc::downgrade(&live));
        live
    }
}
