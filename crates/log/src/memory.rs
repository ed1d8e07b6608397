//! A log in memory, for tests and for sessions that leave nothing on the disk. Events live as long as the process.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use parlor_vocab::{Clock, Entry, EventId, MediaId, MessageId, NewEntry, Seq, SessionId};
use tokio::sync::watch;

use crate::heads::Heads;
use crate::lease::{LeaseReleaser, Token};
use crate::lost_leases::LostLeases;
use crate::media::media_of;
use crate::partial_text::{ends_partial_text, join_pieces};
use crate::record::apply;
use crate::snapshot::StoredSnapshot;
use crate::{
    Announcement, Erased, EventLog, Lease, LeaseHolder, LogError, MAX_USAGE_LINES, Page, PageCursor,
    PageRequest, PartialMessage, PartialText, Reclaimed, SessionRecord, SessionSnapshot, UsageLine, row,
};

/// An event log in memory.
pub struct MemoryLog(Arc<SimulatedProcess>);

/// One user of the shared data. Several of them simulate several processes that share a database.
struct SimulatedProcess {
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    announcement: Announcement,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    heads: Heads,
    lost_leases: LostLeases,
}

#[derive(Default)]
struct State {
    sessions: HashMap<SessionId, Stream>,
    leases: HashMap<SessionId, (Token, LeaseHolder)>,
    last_token: u64,
    usage: BTreeMap<(i64, String), UsageLine>,
}

struct Stream {
    record: SessionRecord,
    entries: Vec<Entry>,
    /// The unfinished message, and its pieces by the number of bytes before them.
    partial: Option<(MessageId, BTreeMap<usize, String>)>,
    snapshot: Option<StoredSnapshot>,
}

