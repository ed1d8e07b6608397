//! Watches a session: delivers its events from any log position on, then new events and live text as they come.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parlor_log::{EventLog, LogError};
use parlor_vocab::{
    Entry, MessageEvent, RunEvent, RunId, Seq, SessionEvent, SessionId, SessionUpdate, StepEvent, StreamKind,
    ToolEvent,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until};

use crate::Sessions;
use crate::sessions::live::{LiveSession, Tail, first_bytes};
use crate::sessions::text_bytes::text_bytes;

/// How many events are read at a time.
const READ_EVENTS: usize = 256;

/// How long a watcher waits after some live text before it delivers more, which is then all that came meanwhile. The
/// first text, and events with the rest of their texts, come at once.
pub const TEXT_INTERVAL: Duration = Duration::from_millis(25);

/// The longest piece of a text that is delivered at once. A watcher that was slow gets the rest in several pieces.
pub const MAX_DELTA_BYTES: usize = 64 << 10;

/// A reader of one session's updates. It remembers a log position; nothing is queued for it.
pub struct Watcher {
    log: Arc<dyn EventLog>,
    session: SessionId,
    position: Seq,
    /// Events up to here are read for the texts that they open, and not delivered.
    deliver_after: Seq,
    /// Changes when any process appends to the session.
    log_head: watch::Receiver<Seq>,
    live: Arc<LiveSession>,
    /// The session's count of deletions when `position` was valid.
    deletions: u64,
    /// Changes when this process appends to the session.
    appends: watch::Receiver<u64>,
    /// How long to wait after some text before more is delivered.
    text_interval: Duration,
    /// When the next live text may be delivered. `None` if at once.
    next_text_at: Option<Instant>,
    /// Events from the log that are not delivered yet.
    read_entries: VecDeque<Entry>,
    /// Open texts, with how many of their bytes were delivered.
    open_streams: HashMap<StreamKind, usize>,
    /// Updates that are delivered next.
    pending: VecDeque<PendingUpdate>,
    /// Whether live text is delivered too.
    deltas: bool,
    /// The registry that mirrors the session if another process writes it. `None`: only the log is followed.
    joined: Option<Arc<Sessions>>,
    /// One permit for each watcher that may read the log at a time. `None`: reads do not wait.
    read_permits: Option<Arc<Semaphore>>,
    /// The permit of the last read, see [`take_read_permit`](Self::take_read_permit).
    read_permit: Option<OwnedSemaphorePermit>,
}

/// An update that is delivered next.
enum PendingUpdate {
    Whole(SessionUpdate),
    /// The text that `entry` completes, after its first `shown` bytes: delivered in pieces, which are cut when they are
    /// taken.
    Rest {
        run: RunId,
        stream: StreamKind,
        entry: Arc<Entry>,
        shown: usize,
    },
}

impl Watcher {
    pub(crate) fn new(
        log: Arc<dyn EventLog>,
        session: SessionId,
        after: Seq,
        live: Arc<LiveSession>,
    ) -> Self {
        let log_head = log.head(&session);
        let appends = live.subscribe_appends();
        Self {
            log,
            session,
            position: after,
            deliver_after: after,
            log_head,
            deletions: live.deletions(),
            live,
            appends,
            text_interval: TEXT_INTERVAL,
            next_text_at: None,
            read_entries: VecDeque::new(),
            open_streams: HashMap::new(),
            pending: VecDeque::new(),
            deltas: true,
            joined: None,
            read_permits: None,
            read_permit: None,
        }
    }

    /// Waits for one of `permits` before each read of the log, because a read may bring the largest possible event.
    #[must_use]
    pub fn limit_reads(self, permits: Arc<Semaphore>) -> Self {
        Self { read_permits: Some(permits), ..self }
    }

    /// The permit of the read that has brought the last update; `None` if the update was in memory before. The caller
    /// drops it when the memory for what was read is reserved.
    pub fn take_read_permit(&mut self) -> Option<OwnedSemaphorePermit> {
        self.read_permit.take()
    }

