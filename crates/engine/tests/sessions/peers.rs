//! Two processes on one log: what one has open, the other commands and watches. The connection between them is in memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parlor_engine::{
    MAX_PEER_REQUESTS, MAX_PEER_WATCHED, OWNER_WAIT, OnDisconnect, PeerClient, PeerConnection, PeerError,
    Peers, SessionClient, SessionOwner, SessionUpdate, Sessions, Watcher,
};
use parlor_log::{Announcement, MemoryLog, SystemClock};
use parlor_model::LocalAgent;
use parlor_vocab::{
    Backend, PeerReply, PeerRequest, PeerUpdate, RegistryReply, RegistryRequest, RunEnding, RunId, Seq,
    SessionCommand, SessionId, SessionRefusal, SessionReply, Ticket, Update, WhenBusy,
};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{mpsc, oneshot};

use crate::common::{TIMEOUT, deps, ending, message_text, new_session, run_event, send_command};

/// How many requests may wait on a connection.
const QUEUED: usize = 64;

/// All processes, by their addresses: the sessions of each, and its runtime.
type Processes = Arc<Mutex<HashMap<String, (Weak<Sessions>, Handle)>>>;

struct InMemoryPeers(Processes);

#[async_trait]
impl Peers for InMemoryPeers {
    async fn connect(&self, address: &str) -> Result<Arc<dyn PeerConnection>, String> {
        let (sessions, runtime) = self.0.lock().unwrap().get(address).cloned().ok_or("it is unknown")?;
        let (requests, queue) = mpsc::channel(QUEUED);
        // The owner serves the connection, which ends with the owner.
        runtime.spawn(serve(PeerClient::new(sessions.upgrade().ok_or("it is gone")?), queue));
        Ok(Arc::new(InMemoryConnection { requests }))
    }
}

struct InMemoryConnection {
    requests: mpsc::Sender<Asked>,
}

enum Asked {
    Request(PeerRequest, oneshot::Sender<Result<PeerReply, SessionRefusal>>),
    Watch(SessionId, mpsc::Sender<PeerUpdate>),
}

/// Serves one connection until it is dropped.
async fn serve(mut client: PeerClient, mut queue: mpsc::Receiver<Asked>) {
    let (mut replies, mut watches) = (HashMap::new(), HashMap::new());
    let mut next = 0;
    loop {
        tokio::select! {
            asked = queue.recv() => {
                next += 1;
                let request = match asked {
                    None => return,
                    Some(Asked::Request(request, reply)) => {
                        replies.insert(Ticket(next), reply);
                        request
                    }
                    Some(Asked::Watch(session, updates)) => {
                        watches.insert(session.clone(), updates);
                        PeerRequest::Watch(session)
                    }
                };
                assert!(client.submit(Ticket(next), request).is_none());
            }
            update = client.next() => match update.unwrap() {
                Update::Answer(ticket, answer) => {
                    if let Some(reply) = replies.remove(&ticket) {
                        let _: Result<(), _> = reply.send(answer);
                    }
                }
                Update::Event(event) => {
                    let closed = event.update == PeerUpdate::Closed;
                    let _ = watches[&event.session].send(event.update).await;
                    if closed {
                        watches.remove(&event.session);
                    }
                }
            }
        }
    }
}

impl PeerConnection for InMemoryConnection {
    fn is_connected(&self) -> bool {
        !self.requests.is_closed()
    }

    fn submit(
        &self,
        session: &SessionId,
        command: &SessionCommand,
    ) -> BoxFuture<'static, Result<SessionReply, PeerError>> {
        let (reply, answer) = oneshot::channel();
        let request = PeerRequest::Session(session.clone(), Box::new(command.clone()));
        let _ = self.requests.try_send(Asked::Request(request, reply));
        async {
            match answer.await.map_err(|_| PeerError::Lost)?.map_err(PeerError::Refused)? {
                PeerReply::Session(reply) => Ok(reply),
                PeerReply::Done => panic!("no reply to a command"),
            }
        }
        .boxed()
    }

    fn delete(&self, session: &SessionId) -> BoxFuture<'static, Result<(), PeerError>> {
        let (reply, answer) = oneshot::channel();
        let _ = self.requests.try_send(Asked::Request(PeerRequest::Delete(session.clone()), reply));
        async { answer.await.map_err(|_| PeerError::Lost)?.map(|_| ()).map_err(PeerError::Refused) }.boxed()
    }

    fn watch(&self, session: &SessionId) -> mpsc::Receiver<PeerUpdate> {
        let (updates, receiver) = mpsc::channel(4);
        let _ = self.requests.try_send(Asked::Watch(session.clone(), updates));
        receiver
    }
}

