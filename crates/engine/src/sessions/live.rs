//! What happens in a session right now: text that is being written, and what was just appended.
//!
//! A delta is not queued for anybody. Whoever watches remembers how much of a text it has shown and
//! takes what has come since, so a slow watcher gets fewer, longer pieces, and what it saw, put
//! together, is the text. What a tool puts out stands in no event: its end is kept with the event that ends it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use parlor_vocab::{Entry, RunEvent, RunId, Seq, SessionEvent, SessionId, StreamKind, ToolEvent};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};

/// How much of a tool's output is shown while it works. The rest is in its result.
pub const LIVE_TOOL_BYTES: usize = 1 << 20;

/// How much of a call's input is shown while it is written. The rest comes with the call.
pub const LIVE_INPUT_BYTES: usize = 1 << 20;

/// How many of a session's last events those who watch find here instead of reading them from the disk.
pub const RECENT_EVENTS: usize = 64;

/// How much text these events hold in all.
pub const RECENT_BYTES: usize = 256 << 10;

/// How much of the end of a tool's output is kept with the event that ends it, for those who have not seen all of it.
pub const TOOL_END_BYTES: usize = 64 << 10;

/// What is written in one session right now.
#[derive(Debug)]
pub(crate) struct Live {
    /// A plain mutex: held for a copy of some text, never across a wait.
    texts: Mutex<Vec<Text>>,
    recent: Mutex<Recent>,
    /// Counts how often the session was deleted: its run_slots mean nothing then.
    live_texts: AtomicU64,
    /// Counts what was appended, to wake those who watch.
    appended: watch::Sender<u64>,
    /// Wakes those who wait for text. Whoever has just shown some need not be woken by each word. A channel like that of
    /// events would take half a kilobyte, for each session.
    written: Notify,
}

#[derive(Debug)]
struct Text {
    run: RunId,
    subject: StreamKind,
    text: String,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            texts: Mutex::default(),
            recent: Mutex::default(),
            live_texts: AtomicU64::new(0),
            appended: watch::Sender::new(0),
            written: Notify::new(),
        }
    }
}

/// An event that was appended.
#[derive(Debug)]
pub(crate) struct ShownText {
    pub(crate) entry: Arc<Entry>,
    /// How the text ends that was shown until then and does not stand in the event.
    pub(crate) tail: Option<Tail>,
    bytes: usize,
}

/// The end of a text.
#[derive(Debug)]
pub(crate) struct Tail {
    /// Where it begins.
    from: usize,
    text: String,
}

impl Tail {
    fn of(mut text: String, most: usize) -> Self {
        let from = (text.len().saturating_sub(most)..=text.len()).find(|place| text.is_char_boundary(*place));
        let from = from.unwrap_or(text.len());
        Self { from, text: text.split_off(from) }
    }

    /// What comes after so much of the whole text, if all of that is here.
    pub(crate) fn after(&self, shown: usize) -> Option<&str> {
        self.text.get(shown.checked_sub(self.from)?..).filter(|rest| !rest.is_empty())
    }
}

/// The last events, one after another.
#[derive(Debug, Default)]
struct Recent {
    events: VecDeque<Arc<ShownText>>,
    bytes: usize,
}

impl Recent {
    fn push(&mut self, told: ShownText) {
        let follows = self.events.back().is_none_or(|last| last.entry.seq.0 + 1 == told.entry.seq.0);
        if !follows {
            *self = Self::default();
        }
        self.bytes += told.bytes;
        self.events.push_back(Arc::new(told));
        while self.events.len() > RECENT_EVENTS || self.bytes > RECENT_BYTES {
            let Some(told) = self.events.pop_front() else { return };
            self.bytes -= told.bytes;
        }
    }

    fn after(&self, place: Seq) -> Option<Arc<ShownText>> {
        let first = self.events.front()?;
        let index = (place.0 + 1).checked_sub(first.entry.seq.0)?;
        self.events.get(usize::try_from(index).ok()?).map(Arc::clone)
    }
}

