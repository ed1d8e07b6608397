//! Routes commands to the owner of a session: its actor in this process, or the process that has it open.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parlor_log::{LeaseHolder, LogError};
use parlor_vocab::{ClosingPart, RunId, SessionCommand, SessionId, SessionRefusal, SessionReply};
use tokio::time::{Instant, sleep, timeout};

use super::handle::{CommandError, OpenSession};
use super::open_sessions::{LockedSession, Route};
use super::peers::{PeerConnection, PeerError};
use super::{Sessions, refusal_of};

/// How long a command waits for a session whose owner cannot be reached: the owner may be ending just now.
pub const OWNER_WAIT: Duration = Duration::from_secs(1);

/// How long another process may take to reply to a command. An owner replies when the command is recorded, not when its run
/// ends, so one that takes longer is stopped or overloaded.
pub const PEER_REPLY_WAIT: Duration = Duration::from_secs(10);

/// How long to wait before the owner is looked for again. Doubled with each attempt, up to [`MAX_OWNER_RETRY`]: on a shared
/// log each attempt is a request to the database, and the clients of all sessions of a dead node wait at the same time.
const OWNER_RETRY: Duration = Duration::from_millis(10);

/// The longest time between two attempts.
const MAX_OWNER_RETRY: Duration = Duration::from_millis(160);

/// How often a command is sent to a new owner of its session before it is refused, if [`OWNER_WAIT`] has passed too.
const MAX_OWNER_CHANGES: usize = 4;

/// How long a command that a lost node may have executed waits for the next owner of its session. A node that was killed
/// keeps its leases until its last heartbeat is too old, which is 5 s.
const TAKEOVER_WAIT: Duration = Duration::from_secs(10);

/// How often it looks for the next owner meanwhile.
const TAKEOVER_RETRY: Duration = Duration::from_millis(100);

/// A command that was sent to the owner of its session.
pub(crate) struct SubmittedCommand {
    /// The command as it was sent, in case it must be sent to another owner.
    command: SessionCommand,
    reply: BoxFuture<'static, Result<SessionReply, CommandError>>,
}

/// Why a session was not opened in this process.
enum OpenError {
    /// Another process has it open.
    Held(LeaseHolder),
    /// Nobody has it open, and only nodes of this workspace may open it.
    OtherWorkspace(String),
    Refused(SessionRefusal),
}

impl Sessions {
    /// Executes `command` in a session. Opens the session if no process has it open.
    pub async fn execute(
        &self,
        id: &SessionId,
        command: SessionCommand,
    ) -> Result<SessionReply, SessionRefusal> {
        let submitted = self.submit(id, command).await?;
        self.reply_to(id, submitted).await
    }

