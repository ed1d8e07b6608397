//! Any order of commands, reports, crashes and restarts: what must hold all the same.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use parlor_vocab::{
    AgentChoice, AgentId, Entry, EventId, Failure, IdSource, MessageEvent, MessageId, NewEntry, NewSession,
    RunEvent, RunId, Seq, SessionCommand, SessionEvent, SessionRefusal, SessionReply, StepEvent, StepId,
    StepKind, Timestamp, UniqueNumber, UserInput, WhenBusy,
};
use proptest::prelude::*;

use super::{Effect, Finish, MAX_QUEUED_INPUTS, Outcome, Session};

struct Counter(std::sync::atomic::AtomicU64);

impl IdSource for Counter {
    fn next(&self) -> UniqueNumber {
        UniqueNumber(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed).into())
    }
}

/// A session with its log, and a driver that does what it is told.
struct World {
    ids: Counter,
    agent: AgentId,
    log: Vec<Entry>,
    session: Session,
    performing: BTreeSet<RunId>,
    accepted: Vec<RunId>,
    texts: Cell<u64>,
}

#[derive(Clone, Debug)]
enum Act {
    Send(WhenBusy, Option<u8>),
    Stop {
        named: bool,
    },
    ClearQueue,
    ClearHistory,
    Compact(u8),
    Step,
    /// The active run says something, is told something, or forgets what was before one of the messages.
    Speak,
    Steer,
    Forget(u8),
    Finish(u8),
    Crash,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            ids: Counter(Default::default()),
            agent: AgentId::parse("local").unwrap(),
            log: Vec::new(),
            session: Session::default(),
            performing: BTreeSet::new(),
            accepted: Vec::new(),
            texts: Cell::new(0),
        };
        world.append(vec![SessionEvent::Created(NewSession {
            title: None,
            door: "test".to_owned(),
            folder: "/".into(),
            choice: AgentChoice::default(),
            system: None,
            forked_from: None,
        })]);
        world
    }

    fn append(&mut self, events: Vec<SessionEvent>) {
        for event in events {
            let draft = NewEntry { id: EventId::generate(self.ids.next()), at: Timestamp(0), event };
            let seq = Seq(self.log.len() as u64 + 1);
            let entry = Entry { seq, id: draft.id, at: draft.at, event: draft.event };
            self.session.apply(&entry);
            self.log.push(entry);
        }
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::StartRun(run) => {
                    assert_eq!(self.session.active(), Some(&run), "only the active run is performed");
                    assert!(self.performing.insert(run), "a run is performed once");
                }
                Effect::Steer(run, _) => assert!(self.performing.contains(&run)),
                Effect::Cancel(run, reason) => {
                    assert!(self.performing.contains(&run));
                    self.finish(run, Outcome::Stopped(reason));
                }
                Effect::Summarize { keep } => {
                    let before = self.session.messages().count();
                    let decision = self.session.compacted("summary".to_owned(), keep, &self.ids);
                    self.append(decision.events);
                    assert_eq!(self.session.messages().count(), 1 + before.min(keep));
                }
            }
        }
    }

    fn finish(&mut self, run: RunId, outcome: Outcome) {
        self.performing.remove(&run);
        let finish = Finish {
            run,
            outcome,
            spoken: None,
            thought: None,
            answer: None,
            duration_ms: 0,
            at: Timestamp(0),
        };
        let (events, effects) = self.session.finish(finish, &self.agent, &self.ids);
        self.append(events);
        self.perform(effects);
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Send(when_busy, key) => self.send(*when_busy, key.map(|key| key.to_string())),
            Act::Stop { named } => {
                let run = self.session.active().cloned().filter(|_| *named);
                self.ask(SessionCommand::Stop { run, reason: None });
            }
            Act::ClearQueue => {
                if let Some(SessionReply::Unqueued(queued)) = self.ask(SessionCommand::ClearQueue) {
                    self.accepted.retain(|run| !queued.iter().any(|queued| queued.run == *run));
                }
            }
            Act::ClearHistory => drop(self.ask(SessionCommand::ClearHistory)),
            Act::Compact(keep) => drop(self.ask(SessionCommand::Compact { keep: usize::from(*keep) })),
            Act::Step => {
                if let Some(run) = self.session.active().cloned() {
                    let step = StepId::parse("step").unwrap();
                    let event = RunEvent::Step(StepEvent::Started {
                        step,
                        kind: StepKind::Tool,
                        title: String::new(),
                    });
                    let events = self.session.record(&run, vec![event]);
                    self.append(events);
                }
            }
            Act::Speak => {
                if let Some(run) = self.session.active().cloned() {
                    let message = MessageId::generate(self.ids.next());
                    let (text, media) = ("word".to_owned(), Vec::new());
                    let event = RunEvent::Message(MessageEvent::Completed { message, text, media });
                    let events = self.session.record(&run, vec![event]);
                    self.append(events);
                }
            }
            Act::Steer => self.send(WhenBusy::Steer, None),
            Act::Forget(which) => {
                let messages: Vec<MessageId> =
                    self.session.messages().map(|message| message.id.clone()).collect();
                if self.session.active().is_some()
                    && let Some(kept) = messages.get(usize::from(*which) % messages.len().max(1))
                {
                    let events = self.session.forgotten(kept, "summary".to_owned(), &self.ids);
                    self.append(events);
                }
            }
            Act::Finish(how) => {
                if let Some(run) = self.session.active().cloned() {
                    let failure = Failure { code: "X".into(), message: String::new(), retryable: false };
                    let outcome = if how % 2 == 0 { Outcome::Completed } else { Outcome::Failed(failure) };
                    self.finish(run, outcome);
                }
            }
            Act::Crash => {
                self.performing.clear();
                self.session = replay(&self.log);
                let (events, effects) = self.session.recover(&self.agent, &self.ids, Timestamp(0));
                self.append(events);
                self.perform(effects);
            }
        }
    }

    fn ask(&mut self, command: SessionCommand) -> Option<SessionReply> {
        let decision = self.session.decide(command, &self.agent, &self.ids).ok()?;
        self.append(decision.events);
        self.perform(decision.effects);
        Some(decision.reply)
    }

    fn send(&mut self, when_busy: WhenBusy, key: Option<String>) {
        self.texts.set(self.texts.get() + 1);
        let known = key.as_ref().and_then(|key| self.session.keys.get(key.as_str())).cloned();
        let input = UserInput { text: format!("text {}", self.texts.get()), key, ..UserInput::default() };
        let before = self.log.len();
        match self.ask(SessionCommand::Send { input, when_busy }) {
            Some(SessionReply::Started(run)) if known.as_ref() == Some(&run) => {
                assert_eq!(self.log.len(), before, "a known key starts nothing");
            }
            Some(SessionReply::Started(run) | SessionReply::Queued { run, .. }) => {
                assert_eq!(known, None, "a known key gives its run");
                self.accepted.push(run);
            }
            Some(_) | None => {}
        }
    }

    fn check(&self) {
        assert_eq!(self.session, replay(&self.log), "replay rebuilds the same state");
        let from = self.session.history.from();
        let mut recalled = Session::read_after(from);
        let later = self.log.iter().filter(|entry| entry.seq > from);
        later.for_each(|entry| recalled.apply(entry));
        assert_eq!(recalled.history(), self.session.history(), "what was let go can be read again");
        let mut sequences: BTreeMap<&RunId, u64> = BTreeMap::new();
        let mut ended: BTreeSet<&RunId> = BTreeSet::new();
        for entry in &self.log {
            let SessionEvent::Run { run, sequence, event } = &entry.event else { continue };
            let last = sequences.entry(run).or_default();
            *last += 1;
            assert_eq!(sequence, last, "a run counts its events without gaps");
            assert!(!ended.contains(run), "nothing follows the end of {run}");
            assert_eq!(*last == 1, matches!(event, RunEvent::Started { .. }));
            if matches!(event, RunEvent::Ended { .. }) {
                ended.insert(run);
            }
        }
        for run in &self.accepted {
            let waits = self.session.queue().any(|queued| queued.run == *run);
            let runs = self.session.active() == Some(run);
            let run_slots = usize::from(waits) + usize::from(runs) + usize::from(ended.contains(run));
            assert_eq!(run_slots, 1, "{run} waits, runs or has ended");
        }
        assert_eq!(
            self.session.active().into_iter().collect::<BTreeSet<_>>(),
            self.performing.iter().collect()
        );
        assert!(
            self.session.active().is_some() || self.session.queue().len() == 0,
            "nobody waits for nothing"
        );
        assert!(self.session.queue().len() <= MAX_QUEUED_INPUTS);
    }
}

