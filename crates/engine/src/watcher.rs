//! Watching a session: what has happened from any place in its log on, then what happens.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parlor_log::{EventLog, LogError};
use parlor_vocab::{Entry, RunEvent, RunId, Seen, Seq, SessionEvent, SessionId, Subject};
use tokio::sync::watch;

use crate::live::Live;

/// How many events are read at a time.
const READ_EVENTS: usize = 256;

/// One who watches. It holds a place in the log and nothing is kept for it.
pub struct Watcher {
    log: Arc<dyn EventLog>,
    session: SessionId,
    place: Seq,
    heads: watch::Receiver<Seq>,
    live: Arc<Live>,
    /// The session's life that is watched.
    life: u64,
    changes: watch::Receiver<u64>,
    read: VecDeque<Entry>,
    /// Texts that have begun, with how many of their bytes were shown.
    open: HashMap<Subject, usize>,
    /// What is to be seen next.
    due: VecDeque<Seen>,
}

impl Watcher {
    pub(crate) fn new(log: Arc<dyn EventLog>, session: SessionId, after: Seq, live: Arc<Live>) -> Self {
        let heads = log.head(&session);
        let changes = live.changes();
        Self {
            log,
            session,
            place: after,
            heads,
            life: live.life(),
            live,
            changes,
            read: VecDeque::new(),
            open: HashMap::new(),
            due: VecDeque::new(),
        }
    }

    /// Waits for the next thing to see. Cancel safe.
    pub async fn next(&mut self) -> Result<Seen, LogError> {
        loop {
            // Marked before looking, so that what comes in between wakes us below.
            self.heads.mark_unchanged();
            self.changes.mark_unchanged();
            if let Some(seen) = self.look().await? {
                return Ok(seen);
            }
            // Who writes the session here tells of everything. Being woken by the log besides would be for nothing, and
            // there may be a thousand who watch.
            let is_told = self.live.is_at_end(self.place);
            // An error means that the log is gone, and nothing will ever wake us.
            tokio::select! {
                changed = self.heads.changed(), if !is_told => if changed.is_err() { std::future::pending().await },
                changed = self.changes.changed() => if changed.is_err() { std::future::pending().await },
            }
        }
    }

    /// The next thing to see, if it is there already. Cancel safe.
    pub async fn look(&mut self) -> Result<Option<Seen>, LogError> {
        loop {
            if let Some(seen) = self.at_hand() {
                return Ok(Some(seen));
            }
            // Who writes the session here has told of everything: there is nothing on the disk beyond it.
            if self.live.is_at_end(self.place) {
                return Ok(self.delta());
            }
            self.read = self.log.read(&self.session, self.place, READ_EVENTS).await?.into();
            match self.read.back() {
                Some(last) => self.place = last.seq,
                None => return Ok(self.delta()),
            }
        }
    }

    /// The next thing to see, if nothing has to be read for it.
    pub(crate) fn at_hand(&mut self) -> Option<Seen> {
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
                self.on_entry(Arc::new(entry));
            } else {
                let entry = self.live.after(self.place)?;
                self.place = entry.seq;
                self.on_entry(entry);
            }
        }
    }

    fn on_entry(&mut self, entry: Arc<Entry>) {
        if let SessionEvent::Run { run, event, .. } = &entry.event {
            match event {
                RunEvent::MessageStarted { message } => {
                    self.open.insert(Subject::Message(message.clone()), 0);
                }
                RunEvent::MessageCompleted { message, text, .. } => {
                    self.complete(run, Subject::Message(message.clone()), text);
                }
                RunEvent::StepStarted { step, .. } => {
                    self.open.insert(Subject::Thought(step.clone()), 0);
                }
                RunEvent::Reasoned { step, text } => {
                    let subject = Subject::Thought(step.clone());
                    self.complete(run, subject.clone(), text);
                    // The agent may think again in the same step.
                    self.open.insert(subject, 0);
                }
                RunEvent::StepCompleted { step, .. } | RunEvent::StepFailed { step, .. } => {
                    self.open.remove(&Subject::Thought(step.clone()));
                }
                RunEvent::ToolCalled { call, tool, input, .. } => {
                    let subject = Subject::Input { call: call.clone(), tool: tool.clone() };
                    self.complete(run, subject, input);
                    self.open.insert(Subject::Tool(call.clone()), 0);
                }
                RunEvent::ToolCompleted { call, .. } | RunEvent::ToolFailed { call, .. } => {
                    self.open.remove(&Subject::Tool(call.clone()));
                }
                RunEvent::Started { .. }
                | RunEvent::Steered { .. }
                | RunEvent::StepUpdated { .. }
                | RunEvent::ToolProgressed { .. }
                | RunEvent::SubagentStarted { .. }
                | RunEvent::SubagentUpdated { .. }
                | RunEvent::SubagentDone { .. }
                | RunEvent::ErrorRaised { .. }
                | RunEvent::Consumed { .. } => {}
                // While a run ends, no other one writes: what is left was never called.
                RunEvent::Ended { .. } => {
                    self.open.retain(|subject, _| !matches!(subject, Subject::Input { .. }))
                }
            }
        }
        self.due.push_back(Seen::Entry(entry));
    }

    /// A text is complete: what was not shown of it comes before its event.
    fn complete(&mut self, run: &RunId, subject: Subject, text: &str) {
        let Some(shown) = self.open.remove(&subject) else { return };
        if let Some(rest) = text.get(shown..).filter(|rest| !rest.is_empty()) {
            self.due.push_back(Seen::Delta { run: run.clone(), subject, text: rest.to_owned() });
        }
    }

    fn delta(&mut self) -> Option<Seen> {
        let (run, subject, text) = self.live.news(&mut self.open)?;
        Some(Seen::Delta { run, subject, text })
    }
}