    /// Sends `command` to the owner of a session, and opens the session if nobody has it open. Commands are executed in
    /// the order in which they were submitted.
    pub(crate) async fn submit(
        &self,
        id: &SessionId,
        mut command: SessionCommand,
    ) -> Result<SubmittedCommand, SessionRefusal> {
        let reply: BoxFuture<'static, _> = match self.route(id).await? {
            Route::Here(session) => match session.submit(command.clone()).await {
                Ok(reply) => Box::pin(reply),
                // The actor has ended since the look at the route: it lost its lease, or the session was closed.
                Err(refusal) if self.is_leaving.load(Ordering::Relaxed) => return Err(refusal),
                Err(_) => Box::pin(async { Err(CommandError::OwnerLost) }),
            },
            Route::Peer(connection) => {
                self.make_repeatable(id, &mut command).await;
                let reply = connection.submit(id, &command);
                Box::pin(async move { reply.await.map_err(command_error) })
            }
        };
        Ok(SubmittedCommand { command, reply })
    }

    /// Sends `command` to a session that is open in this process, and opens it if nobody has it open. For requests of
    /// other processes, which are never passed on.
    pub(crate) async fn submit_here(
        &self,
        id: &SessionId,
        command: SessionCommand,
    ) -> Result<SubmittedCommand, SessionRefusal> {
        let mut slot = self.open_sessions.lock(id).await;
        let session = match slot.running() {
            Some(session) => session,
            // Otherwise its run would be stopped at once.
            None if self.is_leaving.load(Ordering::Relaxed) => {
                return Err(SessionRefusal::session_closing(id));
            }
            None => self.open_in(&mut slot, id).await.map_err(|error| error.into_refusal(id))?,
        };
        drop(slot);
        let reply = Box::pin(session.submit(command.clone()).await?);
        Ok(SubmittedCommand { command, reply })
    }

    /// Waits for the reply to a command. If the owner of the session is lost before, sends the command to its next owner,
    /// unless that could execute it twice.
    pub(crate) async fn reply_to(
        &self,
        id: &SessionId,
        mut submitted: SubmittedCommand,
    ) -> Result<SessionReply, SessionRefusal> {
        let deadline = Instant::now() + OWNER_WAIT;
        let (mut owner_changes, mut may_be_executed) = (0, false);
        loop {
            match submitted.reply.await {
                Ok(reply) => return Ok(reply),
                // An owner that refuses a repeated command knows that it was not executed, unless it did not look.
                Err(CommandError::Refused(SessionRefusal::Closing { .. } | SessionRefusal::Compacting))
                    if may_be_executed =>
                {
                    return Err(SessionRefusal::OutcomeUnknown(id.clone()));
                }
                Err(CommandError::Refused(refusal)) => return Err(refusal),
                Err(CommandError::OutcomeUnknown) if !is_repeatable(&submitted.command) => {
                    return Err(SessionRefusal::OutcomeUnknown(id.clone()));
                }
                Err(CommandError::OutcomeUnknown) => may_be_executed = true,
                Err(CommandError::OwnerLost) => {}
                // It was paused for so long that this process has taken the session over. What it has not recorded before,
                // it cannot record any more.
                Err(CommandError::OwnerSilent { was_sent })
                    if is_repeatable(&submitted.command) && self.open_sessions.get(id).await.is_some() =>
                {
                    may_be_executed |= was_sent;
                }
                // It has the session still, so no other process can execute the command.
                Err(CommandError::OwnerSilent { was_sent }) => {
                    return Err(self.owner_silent(id, was_sent || may_be_executed).await);
                }
            }
            let refused = |refusal| match may_be_executed {
                true => SessionRefusal::OutcomeUnknown(id.clone()),
                false => refusal,
            };
            if owner_changes >= MAX_OWNER_CHANGES && Instant::now() >= deadline {
                return Err(refused(SessionRefusal::session_closing(id)));
            }
            self.forget_peer(id).await;
            if owner_changes > 0 {
                // The owner may be closing the session, which takes a moment.
                sleep(OWNER_RETRY).await;
            }
            owner_changes += 1;
            let takeover_deadline = Instant::now() + TAKEOVER_WAIT;
            submitted = loop {
                match self.submit(id, submitted.command.clone()).await {
                    Ok(submitted) => break submitted,
                    // Only the next owner can tell whether the lost one executed the command.
                    Err(SessionRefusal::SessionHeld { .. })
                        if may_be_executed && Instant::now() < takeover_deadline =>
                    {
                        sleep(TAKEOVER_RETRY).await;
                    }
                    Err(refusal) => return Err(refused(refusal)),
                }
            };
        }
    }

    /// Waits for the reply to a command that was submitted by [`submit_here`](Self::submit_here).
    pub(crate) async fn reply_here(
        id: &SessionId,
        submitted: SubmittedCommand,
    ) -> Result<SessionReply, SessionRefusal> {
        submitted.reply.await.map_err(|error| match error {
            CommandError::Refused(refusal) => refusal,
            CommandError::OwnerLost => {
                SessionRefusal::SessionHeld { session: id.clone(), holder: "another process".to_owned() }
            }
            // The actor is in this process, so it is never silent.
            CommandError::OutcomeUnknown | CommandError::OwnerSilent { .. } => {
                SessionRefusal::OutcomeUnknown(id.clone())
            }
        })
    }

    /// The refusal of a command whose owner does not reply. `may_be_executed` says whether it may have got the command.
    async fn owner_silent(&self, id: &SessionId, may_be_executed: bool) -> SessionRefusal {
        match (self.shared.deps.log.holder(id).await, may_be_executed) {
            (Ok(Some(holder)), true) => silent(id, &holder),
            (Ok(Some(holder)), false) => held(id, &holder),
            (Ok(None) | Err(_), true) => SessionRefusal::OutcomeUnknown(id.clone()),
            // It has just ended.
            (Ok(None) | Err(_), false) => SessionRefusal::session_closing(id),
        }
    }

    /// Where the commands of a session go. Opens the session if nobody has it open.
    pub(super) async fn route(&self, id: &SessionId) -> Result<Route, SessionRefusal> {
        let mut slot = self.open_sessions.lock(id).await;
        if let Some(route) = slot.route() {
            slot.touch();
            return Ok(route);
        }
        let (deadline, mut pause) = (Instant::now() + OWNER_WAIT, OWNER_RETRY);
        loop {
            let holder = match self.open_in(&mut slot, id).await {
                Ok(session) => return Ok(Route::Here(session)),
                Err(OpenError::Refused(refusal)) => return Err(refusal),
                Err(OpenError::Held(holder)) => holder,
                Err(OpenError::OtherWorkspace(workspace)) => {
                    let connection = self.connect_to_workspace(id, workspace).await?;
                    slot.set_route(Route::Peer(Arc::clone(&connection)));
                    return Ok(Route::Peer(connection));
                }
            };
            match self.owner_connection(&holder).await {
                Ok(connection) => {
                    slot.set_route(Route::Peer(Arc::clone(&connection)));
                    return Ok(Route::Peer(connection));
                }
                // An owner that is ending closes its door first and releases the session then. One without an address may
                // have the session for a moment, like the command that renames it.
                Err(_) if self.peers.is_some() && Instant::now() < deadline => {
                    sleep(pause).await;
                    pause = (pause * 2).min(MAX_OWNER_RETRY);
                }
                Err(reason) => return Err(held_because(id, &holder, reason)),
            }
        }
    }

    /// The connection to the process that has a session open. Fails if it has no address, or with the reason why it cannot
    /// be reached.
    pub(super) async fn owner_connection(
        &self,
        holder: &LeaseHolder,
    ) -> Result<Arc<dyn PeerConnection>, Option<String>> {
        let peer = self.peers.as_ref().zip(holder.announcement.address.as_deref());
        let (peers, address) = peer.ok_or(None)?;
        peers.connect(address).await.map_err(Some)
    }

    /// The connection to a node that may open a session of `workspace`: the one with the fewest runs that can be reached. It
    /// opens the session when the first command arrives.
    async fn connect_to_workspace(
        &self,
        id: &SessionId,
        workspace: String,
    ) -> Result<Arc<dyn PeerConnection>, SessionRefusal> {
        if let Some(peers) = &self.peers {
            let mut nodes = self.shared.deps.log.nodes().await.map_err(refusal_of)?;
            nodes.retain(|node| node.is_alive && node.workspace.as_ref() == Some(&workspace));
            nodes.sort_by_key(|node| (node.runs, node.sessions));
            for address in nodes.into_iter().filter_map(|node| node.announcement.address) {
                if let Ok(connection) = peers.connect(&address).await {
                    return Ok(connection);
                }
            }
        }
        Err(SessionRefusal::NoNode { session: id.clone(), workspace })
    }

    /// Opens the session in this process.
    async fn open_in(&self, slot: &mut LockedSession<'_>, id: &SessionId) -> Result<OpenSession, OpenError> {
        self.check_not_shutting_down()?;
        slot.make_room().await?;
        let log = &self.shared.deps.log;
        // An unknown id should not get a lease.
        log.session(id).await.map_err(refusal_of)?;
        let lease = match log.acquire(id).await {
            Ok(lease) => lease,
            Err(LogError::Held { by, .. }) => return Err(OpenError::Held(by)),
            Err(LogError::OtherWorkspace { workspace, .. }) => {
                return Err(OpenError::OtherWorkspace(workspace));
            }
            Err(error) => return Err(refusal_of(error).into()),
        };
        self.mirrors.stop(id).await;
        let session = OpenSession::load(&self.shared, id.clone(), lease).await?;
        slot.set_route(Route::Here(session.clone()));
        Ok(session)
    }

    /// Makes it safe to send a command again to another owner of the session, after the first was lost.
    async fn make_repeatable(&self, id: &SessionId, command: &mut SessionCommand) {
        match command {
            SessionCommand::Send { input, .. } => {
                let key = || format!("peer:{:032x}", self.shared.deps.ids.next().0);
                input.key.get_or_insert_with(key);
            }
            // Otherwise it could stop the run after the one that the client saw.
            SessionCommand::Stop { run: run @ None, .. } => {
                let record = self.shared.deps.log.session(id).await;
                *run = record.ok().and_then(|record| record.running);
            }
            SessionCommand::Stop { run: Some(_), .. }
            | SessionCommand::ClearQueue
            | SessionCommand::Unqueue(_)
            | SessionCommand::ClearHistory
            | SessionCommand::Compact { .. }
            | SessionCommand::Rename { .. }
            | SessionCommand::ChooseAgent(_)
            | SessionCommand::ChooseMode(_)
            | SessionCommand::AnswerQuestion { .. } => {}
        }
    }

    /// Ends the run that a client of this process began in a session, if another process has the session open.
    pub(super) async fn stop_at_peer(&self, id: &SessionId, run: &RunId) {
        let Ok(Some(holder)) = self.shared.deps.log.holder(id).await else { return };
        let Ok(owner) = self.owner_connection(&holder).await else { return };
        // If it is not in the queue, it is active or has ended.
        let unqueued = owner.submit(id, &SessionCommand::Unqueue(run.clone()));
        let stopped = owner.submit(id, &SessionCommand::Stop { run: Some(run.clone()), reason: None });
        // If the owner is gone, so is the run.
        let _ = timeout(OWNER_WAIT, async { drop((unqueued.await, stopped.await)) }).await;
    }

    /// Forgets which process had the session open.
    pub(super) async fn forget_peer(&self, id: &SessionId) {
        let mut slot = self.open_sessions.lock(id).await;
        if slot.running().is_none() {
            slot.clear_route();
        }
    }
}