/// Several processes on one log.
pub(crate) struct Machine {
    pub(crate) log: MemoryLog,
    processes: Processes,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self { log: MemoryLog::new(Arc::new(SystemClock)), processes: Arc::default() }
    }

    /// The registry of one more process, in the runtime of the caller.
    pub(crate) fn process(&self, name: &str) -> Arc<Sessions> {
        self.process_with(name, Arc::new(InMemoryPeers(Arc::clone(&self.processes))))
    }

    /// Like [`process`](Self::process), but reaches the others through `peers`.
    fn process_with(&self, name: &str, peers: Arc<dyn Peers>) -> Arc<Sessions> {
        let announcement = Announcement { version: None, address: Some(name.to_owned()) };
        let log = Arc::new(self.log.as_announced_process(announcement));
        let sessions = Sessions::new(deps(&log, Arc::new(LocalAgent::default()), Arc::new(SystemClock)));
        let sessions = Arc::new(sessions.with_peers(peers));
        let process = (Arc::downgrade(&sessions), Handle::current());
        self.processes.lock().unwrap().insert(name.to_owned(), process);
        sessions
    }
}

pub(crate) async fn send(sessions: &Sessions, session: &SessionId, text: &str, when_busy: WhenBusy) -> RunId {
    match sessions.execute(session, send_command(text, when_busy)).await.unwrap() {
        SessionReply::Started(run) | SessionReply::Queued { run, .. } | SessionReply::Steered(run) => run,
        reply @ (SessionReply::Stopping(_)
        | SessionReply::Unqueued(_)
        | SessionReply::Compacted(_)
        | SessionReply::Done) => panic!("{reply:?}"),
    }
}

pub(crate) async fn until_end(watcher: &mut Watcher, run: &RunId) -> (Vec<SessionUpdate>, RunEnding) {
    let mut updates = Vec::new();
    loop {
        updates.push(tokio::time::timeout(TIMEOUT, watcher.next()).await.expect("an update").unwrap());
        if let Some(ending) = ending(updates.last().unwrap(), run) {
            return (updates, ending);
        }
    }
}

/// Waits until the run shows text.
pub(crate) async fn until_text(watcher: &mut Watcher) {
    loop {
        let update = tokio::time::timeout(TIMEOUT, watcher.next()).await.expect("an update").unwrap();
        if matches!(update, SessionUpdate::Delta { .. }) {
            return;
        }
    }
}

#[tokio::test]
async fn a_session_of_another_process_is_sent_to_watched_live_steered_and_stopped() {
    let machine = Machine::new();
    let (owner, other) = (machine.process("owner"), machine.process("other"));
    let session = owner.create(None, new_session()).await.unwrap();
    let mut watcher = other.join(&session, Seq::START).await;

    let run = send(&other, &session, "/say one two three", WhenBusy::Refuse).await;
    let (updates, ended) = until_end(&mut watcher, &run).await;
    assert!(matches!(ended, RunEnding::Completed { .. }), "{ended:?}");
    assert_eq!(message_text(&updates), "one two three");
    let sequences: Vec<u64> =
        updates.iter().filter_map(|update| run_event(update, &run)).map(|(_, number, _)| number).collect();
    assert_eq!(sequences, (1..=sequences.len() as u64).collect::<Vec<_>>(), "each event once");

    let run = send(&owner, &session, "/wait 600", WhenBusy::Refuse).await;
    until_text(&mut watcher).await;
    assert_eq!(send(&other, &session, "more", WhenBusy::Steer).await, run);
    let busy = other.execute(&session, send_command("/say no", WhenBusy::Refuse)).await.unwrap_err();
    assert_eq!(busy, SessionRefusal::Busy { active: run.clone() });
    other.execute(&session, SessionCommand::Stop { run: None, reason: None }).await.unwrap();
    let (_, ended) = until_end(&mut watcher, &run).await;
    assert!(matches!(ended, RunEnding::Stopped { .. }), "{ended:?}");
    assert_eq!(other.view(&session).await.unwrap().active(), None);
}