fn replay(log: &[Entry]) -> Session {
    let mut session = Session::default();
    log.iter().for_each(|entry| session.apply(entry));
    session
}

fn acts() -> impl Strategy<Value = Act> {
    let when_busy = prop_oneof![Just(WhenBusy::Refuse), Just(WhenBusy::Enqueue), Just(WhenBusy::Steer)];
    prop_oneof![
        6 => (when_busy, prop::option::of(0..6_u8)).prop_map(|(when, key)| Act::Send(when, key)),
        2 => any::<bool>().prop_map(|named| Act::Stop { named }),
        1 => Just(Act::ClearQueue),
        1 => Just(Act::ClearHistory),
        1 => (0_u8..4).prop_map(Act::Compact),
        2 => Just(Act::Step),
        2 => Just(Act::Speak),
        1 => Just(Act::Steer),
        2 => any::<u8>().prop_map(Act::Forget),
        3 => any::<u8>().prop_map(Act::Finish),
        1 => Just(Act::Crash),
    ]
}

proptest! {
    #[test]
    fn every_accepted_input_has_one_place_and_every_run_one_end(acts in prop::collection::vec(acts(), 0..60)) {
        let mut world = World::new();
        for act in &acts {
            world.act(act);
            world.check();
        }
    }
}

#[test]
fn refusals_name_what_is_in_the_way() {
    let mut world = World::new();
    let refused =
        |world: &World, command| world.session.decide(command, &world.agent, &world.ids).unwrap_err();
    let send = |when_busy| SessionCommand::Send {
        input: UserInput { text: "x".into(), ..UserInput::default() },
        when_busy,
    };
    let stop = |run| SessionCommand::Stop { run, reason: None };
    assert_eq!(refused(&world, stop(None)), SessionRefusal::NoActiveRun);
    assert_eq!(refused(&world, send(WhenBusy::Steer)), SessionRefusal::NoActiveRun);

    world.act(&Act::Send(WhenBusy::Refuse, None));
    let active = world.session.active().unwrap().clone();
    assert_eq!(refused(&world, send(WhenBusy::Refuse)), SessionRefusal::Busy { active: active.clone() });
    assert_eq!(
        refused(&world, SessionCommand::ClearHistory),
        SessionRefusal::Busy { active: active.clone() }
    );
    let compact = SessionCommand::Compact { keep: 0 };
    assert_eq!(refused(&world, compact), SessionRefusal::Busy { active: active.clone() });
    let asked = RunId::parse("other").unwrap();
    assert_eq!(refused(&world, stop(Some(asked.clone()))), SessionRefusal::WrongRun { asked, active });
    for _ in 0..MAX_QUEUED_INPUTS {
        world.act(&Act::Send(WhenBusy::Enqueue, None));
    }
    assert_eq!(
        refused(&world, send(WhenBusy::Enqueue)),
        SessionRefusal::QueueFull { limit: MAX_QUEUED_INPUTS }
    );
}
