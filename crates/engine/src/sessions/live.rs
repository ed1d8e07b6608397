//! The live part of a session: text that is being written, and the events that were just appended.
//!
//! Text deltas are not queued for watchers. Each watcher remembers how much of a text it has delivered and takes what
//! was added since, so a slow watcher gets fewer, longer pieces that still add up to the whole text. The live output
//! of a tool is in no event, so its last part is kept with the event that ends the call.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use parlor_vocab::{Entry, MessageId, RunEvent, RunId, Seq, SessionEvent, SessionId, StreamKind, ToolEvent};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};

/// How many bytes of a tool's output are shown while it runs. The result holds the rest.
pub const LIVE_TOOL_BYTES: usize = 1 << 20;

/// How many bytes of a call's input are shown while the agent writes it. The call's event holds all of it.
pub const LIVE_INPUT_BYTES: usize = 1 << 20;

/// How many of a session's last events are kept in memory for watchers, so that they need not read them from disk.
pub const RECENT_EVENTS: usize = 64;

/// The limit in bytes for the texts of these events.
pub const RECENT_BYTES: usize = 256 << 10;

/// How many of the last bytes of a tool's output are kept with the event that ends the call, for watchers that have
/// not delivered all of it.
pub const TOOL_TAIL_BYTES: usize = 64 << 10;

/// The live texts and the last events of one session.
#[derive(Debug)]
pub(crate) struct LiveSession {
    /// A plain mutex, because it is held for a copy of some text and never across an await.
    texts: Mutex<Vec<LiveText>>,
    recent: Mutex<Recent>,
    /// How often the session was deleted. Log positions from before a deletion are meaningless after it.
    deletions: AtomicU64,
    /// Counts appended events, to wake watchers.
    appends: watch::Sender<u64>,
    /// Wakes watchers that wait for text. A watcher that has just delivered text waits for a timer instead, so that
    /// not every word wakes it. A watch channel, as for events, would take half a kilobyte for each session.
    text_changed: Notify,
    /// Wakes the actor when somebody begins to watch.
    watch_began: Notify,
}

#[derive(Debug)]
struct LiveText {
    run: RunId,
    stream: StreamKind,
    text: String,
}

impl Default for LiveSession {
    fn default() -> Self {
        Self {
            texts: Mutex::default(),
            recent: Mutex::default(),
            deletions: AtomicU64::new(0),
            appends: watch::Sender::new(0),
            text_changed: Notify::new(),
            watch_began: Notify::new(),
        }
    }
}

/// An event that was just appended.
#[derive(Debug)]
pub(crate) struct RecentEvent {
    pub(crate) entry: Arc<Entry>,
    /// The last part of the live text that this event ended, if the event does not hold that text.
    pub(crate) tail: Option<Tail>,
    bytes: usize,
}

/// The last part of a text.
#[derive(Debug)]
pub(crate) struct Tail {
    /// The byte offset in the whole text at which this part begins.
    from: usize,
    text: String,
}

impl Tail {
    fn of(mut text: String, max_bytes: usize) -> Self {
        let from =
            (text.len().saturating_sub(max_bytes)..=text.len()).find(|index| text.is_char_boundary(*index));
        let from = from.unwrap_or(text.len());
        Self { from, text: text.split_off(from) }
    }

    /// The text after the first `shown` bytes of the whole text. `None` if it is empty or begins before this part.
    pub(crate) fn after(&self, shown: usize) -> Option<&str> {
        self.text.get(shown.checked_sub(self.from)?..).filter(|rest| !rest.is_empty())
    }
}

/// The last events, without gaps in their positions.
#[derive(Debug, Default)]
struct Recent {
    events: VecDeque<Arc<RecentEvent>>,
    bytes: usize,
}

impl Recent {
    fn push(&mut self, event: RecentEvent) {
        let follows = self.events.back().is_none_or(|last| last.entry.seq.0 + 1 == event.entry.seq.0);
        if !follows {
            *self = Self::default();
        }
        self.bytes += event.bytes;
        self.events.push_back(Arc::new(event));
        while self.events.len() > RECENT_EVENTS || self.bytes > RECENT_BYTES {
            let Some(event) = self.events.pop_front() else { return };
            self.bytes -= event.bytes;
        }
    }

    fn after(&self, position: Seq) -> Option<Arc<RecentEvent>> {
        let first = self.events.front()?;
        let index = (position.0 + 1).checked_sub(first.entry.seq.0)?;
        self.events.get(usize::try_from(index).ok()?).map(Arc::clone)
    }
}

impl LiveSession {
    /// Begins a live text of `run`.
    pub(crate) fn open(&self, run: &RunId, stream: StreamKind) {
        self.lock().push(LiveText { run: run.clone(), stream, text: String::new() });
    }