#[tokio::test]
async fn a_watcher_that_joins_in_the_middle_of_a_run_gets_all_of_its_text() {
    let machine = Machine::new();
    let (owner, other) = (machine.process("owner"), machine.process("other"));
    let session = owner.create(None, new_session()).await.unwrap();
    let mut here = owner.join(&session, Seq::START).await;
    let run = send(&owner, &session, "/wait 1", WhenBusy::Refuse).await;
    until_text(&mut here).await;
    let mut there = other.join(&session, Seq::START).await;
    until_text(&mut there).await;
    let mut from_start = other.join(&session, Seq::START).await;
    let (updates, _) = until_end(&mut from_start, &run).await;
    assert_eq!(message_text(&updates), "..........\nDone: I waited 1 s.");
}

#[tokio::test]
async fn an_idle_session_of_another_process_is_deleted_and_a_busy_one_is_not() {
    let machine = Machine::new();
    let (owner, other) = (machine.process("owner"), machine.process("other"));
    let session = owner.create(None, new_session()).await.unwrap();
    let run = send(&owner, &session, "/wait 600", WhenBusy::Refuse).await;
    assert_eq!(other.delete(&session).await.unwrap_err(), SessionRefusal::Busy { active: run.clone() });
    let mut watcher = other.join(&session, Seq::START).await;
    other.execute(&session, SessionCommand::Stop { run: Some(run.clone()), reason: None }).await.unwrap();
    until_end(&mut watcher, &run).await;
    other.delete(&session).await.unwrap();
    assert_eq!(owner.read(&session).await.unwrap_err(), SessionRefusal::UnknownSession(session));
}

#[tokio::test]
async fn an_owner_that_cannot_be_reached_keeps_its_session() {
    let machine = Machine::new();
    let (owner, other) = (machine.process("owner"), machine.process("other"));
    let session = owner.create(None, new_session()).await.unwrap();
    machine.processes.lock().unwrap().clear();
    let refused = other.execute(&session, send_command("/say no", WhenBusy::Refuse)).await.unwrap_err();
    assert!(matches!(&refused, SessionRefusal::SessionHeld { .. }), "{refused:?}");
}

/// Loses each connection after it has passed on a command, before the reply.
struct LossyPeers {
    peers: InMemoryPeers,
    /// How many commands may still lose their connection.
    losses: Arc<AtomicUsize>,
}

#[async_trait]
impl Peers for LossyPeers {
    async fn connect(&self, address: &str) -> Result<Arc<dyn PeerConnection>, String> {
        let connection = self.peers.connect(address).await?;
        Ok(Arc::new(LossyConnection { connection, losses: Arc::clone(&self.losses) }))
    }
}

struct LossyConnection {
    connection: Arc<dyn PeerConnection>,
    losses: Arc<AtomicUsize>,
}

impl PeerConnection for LossyConnection {
    fn is_connected(&self) -> bool {
        self.connection.is_connected()
    }

    fn submit(
        &self,
        session: &SessionId,
        command: &SessionCommand,
    ) -> BoxFuture<'static, Result<SessionReply, PeerError>> {
        let (reply, losses) = (self.connection.submit(session, command), Arc::clone(&self.losses));
        async move {
            let reply = reply.await;
            let one_less = losses.fetch_update(Relaxed, Relaxed, |losses| losses.checked_sub(1));
            if one_less.is_ok() { Err(PeerError::Lost) } else { reply }
        }
        .boxed()
    }

    fn delete(&self, session: &SessionId) -> BoxFuture<'static, Result<(), PeerError>> {
        self.connection.delete(session)
    }

    fn watch(&self, session: &SessionId) -> mpsc::Receiver<PeerUpdate> {
        self.connection.watch(session)
    }
}