    /// The bytes of the texts that were read from the log and not delivered yet.
    pub fn read_ahead_bytes(&self) -> usize {
        self.read_entries.iter().map(|entry| text_bytes(&entry.event)).sum()
    }

    /// Whether an event that was read from the log and not delivered yet has texts of at least `bytes`.
    pub fn has_read_ahead_of(&self, bytes: usize) -> bool {
        self.read_entries.iter().any(|entry| text_bytes(&entry.event) >= bytes)
    }

    /// Frees the events that were read from the log and not delivered yet. The watcher reads them again when it needs
    /// them.
    pub fn forget_read_ahead(&mut self) {
        if let Some(first) = self.read_entries.front() {
            self.position = Seq(first.seq.0 - 1);
            self.read_entries = VecDeque::new();
        }
    }

    /// Delivers only events after `seen`, and the whole text of messages that are open there. `seen` is not before the
    /// position at which the watcher began.
    pub(crate) fn deliver_after(self, seen: Seq) -> Self {
        Self { deliver_after: seen, ..self }
    }

    /// Delivers text at once, for a mirror whose watchers have intervals of their own.
    pub(crate) fn without_text_interval(self) -> Self {
        Self { text_interval: Duration::ZERO, ..self }
    }

    /// Delivers events only, and is not woken by text.
    pub(crate) fn without_deltas(self) -> Self {
        Self { deltas: false, ..self }
    }

    /// Also delivers the text that another process is writing in the session.
    pub(crate) fn join(mut self, sessions: &Arc<Sessions>) -> Self {
        self.joined = Some(Arc::clone(sessions));
        sessions.mirror(&self.session);
        self
    }

    /// Waits for the next update. Cancel safe.
    pub async fn next(&mut self) -> Result<SessionUpdate, LogError> {
        let live = Arc::clone(&self.live);
        loop {
            // Marked as seen before the check, so that a change after the check wakes the wait below.
            self.log_head.mark_unchanged();
            self.appends.mark_unchanged();
            let mut text_changed = std::pin::pin!(self.deltas.then(|| live.text_changed()));
            if let Some(text_changed) = text_changed.as_mut().as_pin_mut() {
                text_changed.enable();
            }
            let wake_source = match self.next_event().await? {
                NextEvent::Event(update) => return Ok(update),
                NextEvent::End(wake_source) => wake_source,
            };
            self.next_text_at.take_if(|moment| *moment <= Instant::now());
            if self.deltas
                && self.next_text_at.is_none()
                && let Some(update) = self.next_delta()
            {
                return Ok(update);
            }
            let Self { log_head, appends, next_text_at, .. } = self;
            // Two small futures with a boxed timer: each of ten thousand idle watchers keeps them in memory.
            let event = async {
                match wake_source {
                    WakeSource::Actor => changed(appends).await,
                    WakeSource::Log => tokio::select! {
                        () = changed(log_head) => {}
                        // A mirror begins to feed the live session.
                        () = changed(appends) => {}
                    },
                }
            };
            let text = async {
                match (next_text_at, text_changed.as_pin_mut()) {
                    (Some(moment), _) => Box::pin(sleep_until(*moment)).await,
                    (None, Some(text_changed)) => text_changed.await,
                    (None, None) => std::future::pending().await,
                }
            };
            tokio::select! {
                () = event => {}
                () = text => {}
            }
        }
    }

    /// The next update, if there is one already. Cancel safe.
    pub async fn try_next(&mut self) -> Result<Option<SessionUpdate>, LogError> {
        match self.next_event().await? {
            NextEvent::Event(update) => Ok(Some(update)),
            NextEvent::End(_) if self.deltas => Ok(self.next_delta()),
            NextEvent::End(_) => Ok(None),
        }
    }

