//! The cost of all sessions today, by the UTC days that the log counts.

use parlor_log::{EventLog, LogError};
use parlor_vocab::Timestamp;

/// A day in milliseconds.
const DAY_MS: i64 = 86_400_000;

/// What all sessions of all processes have cost on the day of `now`, in millionths of a dollar. Deleted sessions
/// count too.
pub(super) async fn spent_today(log: &dyn EventLog, now: Timestamp) -> Result<u64, LogError> {
    let today = now.0.div_euclid(DAY_MS);
    let lines = log.usage(today).await?;
    let of_today = lines.iter().filter(|line| line.day == today);
    Ok(of_today.fold(0, |sum, line| sum.saturating_add(line.usage.cost_micros)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parlor_log::{MemoryLog, SystemClock};
    use parlor_vocab::{
        AgentChoice, EventId, NewEntry, NewSession, RunEvent, RunId, Seq, SessionEvent, SessionId, Usage,
    };

    use super::*;

    fn cost(cost_micros: u64) -> Usage {
        Usage { cost_micros, ..Usage::default() }
    }

    async fn log_with(consumed: &[(i64, u64)]) -> MemoryLog {
        let log = MemoryLog::new(Arc::new(SystemClock));
        let id = SessionId::parse("s").unwrap();
        let lease = log.acquire(&id).await.unwrap();
        let new_session = NewSession {
            title: None,
            door: "test".to_owned(),
            folder: "/".into(),
            choice: AgentChoice::default(),
            system: None,
            forked_from: None,
        };
        let created = NewEntry {
            id: EventId::parse("e").unwrap(),
            at: Timestamp(0),
            event: SessionEvent::Created(new_session),
        };
        let events = consumed.iter().enumerate().map(|(number, (at, micros))| NewEntry {
            id: EventId::parse(&format!("e{number}")).unwrap(),
            at: Timestamp(*at),
            event: SessionEvent::Run {
                run: RunId::parse("r").unwrap(),
                sequence: number as u64 + 1,
                event: RunEvent::UsageAdded { usage: cost(*micros), model: None },
            },
        });
        let drafts: Vec<NewEntry> = std::iter::once(created).chain(events).collect();
        log.append(&lease, Seq::START, &drafts).await.unwrap();
        log.release(lease).await.unwrap();
        log
    }

    #[tokio::test]
    async fn the_cost_of_a_day_includes_deleted_sessions() {
        let log = log_with(&[(DAY_MS - 1, 100), (DAY_MS, 20), (DAY_MS + 5, 3)]).await;
        let spent = async |at| spent_today(&log, Timestamp(at)).await.unwrap();
        assert_eq!((spent(DAY_MS + 10).await, spent(2 * DAY_MS).await), (23, 0));

        let lease = log.acquire(&SessionId::parse("s").unwrap()).await.unwrap();
        log.delete(&lease).await.unwrap();
        assert_eq!(spent(DAY_MS + 10).await, 23);
    }
}