    /// Begins a live text of `run`, unless it is open.
    pub(crate) fn open_if_new(&self, run: &RunId, stream: &StreamKind) {
        let mut texts = self.lock();
        if !texts.iter().any(|text| text.stream == *stream) {
            texts.push(LiveText { run: run.clone(), stream: stream.clone(), text: String::new() });
        }
    }

    /// Waits until nobody watches the session in this process.
    pub(crate) async fn unwatched(&self) {
        self.appends.closed().await;
    }

    /// Whether somebody watches the session in this process.
    pub(crate) fn is_watched(&self) -> bool {
        self.appends.receiver_count() > 0
    }

    /// Waits until somebody watches the session in this process.
    pub(crate) async fn watched(&self) {
        while !self.is_watched() {
            self.watch_began.notified().await;
        }
    }

    /// Appends to an open text, up to the limit of its kind.
    pub(crate) fn push(&self, stream: &StreamKind, more: &str) {
        if more.is_empty() {
            return;
        }
        if let Some(text) = self.lock().iter_mut().find(|text| text.stream == *stream) {
            let max_bytes = match stream {
                StreamKind::Message(_) | StreamKind::Reasoning(_) => usize::MAX,
                StreamKind::ToolOutput(_) => LIVE_TOOL_BYTES,
                StreamKind::ToolInput { .. } => LIVE_INPUT_BYTES,
            };
            if text.text.len() < max_bytes {
                text.text.push_str(more);
            }
        }
        self.text_changed.notify_waiters();
    }

    /// The text of an open message after its first `start` bytes, at most `max_bytes` of it. `None` if there is none.
    pub(crate) fn message_text(&self, message: &MessageId, start: usize, max_bytes: usize) -> Option<String> {
        let texts = self.lock();
        let is_message = |stream: &StreamKind| matches!(stream, StreamKind::Message(of) if of == message);
        let rest = texts.iter().find(|text| is_message(&text.stream))?.text.get(start..)?;
        let rest = rest.get(..rest.floor_char_boundary(max_bytes))?;
        (!rest.is_empty()).then(|| rest.to_owned())
    }

    /// Ends a text. Messages are closed after their completing event is in the log, reasoning just before, and both when
    /// the run ends. Texts of tool calls end in [`on_append`](Self::on_append), except inputs of calls that are not made.
    pub(crate) fn close(&self, stream: &StreamKind) {
        self.lock().retain(|text| text.stream != *stream);
    }

    /// The text that was added to each stream since `shown`, which holds how many bytes of each stream were
    /// delivered, and updates `shown`. Takes at most `max_bytes` of each stream. The inputs of calls have no event that begins them, so they are added to
    /// `shown` here.
    pub(crate) fn take_new_text(
        &self,
        shown: &mut HashMap<StreamKind, usize>,
        max_bytes: usize,
    ) -> Vec<(RunId, StreamKind, String)> {
        let new_text = |text: &LiveText| {
            if matches!(text.stream, StreamKind::ToolInput { .. }) && !shown.contains_key(&text.stream) {
                shown.insert(text.stream.clone(), 0);
            }
            let shown = shown.get_mut(&text.stream)?;
            let added = first_bytes(text.text.get(*shown..)?, max_bytes);
            *shown += added.len();
            (!added.is_empty()).then(|| (text.run.clone(), text.stream.clone(), added.to_owned()))
        };
        self.lock().iter().filter_map(new_text).collect()
    }

    /// Whether an open text is the beginning of `whole`.
    pub(crate) fn is_prefix_of(&self, stream: &StreamKind, whole: &str) -> bool {
        let texts = self.lock();
        texts.iter().any(|text| text.stream == *stream && whole.starts_with(&text.text))
    }

    /// Ends the live text that an appended event completes, and keeps the event if anybody watches. `bytes` is the
    /// size of the event's texts.
    pub(crate) fn on_append(&self, entry: &Arc<Entry>, bytes: usize) {
        let tail = self.end_text(&entry.event);
        if self.appends.receiver_count() == 0 {
            *self.recent() = Recent::default();
        } else {
            let bytes = bytes + tail.as_ref().map_or(0, |tail| tail.text.len());
            self.recent().push(RecentEvent { entry: Arc::clone(entry), tail, bytes });
            self.appends.send_modify(|count| *count += 1);
        }
    }

