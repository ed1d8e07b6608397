//! Property tests: what must hold after any sequence of commands, reports, crashes and restarts.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parlor_log::{EventLog, MemoryLog, SessionSnapshot, SystemClock};
use parlor_vocab::{
    AgentChoice, AgentId, Entry, EventId, Failure, IdSource, MessageEvent, MessageId, NewEntry, NewSession,
    Question, QuestionAnswer, QuestionEvent, QuestionId, QuestionKind, QuestionOutcome, RunEvent, RunId, Seq,
    SessionCommand, SessionEvent, SessionId, SessionRefusal, SessionReply, StepEvent, StepId, StepKind,
    Timestamp, ToolCallId, ToolEvent, UniqueNumber, UserInput, WhenBusy,
};
use proptest::prelude::*;

use super::{
    Effect, FinishedRun, MAX_QUEUED_INPUTS, MAX_SETTLED_QUESTIONS, ResolvedChoice, RunOutcome, Session,
};

/// Generates ids by counting.
struct Counter(std::sync::atomic::AtomicU64);

impl IdSource for Counter {
    fn next(&self) -> UniqueNumber {
        UniqueNumber(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed).into())
    }
}

/// A session with its log in memory, and simulated run drivers.
struct Simulation {
    ids: Counter,
    agent: ResolvedChoice,
    log: Vec<Entry>,
    session: Session,
    /// Runs that have a driver.
    driven: BTreeSet<RunId>,
    /// Runs of inputs that were accepted and not removed from the queue.
    accepted: Vec<RunId>,
    /// All questions, with the run that asked, and how often the call was made.
    asked: Vec<(QuestionId, RunId, u32)>,
    /// How many inputs were sent, to make their texts unique.
    inputs: Cell<u64>,
}

#[derive(Clone, Debug)]
enum Action {
    Send(WhenBusy, Option<u8>),
    Stop {
        named: bool,
    },
    ClearQueue,
    ClearHistory,
    Compact(u8),
    Step,
    /// The active run completes a message.
    CompleteMessage,
    Steer,
    /// The active run replaces the history before one of the messages with a summary.
    CompactBefore(u8),
    Finish(u8),
    Crash,
    /// The active run asks about a tool call.
    Ask {
        is_repeatable: bool,
    },
    /// Somebody answers one of the questions.
    Answer {
        which: u8,
        answer: u8,
        /// The process dies when the answer is durable, before the call is made.
        then_crash: bool,
    },
    /// The time of one of the questions is over.
    Expire(u8),
}

