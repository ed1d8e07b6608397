//! Cases about usage by day and model.

use parlor_vocab::{
    AgentId, EventId, Failure, MessageId, NewEntry, RunEnding, RunEvent, RunId, Seq, SessionEvent, Timestamp,
    Usage, UserInput,
};

use super::{LogFactory, acquire, write_session};
use crate::{MAX_USAGE_LINES, UsageLine};

const DAY: i64 = 86_400_000;

fn event(at: i64, run: &str, event: RunEvent) -> NewEntry {
    let run = RunId::parse(run).expect("short");
    let event = SessionEvent::Run { run, sequence: 1, event };
    NewEntry { id: EventId::parse(&format!("evt_{at}")).expect("short"), at: Timestamp(at), event }
}

fn started(at: i64, run: &str, parent: Option<&str>) -> NewEntry {
    let parent = parent.map(|parent| RunId::parse(parent).expect("short"));
    let agent = AgentId::parse("a").expect("short");
    let message = MessageId::parse("m").expect("short");
    let (model, missing_agent, input) = (None, None, UserInput::default());
    event(at, run, RunEvent::Started { parent, agent, model, missing_agent, input, message })
}

fn usage_added(at: i64, run: &str, model: Option<&str>, tokens: u64) -> NewEntry {
    let usage =
        Usage { input_tokens: tokens, output_tokens: 1, cost_micros: 10 * tokens, ..Usage::default() };
    event(at, run, RunEvent::UsageAdded { usage, model: model.map(str::to_owned) })
}

fn failed(at: i64, run: &str) -> NewEntry {
    let failure = Failure { code: "X".into(), message: String::new(), retryable: false };
    event(at, run, RunEvent::Ended { ending: RunEnding::Failed(failure), duration_ms: 1 })
}

/// For all sessions and processes, even after sessions are deleted. Subagents add usage but do not count as runs.
pub async fn usage_is_counted_by_day_and_model(factory: &dyn LogFactory) {
    let (log, other) = (factory.open(), factory.open());
    write_session(
        &*log,
        "s",
        &[
            started(1, "r", None),
            usage_added(2, "r", Some("m"), 5),
            started(3, "child", Some("r")),
            usage_added(4, "child", Some("m"), 7),
            failed(5, "child"),
            failed(DAY, "r"),
        ],
    )
    .await;
    let next_day = [started(DAY + 1, "q", None), usage_added(DAY + 2, "q", None, 3)];
    let lease = acquire(&*other, "t").await;
    other.append(&lease, Seq::START, &next_day).await.expect("an append");
    let line = |day, model: &str, runs, failed, input, output| UsageLine {
        day,
        model: model.to_owned(),
        runs,
        failed,
        usage: Usage {
            input_tokens: input,
            output_tokens: output,
            cost_micros: 10 * input,
            ..Usage::default()
        },
    };
    let all = [line(0, "", 1, 0, 0, 0), line(0, "m", 0, 0, 12, 2), line(1, "", 1, 1, 3, 1)];
    for log in [&log, &other] {
        assert_eq!(log.usage(0).await.expect("an answer"), all);
        assert_eq!(log.usage(1).await.expect("an answer"), all[2..]);
        assert_eq!(log.usage(2).await.expect("an answer"), []);
    }
    other.delete(&lease).await.expect("a session to delete");
    assert_eq!(log.usage(0).await.expect("an answer"), all);
}

/// If there are more lines than the limit, the oldest are left out.
pub async fn usage_is_limited_to_the_last_lines(factory: &dyn LogFactory) {
    let log = factory.open();
    let name = |number: usize| format!("m{number:05}");
    let entry = |number| usage_added(i64::try_from(number).expect("small"), "r", Some(&name(number)), 1);
    let all: Vec<NewEntry> = (0..=MAX_USAGE_LINES).map(entry).collect();
    write_session(&*log, "s", &all).await;
    let lines = log.usage(0).await.expect("an answer");
    let models: Vec<&str> = lines.iter().map(|line| line.model.as_str()).collect();
    assert_eq!(models.len(), MAX_USAGE_LINES);
    assert_eq!((models.first(), models.last()), (Some(&&*name(1)), Some(&&*name(MAX_USAGE_LINES))));
}