#[tokio::test]
async fn a_command_that_a_lost_owner_may_have_executed_is_repeated_only_if_that_changes_nothing() {
    let machine = Machine::new();
    let losses = Arc::new(AtomicUsize::new(0));
    let peers =
        LossyPeers { peers: InMemoryPeers(Arc::clone(&machine.processes)), losses: Arc::clone(&losses) };
    let (owner, other) = (machine.process("owner"), machine.process_with("other", Arc::new(peers)));
    let session = owner.create(None, new_session()).await.unwrap();
    let events_of = async |command: SessionCommand| {
        losses.store(1, Relaxed);
        let before = owner.record(&session).await.unwrap().head;
        let reply = other.execute(&session, command).await;
        assert_eq!(losses.load(Relaxed), 0);
        (owner.record(&session).await.unwrap().head.0 - before.0, reply)
    };
    let unknown = || Err(SessionRefusal::OutcomeUnknown(session.clone()));

    assert_eq!(events_of(SessionCommand::ClearHistory).await, (1, unknown()));
    assert_eq!(events_of(SessionCommand::ClearQueue).await, (0, unknown()));
    // Nothing is active, so the command names no run.
    assert_eq!(events_of(SessionCommand::Stop { run: None, reason: None }).await, (0, unknown()));
    let rename = SessionCommand::Rename { title: "twice".to_owned() };
    assert_eq!(events_of(rename).await, (2, Ok(SessionReply::Done)));

    let mut watcher = owner.join(&session, Seq::START).await;
    let (_, reply) = events_of(send_command("/say once", WhenBusy::Refuse)).await;
    let SessionReply::Started(run) = reply.unwrap() else { panic!("no run has started") };
    assert_eq!(message_text(&until_end(&mut watcher, &run).await.0), "once");
    assert_eq!(owner.view(&session).await.unwrap().messages().count(), 2, "one question and one answer");
}

#[tokio::test]
async fn an_input_stays_unknown_if_no_later_owner_can_be_reached() {
    let machine = Machine::new();
    let losses = Arc::new(AtomicUsize::new(usize::MAX));
    let peers = LossyPeers { peers: InMemoryPeers(Arc::clone(&machine.processes)), losses };
    let (owner, other) = (machine.process("owner"), machine.process_with("other", Arc::new(peers)));
    let session = owner.create(None, new_session()).await.unwrap();
    let refused = other.execute(&session, send_command("/say hi", WhenBusy::Refuse)).await;
    assert_eq!(refused, Err(SessionRefusal::OutcomeUnknown(session)));
}

/// Passes each command on, and reports that no reply came.
struct SilentPeers {
    peers: InMemoryPeers,
    was_sent: bool,
}

#[async_trait]
impl Peers for SilentPeers {
    async fn connect(&self, address: &str) -> Result<Arc<dyn PeerConnection>, String> {
        let connection = self.peers.connect(address).await?;
        Ok(Arc::new(SilentConnection { connection, was_sent: self.was_sent }))
    }
}

struct SilentConnection {
    connection: Arc<dyn PeerConnection>,
    was_sent: bool,
}

impl PeerConnection for SilentConnection {
    fn is_connected(&self) -> bool {
        self.connection.is_connected()
    }

    fn submit(
        &self,
        _session: &SessionId,
        _command: &SessionCommand,
    ) -> BoxFuture<'static, Result<SessionReply, PeerError>> {
        let was_sent = self.was_sent;
        async move { Err(PeerError::NoReply { was_sent }) }.boxed()
    }

    fn delete(&self, session: &SessionId) -> BoxFuture<'static, Result<(), PeerError>> {
        self.connection.delete(session)
    }

    fn watch(&self, session: &SessionId) -> mpsc::Receiver<PeerUpdate> {
        self.connection.watch(session)
    }
}

#[tokio::test]
async fn a_silent_owner_is_named_and_a_command_that_it_got_may_be_carried_out() {
    let machine = Machine::new();
    let owner = machine.process("owner");
    let session = owner.create(None, new_session()).await.unwrap();
    for was_sent in [true, false] {
        let peers = SilentPeers { peers: InMemoryPeers(Arc::clone(&machine.processes)), was_sent };
        let other = machine.process_with(&format!("other {was_sent}"), Arc::new(peers));
        // A repeatable command too: no other process can have the session.
        let refused = other.execute(&session, send_command("/say no", WhenBusy::Refuse)).await.unwrap_err();
        let (is_expected, words) = match was_sent {
            true => (matches!(refused, SessionRefusal::OwnerSilent { .. }), "may carry out the request"),
            false => (matches!(refused, SessionRefusal::SessionHeld { .. }), "is in use by process "),
        };
        assert!(is_expected && refused.to_string().contains(words), "{refused}");
    }
}

/// The runtime of a process that is suspended: it accepts connections and requests, and answers none.
struct SuspendedRuntime(Option<Runtime>);

impl SuspendedRuntime {
    fn new() -> Self {
        Self(Some(Builder::new_current_thread().build().unwrap()))
    }

