//! Any interleaving of the clients of two processes on one log, whose owners crash and hand their session over: all watchers
//! see one order without a gap, each run ends once, and what was acknowledged is there once.
//!
//! Each process is a runtime of its own, which runs only when the schedule says so; dropping the runtime is the crash. Time
//! is simulated, so a schedule is played in the same way each time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use parlor_engine::{SessionUpdate, Sessions};
use parlor_log::{EventLog, LogError};
use parlor_vocab::{
    Entry, RunEvent, RunId, Seq, SessionCommand, SessionEvent, SessionId, SessionRefusal, SessionReply,
    UserInput, WhenBusy,
};
use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::sleep;

use crate::common::new_session;
use crate::peers::Machine;

/// How many rounds of 50 ms the processes may take to finish after the schedule.
const MAX_ROUNDS: usize = 400;

/// What a client does, one after another.
#[derive(Clone, Copy, Debug)]
enum Action {
    /// Sends a message whose answer has this many words more.
    Send(WhenBusy, usize),
    Stop,
    /// Waits for this many milliseconds.
    Wait(u64),
}

/// How an owner ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Crash,
    HandOver,
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The tasks of one of the processes run for this many turns. No time passes.
    Run(usize, u8),
    /// One of the processes runs while this many milliseconds pass.
    Pass(usize, u64),
    /// The owner of the session ends, and another process joins the session.
    End(End),
}

fn any_action() -> impl Strategy<Value = Action> {
    let when_busy = prop::sample::select(vec![WhenBusy::Refuse, WhenBusy::Enqueue, WhenBusy::Steer]);
    prop_oneof![
        5 => (when_busy, 0..40_usize).prop_map(|(when_busy, words)| Action::Send(when_busy, words)),
        1 => Just(Action::Stop),
        2 => (1..200_u64).prop_map(Action::Wait),
    ]
}

/// The actions of one client after another: the first two, and those of the processes that join later.
fn any_actions() -> impl Strategy<Value = Vec<Vec<Action>>> {
    prop::collection::vec(prop::collection::vec(any_action(), 0..8), 5)
}

/// A schedule in which three owners end.
fn any_schedule() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..2_usize, 1..12_u8).prop_map(|(process, turns)| Step::Run(process, turns)),
        2 => (0..2_usize, 1..120_u64).prop_map(|(process, time)| Step::Pass(process, time)),
    ];
    let phase = || prop::collection::vec(step.clone(), 1..30);
    let end = prop::sample::select(vec![End::Crash, End::HandOver]);
    (phase(), phase(), phase(), end, any::<bool>()).prop_map(|(first, second, third, last, crash_first)| {
        let mut ends = [End::Crash, End::HandOver];
        if !crash_first {
            ends.reverse();
        }
        let phases = [first, second, third].into_iter().zip([ends[0], ends[1], last]);
        phases.flat_map(|(phase, end)| phase.into_iter().chain([Step::End(end)])).collect()
    })
}

/// What a client was told about each of its messages.
type Sent = Arc<Mutex<BTreeMap<String, Option<Result<SessionReply, SessionRefusal>>>>>;

/// What a watcher saw.
type Seen = Arc<Mutex<Vec<Arc<Entry>>>>;

struct Process {
    name: String,
    sessions: Arc<Sessions>,
    seen: Seen,
    client: JoinHandle<()>,
    /// Set while the process hands its sessions over.
    ending: Option<JoinHandle<()>>,
    /// Last, because a crash ends its tasks.
    runtime: Runtime,
}

/// Processes on one log, with one session.
struct Play {
    machine: Machine,
    session: SessionId,
    /// The processes of the schedule.
    processes: Vec<Process>,
    /// Processes that are handing their sessions over.
    ending: Vec<Process>,
    /// What the watchers of processes that are gone saw.
    seen_before: Vec<Seen>,
    actions: std::vec::IntoIter<Vec<Action>>,
    sent: Sent,
    started: usize,
}

impl Play {
    fn new(actions: Vec<Vec<Action>>) -> Self {
        let mut play = Self {
            machine: Machine::new(),
            session: SessionId::parse("s").unwrap(),
            processes: Vec::new(),
            ending: Vec::new(),
            seen_before: Vec::new(),
            actions: actions.into_iter(),
            sent: Sent::default(),
            started: 0,
        };
        let first = play.start();
        let created = first.sessions.create(Some(play.session.clone()), new_session());
        first.runtime.block_on(created).unwrap();
        play.processes.push(first);
        let second = play.start();
        play.processes.push(second);
        play
    }

