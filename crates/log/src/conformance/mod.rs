//! The contract of [`EventLog`] as functions, which every store has to pass unchanged.
//!
//! [`conformance_tests!`](crate::conformance_tests) makes a test of each. They take a [`LogFactory`] and
//! not a log, since much of the contract is about what one process sees of another.

mod append;
mod follow;
mod lease;
mod records;
mod space;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use parlor_vocab::{AgentChoice, EventId, NewEntry, NewSession, Seq, SessionEvent, SessionId, Timestamp};

use crate::{EventLog, Lease};

pub use append::*;
pub use follow::*;
pub use lease::*;
pub use records::*;
pub use space::*;
pub use usage::*;

/// How long a case may take. None takes as long; it is there to end one that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A log that is empty at first, and can be used by several processes.
pub trait LogFactory: Send + Sync {
    /// The log as one more process sees it.
    fn enter(&self) -> Arc<dyn EventLog>;
}

/// Makes a test of each case, on a factory of its own that the expression gives.
#[macro_export]
macro_rules! conformance_tests {
    ($factory:expr) => {
        $crate::conformance_tests! { $factory;
            places_are_dense_and_begin_at_one
            what_is_read_is_what_was_appended
            an_append_after_another_head_writes_nothing
            an_append_of_nothing_changes_nothing
            an_append_is_seen_by_all_when_it_returns
            reading_begins_at_any_cursor_and_ends_at_the_maximum
            an_event_is_found_by_its_id
            reading_an_unknown_session_says_so
            sessions_do_not_mix
            many_appenders_at_once_all_succeed
            replay_then_follow_gives_each_event_once_and_in_order
            a_follower_may_be_there_before_the_session
            deleting_wakes_those_who_follow
            a_session_has_one_holder_at_a_time
            the_holder_of_a_session_is_known_to_all
            a_lease_is_given_back_when_dropped
            a_lease_that_was_given_back_can_be_taken_by_another_process
            a_lost_lease_is_refused
            a_lease_is_worth_nothing_in_another_process
            of_many_who_want_a_lease_one_gets_it
            a_record_tells_what_the_events_say
            sessions_are_listed_by_their_last_update
            paging_lists_each_session_once
            paging_goes_on_while_sessions_are_updated
            a_deleted_session_is_gone_and_its_id_is_free
            a_record_tells_how_much_the_events_take
            media_is_referenced_as_long_as_a_session_speaks_of_it
            what_was_used_is_counted_by_day_and_model
            so_many_lines_of_what_was_used_are_told
            reclaiming_takes_nothing_that_is_there
        }
    };
    ($factory:expr; $($case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let factory = $factory;
                $crate::conformance::in_time($crate::conformance::$case(&factory)).await;
            }
        )*
    };
}

/// Fails a case that hangs.
pub async fn in_time(case: impl Future<Output = ()>) {
    tokio::time::timeout(PATIENCE, case).await.expect("the case ends in time");
}

fn session(name: &str) -> SessionId {
    SessionId::parse(name).expect("short")
}

/// An event at the time `at`, with a text by which it is known again.
fn draft(at: i64, text: impl Into<String>) -> NewEntry {
    let text = text.into();
    let id = EventId::parse(&format!("evt_{at}_{}", text.len())).expect("short");
    NewEntry { id, at: Timestamp(at), event: SessionEvent::Renamed { title: text } }
}

fn drafts(range: std::ops::RangeInclusive<i64>) -> Vec<NewEntry> {
    range.map(|number| draft(number, number.to_string())).collect()
}

fn new_session(at: i64, door: &str) -> NewEntry {
    let event = SessionEvent::Created(NewSession {
        title: None,
        door: door.to_owned(),
        folder: "/".into(),
        choice: AgentChoice::default(),
        system: None,
        forked_from: None,
    });
    NewEntry { event, ..draft(at, "first") }
}

async fn acquire(log: &dyn EventLog, name: &str) -> Lease {
    log.acquire(&session(name)).await.expect("nobody has the session")
}

/// A session with the given events. Nobody holds it afterwards.
async fn written(log: &dyn EventLog, name: &str, new: &[NewEntry]) {
    let lease = acquire(log, name).await;
    let head = log.append(&lease, Seq::START, new).await.expect("a first append");
    assert_eq!(head, Seq(new.len() as u64));
    log.release(lease).await.expect("a lease can be given back");
}

async fn places(log: &dyn EventLog, name: &str) -> Vec<u64> {
    let entries = log.read(&session(name), Seq::START, usize::MAX).await.expect("a session");
    entries.iter().map(|entry| entry.seq.0).collect()
}
