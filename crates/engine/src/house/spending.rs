//! What all sessions have spent today, kept as one number.
//!
//! It is read from the log once, when somebody first asks, and counted on from there. What other
//! processes spend after that is not seen. A day begins at midnight, UTC.

use std::sync::Arc;

use parlor_log::{EventLog, LogError, MAX_PAGE, PageRequest};
use parlor_vocab::{Clock, RunEvent, Seq, SessionEvent, SessionId, Timestamp, Usage};
use tokio::sync::Mutex;

/// How many events are read at a time.
const READ_EVENTS: usize = 4096;
/// A day in milliseconds.
const DAY: i64 = 86_400_000;

/// The number, in millionths of a dollar.
pub(super) struct Spending {
    log: Arc<dyn EventLog>,
    clock: Arc<dyn Clock>,
    /// The day and what was spent on it; none until somebody asks. Held while the log is read.
    today: Mutex<Option<(i64, u64)>>,
}

impl Spending {
    pub(super) fn new(log: Arc<dyn EventLog>, clock: Arc<dyn Clock>) -> Self {
        Self { log, clock, today: Mutex::default() }
    }

    /// Notes what is in the log by now.
    pub(super) async fn add(&self, usage: Usage) {
        let day = self.day();
        if let Some(today) = &mut *self.today.lock().await {
            if today.0 != day {
                *today = (day, 0);
            }
            today.1 = today.1.saturating_add(usage.cost_micros);
        }
    }

    /// What was spent today.
    pub(super) async fn today(&self) -> Result<u64, LogError> {
        let day = self.day();
        let mut today = self.today.lock().await;
        match &mut *today {
            Some((of, micros)) if *of == day => Ok(*micros),
            Some(other) => {
                *other = (day, 0);
                Ok(0)
            }
            None => {
                let micros = spent_since(&*self.log, Timestamp(day * DAY)).await?;
                *today = Some((day, micros));
                Ok(micros)
            }
        }
    }

    fn day(&self) -> i64 {
        self.clock.now().0.div_euclid(DAY)
    }
}

/// What all sessions spent since a moment. Reads those that were used since then.
async fn spent_since(log: &dyn EventLog, since: Timestamp) -> Result<u64, LogError> {
    let mut page = PageRequest::first(MAX_PAGE);
    let mut micros = 0_u64;
    loop {
        let listed = log.sessions(page).await?;
        for record in listed.records {
            if record.updated < since {
                return Ok(micros);
            }
            micros = micros.saturating_add(spent_in(log, &record.id, since).await?);
        }
        let Some(next) = listed.next else { return Ok(micros) };
        page = PageRequest { after: Some(next), limit: MAX_PAGE };
    }
}

async fn spent_in(log: &dyn EventLog, session: &SessionId, since: Timestamp) -> Result<u64, LogError> {
    let (mut place, mut micros) = (Seq::START, 0_u64);
    loop {
        let entries = log.read(session, place, READ_EVENTS).await?;
        let Some(last) = entries.last() else { return Ok(micros) };
        place = last.seq;
        for entry in entries.iter().filter(|entry| entry.at >= since) {
            if let SessionEvent::Run { event: RunEvent::Consumed { usage, .. }, .. } = &entry.event {
                micros = micros.saturating_add(usage.cost_micros);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use parlor_log::MemoryLog;
    use parlor_vocab::{Birth, Choice, Draft, EventId, RunId};

    use super::*;

    struct Hands(AtomicI64);

    impl Clock for Hands {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.load(Ordering::Relaxed))
        }
    }

    fn cost(cost_micros: u64) -> Usage {
        Usage { cost_micros, ..Usage::default() }
    }

    async fn log_with(consumed: &[(i64, u64)]) -> MemoryLog {
        let log = MemoryLog::new(Arc::new(Hands(AtomicI64::new(0))));
        let id = SessionId::parse("s").unwrap();
        let lease = log.acquire(&id).await.unwrap();
        let birth = Birth {
            title: None,
            door: "test".to_owned(),
            folder: "/".into(),
            choice: Choice::default(),
            system: None,
            forked_from: None,
        };
        let created =
            Draft { id: EventId::parse("e").unwrap(), at: Timestamp(0), event: SessionEvent::Created(birth) };
        let events = consumed.iter().enumerate().map(|(number, (at, micros))| Draft {
            id: EventId::parse(&format!("e{number}")).unwrap(),
            at: Timestamp(*at),
            event: SessionEvent::Run {
                run: RunId::parse("r").unwrap(),
                sequence: number as u64 + 1,
                event: RunEvent::Consumed { usage: cost(*micros), model: None },
            },
        });
        let drafts: Vec<Draft> = std::iter::once(created).chain(events).collect();
        log.append(&lease, Seq::START, &drafts).await.unwrap();
        log
    }

    #[tokio::test]
    async fn a_day_is_summed_from_the_log_and_counted_on() {
        let log = log_with(&[(DAY - 1, 100), (DAY, 20), (DAY + 5, 3)]).await;
        let clock = Arc::new(Hands(AtomicI64::new(DAY + 10)));
        let spending = Spending::new(Arc::new(log), Arc::clone(&clock) as _);
        spending.add(cost(1000)).await;
        assert_eq!(spending.today().await.unwrap(), 23, "what is in the log is not counted twice");
        spending.add(cost(4)).await;
        assert_eq!(spending.today().await.unwrap(), 27);
        clock.0.store(2 * DAY, Ordering::Relaxed);
        assert_eq!(spending.today().await.unwrap(), 0, "a new day");
        spending.add(cost(5)).await;
        assert_eq!(spending.today().await.unwrap(), 5);
    }
}