    /// A process with a watcher and a client of the session.
    fn start(&mut self) -> Process {
        self.started += 1;
        let name = format!("process {}", self.started);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            // So that each turn of the schedule runs one task.
            .event_interval(1)
            .build()
            .unwrap();
        let context = runtime.enter();
        let sessions = self.machine.process(&name);
        let seen = Seen::default();
        runtime.spawn(watch(Arc::clone(&sessions), self.session.clone(), Arc::clone(&seen)));
        let client = Client {
            name: name.clone(),
            sessions: Arc::clone(&sessions),
            session: self.session.clone(),
            sent: Arc::clone(&self.sent),
        };
        let client = runtime.spawn(client.act(self.actions.next().unwrap_or_default()));
        drop(context);
        Process { name, sessions, seen, client, ending: None, runtime }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Run(process, turns) => self.processes[process].run(turns),
            Step::Pass(process, time) => self.processes[process].pass(time),
            Step::End(end) => self.end_owner(end),
        }
        let (gone, ending) = std::mem::take(&mut self.ending).into_iter().partition(Process::has_ended);
        self.ending = ending;
        gone.into_iter().for_each(|process: Process| self.seen_before.push(process.seen));
        // A process that is ending is not suspended.
        self.ending.iter().for_each(|process| process.run(1));
    }

    fn end_owner(&mut self, end: End) {
        let index = self.owner().unwrap_or(0);
        let new = self.start();
        let mut owner = std::mem::replace(&mut self.processes[index], new);
        match end {
            End::Crash => self.seen_before.push(owner.seen),
            End::HandOver => {
                let sessions = Arc::clone(&owner.sessions);
                owner.ending = Some(owner.runtime.spawn(async move { sessions.shut_down().await }));
                self.ending.push(owner);
            }
        }
    }

    /// The process that has the session open.
    fn owner(&self) -> Option<usize> {
        let address = at_once(self.machine.log.holder(&self.session))?.announcement.address?;
        self.processes.iter().position(|process| process.name == address)
    }

    fn log(&self) -> Vec<Entry> {
        at_once(self.machine.log.read(&self.session, Seq::START, usize::MAX))
    }

    /// Runs all processes until the clients have finished, the session is idle, and all watchers have seen all events.
    fn finish(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let log = self.log();
            let is_idle = unfinished(&log).is_empty();
            let is_finished = |process: &Process| {
                process.client.is_finished() && process.seen.lock().unwrap().len() >= log.len()
            };
            if is_idle && self.ending.is_empty() && self.processes.iter().all(is_finished) {
                return;
            }
            for index in 0..self.processes.len() {
                self.step(Step::Pass(index, 50));
            }
        }
        let clients: Vec<bool> = self.processes.iter().map(|process| process.client.is_finished()).collect();
        let seen: Vec<usize> =
            self.processes.iter().map(|process| process.seen.lock().unwrap().len()).collect();
        panic!(
            "not finished: clients {clients:?}, seen {seen:?}, ending {}, runs {:?}, log {:#?}",
            self.ending.len(),
            unfinished(&self.log()),
            self.log()
        );
    }
}

impl Process {
    fn run(&self, turns: u8) {
        self.runtime.block_on(async {
            for _ in 0..turns {
                yield_now().await;
            }
        });
    }

    fn pass(&self, milliseconds: u64) {
        self.runtime.block_on(async { sleep(Duration::from_millis(milliseconds)).await });
    }