    /// The next update that need not wait for [`TEXT_INTERVAL`], if there is one already. Cancel safe.
    async fn next_event(&mut self) -> Result<NextEvent, LogError> {
        loop {
            if let Some(update) = self.next_buffered() {
                return Ok(NextEvent::Event(update));
            }
            self.read_permit = None;
            if self.live.is_at_end(self.position) {
                return Ok(NextEvent::End(WakeSource::Actor));
            }
            let permit = match &self.read_permits {
                Some(permits) => {
                    Some(Arc::clone(permits).acquire_owned().await.map_err(|_| LogError::Closed)?)
                }
                None => None,
            };
            self.read_entries = self.log.read(&self.session, self.position, READ_EVENTS).await?.into();
            match self.read_entries.back() {
                Some(last) => {
                    self.position = last.seq;
                    self.read_permit = permit;
                    if let Some(sessions) = &self.joined {
                        sessions.mirror(&self.session);
                    }
                }
                None => return Ok(NextEvent::End(WakeSource::Log)),
            }
        }
    }

    /// The next update, if it can be delivered without reading the log.
    pub(crate) fn next_buffered(&mut self) -> Option<SessionUpdate> {
        loop {
            if let Some(update) = self.next_pending() {
                return Some(update);
            }
            if self.deletions != self.live.deletions() {
                // The session was deleted. If it exists again, it is watched from its start.
                (self.deletions, self.position) = (self.live.deletions(), Seq::START);
                self.deliver_after = Seq::START;
                self.read_entries.clear();
                self.open_streams.clear();
            }
            if let Some(entry) = self.read_entries.pop_front() {
                self.on_entry(Arc::new(entry), None);
            } else {
                let recent = self.live.after(self.position)?;
                self.position = recent.entry.seq;
                self.on_entry(Arc::clone(&recent.entry), recent.tail.as_ref());
            }
        }
    }

    fn next_pending(&mut self) -> Option<SessionUpdate> {
        let (run, stream, entry, shown) = match self.pending.pop_front()? {
            PendingUpdate::Whole(update) => return Some(update),
            PendingUpdate::Rest { run, stream, entry, shown } => (run, stream, entry, shown),
        };
        let rest = completed_text(&entry.event).get(shown..).unwrap_or_default();
        let text = first_bytes(rest, MAX_DELTA_BYTES).to_owned();
        if text.len() < rest.len() {
            let (run, stream, shown) = (run.clone(), stream.clone(), shown + text.len());
            self.pending.push_front(PendingUpdate::Rest { run, stream, entry, shown });
        }
        Some(SessionUpdate::Delta { run, stream, text })
    }

    /// Queues an event, after the rest of the live text that it completes. `tail` ends a text that it does not hold.
    fn on_entry(&mut self, entry: Arc<Entry>, tail: Option<&Tail>) {
        if self.deltas
            && let SessionEvent::Run { run, event, .. } = &entry.event
        {
            match event {
                RunEvent::Message(MessageEvent::Started { message }) => {
                    self.open_streams.insert(StreamKind::Message(message.clone()), 0);
                }
                RunEvent::Message(MessageEvent::Completed { message, .. }) => {
                    self.complete(run, StreamKind::Message(message.clone()), &entry);
                }
                RunEvent::Step(StepEvent::Started { step, .. }) => {
                    self.open_streams.insert(StreamKind::Reasoning(step.clone()), 0);
                }
                RunEvent::Step(StepEvent::Reasoned { step, .. }) => {
                    let stream = StreamKind::Reasoning(step.clone());
                    self.complete(run, stream.clone(), &entry);
                    // The agent may reason again in the same step.
                    self.open_streams.insert(stream, 0);
                }
                RunEvent::Step(StepEvent::Completed { step, .. })
                | RunEvent::Step(StepEvent::Failed { step, .. }) => {
                    self.open_streams.remove(&StreamKind::Reasoning(step.clone()));
                }
                RunEvent::Tool(ToolEvent::Called { call, tool, .. }) => {
                    let stream = StreamKind::ToolInput { call: call.clone(), tool: tool.clone() };
                    // The input was written live, even if too fast for this watcher to deliver any of it.
                    if tail.is_some() {
                        self.open_streams.entry(stream.clone()).or_insert(0);
                    }
                    self.complete(run, stream, &entry);
                    self.open_streams.insert(StreamKind::ToolOutput(call.clone()), 0);
                }
                RunEvent::Tool(ToolEvent::Completed { call, .. })
                | RunEvent::Tool(ToolEvent::Failed { call, .. }) => {
                    let stream = StreamKind::ToolOutput(call.clone());
                    let shown = self.open_streams.remove(&stream);
                    if let Some(rest) = shown.zip(tail).and_then(|(shown, tail)| tail.after(shown)) {
                        self.pending.push_back(PendingUpdate::Whole(SessionUpdate::Delta {
                            run: run.clone(),
                            stream,
                            text: rest.to_owned(),
                        }));
                    }
                }
                RunEvent::Started { .. }
                | RunEvent::Steered { .. }
                | RunEvent::Step(StepEvent::Updated { .. })
                | RunEvent::Tool(ToolEvent::Progressed { .. })
                | RunEvent::Question(_)
                | RunEvent::Subagent(_)
                | RunEvent::ErrorRaised { .. }
                | RunEvent::UsageAdded { .. } => {}
                // When a run ends, no other run writes, so the inputs that are still open were never called.
                RunEvent::Ended { .. } => {
                    self.open_streams.retain(|stream, _| !matches!(stream, StreamKind::ToolInput { .. }))
                }
            }
        }
        if entry.seq <= self.deliver_after {
            // Nothing of an earlier event is left here: `next_buffered` takes an event when all is delivered.
            self.pending.clear();
            return;
        }
        self.pending.push_back(PendingUpdate::Whole(SessionUpdate::Entry(entry)));
    }