impl Simulation {
    fn new() -> Self {
        let mut simulation = Self {
            ids: Counter(Default::default()),
            agent: ResolvedChoice {
                agent: AgentId::parse("local").unwrap(),
                model: None,
                model_id: None,
                missing_agent: None,
            },
            log: Vec::new(),
            session: Session::default(),
            driven: BTreeSet::new(),
            accepted: Vec::new(),
            asked: Vec::new(),
            inputs: Cell::new(0),
        };
        simulation.append(vec![SessionEvent::Created(NewSession {
            title: None,
            door: "test".to_owned(),
            folder: "/".into(),
            choice: AgentChoice::default(),
            system: None,
            forked_from: None,
        })]);
        simulation
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

    fn start_effects(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::StartRun(run) => {
                    assert_eq!(self.session.active(), Some(&run), "only the active run gets a driver");
                    assert!(self.driven.insert(run), "a run gets one driver");
                }
                Effect::ResumeRun(run) => {
                    assert_eq!(self.session.active(), Some(&run));
                    assert!(self.session.pending_question().is_some(), "it waits for an answer");
                    assert!(self.driven.insert(run), "a run gets one driver");
                }
                Effect::Settle(question, outcome) => self.settled(&question, &outcome),
                Effect::Steer(run, _) => assert!(self.driven.contains(&run)),
                Effect::Cancel(run, reason) => {
                    assert!(self.driven.contains(&run));
                    self.finish(run, RunOutcome::Stopped(reason));
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

    fn finish(&mut self, run: RunId, outcome: RunOutcome) {
        self.driven.remove(&run);
        let finish = FinishedRun {
            run,
            outcome,
            open_message: None,
            open_reasoning: None,
            last_message: None,
            duration_ms: 0,
            at: Timestamp(0),
        };
        let (events, effects) = self.session.finish(finish, &self.agent, &self.ids);
        self.append(events);
        self.start_effects(effects);
    }

    fn apply(&mut self, action: &Action) {
        match action {
            Action::Send(when_busy, key) => self.send(*when_busy, key.map(|key| key.to_string())),
            Action::Stop { named } => {
                let run = self.session.active().cloned().filter(|_| *named);
                self.execute(SessionCommand::Stop { run, reason: None });
            }
            Action::ClearQueue => {
                if let Some(SessionReply::Unqueued(queued)) = self.execute(SessionCommand::ClearQueue) {
                    self.accepted.retain(|run| !queued.iter().any(|queued| queued.run == *run));
                }
            }
            Action::ClearHistory => drop(self.execute(SessionCommand::ClearHistory)),
            Action::Compact(keep) => drop(self.execute(SessionCommand::Compact { keep: usize::from(*keep) })),
            Action::Step => {
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
            Action::CompleteMessage => {
                if let Some(run) = self.session.active().cloned() {
                    let message = MessageId::generate(self.ids.next());
                    let (text, media) = ("word".to_owned(), Vec::new());
                    let event = RunEvent::Message(MessageEvent::Completed { message, text, media });
                    let events = self.session.record(&run, vec![event]);
                    self.append(events);
                }
            }
            Action::Steer => self.send(WhenBusy::Steer, None),
            Action::CompactBefore(which) => {
                let messages: Vec<MessageId> =
                    self.session.messages().map(|message| message.id.clone()).collect();
                if self.session.active().is_some()
                    && let Some(kept) = messages.get(usize::from(*which) % messages.len().max(1))
                {
                    let events = self.session.compacted_before(kept, "summary".to_owned(), &self.ids);
                    self.append(events);
                }
            }
            Action::Finish(how) => {
                if let Some(run) = self.session.active().cloned() {
                    let failure = Failure { code: "X".into(), message: String::new(), retryable: false };
                    let outcome =
                        if how % 2 == 0 { RunOutcome::Completed } else { RunOutcome::Failed(failure) };
                    self.finish(run, outcome);
                }
            }
            Action::Crash => self.crash(),
            Action::Ask { is_repeatable } => self.ask(*is_repeatable),
            Action::Answer { which, answer, then_crash } => self.answer(*which, *answer, *then_crash),
            Action::Expire(which) => {
                if let Some((question, ..)) = self.pick(*which) {
                    let (events, effects) = self.session.expire(&question);
                    self.append(events);
                    self.start_effects(effects);
                }
            }
        }
    }

    fn crash(&mut self) {
        self.driven.clear();
        self.session = replay(&self.log);
        let (events, effects) = self.session.recover(None, &self.agent, &self.ids, Timestamp(0));
        self.append(events);
        self.start_effects(effects);
    }

    fn pick(&self, which: u8) -> Option<(QuestionId, RunId, u32)> {
        self.asked.get(usize::from(which) % self.asked.len().max(1)).cloned()
    }

    fn ask(&mut self, is_repeatable: bool) {
        let Some(run) = self.session.active().cloned() else { return };
        if self.session.pending_question().is_some() {
            return;
        }
        let (id, call) = (QuestionId::generate(self.ids.next()), ToolCallId::generate(self.ids.next()));
        let question = Question {
            id: id.clone(),
            kind: QuestionKind::Call,
            call: call.clone(),
            tool: "shell".to_owned(),
            title: String::new(),
            reason: String::new(),
            detail: String::new(),
            remembered: None,
            is_repeatable,
        };
        let (step, tool, input) = (StepId::parse("s").unwrap(), "shell".to_owned(), String::new());
        let events = vec![
            RunEvent::Tool(ToolEvent::Called { step, call, tool, input }),
            RunEvent::Question(QuestionEvent::Asked(question)),
        ];
        let events = self.session.record(&run, events);
        self.append(events);
        self.asked.push((id, run, 0));
    }

    fn answer(&mut self, which: u8, answer: u8, then_crash: bool) {
        let Some((question, ..)) = self.pick(which) else { return };
        let answer = match answer % 3 {
            0 => QuestionAnswer::AllowOnce,
            1 => QuestionAnswer::AllowAlways,
            _ => QuestionAnswer::Deny { message: Some("no".to_owned()) },
        };
        let is_pending =
            self.session.pending_question().is_some_and(|pending| pending.question.id == question);
        let always = answer == QuestionAnswer::AllowAlways;
        let command = SessionCommand::AnswerQuestion { question, answer, by: None };
        match self.session.decide(command, &self.agent, &self.ids) {
            Ok(decision) => {
                assert!(is_pending && !always, "only a pending question is answered");
                self.append(decision.events);
                if then_crash { self.crash() } else { self.start_effects(decision.effects) }
            }
            Err(SessionRefusal::InvalidAnswer { .. }) => assert!(is_pending && always),
            Err(refusal) => {
                let is_settled = matches!(refusal, SessionRefusal::QuestionSettled { .. });
                assert!(!is_pending && (is_settled || self.asked.len() > MAX_SETTLED_QUESTIONS), "{refusal}");
            }
        }
    }

    /// The driver that waits for the question gets its outcome and makes the call.
    fn settled(&mut self, question: &QuestionId, outcome: &QuestionOutcome) {
        let asked = self.asked.iter_mut().find(|(id, ..)| id == question).unwrap();
        assert!(self.driven.contains(&asked.1), "somebody waits for the answer");
        asked.2 += u32::from(outcome.is_allowed());
        let (run, call) = (asked.1.clone(), self.session.open[&asked.1].calls[0].0.clone());
        let (output, duration_ms) = (String::new(), 0);
        let event = RunEvent::Tool(ToolEvent::Completed { call, output, details: None, duration_ms });
        let events = self.session.record(&run, vec![event]);
        self.append(events);
    }

    /// Every question is settled at most once, by the end of its run at the latest, and its call is made at most once and
    /// only if it was allowed.
    fn check_questions(&self) {
        for (question, run, made) in &self.asked {
            let outcomes: Vec<&QuestionOutcome> = self
                .log
                .iter()
                .filter_map(|entry| {
                    let SessionEvent::Run { event: RunEvent::Question(event), .. } = &entry.event else {
                        return None;
                    };
                    let QuestionEvent::Settled { question: settled, outcome } = event else { return None };
                    (settled == question).then_some(outcome)
                })
                .collect();
            assert!(outcomes.len() <= 1, "{outcomes:?}");
            let is_pending =
                self.session.pending_question().is_some_and(|pending| pending.question.id == *question);
            assert_eq!(is_pending, outcomes.is_empty(), "a question is pending until it is settled");
            assert!(!is_pending || self.session.open.contains_key(run), "no question outlives its run");
            let is_allowed = outcomes.first().is_some_and(|outcome| outcome.is_allowed());
            assert!(*made <= u32::from(is_allowed), "made {made} times after {outcomes:?}");
        }
    }

    fn execute(&mut self, command: SessionCommand) -> Option<SessionReply> {
        let decision = self.session.decide(command, &self.agent, &self.ids).ok()?;
        self.append(decision.events);
        self.start_effects(decision.effects);
        Some(decision.reply)
    }

    fn send(&mut self, when_busy: WhenBusy, key: Option<String>) {
        self.inputs.set(self.inputs.get() + 1);
        let input = UserInput { text: format!("text {}", self.inputs.get()), key, ..UserInput::default() };
        let known = self.session.run_with_key_of(&input).cloned();
        let before = self.log.len();
        match self.execute(SessionCommand::Send { input, when_busy }) {
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
        self.check_questions();
        assert_eq!(self.session, replay(&self.log), "replay rebuilds the same state");
        let from = self.session.history.from();
        let mut reloaded = Session::before_replay(from);
        let later = self.log.iter().filter(|entry| entry.seq > from);
        later.for_each(|entry| reloaded.apply(entry));
        assert_eq!(reloaded.history(), self.session.history(), "a dropped history can be read again");
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
            let is_queued = self.session.queue().any(|queued| queued.run == *run);
            let is_active = self.session.active() == Some(run);
            let states = usize::from(is_queued) + usize::from(is_active) + usize::from(ended.contains(run));
            assert_eq!(states, 1, "{run} is queued, active or ended");
        }
        assert_eq!(self.session.active().into_iter().collect::<BTreeSet<_>>(), self.driven.iter().collect());
        assert!(
            self.session.active().is_some() || self.session.queue().len() == 0,
            "no input waits while no run is active"
        );
        assert!(self.session.queue().len() <= MAX_QUEUED_INPUTS);
    }
}

fn replay(log: &[Entry]) -> Session {
    let mut session = Session::default();
    log.iter().for_each(|entry| session.apply(entry));
    session
}

fn action() -> impl Strategy<Value = Action> {
    let when_busy = prop_oneof![Just(WhenBusy::Refuse), Just(WhenBusy::Enqueue), Just(WhenBusy::Steer)];
    prop_oneof![
        6 => (when_busy, prop::option::of(0..6_u8)).prop_map(|(when, key)| Action::Send(when, key)),
        2 => any::<bool>().prop_map(|named| Action::Stop { named }),
        1 => Just(Action::ClearQueue),
        1 => Just(Action::ClearHistory),
        1 => (0_u8..4).prop_map(Action::Compact),
        2 => Just(Action::Step),
        2 => Just(Action::CompleteMessage),
        1 => Just(Action::Steer),
        2 => any::<u8>().prop_map(Action::CompactBefore),
        3 => any::<u8>().prop_map(Action::Finish),
        2 => Just(Action::Crash),
        3 => prop::bool::weighted(0.8).prop_map(|is_repeatable| Action::Ask { is_repeatable }),
        4 => (any::<u8>(), any::<u8>(), prop::bool::weighted(0.2)).prop_map(|(which, answer, then_crash)| {
            Action::Answer { which, answer, then_crash }
        }),
        1 => any::<u8>().prop_map(Action::Expire),
    ]
}

/// The last snapshot of the first `count` events, as a log returns it, if no run was open at one of them. `is_dropped` tells
/// whether the history was not in memory when it was made.
fn stored_snapshot(log: &[Entry], count: usize, is_dropped: bool) -> Option<SessionSnapshot> {
    let (mut session, mut last) = (Session::default(), None);
    for entry in &log[..count] {
        session.apply(entry);
        if is_dropped {
            session.history.drop_beyond(0);
        }
        last = session.snapshot(entry.id.clone()).or(last);
    }
    let last = last?;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = MemoryLog::new(Arc::new(SystemClock));
        let lease = store.acquire(&SessionId::parse("s").unwrap()).await.unwrap();
        let new = log.iter().cloned().map(|Entry { id, at, event, .. }| NewEntry { id, at, event });
        store.append(&lease, Seq::START, &new.collect::<Vec<_>>()).await.unwrap();
        store.keep_snapshot(&lease, &last).await.unwrap();
        let stored = store.snapshot(lease.session()).await.unwrap();
        assert_eq!(stored.as_ref(), Some(&last), "the log returns what it keeps");
        stored
    })
}

proptest! {
    #[test]
    fn a_snapshot_and_the_later_events_give_the_same_state_as_all_events(
        actions in prop::collection::vec(action(), 0..60),
        place in any::<prop::sample::Index>(),
        is_dropped in any::<bool>(),
    ) {
        let mut simulation = Simulation::new();
        actions.iter().for_each(|action| simulation.apply(action));
        let log = &simulation.log;
        let count = place.index(log.len()) + 1;
        let mut expected = replay(log);
        if let Some(snapshot) = stored_snapshot(log, count, is_dropped) {
            let mut session = Session::from(snapshot);
            let later = log.iter().filter(|entry| entry.seq > session.head()).collect::<Vec<_>>();
            later.into_iter().for_each(|entry| session.apply(entry));
            if !session.history.is_cached() {
                let counted = session.history.message_count();
                let from = session.history.from();
                let mut reloaded = Session::before_replay(from);
                log.iter().filter(|entry| entry.seq > from).for_each(|entry| reloaded.apply(entry));
                prop_assert_eq!(reloaded.history(), expected.history());
                prop_assert!(counted.is_none() || counted == expected.history.message_count());
                (session.history, expected.history) = Default::default();
            }
            prop_assert_eq!(session, expected);
        }
    }

    #[test]
    fn every_input_has_one_state_and_every_run_ends_once(actions in prop::collection::vec(action(), 0..60)) {
        let mut simulation = Simulation::new();
        for action in &actions {
            simulation.apply(action);
            simulation.check();
        }
    }
}

#[test]
fn refusals_name_the_cause() {
    let mut simulation = Simulation::new();
    let refused = |simulation: &Simulation, command| {
        simulation.session.decide(command, &simulation.agent, &simulation.ids).unwrap_err()
    };
    let send = |when_busy| SessionCommand::Send {
        input: UserInput { text: "x".into(), ..UserInput::default() },
        when_busy,
    };
    let stop = |run| SessionCommand::Stop { run, reason: None };
    assert_eq!(refused(&simulation, stop(None)), SessionRefusal::NoActiveRun);
    assert_eq!(refused(&simulation, send(WhenBusy::Steer)), SessionRefusal::NoActiveRun);

    simulation.apply(&Action::Send(WhenBusy::Refuse, None));
    let active = simulation.session.active().unwrap().clone();
    assert_eq!(refused(&simulation, send(WhenBusy::Refuse)), SessionRefusal::Busy { active: active.clone() });
    assert_eq!(
        refused(&simulation, SessionCommand::ClearHistory),
        SessionRefusal::Busy { active: active.clone() }
    );
    let compact = SessionCommand::Compact { keep: 0 };
    assert_eq!(refused(&simulation, compact), SessionRefusal::Busy { active: active.clone() });
    let asked = RunId::parse("other").unwrap();
    assert_eq!(refused(&simulation, stop(Some(asked.clone()))), SessionRefusal::WrongRun { asked, active });
    for _ in 0..MAX_QUEUED_INPUTS {
        simulation.apply(&Action::Send(WhenBusy::Enqueue, None));
    }
    assert_eq!(
        refused(&simulation, send(WhenBusy::Enqueue)),
        SessionRefusal::QueueFull { limit: MAX_QUEUED_INPUTS }
    );
}
