//! The contract of [`EventLog`] as test functions that every store has to pass.
//!
//! [`conformance_tests!`](crate::conformance_tests) makes a test of each. They take a [`LogFactory`] instead of a log,
//! because much of the contract is about what one process sees of another.

mod append;
mod follow;
mod lease;
mod partial_text;
mod records;
mod snapshot;
mod space;
mod usage;

use std::sync::Arc;
use std::time::Duration;

use parlor_vocab::{AgentChoice, EventId, NewEntry, NewSession, Seq, SessionEvent, SessionId, Timestamp};

use crate::{EventLog, Lease};

pub use append::*;
pub use follow::*;
pub use lease::*;
pub use partial_text::*;
pub use records::*;
pub use snapshot::*;
pub use space::*;
pub use usage::*;

/// Ends a case that hangs. A working case takes much less.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Opens one log several times, as several processes would. The log is empty at first.
pub trait LogFactory: Send + Sync {
    /// Opens the log for one more process.
    fn open(&self) -> Arc<dyn EventLog>;
}

/// Makes a test of each case. Each evaluates the expression for a factory of its own.
#[macro_export]
macro_rules! conformance_tests {
    ($factory:expr) => {
        $crate::conformance_tests! { $factory;
            event_numbers_are_dense_and_begin_at_one
            read_returns_what_was_appended
            an_append_after_a_stale_head_writes_nothing
            an_empty_append_changes_nothing
            every_process_sees_an_append_when_it_returns
            reading_begins_at_any_cursor_and_ends_at_the_maximum
            an_event_is_found_by_its_id
            reading_an_unknown_session_fails
            sessions_do_not_mix
            concurrent_appends_all_succeed
            replay_then_follow_gives_each_event_once_and_in_order
            a_follower_may_subscribe_before_the_session_exists
            deleting_wakes_followers
            a_session_has_one_holder_at_a_time
            every_process_sees_the_holder_of_a_session
            dropping_a_lease_releases_it
            another_process_can_take_a_released_lease
            a_lost_lease_is_refused
            a_lost_lease_is_reported_to_its_holder
            a_lease_is_refused_by_another_process
            one_of_many_concurrent_acquires_succeeds
            a_record_reflects_the_events
            sessions_are_listed_by_their_last_update
            paging_lists_each_session_once
            paging_goes_on_while_sessions_are_updated
            a_deleted_session_is_gone_and_its_id_is_free
            a_record_counts_the_bytes_of_its_events
            media_is_referenced_while_a_session_refers_to_it
            usage_is_counted_by_day_and_model
            usage_is_limited_to_the_last_lines
            reclaiming_keeps_existing_sessions
            partial_text_grows_in_parts_and_is_no_event
            partial_text_ends_with_its_message_and_with_its_run
            another_message_replaces_partial_text
            partial_text_needs_the_lease_and_goes_with_the_session
            the_last_snapshot_is_kept_and_is_no_event
            a_snapshot_of_other_events_is_ignored
            a_snapshot_that_is_too_large_is_not_kept
            a_snapshot_needs_the_lease_and_goes_with_the_session
        }
    };
    ($factory:expr; $($case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let factory = $factory;
                $crate::conformance::with_timeout($crate::conformance::$case(&factory)).await;
            }
        )*
    };
}

/// Runs a case, and fails it if it hangs.
pub async fn with_timeout(case: impl Future<Output = ()>) {
    tokio::time::timeout(TIMEOUT, case).await.expect("the case ends in time");
}

fn session(name: &str) -> SessionId {
    SessionId::parse(name).expect("short")
}

/// An event at the time `at` with a recognizable text.
fn new_entry(at: i64, text: impl Into<String>) -> NewEntry {
    let text = text.into();
    let id = EventId::parse(&format!("evt_{at}_{}", text.len())).expect("short");
    NewEntry { id, at: Timestamp(at), event: SessionEvent::Renamed { title: text } }
}

fn new_entries(range: std::ops::RangeInclusive<i64>) -> Vec<NewEntry> {
    range.map(|number| new_entry(number, number.to_string())).collect()
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
    NewEntry { event, ..new_entry(at, "first") }
}

async fn acquire(log: &dyn EventLog, name: &str) -> Lease {
    log.acquire(&session(name)).await.expect("nobody holds the session")
}

/// Writes a session with the given events, and releases it.
async fn write_session(log: &dyn EventLog, name: &str, new: &[NewEntry]) {
    let lease = acquire(log, name).await;
    let head = log.append(&lease, Seq::START, new).await.expect("a first append");
    assert_eq!(head, Seq(new.len() as u64));
    log.release(lease).await.expect("a release succeeds");
}

async fn seqs(log: &dyn EventLog, name: &str) -> Vec<u64> {
    let entries = log.read(&session(name), Seq::START, usize::MAX).await.expect("a session");
    entries.iter().map(|entry| entry.seq.0).collect()
}
