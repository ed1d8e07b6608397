//! Watching a session: what has happened from any place in its log on, then what happens.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parlor_log::{EventLog, LogError};
use parlor_vocab::{
    Entry, MessageEvent, RunEvent, RunId, Seq, SessionEvent, SessionId, SessionUpdate, StepEvent, StreamKind,
    ToolEvent,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::sessions::live::{Live, Tail};

/// How many events are read at a time.
const READ_EVENTS: usize = 256;

/// Who was shown some text is shown more of it after this long, all that has come meanwhile: as often as a screen can
/// follow. The first words, and events with what is left of their texts, come at once.
pub const TEXT_PACE: Duration = Duration::from_millis(25);

/// One who watches. It holds a place in the log and nothing is kept for it.
pub struct Watcher {
    log: Arc<dyn EventLog>,
    session: SessionId,
    place: Seq,
    heads: watch::Receiver<Seq>,
    live: Arc<Live>,
    /// The session's life that is watched.
    life: u64,
    appendings: watch::Receiver<u64>,
    /// When more text may be shown, if some was.
    paced_until: Option<Instant>,
    read: VecDeque<Entry>,
    /// Texts that have begun, with how many of their bytes were shown.
    open: HashMap<StreamKind, usize>,
    /// What is to be seen next.
    due: VecDeque<SessionUpdate>,
}

impl Watcher {
    pub(crate) fn new(log: Arc<dyn EventLog>, session: SessionId, after: Seq, live: Arc<Live>) -> Self {
        let heads = log.head(&session);
        let appendings = live.appendings();
        Self {
            log,
            session,
            place: after,
            heads,
            life: live.life(),
            live,
            appendings,
            paced_until: None,
            read: VecDeque::new(),
            open: HashMap::new(),
            due: VecDeque::new(),
        }
    }

    /// Waits for the next thing to see. Cancel safe.
    pub async fn next(&mut self) -> Result<SessionUpdate, LogError> {
        let live = Arc::clone(&self.live);
        loop {
            // Marked before looking, so that what comes in between wakes us below.
            self.heads.mark_unchanged();
            self.appendings.mark_unchanged();
            let mut written = std::pin::pin!(live.written());
            written.as_mut().enable();
            let teller = match self.look_for_event().await? {
                Found::Event(seen) => return Ok(seen),
                Found::End(teller) => teller,
            };
            self.paced_until.take_if(|moment| *moment <= Instant::now());
            if let Some(seen) = self.paced_until.is_none().then(|| self.delta()).flatten() {
                return Ok(seen);
            }
            let Self { heads, appendings, paced_until, .. } = self;
            // Two futures, and no room for a timer in them: each of ten thousand who wait for something keeps these.
            let event = async {
                match teller {
                    WakeSource::Writer => woken(appendings).await,
                    WakeSource::Log => woken(heads).await,
                }
            };
            let text = async {
                match paced_until {
                    Some(moment) => Box::pin(sleep_until(*moment)).await,
                    None => written.await,
                }
            };
            tokio::select! {
                () = event => {}
                () = text => {}
            }
        }
    }

    /// The next thing to see, if it is there already. Cancel safe.
    pub async fn look(&mut self) -> Result<Option<SessionUpdate>, LogError> {
        match self.look_for_event().await? {
            Found::Event(seen) => Ok(Some(seen)),
            Found::End(_) => Ok(self.delta()),
        }
    }

    /// The next thing that is to be seen at once, if it is there already. Cancel safe.
    async fn look_for_event(&mut self) -> Result<Found, LogError> {
        loop {
            if let Some(seen) = self.at_hand() {
                return Ok(Found::Event(seen));
            }
            if self.live.is_at_end(self.place) {
                return Ok(Found::End(WakeSource::Writer));
            }
            self.read = self.log.read(&self.session, self.place, READ_EVENTS).await?.into();
            match self.read.back() {
                Some(last) => self.place = last.seq,
                None => return Ok(Found::End(WakeSource::Log)),
            }
        }
    }

    /// The next thing to see, if nothing has to be read for it.
    pub(crate) fn at_hand(&mut self) -> Option<SessionUpdate> {
        loop {
            if let Some(seen) = self.due.pop_front() {
                return Some(seen);
            }
            if self.life != self.live.life() {
                // It was deleted, and may be there anew: from its start.
                (self.life, self.place) = (self.live.life(), Seq::START);
                self.read.clear();
                self.open.clear();
            }
            if let Some(entry) = self.read.pop_front() {
                self.on_entry(Arc::new(entry), None);
            } else {
                let told = self.live.after(self.place)?;
                self.place = told.entry.seq;
                self.on_entry(Arc::clone(&told.entry), told.tail.as_ref());
            }
        }
    }

    /// An event, and the end of the text that was shown until then and does not stand in it.
    fn on_entry(&mut self, entry: Arc<Entry>, tail: Option<&Tail>) {
        if let SessionEvent::Run { run, event, .. } = &entry.event {
            match event {
                RunEvent::Message(MessageEvent::Started { message }) => {
                    self.open.insert(StreamKind::Message(message.clone()), 0);
                }
                RunEvent::Message(MessageEvent::Completed { message, text, .. }) => {
                    self.complete(run, StreamKind::Message(message.clone()), text);
                }
                RunEvent::Step(StepEvent::Started { step, .. }) => {
                    self.open.insert(StreamKind::Thought(step.clone()), 0);
                }
                RunEvent::Step(StepEvent::Reasoned { step, text }) => {
                    let subject = StreamKind::Thought(step.clone());
                    self.complete(run, subject.clone(), text);
                    // The agent may think again in the same step.
                    self.open.insert(subject, 0);
                }
                RunEvent::Step(StepEvent::Completed { step, .. })
                | RunEvent::Step(StepEvent::Failed { step, .. }) => {
                    self.open.remove(&StreamKind::Thought(step.clone()));
                }
                RunEvent::Tool(ToolEvent::Called { call, tool, input, .. }) => {
                    let subject = StreamKind::Input { call: call.clone(), tool: tool.clone() };
                    // It was written, be it too fast to have been seen.
                    if tail.is_some() {
                        self.open.entry(subject.clone()).or_insert(0);
                    }
                    self.complete(run, subject, input);
                    self.open.insert(StreamKind::Tool(call.clone()), 0);
                }
                RunEvent::Tool(ToolEvent::Completed { call, .. })
                | RunEvent::Tool(ToolEvent::Failed { call, .. }) => {
                    let subject = StreamKind::Tool(call.clone());
                    let shown = self.open.remove(&subject);
                    if let Some(rest) = shown.zip(tail).and_then(|(shown, tail)| tail.after(shown)) {
                        self.due.push_back(SessionUpdate::Delta {
                            run: run.clone(),
                            subject,
                            text: rest.to_owned(),
                        });
                    }
                }
                RunEvent::Started { .. }
                | RunEvent::Steered { .. }
                | RunEvent::Step(StepEvent::Updated { .. })
                | RunEvent::Tool(ToolEvent::Progressed { .. })
                | RunEvent::Subagent(_)
                | RunEvent::ErrorRaised { .. }
                | RunEvent::Consumed { .. } => {}
                // While a run ends, no other one writes: what is left was never called.
                RunEvent::Ended { .. } => {
                    self.open.retain(|subject, _| !matches!(subject, StreamKind::Input { .. }))
                }
            }
        }
        self.due.push_back(SessionUpdate::Entry(entry));
    }

    /// A text is complete: what was not shown of it comes before its event.
    fn complete(&mut self, run: &RunId, subject: StreamKind, text: &str) {
        let Some(shown) = self.open.remove(&subject) else { return };
        if let Some(rest) = text.get(shown..).filter(|rest| !rest.is_empty()) {
            self.due.push_back(SessionUpdate::Delta { run: run.clone(), subject, text: rest.to_owned() });
        }
    }

    /// The first of all that was added to texts; the rest of it is due.
    fn delta(&mut self) -> Option<SessionUpdate> {
        let news = self.live.news(&mut self.open);
        self.due.extend(news.into_iter().map(|(run, subject, text)| SessionUpdate::Delta {
            run,
            subject,
            text,
        }));
        let first = self.due.pop_front()?;
        self.paced_until = Some(Instant::now() + TEXT_PACE);
        Some(first)
    }
}

/// What is found by who looks for an event.
enum Found {
    Event(SessionUpdate),
    /// None, and this is who tells of the next one.
    End(WakeSource),
}

enum WakeSource {
    /// Who writes the session here, and has told of everything: there is nothing on the disk beyond it. Being woken by the log
    /// besides would be for nothing, and there may be a thousand who watch.
    Writer,
    Log,
}

/// Waits for a change. An error deps that the log is gone, and nothing will ever wake us.
async fn woken<T>(changes: &mut watch::Receiver<T>) {
    if changes.changed().await.is_err() {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use parlor_log::{MemoryLog, SystemClock};
    use parlor_vocab::{EventId, MessageId, StepId, Timestamp, ToolCallId};

    use super::*;
    use crate::sessions::live::TOOL_END_BYTES;

    fn appended(live: &Live, seq: u64, event: RunEvent) -> SessionUpdate {
        let id = EventId::parse(&seq.to_string()).unwrap();
        let event = SessionEvent::Run { run: run(), sequence: seq, event };
        let entry = Arc::new(Entry { seq: Seq(seq), id, at: Timestamp(0), event });
        live.appended(&entry, 1);
        SessionUpdate::Entry(entry)
    }

    fn run() -> RunId {
        RunId::parse("run").unwrap()
    }

    fn watched() -> (Arc<Live>, Watcher) {
        let live = Arc::<Live>::default();
        let log = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
        let session = SessionId::parse("session").unwrap();
        let watcher = Watcher::new(log, session, Seq::START, Arc::clone(&live));
        (live, watcher)
    }

    fn more(subject: &StreamKind, text: &str) -> SessionUpdate {
        SessionUpdate::Delta { run: run(), subject: subject.clone(), text: text.to_owned() }
    }

    fn called(call: &ToolCallId, input: &str) -> RunEvent {
        let (step, tool) = (StepId::parse("step").unwrap(), "shell".to_owned());
        RunEvent::Tool(ToolEvent::Called { step, call: call.clone(), tool, input: input.to_owned() })
    }

    fn completed(call: &ToolCallId) -> RunEvent {
        RunEvent::Tool(ToolEvent::Completed {
            call: call.clone(),
            output: "it is done".to_owned(),
            duration_ms: 1,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn words_come_at_once_then_together_and_none_after_its_event() {
        let (live, mut watcher) = watched();
        let message = MessageId::parse("message").unwrap();
        let subject = StreamKind::Message(message.clone());
        live.open(&run(), subject.clone());

        let started =
            appended(&live, 1, RunEvent::Message(MessageEvent::Started { message: message.clone() }));
        assert_eq!(watcher.next().await.unwrap(), started);
        let begun = Instant::now();
        live.push(&subject, "one ");
        assert_eq!(watcher.next().await.unwrap(), more(&subject, "one "));
        assert_eq!(Instant::now(), begun);

        live.push(&subject, "two ");
        let meanwhile = async {
            sleep_until(begun + TEXT_PACE / 2).await;
            live.push(&subject, "three ");
        };
        assert_eq!(tokio::join!(watcher.next(), meanwhile).0.unwrap(), more(&subject, "two three "));
        let paced = Instant::now();
        assert!(paced >= begun + TEXT_PACE);

        live.push(&subject, "four");
        let (text, media) = ("one two three four".to_owned(), Vec::new());
        let completed =
            appended(&live, 2, RunEvent::Message(MessageEvent::Completed { message, text, media }));
        assert_eq!(watcher.next().await.unwrap(), more(&subject, "four"));
        assert_eq!(watcher.next().await.unwrap(), completed);
        assert_eq!(Instant::now(), paced);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_written_and_put_out_within_the_pace_is_seen_before_its_event() {
        let (live, mut watcher) = watched();
        let call = ToolCallId::parse("call").unwrap();
        let (input, output) = (
            StreamKind::Input { call: call.clone(), tool: "shell".to_owned() },
            StreamKind::Tool(call.clone()),
        );
        watcher.paced_until = Some(Instant::now() + TEXT_PACE);
        live.open(&run(), input.clone());
        live.push(&input, "{}");
        let called = appended(&live, 1, called(&call, "{}"));
        live.open(&run(), output.clone());
        live.push(&output, "all of it");
        let completed = appended(&live, 2, completed(&call));
        for seen in [more(&input, "{}"), called, more(&output, "all of it"), completed] {
            assert_eq!(watcher.next().await.unwrap(), seen);
        }
        assert!(live.news(&mut HashMap::from([(input, 0), (output, 0)])).is_empty());
    }

    #[tokio::test]
    async fn an_input_that_nobody_wrote_comes_with_its_call_alone() {
        let (live, mut watcher) = watched();
        let called = appended(&live, 1, called(&ToolCallId::parse("call").unwrap(), "{}"));
        assert_eq!(watcher.next().await.unwrap(), called);
    }

    #[tokio::test]
    async fn of_a_long_output_the_end_is_kept_and_no_gap_is_shown() {
        for (seen, rest) in [(0, None), (3, Some(TOOL_END_BYTES))] {
            let (live, mut watcher) = watched();
            let call = ToolCallId::parse("call").unwrap();
            let output = StreamKind::Tool(call.clone());
            let called = appended(&live, 1, called(&call, "{}"));
            assert_eq!(watcher.next().await.unwrap(), called);
            live.open(&run(), output.clone());
            live.push(&output, "abc".get(..seen).unwrap());
            if seen > 0 {
                assert_eq!(watcher.next().await.unwrap(), more(&output, "abc"));
            } else {
                live.push(&output, "abc");
            }
            live.push(&output, &"x".repeat(TOOL_END_BYTES));
            let completed = appended(&live, 2, completed(&call));
            if let Some(rest) = rest {
                assert_eq!(watcher.next().await.unwrap(), more(&output, &"x".repeat(rest)));
            }
            assert_eq!(watcher.next().await.unwrap(), completed);
        }
    }
}