impl MemoryLog {
    /// An empty log. The clock sets [`LeaseHolder::since`].
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(SimulatedProcess {
            shared: Arc::default(),
            clock,
            announcement: Announcement::default(),
        }))
    }

    /// The same log as another process would see it: the same sessions, but leases of its own.
    pub fn as_other_process(&self) -> Self {
        self.as_announced_process(Announcement::default())
    }

    /// Like [`as_other_process`](Self::as_other_process), for a process that tells others of itself.
    pub fn as_announced_process(&self, announcement: Announcement) -> Self {
        let SimulatedProcess { shared, clock, .. } = &*self.0;
        Self(Arc::new(SimulatedProcess {
            shared: Arc::clone(shared),
            clock: Arc::clone(clock),
            announcement,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state()
    }

    /// Locks the data if the lease is valid. It stays valid as long as the lock is held.
    fn lock_if_held(&self, lease: &Lease) -> Result<MutexGuard<'_, State>, LogError> {
        let state = self.state();
        let current = state.leases.get(lease.session()).map(|(token, _)| *token);
        if current == Some(lease.token()) && lease.is_from(&self.0) {
            Ok(state)
        } else {
            Err(LogError::NotHeld { session: lease.session().clone() })
        }
    }
}

impl SimulatedProcess {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code under the lock panics between two changes that belong together.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeaseReleaser for SimulatedProcess {
    fn release(&self, session: &SessionId, token: Token) {
        let mut state = self.state();
        if state.leases.get(session).is_some_and(|(current, _)| *current == token) {
            state.leases.remove(session);
        }
    }
}

#[async_trait]
impl EventLog for MemoryLog {
    async fn append(&self, lease: &Lease, after: Seq, new: &[NewEntry]) -> Result<Seq, LogError> {
        let mut state = self.lock_if_held(lease)?;
        let id = lease.session();
        let head = state.sessions.get(id).map_or(Seq::START, |stream| stream.record.head);
        if head != after {
            return Err(LogError::Conflict { head });
        }
        if new.is_empty() {
            return Ok(head);
        }
        let State { sessions, usage, .. } = &mut *state;
        let stream = sessions.entry(id.clone()).or_insert_with(|| Stream {
            record: SessionRecord::new(id.clone()),
            entries: Vec::new(),
            partial: None,
            snapshot: None,
        });
        for entry in new {
            if ends_partial_text(&entry.event) {
                stream.partial = None;
            }
            if let Some(line) = UsageLine::of(&stream.record, entry) {
                let empty = UsageLine { day: line.day, model: line.model.clone(), ..UsageLine::default() };
                usage.entry((line.day, line.model.clone())).or_insert(empty).add(&line);
            }
            apply(&mut stream.record, entry, row::encode(&entry.event).body.len());
            stream.entries.push(entry.clone().with_seq(stream.record.head));
        }
        let head = stream.record.head;
        drop(state);
        self.0.shared.heads.publish(id, head);
        Ok(head)
    }

    async fn keep_partial_text(&self, lease: &Lease, part: PartialText<'_>) -> Result<(), LogError> {
        let mut state = self.lock_if_held(lease)?;
        let session = lease.session();
        let stream =
            state.sessions.get_mut(session).ok_or_else(|| LogError::UnknownSession(session.clone()))?;
        stream.partial.take_if(|(message, _)| message != part.message);
        let (_, pieces) = stream.partial.get_or_insert_with(|| (part.message.clone(), BTreeMap::new()));
        pieces.split_off(&part.start);
        pieces.insert(part.start, part.text.to_owned());
        Ok(())
    }

    async fn partial_message(&self, session: &SessionId) -> Result<Option<PartialMessage>, LogError> {
        let state = self.state();
        let partial = state.sessions.get(session).and_then(|stream| stream.partial.as_ref());
        let Some((message, pieces)) = partial else { return Ok(None) };
        join_pieces(pieces.iter().map(|(start, text)| Ok((message.clone(), *start, text.clone()))))
    }

    async fn keep_snapshot(&self, lease: &Lease, snapshot: &SessionSnapshot) -> Result<(), LogError> {
        let mut state = self.lock_if_held(lease)?;
        let session = lease.session();
        let stream =
            state.sessions.get_mut(session).ok_or_else(|| LogError::UnknownSession(session.clone()))?;
        if let Some(stored) = StoredSnapshot::encode(snapshot) {
            stream.snapshot = Some(stored);
        }
        Ok(())
    }

    async fn snapshot(&self, session: &SessionId) -> Result<Option<SessionSnapshot>, LogError> {
        let state = self.state();
        let Some(stream) = state.sessions.get(session) else { return Ok(None) };
        let stored = stream.snapshot.clone().filter(|stored| {
            let index = usize::try_from(stored.seq.0).ok().and_then(|seq| seq.checked_sub(1));
            let entry = index.and_then(|index| stream.entries.get(index));
            entry.is_some_and(|entry| entry.id == stored.event)
        });
        Ok(stored.and_then(StoredSnapshot::decode))
    }

    async fn read(&self, session: &SessionId, after: Seq, max: usize) -> Result<Vec<Entry>, LogError> {
        let state = self.state();
        let stream = state.sessions.get(session).ok_or_else(|| LogError::UnknownSession(session.clone()))?;
        // The numbers start at 1 without gaps, so the event after number n has index n.
        let first = usize::try_from(after.0).unwrap_or(usize::MAX);
        Ok(stream.entries.iter().skip(first).take(max).cloned().collect())
    }

    async fn find(&self, session: &SessionId, event: &EventId) -> Result<Option<Seq>, LogError> {
        let state = self.state();
        let entries = state.sessions.get(session).map_or(&[][..], |stream| stream.entries.as_slice());
        Ok(entries.iter().rfind(|entry| entry.id == *event).map(|entry| entry.seq))
    }

    fn head(&self, session: &SessionId) -> watch::Receiver<Seq> {
        self.0.shared.heads.subscribe(session)
    }

    async fn sessions(&self, page: PageRequest) -> Result<Page, LogError> {
        let state = self.state();
        let mut records: Vec<_> = state
            .sessions
            .values()
            .map(|stream| &stream.record)
            .filter(|record| page.after.as_ref().is_none_or(|after| PageCursor::of(record) < *after))
            .collect();
        records.sort_by_key(|record| std::cmp::Reverse(PageCursor::of(record)));
        let limit = page.clamped_limit();
        Ok(Page::from_extra(records.into_iter().take(limit + 1).cloned().collect(), limit))
    }

    async fn session(&self, id: &SessionId) -> Result<SessionRecord, LogError> {
        let state = self.state();
        let stream = state.sessions.get(id).ok_or_else(|| LogError::UnknownSession(id.clone()))?;
        Ok(stream.record.clone())
    }

    async fn acquire(&self, session: &SessionId) -> Result<Lease, LogError> {
        let mut state = self.state();
        if let Some((_, holder)) = state.leases.get(session) {
            return Err(LogError::Held { session: session.clone(), by: holder.clone() });
        }
        state.last_token += 1;
        let token = Token(state.last_token);
        let (since, announcement) = (self.0.clock.now(), self.0.announcement.clone());
        let holder = LeaseHolder { node: None, pid: std::process::id(), since, announcement };
        state.leases.insert(session.clone(), (token, holder));
        Ok(Lease::new(session.clone(), token, Arc::<SimulatedProcess>::clone(&self.0)))
    }

    fn lost(&self, lease: &Lease) -> watch::Receiver<bool> {
        self.0.shared.lost_leases.subscribe(lease.session(), lease.token())
    }

    async fn holder(&self, session: &SessionId) -> Result<Option<LeaseHolder>, LogError> {
        Ok(self.state().leases.get(session).map(|(_, holder)| holder.clone()))
    }

    async fn release(&self, lease: Lease) -> Result<(), LogError> {
        drop(lease);
        Ok(())
    }

    async fn delete(&self, lease: &Lease) -> Result<(), LogError> {
        let mut state = self.lock_if_held(lease)?;
        if state.sessions.remove(lease.session()).is_none() {
            return Err(LogError::UnknownSession(lease.session().clone()));
        }
        state.leases.remove(lease.session());
        drop(state);
        self.0.shared.lost_leases.report(lease.token());
        self.0.shared.heads.publish(lease.session(), Seq::START);
        Ok(())
    }

    async fn referenced_media(&self) -> Result<BTreeSet<MediaId>, LogError> {
        let state = self.state();
        let entries = state.sessions.values().flat_map(|stream| &stream.entries);
        Ok(entries.flat_map(|entry| media_of(&entry.event)).cloned().collect())
    }

    async fn usage(&self, since: i64) -> Result<Vec<UsageLine>, LogError> {
        let state = self.state();
        let lines = state.usage.range((since, String::new())..).map(|(_, line)| line.clone());
        let lines: Vec<UsageLine> = lines.collect();
        Ok(lines.iter().skip(lines.len().saturating_sub(MAX_USAGE_LINES)).cloned().collect())
    }

    async fn erase(&self) -> Result<Erased, LogError> {
        Ok(Erased::Yes)
    }

    async fn check(&self) -> Result<(), LogError> {
        Ok(())
    }

    async fn size(&self) -> Result<u64, LogError> {
        Ok(0)
    }

    async fn reclaim(&self) -> Result<Reclaimed, LogError> {
        Ok(Reclaimed { bytes: 0, erased: Erased::Yes })
    }
}