    /// Removes the text that an event ends, and returns its last part. For the input of a call that part is empty,
    /// because the event holds all of it; the `Some` tells that the input was written live.
    fn end_text(&self, event: &SessionEvent) -> Option<Tail> {
        let SessionEvent::Run { run, event, .. } = event else { return None };
        let mut texts = self.lock();
        let mut end = |is_ended: &dyn Fn(&StreamKind) -> bool, max_bytes| {
            let index = texts.iter().position(|text| is_ended(&text.stream))?;
            Some(Tail::of(texts.remove(index).text, max_bytes))
        };
        match event {
            RunEvent::Tool(ToolEvent::Called { call, .. }) => {
                end(&|stream| matches!(stream, StreamKind::ToolInput { call: of, .. } if of == call), 0)
            }
            RunEvent::Tool(ToolEvent::Completed { call, .. })
            | RunEvent::Tool(ToolEvent::Failed { call, .. }) => {
                end(&|stream| matches!(stream, StreamKind::ToolOutput(of) if of == call), TOOL_TAIL_BYTES)
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
            | RunEvent::Question(_)
            | RunEvent::Subagent(_)
            | RunEvent::ErrorRaised { .. }
            | RunEvent::UsageAdded { .. } => None,
        }
    }

    /// Whether `position` is known to be that of the session's last event.
    pub(crate) fn is_at_end(&self, position: Seq) -> bool {
        self.recent().events.back().is_some_and(|last| last.entry.seq == position)
    }

    /// The event after `position`, if it is in memory.
    pub(crate) fn after(&self, position: Seq) -> Option<Arc<RecentEvent>> {
        self.recent().after(position)
    }

    /// Drops everything and wakes all watchers. Called when this process stops writing the session: from now on
    /// another process may write it, and watchers must read the log.
    pub(crate) fn reset(&self) {
        *self.recent() = Recent::default();
        self.lock().clear();
        self.appends.send_modify(|count| *count += 1);
        self.text_changed.notify_waiters();
    }

    /// Called when the session was deleted. A new session may get the same id.
    pub(crate) fn on_delete(&self) {
        self.deletions.fetch_add(1, Ordering::Relaxed);
        self.reset();
    }

    /// How often the session was deleted.
    pub(crate) fn deletions(&self) -> u64 {
        self.deletions.load(Ordering::Relaxed)
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes when an event was appended, and on a reset. Sufficient for a watcher that has seen the last event.
    pub(crate) fn subscribe_appends(&self) -> watch::Receiver<u64> {
        let appends = self.appends.subscribe();
        // `notify_one` keeps the notice for an actor that looks just now.
        self.watch_began.notify_one();
        appends
    }

    /// Wakes when a text has changed, and on a reset.
    pub(crate) fn text_changed(&self) -> Notified<'_> {
        self.text_changed.notified()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<LiveText>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The beginning of `text`, at most `max_bytes` long and not cut within a character.
pub(crate) fn first_bytes(text: &str, max_bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(max_bytes)).unwrap_or_default()
}

/// The live part of each session that is open or watched, shared by the actor and the watchers.
#[derive(Debug, Default)]
pub(crate) struct LiveSessions(Mutex<HashMap<SessionId, Weak<LiveSession>>>);

impl LiveSessions {
    /// The live part of a session, created if this is the first use.
    pub(crate) fn of(&self, session: &SessionId) -> Arc<LiveSession> {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = sessions.get(session).and_then(Weak::upgrade) {
            return live;
        }
        let live = Arc::<LiveSession>::default();
        // Dead entries are removed only when the map would have to grow, so the cost per insert stays constant.
        if sessions.len() == sessions.capacity() {
            sessions.retain(|_, live| live.strong_count() > 0);
        }
        sessions.insert(session.clone(), Arc::downgrade(&live));
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
    fn the_last_events_are_found_by_the_position_before_them() {
        let live = LiveSession::default();
        let _watching = live.subscribe_appends();
        let last = 2 * RECENT_EVENTS as u64;
        (1..=last).for_each(|seq| live.on_append(&entry(seq), 1));
        let first = last - RECENT_EVENTS as u64 + 1;
        assert!(live.after(Seq(first - 2)).is_none() && live.after(Seq(last)).is_none());
        for seq in first..=last {
            assert_eq!(live.after(Seq(seq - 1)).unwrap().entry, entry(seq));
        }
    }

    #[test]
    fn kept_events_are_limited_in_bytes_and_have_no_gap() {
        let live = LiveSession::default();
        let _watching = live.subscribe_appends();
        live.on_append(&entry(1), RECENT_BYTES);
        assert!(live.after(Seq(0)).is_some());
        live.on_append(&entry(2), 1);
        assert!(live.after(Seq(0)).is_none() && live.after(Seq(1)).is_some());
        live.on_append(&entry(3), RECENT_BYTES + 1);
        assert!(live.after(Seq(2)).is_none());
        live.on_append(&entry(4), 1);
        // Another process wrote the events between.
        live.on_append(&entry(9), 1);
        assert!(live.after(Seq(3)).is_none() && live.after(Seq(8)).is_some());
        live.reset();
        assert!(live.after(Seq(8)).is_none());
    }

    #[test]
    fn no_event_is_kept_if_nobody_watches() {
        let live = LiveSession::default();
        live.on_append(&entry(1), 1);
        assert!(live.after(Seq(0)).is_none());
    }
}