impl OpenError {
    fn into_refusal(self, session: &SessionId) -> SessionRefusal {
        match self {
            Self::Held(holder) => held(session, &holder),
            Self::OtherWorkspace(workspace) => SessionRefusal::NoNode { session: session.clone(), workspace },
            Self::Refused(refusal) => refusal,
        }
    }
}

impl From<SessionRefusal> for OpenError {
    fn from(refusal: SessionRefusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The refusal for a session that another process has open, and that this process cannot reach there.
pub(super) fn held(session: &SessionId, holder: &LeaseHolder) -> SessionRefusal {
    SessionRefusal::SessionHeld { session: session.clone(), holder: with_version(holder) }
}

/// Like [`held`], with the reason why another node cannot be reached. On one machine the process id says enough.
fn held_because(session: &SessionId, holder: &LeaseHolder, reason: Option<String>) -> SessionRefusal {
    let reason = reason.filter(|_| holder.node.is_some()).map(|reason| format!(" ({reason})"));
    let holder = format!("{}{}", with_version(holder), reason.unwrap_or_default());
    SessionRefusal::SessionHeld { session: session.clone(), holder }
}

/// The refusal for a request that another process got and did not reply to.
pub(super) fn silent(session: &SessionId, holder: &LeaseHolder) -> SessionRefusal {
    SessionRefusal::OwnerSilent { session: session.clone(), owner: with_version(holder) }
}

fn with_version(holder: &LeaseHolder) -> String {
    let version = holder.announcement.version.as_ref().map(|version| format!(", version {version}"));
    format!("{holder}{}", version.unwrap_or_default())
}

/// Whether a command has the same effect if a lost owner has executed it before.
fn is_repeatable(command: &SessionCommand) -> bool {
    match command {
        SessionCommand::Send { input, .. } => input.key.is_some(),
        SessionCommand::Stop { run, .. } => run.is_some(),
        // The second answer to a question is refused, and the refusal tells what the first one was.
        SessionCommand::AnswerQuestion { .. }
        | SessionCommand::Unqueue(_)
        | SessionCommand::Rename { .. }
        | SessionCommand::ChooseAgent(_)
        | SessionCommand::ChooseMode(_) => true,
        // They would also drop what came after the first time, or summarize twice.
        SessionCommand::ClearQueue | SessionCommand::ClearHistory | SessionCommand::Compact { .. } => false,
    }
}

fn command_error(error: PeerError) -> CommandError {
    match error {
        // The process no longer has the session, or is closing it: whoever has it next gets the command.
        PeerError::NotSent
        | PeerError::Refused(
            SessionRefusal::SessionHeld { .. }
            | SessionRefusal::Closing { part: ClosingPart::Session(_) | ClosingPart::Program },
        ) => CommandError::OwnerLost,
        PeerError::Lost => CommandError::OutcomeUnknown,
        PeerError::NoReply { was_sent } => CommandError::OwnerSilent { was_sent },
        PeerError::Refused(refusal) => CommandError::Refused(refusal),
    }
}