impl Live {
    pub(crate) fn open(&self, run: &RunId, subject: StreamKind) {
        self.lock().push(Text { run: run.clone(), subject, text: String::new() });
    }

    /// Adds to an open text.
    pub(crate) fn push(&self, subject: &StreamKind, more: &str) {
        if more.is_empty() {
            return;
        }
        if let Some(text) = self.lock().iter_mut().find(|text| text.subject == *subject) {
            let most = match subject {
                StreamKind::Message(_) | StreamKind::Thought(_) => usize::MAX,
                StreamKind::Tool(_) => LIVE_TOOL_BYTES,
                StreamKind::Input { .. } => LIVE_INPUT_BYTES,
            };
            if text.text.len() < most {
                text.text.push_str(more);
            }
        }
        self.written.notify_waiters();
    }

    /// The text is complete; the event that holds it is in the log. Those of tools end with their events.
    pub(crate) fn close(&self, subject: &StreamKind) {
        self.lock().retain(|text| text.subject != *subject);
    }

    /// What was added to the texts that were shown so far, of which it is known how much. The inputs of calls have no
    /// event that begins them: whoever looks finds them.
    pub(crate) fn news(&self, shown: &mut HashMap<StreamKind, usize>) -> Vec<(RunId, StreamKind, String)> {
        let news = |text: &Text| {
            if matches!(text.subject, StreamKind::Input { .. }) && !shown.contains_key(&text.subject) {
                shown.insert(text.subject.clone(), 0);
            }
            let shown = shown.get_mut(&text.subject)?;
            let news = text.text.get(*shown..).filter(|news| !news.is_empty())?.to_owned();
            *shown = text.text.len();
            Some((text.run.clone(), text.subject.clone(), news))
        };
        self.lock().iter().filter_map(news).collect()
    }

    /// Whether what was shown of an open text is how `whole` begins.
    pub(crate) fn begins(&self, subject: &StreamKind, whole: &str) -> bool {
        let texts = self.lock();
        texts.iter().any(|text| text.subject == *subject && whole.starts_with(&text.text))
    }

    /// An event was appended, with so many bytes of text. Kept only if somebody watches.
    pub(crate) fn appended(&self, entry: &Arc<Entry>, bytes: usize) {
        let tail = self.end_of_text(&entry.event);
        if self.appended.receiver_count() == 0 {
            *self.recent() = Recent::default();
        } else {
            let bytes = bytes + tail.as_ref().map_or(0, |tail| tail.text.len());
            self.recent().push(ShownText { entry: Arc::clone(entry), tail, bytes });
            self.appended.send_modify(|count| *count += 1);
        }
    }

    /// Takes the text away that an event ends. All of an input stands in the event.
    fn end_of_text(&self, event: &SessionEvent) -> Option<Tail> {
        let SessionEvent::Run { run, event, .. } = event else { return None };
        let mut texts = self.lock();
        let mut end = |is_it: &dyn Fn(&StreamKind) -> bool, most| {
            let place = texts.iter().position(|text| is_it(&text.subject))?;
            Some(Tail::of(texts.remove(place).text, most))
        };
        match event {
            RunEvent::Tool(ToolEvent::Called { call, .. }) => {
                end(&|subject| matches!(subject, StreamKind::Input { call: of, .. } if of == call), 0)
            }
            RunEvent::Tool(ToolEvent::Completed { call, .. })
            | RunEvent::Tool(ToolEvent::Failed { call, .. }) => {
                end(&|subject| matches!(subject, StreamKind::Tool(of) if of == call), TOOL_END_BYTES)
            }
            RunEvent::Ended { .. } => {
                texts.retain(|text| text.run != *run);
                None
            }
            RunEvent::Started { .. }
            | RunEvent::Steered { .. }
            | RunEvent::Message(_)
            | RunEvent::Step(_)
            | RunEvent::Tool(ToolEvent::Progressed { .. })
            | RunEvent::Subagent(_)
            | RunEvent::ErrorRaised { .. }
            | RunEvent::Consumed { .. } => None,
        }
    }