    fn has_ended(&self) -> bool {
        self.ending.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

/// The result of a read from the log in memory, which does not wait.
fn at_once<T>(read: impl Future<Output = Result<T, LogError>>) -> T {
    read.now_or_never().expect("a log in memory").unwrap()
}

async fn watch(sessions: Arc<Sessions>, session: SessionId, seen: Seen) {
    let mut watcher = sessions.join(&session, Seq::START).await;
    drop(sessions);
    while let Ok(update) = watcher.next().await {
        if let SessionUpdate::Entry(entry) = update {
            seen.lock().unwrap().push(entry);
        }
    }
}

struct Client {
    name: String,
    sessions: Arc<Sessions>,
    session: SessionId,
    sent: Sent,
}

impl Client {
    async fn act(self, actions: Vec<Action>) {
        for (index, action) in actions.into_iter().enumerate() {
            match action {
                Action::Send(when_busy, words) => {
                    let text = format!("/say {} {index}{}", self.name, " more".repeat(words));
                    self.sent.lock().unwrap().insert(text.clone(), None);
                    let input = UserInput { text: text.clone(), ..UserInput::default() };
                    let send = SessionCommand::Send { input, when_busy };
                    let answer = self.sessions.execute(&self.session, send).await;
                    self.sent.lock().unwrap().insert(text, Some(answer));
                }
                Action::Stop => {
                    let stop = SessionCommand::Stop { run: None, reason: None };
                    // There may be nothing to stop.
                    let _ = self.sessions.execute(&self.session, stop).await;
                }
                Action::Wait(time) => sleep(Duration::from_millis(time)).await,
            }
        }
    }
}

/// How often each run has started and ended, and each input is in the log: as the start of a run, or as a message to one.
#[derive(Default)]
struct Counts {
    runs: BTreeMap<RunId, (usize, usize)>,
    queued: BTreeMap<RunId, usize>,
    inputs: BTreeMap<String, usize>,
}

fn count(log: &[Entry]) -> Counts {
    let mut counts = Counts::default();
    for entry in log {
        if let SessionEvent::Queued(input) = &entry.event {
            *counts.queued.entry(input.run.clone()).or_default() += 1;
        }
        let SessionEvent::Run { run, event, .. } = &entry.event else { continue };
        match event {
            RunEvent::Started { input, .. } => {
                counts.runs.entry(run.clone()).or_default().0 += 1;
                *counts.inputs.entry(input.text.clone()).or_default() += 1;
            }
            RunEvent::Steered { input, .. } => {
                *counts.inputs.entry(input.text.clone()).or_default() += 1;
            }
            RunEvent::Ended { .. } => counts.runs.entry(run.clone()).or_default().1 += 1,
            RunEvent::Message(_)
            | RunEvent::Step(_)
            | RunEvent::Tool(_)
            | RunEvent::Question(_)
            | RunEvent::Subagent(_)
            | RunEvent::ErrorRaised { .. }
            | RunEvent::UsageAdded { .. } => {}
        }
    }
    counts
}

/// The runs that have not ended, and the queued ones that have not started.
fn unfinished(log: &[Entry]) -> Vec<RunId> {
    let counts = count(log);
    let running = counts.runs.iter().filter(|(_, (_, ended))| *ended == 0).map(|(run, _)| run);
    let waiting = counts.queued.keys().filter(|run| !counts.runs.contains_key(run));
    running.chain(waiting).cloned().collect()
}

fn check(play: &Play) {
    let log = play.log();
    let numbers: Vec<u64> = log.iter().map(|entry| entry.seq.0).collect();
    assert_eq!(numbers, (1..=log.len() as u64).collect::<Vec<_>>(), "one order without a gap");
    let seen_by = |seen: &Seen| -> Vec<Entry> {
        seen.lock().unwrap().iter().map(|entry| Entry::clone(entry)).collect()
    };
    for process in &play.processes {
        assert_eq!(seen_by(&process.seen), log, "{} sees each event once", process.name);
    }
    for seen in &play.seen_before {
        let seen = seen_by(seen);
        assert_eq!(seen, log[..seen.len()], "a process that is gone saw the beginning");
    }
    let counts = count(&log);
    for (run, (started, ended)) in &counts.runs {
        assert_eq!((*started, *ended), (1, 1), "{run} starts and ends once");
    }
    for (text, answer) in &*play.sent.lock().unwrap() {
        let times = counts.inputs.get(text).copied().unwrap_or_default();
        match answer {
            Some(Ok(_)) => assert_eq!(times, 1, "{text} was acknowledged: {answer:?}"),
            // Its process ended before the answer, or an owner that was lost may have carried it out.
            Some(Err(SessionRefusal::Closing { .. })) | None => {
                assert!(times <= 1, "{text} is there {times} times");
            }
            Some(Err(_)) => assert_eq!(times, 0, "{text} was refused: {answer:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn owners_that_crash_and_hand_over_lose_and_repeat_nothing(
        actions in any_actions(), schedule in any_schedule(),
    ) {
        let mut play = Play::new(actions);
        for step in schedule {
            play.step(step);
        }
        play.finish(MAX_ROUNDS);
        check(&play);
    }
}

#[test]
fn a_process_that_watches_takes_over_from_an_owner_that_crashes() {
    let long_answer = Action::Send(WhenBusy::Refuse, 5000);
    let mut play = Play::new(vec![vec![long_answer, Action::Send(WhenBusy::Enqueue, 1)]]);
    // The second process reaches the owner before a run begins.
    play.step(Step::Pass(1, 50));
    while !play.log().iter().any(|entry| matches!(entry.event, SessionEvent::Queued(_))) {
        play.step(Step::Run(0, 1));
        play.step(Step::Run(1, 1));
    }
    play.step(Step::End(End::Crash));
    play.finish(MAX_ROUNDS);
    check(&play);
    let counts = count(&play.log());
    assert_eq!(counts.runs.len(), 2, "the run that was cut off, and the one that waited");
}