    /// Queues the part of a completed text that was not delivered yet. It comes before the text's event.
    fn complete(&mut self, run: &RunId, stream: StreamKind, entry: &Arc<Entry>) {
        let Some(shown) = self.open_streams.remove(&stream) else { return };
        if completed_text(&entry.event).get(shown..).is_some_and(|rest| !rest.is_empty()) {
            let (run, entry) = (run.clone(), Arc::clone(entry));
            self.pending.push_back(PendingUpdate::Rest { run, stream, entry, shown });
        }
    }

    /// Queues the text that was added since, and takes the first piece.
    fn next_delta(&mut self) -> Option<SessionUpdate> {
        let added = self.live.take_new_text(&mut self.open_streams, MAX_DELTA_BYTES);
        // A piece that was cut has a rest, for which nobody has to wait.
        let is_cut = added.iter().any(|(_, _, text)| text.len() + char::MAX.len_utf8() > MAX_DELTA_BYTES);
        let delta = |(run, stream, text)| PendingUpdate::Whole(SessionUpdate::Delta { run, stream, text });
        self.pending.extend(added.into_iter().map(delta));
        let first = self.next_pending()?;
        self.next_text_at =
            (!is_cut && !self.text_interval.is_zero()).then(|| Instant::now() + self.text_interval);
        Some(first)
    }
}

/// The whole text that an event completes; empty if it completes none.
fn completed_text(event: &SessionEvent) -> &str {
    if let SessionEvent::Run { event, .. } = event
        && let RunEvent::Message(MessageEvent::Completed { text, .. })
        | RunEvent::Step(StepEvent::Reasoned { text, .. })
        | RunEvent::Tool(ToolEvent::Called { input: text, .. }) = event
    {
        return text;
    }
    ""
}

/// The result of looking for the next event.
enum NextEvent {
    Event(SessionUpdate),
    /// There is none yet; this source will wake the watcher.
    End(WakeSource),
}

/// What wakes a watcher when there is a new event.
enum WakeSource {
    /// The actor in this process. The watcher has seen all of its events, so waking by the log too would be useless
    /// work, and there may be a thousand watchers.
    Actor,
    /// The log. Another process may write the session.
    Log,
}

/// Waits for a change. If the sender is gone, waits forever.
async fn changed<T>(changes: &mut watch::Receiver<T>) {
    if changes.changed().await.is_err() {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests;