    /// Whether `place` is that of the last event, as far as that is known here.
    pub(crate) fn is_at_end(&self, place: Seq) -> bool {
        self.recent().events.back().is_some_and(|last| last.entry.seq == place)
    }

    /// The event after `place`, if it is one of the last.
    pub(crate) fn after(&self, place: Seq) -> Option<Arc<ShownText>> {
        self.recent().after(place)
    }

    /// Others may write the session from now on, and nothing is written here: whoever waits has to ask the log.
    pub(crate) fn forget(&self) {
        *self.recent() = Recent::default();
        self.lock().clear();
        self.appended.send_modify(|count| *count += 1);
        self.written.notify_waiters();
    }

    /// The session is gone. Another may get its name.
    pub(crate) fn deleted(&self) {
        self.live_texts.fetch_add(1, Ordering::Relaxed);
        self.forget();
    }

    /// How often the session was deleted.
    pub(crate) fn life(&self) -> u64 {
        self.live_texts.load(Ordering::Relaxed)
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes when an event was appended, or all has to be looked at anew. Enough for who is at the end.
    pub(crate) fn appendings(&self) -> watch::Receiver<u64> {
        self.appended.subscribe()
    }

    /// Wakes when any text has changed, or all has to be looked at anew.
    pub(crate) fn written(&self) -> Notified<'_> {
        self.written.notified()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Text>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The live texts of each session that is open or watched: whoever comes first, the other finds it.
#[derive(Debug, Default)]
pub(crate) struct LiveTexts(Mutex<HashMap<SessionId, Weak<Live>>>);

impl LiveTexts {
    pub(crate) fn of(&self, session: &SessionId) -> Arc<Live> {
        let mut live_texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = live_texts.get(session).and_then(Weak::upgrade) {
            return live;
        }
        let live = Arc::<Live>::default();
        // Looked through only when the map would have to grow, so in the end once for each entry.
        if live_texts.len() == live_texts.capacity() {
            live_texts.retain(|_, live| live.strong_count() > 0);
        }
        live_texts.insert(session.clone(), Arc::downgrade(&live));
        live
    }
}

#[cfg(test)]
mod tests {
    use parlor_vocab::{EventId, SessionEvent, Timestamp};

    use super::*;

    fn entry(seq: u64) -> Arc<Entry> {
        let id = EventId::parse(&seq.to_string()).unwrap();
        let event = SessionEvent::Renamed { title: seq.to_string() };
        Arc::new(Entry { seq: Seq(seq), id, at: Timestamp(0), event })
    }

    #[test]
    fn the_last_events_are_found_by_the_place_before_them() {
        let live = Live::default();
        let _watching = live.appendings();
        let last = 2 * RECENT_EVENTS as u64;
        (1..=last).for_each(|seq| live.appended(&entry(seq), 1));
        let first = last - RECENT_EVENTS as u64 + 1;
        assert!(live.after(Seq(first - 2)).is_none() && live.after(Seq(last)).is_none());
        for seq in first..=last {
            assert_eq!(live.after(Seq(seq - 1)).unwrap().entry, entry(seq));
        }
    }

    #[test]
    fn what_is_kept_is_bounded_in_bytes_and_has_no_gap() {
        let live = Live::default();
        let _watching = live.appendings();
        live.appended(&entry(1), RECENT_BYTES);
        assert!(live.after(Seq(0)).is_some());
        live.appended(&entry(2), 1);
        assert!(live.after(Seq(0)).is_none() && live.after(Seq(1)).is_some());
        live.appended(&entry(3), RECENT_BYTES + 1);
        assert!(live.after(Seq(2)).is_none());
        live.appended(&entry(4), 1);
        // Somebody else wrote what lies between.
        live.appended(&entry(9), 1);
        assert!(live.after(Seq(3)).is_none() && live.after(Seq(8)).is_some());
        live.forget();
        assert!(live.after(Seq(8)).is_none());
    }

    #[test]
    fn nothing_is_kept_if_nobody_watches() {
        let live = Live::default();
        live.appended(&entry(1), 1);
        assert!(live.after(Seq(0)).is_none());
    }
}
