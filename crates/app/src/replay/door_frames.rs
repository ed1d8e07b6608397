//! `parlor replay --as DOOR`: prints a stored session as the frames that a client of a door would have got.
//!
//! The doors' own machines make the frames. This file is their backend: it passes the stored events in, and answers what
//! the machines ask.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::ValueEnum;
use parlor_doors::loaf::{LoafReplay, MAX_HISTORY_IMAGE_BYTES, ServerParams};
use parlor_doors::supr::{ConnectionParams, SuprMachine};
use parlor_doors::synaps::{ChildParams, SynapsReplay};
use parlor_doors::{Input, Machine, Output};
use parlor_engine::Sessions;
use parlor_log::{SessionRecord, TimeOrderedIds};
use parlor_vocab::{
    Clock, Media, MediaId, NewSession, RegistryEvent, RegistryReply, RegistryRequest, RunEvent, Seq,
    SessionEvent, SessionId, SessionUpdate, Timestamp,
};

use crate::environment::Environment;
use crate::home::Home;
use crate::{json, loaf};

/// A door whose frames can be made of a stored session.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum ReplayDoor {
    /// The frames of a WebSocket with stream=1
    Supr,
    /// The event lines of a chat
    Loaf,
    /// The frames for a parent that sent all prompts
    Synaps,
}

/// Prints the session as frames of `door`, one per line.
pub(super) async fn print_frames(
    door: ReplayDoor,
    home: &Home,
    environment: &Environment,
    sessions: &Arc<Sessions>,
    record: SessionRecord,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut watcher = sessions.watch(&record.id, Seq::START).await;
    let clock = Arc::new(EventClock::default());
    let start = Instant::now();
    let mut frames = None;
    let (mut position, mut first) = (Seq::START, None);
    while position < record.head {
        let update = watcher.next().await?;
        if let SessionUpdate::Entry(entry) = &update {
            position = entry.seq;
            clock.set(entry.at);
            first.get_or_insert(entry.at);
        }
        let frames = match &mut frames {
            Some(frames) => frames,
            None => {
                let Some(created) = created(&update) else {
                    bail!("session {} does not begin with its creation", record.id);
                };
                let clock = Arc::clone(&clock);
                frames.insert(
                    DoorFrames::new(door, home, environment, sessions, &record, created, clock).await?,
                )
            }
        };
        let age = clock.now().0.saturating_sub(first.map_or(0, |first: Timestamp| first.0));
        let now = start + Duration::from_millis(u64::try_from(age).unwrap_or_default());
        for frame in frames.of_update(now, update).await {
            json::write_frame(out, &frame)?;
        }
    }
    out.flush()?;
    Ok(())
}

fn created(update: &SessionUpdate) -> Option<&NewSession> {
    let SessionUpdate::Entry(entry) = update else { return None };
    if let SessionEvent::Created(created) = &entry.event { Some(created) } else { None }
}

/// A clock that shows the time of the event that is being replayed.
#[derive(Default)]
struct EventClock(AtomicI64);

impl EventClock {
    fn set(&self, now: Timestamp) {
        self.0.store(now.0, Ordering::Relaxed);
    }
}

impl Clock for EventClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

/// Makes the frames of one door.
struct DoorFrames {
    sessions: Arc<Sessions>,
    session: SessionId,
    door: DoorMachine,
}

enum DoorMachine {
    Supr(Box<SuprMachine>),
    Loaf(Box<LoafReplay>),
    Synaps(Box<SynapsReplay>),
}

impl DoorFrames {
    async fn new(
        door: ReplayDoor,
        home: &Home,
        environment: &Environment,
        sessions: &Arc<Sessions>,
        record: &SessionRecord,
        created: &NewSession,
        clock: Arc<EventClock>,
    ) -> anyhow::Result<Self> {
        let session = record.id.clone();
        let ids = Arc::new(TimeOrderedIds::new(Arc::clone(&clock) as _));
        let door = match door {
            ReplayDoor::Supr => DoorMachine::Supr(Box::new(SuprMachine::new(ConnectionParams {
                frames: Arc::default(),
                session: session.clone(),
                after: Some(None),
                watch: Vec::new(),
                streams: true,
                may_send: false,
                traceparent: None,
                agents: sessions.agents().into_iter().map(|(id, name)| (id.to_string(), name)).collect(),
                folder: PathBuf::new(),
                clock,
                ids,
            }))),
            ReplayDoor::Loaf => {
                let params = loaf::server_params(environment, created.folder.clone()).await?;
                let params = ServerParams { clock, ids, ..params };
                DoorMachine::Loaf(Box::new(LoafReplay::new(params, session.clone())))
            }
            ReplayDoor::Synaps => DoorMachine::Synaps(Box::new(SynapsReplay::new(ChildParams {
                session: session.clone(),
                head: Seq::START,
                is_new: false,
                active: None,
                key_prefix: String::new(),
                new_session: created.clone(),
                default_model: home.config().default_agent.clone(),
                models: Vec::new(),
                routes: Vec::new(),
                tools: Vec::new(),
            }))),
        };
        Ok(Self { sessions: Arc::clone(sessions), session, door })
    }

    async fn of_update(&mut self, now: Instant, update: SessionUpdate) -> Vec<Vec<u8>> {
        match &mut self.door {
            DoorMachine::Synaps(replay) => replay.frames(now, &update),
            DoorMachine::Loaf(replay) => {
                let contents = contents(&self.sessions, &update).await;
                replay.lines(now, &update, &contents)
            }
            DoorMachine::Supr(machine) => {
                let mut frames = Vec::new();
                drain(machine, &self.sessions, now, &mut frames).await;
                let event = RegistryEvent { session: self.session.clone(), update };
                machine.handle(now, Input::Event(&event));
                drain(machine, &self.sessions, now, &mut frames).await;
                frames
            }
        }
    }
}

/// Takes the frames of a machine of the supr door, and answers its requests.
async fn drain(machine: &mut SuprMachine, sessions: &Sessions, now: Instant, frames: &mut Vec<Vec<u8>>) {
    while let Some(output) = machine.poll() {
        match output {
            Output::Send(frame) => frames.push(frame),
            Output::SendShared(frame) => frames.push(frame.into()),
            Output::Request(ticket, RegistryRequest::ReadMedia { ids, max_bytes }) => {
                let contents = sessions.read_media(&ids, max_bytes).await;
                machine.handle(now, Input::Answer(ticket, Ok(RegistryReply::Contents(contents))));
            }
            // To a client that watches from before the first event on, no event is a replay.
            Output::Request(ticket, _) => {
                let watching = RegistryReply::Watching { seen: Seq::START, head: Seq::START };
                machine.handle(now, Input::Answer(ticket, Ok(watching)));
            }
            Output::WakeAt(_) | Output::Close => {}
        }
    }
}

/// The files that come with a message of a user.
async fn contents(sessions: &Sessions, update: &SessionUpdate) -> HashMap<MediaId, Vec<u8>> {
    let SessionUpdate::Entry(entry) = update else { return HashMap::new() };
    let media: &[Media] =
        if let SessionEvent::Run { event: RunEvent::Started { input, .. }, .. } = &entry.event {
            &input.media
        } else if let SessionEvent::MessageAdded(message) = &entry.event {
            &message.media
        } else {
            return HashMap::new();
        };
    let ids: Vec<MediaId> = media.iter().map(|media| media.id.clone()).collect();
    let contents = sessions.read_media(&ids, MAX_HISTORY_IMAGE_BYTES).await;
    ids.into_iter().zip(contents).filter_map(|(id, content)| Some((id, content?))).collect()
}