    /// Suspends the process `name` for connections from now on.
    fn suspend(&self, machine: &Machine, name: &str) {
        let mut processes = machine.processes.lock().unwrap();
        processes.get_mut(name).unwrap().1 = self.0.as_ref().unwrap().handle().clone();
    }
}

impl Drop for SuspendedRuntime {
    fn drop(&mut self) {
        // A runtime may not be dropped within another one.
        self.0.take().unwrap().shutdown_background();
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_waits_for_an_owner_that_does_not_answer_for_a_limited_time() {
    let (machine, runtime) = (Machine::new(), SuspendedRuntime::new());
    let (owner, other) = (machine.process("owner"), machine.process("other"));
    let session = owner.create(None, new_session()).await.unwrap();
    runtime.suspend(&machine, "owner");
    let delete = tokio::time::timeout(TIMEOUT, other.delete(&session)).await.expect("an answer");
    assert!(matches!(delete, Err(SessionRefusal::OwnerSilent { .. })), "{delete:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_closes_its_sessions_while_another_process_does_not_answer() {
    let (machine, runtime) = (Machine::new(), SuspendedRuntime::new());
    let (owner, other) = (machine.process("owner"), machine.process("other"));
    let shared = owner.create(None, new_session()).await.unwrap();
    let own = other.create(None, new_session()).await.unwrap();
    let mut watcher = other.join(&own, Seq::START).await;
    let run = send(&other, &own, "/wait 600", WhenBusy::Refuse).await;
    until_text(&mut watcher).await;
    let mut client = SessionClient::new(Arc::clone(&other), OnDisconnect::Stop);
    let request = RegistryRequest::Session(shared, send_command("/wait 600", WhenBusy::Refuse));
    assert!(client.submit(Ticket(1), request).is_none());
    assert!(matches!(client.next().await, Some(Update::Answer(_, Ok(RegistryReply::Session(_))))));

    runtime.suspend(&machine, "owner");
    let start = tokio::time::Instant::now();
    client.begin_close();
    until_end(&mut watcher, &run).await;
    // The clock is stopped: it shows how long the tasks wanted to sleep.
    assert!(start.elapsed() < OWNER_WAIT, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_command_waits_for_an_owner_without_an_address_that_has_the_session_for_a_moment() {
    let machine = Machine::new();
    let other = machine.process("other");
    let log = Arc::new(machine.log.as_announced_process(Announcement { version: None, address: None }));
    let nameless = Sessions::new(deps(&log, Arc::new(LocalAgent::default()), Arc::new(SystemClock)));
    let session = nameless.create(None, new_session()).await.unwrap();
    let rename = other.execute(&session, SessionCommand::Rename { title: "later".to_owned() });
    let release = async {
        tokio::time::sleep(OWNER_WAIT / 2).await;
        nameless.release(&session).await.unwrap();
    };
    assert_eq!(tokio::join!(rename, release).0, Ok(SessionReply::Done));
}

#[tokio::test(start_paused = true)]
async fn the_watches_of_a_process_end_when_it_hangs_up() {
    let owner = Machine::new().process("owner");
    let session = owner.create(None, new_session()).await.unwrap();
    let mut client = PeerClient::new(Arc::clone(&owner));
    assert!(client.submit(Ticket(1), PeerRequest::Watch(session)).is_none());
    assert!(matches!(client.next().await, Some(Update::Answer(_, Ok(PeerReply::Done)))));
    client.begin_close();
    let next = tokio::time::timeout(TIMEOUT, client.next()).await.expect("the end");
    assert!(next.is_none());
}

#[test]
fn a_watcher_that_never_reached_the_owner_takes_over_when_it_dies() {
    let machine = Machine::new();
    let runtime = || Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (owners, others) = (runtime(), runtime());
    let (owner, session, run) = owners.block_on(async {
        let owner = machine.process("owner");
        let session = owner.create(None, new_session()).await.unwrap();
        let run = send(&owner, &session, "/wait 600", WhenBusy::Refuse).await;
        (owner, session, run)
    });
    machine.processes.lock().unwrap().clear();
    let (other, mut watcher) = others.block_on(async {
        let other = machine.process("other");
        let mut watcher = other.join(&session, Seq::START).await;
        // Sees all events while the mirror tries in vain; the clock is stopped.
        let _ = tokio::time::timeout(OWNER_WAIT, async { while watcher.next().await.is_ok() {} }).await;
        (other, watcher)
    });
    drop((owners, owner));
    let (_, ended) = others.block_on(until_end(&mut watcher, &run));
    assert!(matches!(ended, RunEnding::Failed(_)), "{ended:?}");
    drop(other);
}

/// Counts watches and refuses all of them.
struct RefusingConnection {
    connection: Arc<dyn PeerConnection>,
    watches: Arc<AtomicUsize>,
}

struct RefusingPeers(InMemoryPeers, Arc<AtomicUsize>);

#[async_trait]
impl Peers for RefusingPeers {
    async fn connect(&self, address: &str) -> Result<Arc<dyn PeerConnection>, String> {
        let connection = self.0.connect(address).await?;
        Ok(Arc::new(RefusingConnection { connection, watches: Arc::clone(&self.1) }))
    }
}

impl PeerConnection for RefusingConnection {
    fn is_connected(&self) -> bool {
        self.connection.is_connected()
    }

    fn submit(
        &self,
        session: &SessionId,
        command: &SessionCommand,
    ) -> BoxFuture<'static, Result<SessionReply, PeerError>> {
        self.connection.submit(session, command)
    }

    fn delete(&self, session: &SessionId) -> BoxFuture<'static, Result<(), PeerError>> {
        self.connection.delete(session)
    }

    fn watch(&self, _session: &SessionId) -> mpsc::Receiver<PeerUpdate> {
        self.watches.fetch_add(1, Relaxed);
        mpsc::channel(1).1
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_refuses_a_watch_is_asked_ever_more_rarely() {
    let machine = Machine::new();
    let watches = Arc::new(AtomicUsize::new(0));
    let peers = RefusingPeers(InMemoryPeers(Arc::clone(&machine.processes)), Arc::clone(&watches));
    let (owner, other) = (machine.process("owner"), machine.process_with("other", Arc::new(peers)));
    let session = owner.create(None, new_session()).await.unwrap();
    let watcher = other.join(&session, Seq::START).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let count = watches.load(Relaxed);
    assert!((2..40).contains(&count), "{count} watches in a minute of the stopped clock");
    drop(watcher);
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_run_a_shutdown_stopped_stays_free_unless_inputs_wait() {
    let machine = Machine::new();
    let (owner, other) = (machine.process("owner"), machine.process("other"));
    let session = owner.create(None, new_session()).await.unwrap();
    let mut watcher = other.join(&session, Seq::START).await;
    let run = send(&owner, &session, "/wait 600", WhenBusy::Refuse).await;
    until_text(&mut watcher).await;
    owner.shut_down().await;
    until_end(&mut watcher, &run).await;
    // Longer than the mirror waits before it looks for another owner; the clock is stopped.
    tokio::time::sleep(OWNER_WAIT).await;
    assert_eq!(other.owner(&session).await.unwrap(), SessionOwner::Nobody);
}

#[tokio::test]
async fn a_process_has_a_limit_of_requests_and_of_watched_sessions() {
    let owner = Machine::new().process("owner");
    let mut client = PeerClient::new(Arc::clone(&owner));
    let (mut sessions, mut ticket) = (Vec::new(), 0);
    for _ in 0..MAX_PEER_WATCHED {
        sessions.push(owner.create(None, new_session()).await.unwrap());
    }
    let mut submit = |client: &mut PeerClient, request: PeerRequest| {
        ticket += 1;
        client.submit(Ticket(ticket), request).map(|(_, answer)| answer.unwrap_err())
    };
    // No session is left to watch, so the last one need not exist.
    let extra = SessionId::parse("one too many").unwrap();
    for (index, session) in sessions.iter().enumerate() {
        assert_eq!(submit(&mut client, PeerRequest::Watch(session.clone())), None, "{index}");
    }
    let refused = submit(&mut client, PeerRequest::Unwatch(extra.clone()));
    assert_eq!(refused, Some(SessionRefusal::TooManyRequests { limit: MAX_PEER_REQUESTS }));
    for _ in 0..MAX_PEER_WATCHED {
        assert!(matches!(client.next().await.unwrap(), Update::Answer(_, Ok(PeerReply::Done))));
    }
    assert_eq!(submit(&mut client, PeerRequest::Watch(extra)), None);
    let Update::Answer(_, refused) = client.next().await.unwrap() else { panic!("no event came") };
    assert_eq!(refused.unwrap_err(), SessionRefusal::TooManyWatched { limit: MAX_PEER_WATCHED });
}
