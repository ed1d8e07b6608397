//! The time that opening a session takes, by the number of its events.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::ensure;
use parlor_engine::{Agents, MediaStore, SNAPSHOT_EVENTS, SessionDeps, Sessions};
use parlor_log::{EventLog, SqliteLog, SystemClock, TimeOrderedIds};
use parlor_model::LocalAgent;
use parlor_tools::{ShellTool, Toolbox};
use parlor_vocab::{
    AgentChoice, AgentId, EventId, MessageEvent, MessageId, NewEntry, NewSession, RunEnding, RunEvent, RunId,
    Seq, SessionEvent, SessionId, Timestamp, UniqueNumber, UserInput,
};

use crate::stats::{Spread, median, verdict};

/// How many events the sessions have.
const EVENTS: [u64; 3] = [100, 10_000, 1_000_000];

/// How many of them come after the snapshot: nearly as many as make the next one due, in whole runs of three events.
const TAIL_EVENTS: u64 = SNAPSHOT_EVENTS - SNAPSHOT_EVENTS % 3 - 24;

/// How many events are appended at a time.
const BATCH: usize = 10_000;

/// How many times the opening of the longest session may take that of the shortest.
const MAX_RATIO: f64 = 10.0;

/// How often each session is opened.
const ROUNDS: usize = 25;

/// All figures of one run, in milliseconds, for each number of events.
pub(crate) struct Growth {
    /// The first opening, which finds no snapshot.
    first: [f64; 3],
    /// The later openings, the medians.
    later: [f64; 3],
    /// The opening of the longest session to that of the shortest in the same round.
    ratio: Spread,
}

/// Measures with a database in a new folder below `parent`, which is removed afterwards.
pub(crate) fn measure(parent: &Path) -> anyhow::Result<Growth> {
    std::fs::create_dir_all(parent)?;
    let folder = tempfile::tempdir_in(parent)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure_in(folder.path()))
}

async fn measure_in(folder: &Path) -> anyhow::Result<Growth> {
    let clock = Arc::new(SystemClock);
    let log: Arc<dyn EventLog> = Arc::new(SqliteLog::open(folder, Arc::clone(&clock) as _)?);
    let sessions = Sessions::new(SessionDeps {
        log: Arc::clone(&log),
        agents: Agents::new(AgentId::parse("local")?, Arc::new(LocalAgent::default())),
        tools: Toolbox::standard(ShellTool::default()),
        media: MediaStore::open(folder)?,
        env: Vec::new().into(),
        clock: Arc::clone(&clock) as _,
        ids: Arc::new(TimeOrderedIds::new(clock)),
    });
    let (mut first, mut later) = ([0.0; 3], [const { Vec::new() }; 3]);
    for (events, first) in EVENTS.into_iter().zip(&mut first) {
        let before_snapshot = events.saturating_sub(TAIL_EVENTS);
        append(&*log, events, 0, before_snapshot).await?;
        if before_snapshot > 0 {
            *first = open(&sessions, events).await?;
        }
        append(&*log, events, before_snapshot, events).await?;
        if before_snapshot == 0 {
            *first = open(&sessions, events).await?;
        }
    }
    for _ in 0..ROUNDS {
        for (events, times) in EVENTS.into_iter().zip(&mut later) {
            times.push(open(&sessions, events).await?);
        }
    }
    let [shortest, _, longest] = &later;
    let ratio =
        Spread::of(longest.iter().zip(shortest).map(|(longest, shortest)| longest / shortest).collect());
    sessions.close().await;
    Ok(Growth { first, later: later.map(median), ratio })
}

/// The figures as a Markdown table, with their bound.
pub(crate) fn table(growth: &Growth) -> String {
    let [few, some, many] = EVENTS;
    let Spread { least, median, most } = growth.ratio;
    let row = |name: &str, [few, some, many]: [f64; 3], ratio: String| {
        format!("| {name} | {few:.2} ms | {some:.2} ms | {many:.2} ms | {ratio} |\n")
    };
    let mut table = format!(
        "| growth | {few} events | {some} events | {many} events | {many} : {few} |\n|---|---|---|---|---|\n"
    );
    table += &row(
        &format!(
            "opening a session, {TAIL_EVENTS} events after its snapshot, and counting its messages, p50"
        ),
        growth.later,
        format!(
            "{median:.2} (rounds {least:.2} to {most:.2}), at most {MAX_RATIO:.0}: {}",
            verdict(median <= MAX_RATIO)
        ),
    );
    table += &row(
        "the same without a snapshot, once",
        growth.first,
        format!("{:.2}", growth.first[2] / growth.first[0]),
    );
    table
}

fn session_of(events: u64) -> anyhow::Result<SessionId> {
    Ok(SessionId::parse(&format!("{events} events"))?)
}

/// Opens the session, asks for its totals, and closes it. Returns how many milliseconds it took until they were there.
async fn open(sessions: &Sessions, events: u64) -> anyhow::Result<f64> {
    let session = session_of(events)?;
    let begun = Instant::now();
    let totals = sessions.totals(&session).await?;
    let elapsed = begun.elapsed();
    ensure!(totals.messages > 0, "the session has messages");
    sessions.release(&session).await?;
    Ok(elapsed.as_secs_f64() * 1000.0)
}

/// Appends the events after `from` up to `until` to the session of `events` events.
async fn append(log: &dyn EventLog, events: u64, from: u64, until: u64) -> anyhow::Result<()> {
    let lease = log.acquire(&session_of(events)?).await?;
    let (mut head, mut new) = (Seq(from), Vec::with_capacity(BATCH));
    for number in from..until {
        new.push(entry(number)?);
        if new.len() == BATCH || number + 1 == until {
            head = log.append(&lease, head, &new).await?;
            new.clear();
        }
    }
    Ok(log.release(lease).await?)
}

/// The event after `number` others. The first creates the session; then each run has three.
fn entry(number: u64) -> anyhow::Result<NewEntry> {
    let unique = |number: u64| UniqueNumber(0x0190_0000_0000_7000_8000_0000_0000_0000 + u128::from(number));
    let run_event = |event| {
        let run = RunId::generate(unique((number - 1) / 3));
        SessionEvent::Run { run, sequence: (number - 1) % 3 + 1, event }
    };
    let message = MessageId::generate(unique(number));
    let event = match number {
        0 => SessionEvent::Created(NewSession {
            title: None,
            door: "bench".to_owned(),
            folder: "/tmp".into(),
            choice: AgentChoice::default(),
            system: None,
            forked_from: None,
        }),
        _ => run_event(match number % 3 {
            1 => RunEvent::Started {
                parent: None,
                agent: AgentId::parse("local")?,
                model: None,
                missing_agent: None,
                input: UserInput { text: "Is the build green?".to_owned(), ..UserInput::default() },
                message,
            },
            2 => {
                let text = "The build is green again: the test waited for a port that another one had taken.";
                RunEvent::Message(MessageEvent::Completed {
                    message,
                    text: text.to_owned(),
                    media: Vec::new(),
                })
            }
            _ => RunEvent::Ended { ending: RunEnding::Completed { message: None }, duration_ms: 1 },
        }),
    };
    let at = Timestamp(1_700_000_000_000 + i64::try_from(number)?);
    Ok(NewEntry { id: EventId::generate(unique(number)), at, event })
}
