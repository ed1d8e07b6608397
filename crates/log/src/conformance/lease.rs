//! Leases.

use std::sync::Arc;

use parlor_vocab::Seq;

use super::{LogFactory, acquire, drafts, places, session, written};
use crate::LogError;

/// In one process and among several.
pub async fn a_session_has_one_holder_at_a_time(factory: &dyn LogFactory) {
    let (log, other) = (factory.enter(), factory.enter());
    let _lease = acquire(&*log, "s").await;
    for log in [&log, &other] {
        let refused = log.acquire(&session("s")).await;
        let Err(error @ LogError::Held { by, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(by.pid, std::process::id());
        assert!(error.to_string().contains("session s is in use by process"), "{error}");
    }
    acquire(&*other, "another").await;
}

/// Whoever looks sees the same holder, and nobody once the lease was given back.
pub async fn the_holder_of_a_session_is_known_to_all(factory: &dyn LogFactory) {
    let (log, other) = (factory.enter(), factory.enter());
    assert_eq!(other.holder(&session("s")).await.expect("an answer"), None);
    let lease = acquire(&*log, "s").await;
    for log in [&log, &other] {
        let holder = log.holder(&session("s")).await.expect("an answer").expect("a holder");
        assert_eq!(holder.pid, std::process::id());
        assert_eq!(log.holder(&session("another")).await.expect("an answer"), None);
    }
    log.release(lease).await.expect("a lease can be given back");
    assert_eq!(other.holder(&session("s")).await.expect("an answer"), None);
}

/// The next one in the same process gets it at once.
pub async fn a_lease_is_given_back_when_dropped(factory: &dyn LogFactory) {
    let log = factory.enter();
    for round in 0..10 {
        let lease = acquire(&*log, "s").await;
        log.append(&lease, Seq(round), &drafts(1..=1)).await.expect("an append");
    }
}

/// When the giving back has returned.
pub async fn a_lease_that_was_given_back_can_be_taken_by_another_process(factory: &dyn LogFactory) {
    let logs = [factory.enter(), factory.enter()];
    for round in 0..10_u64 {
        let log = &logs[round as usize % 2];
        let lease = acquire(&**log, "s").await;
        log.append(&lease, Seq(round), &drafts(1..=1)).await.expect("an append");
        log.release(lease).await.expect("a lease can be given back");
    }
}

/// It went with its session, and does not come back with a new one of that name.
pub async fn a_lost_lease_is_refused(factory: &dyn LogFactory) {
    let log = factory.enter();
    let old = acquire(&*log, "s").await;
    log.append(&old, Seq::START, &drafts(1..=3)).await.expect("an append");
    log.delete(&old).await.expect("a session to delete");
    let refused = log.append(&old, Seq::START, &drafts(1..=1)).await;
    assert!(matches!(refused, Err(LogError::NotHeld { .. })), "{refused:?}");
    let new = acquire(&*log, "s").await;
    log.append(&new, Seq::START, &drafts(1..=1)).await.expect("an append");
    let refused = log.append(&old, Seq(1), &drafts(1..=1)).await;
    assert!(matches!(refused, Err(LogError::NotHeld { .. })), "{refused:?}");
    let refused = log.delete(&old).await;
    assert!(matches!(refused, Err(LogError::NotHeld { .. })), "{refused:?}");
    // Giving the old one back takes nothing from the new one.
    log.release(old).await.expect("a lost lease can be given back");
    log.append(&new, Seq(1), &drafts(1..=1)).await.expect("an append");
    assert_eq!(places(&*log, "s").await, [1, 2]);
}

/// Whoever holds a session writes it through the log that gave the lease.
pub async fn a_lease_is_worth_nothing_in_another_process(factory: &dyn LogFactory) {
    let (log, other) = (factory.enter(), factory.enter());
    written(&*log, "s", &drafts(1..=1)).await;
    let lease = acquire(&*log, "s").await;
    let refused = other.append(&lease, Seq(1), &drafts(1..=1)).await;
    assert!(matches!(refused, Err(LogError::NotHeld { .. })), "{refused:?}");
    assert!(matches!(other.delete(&lease).await, Err(LogError::NotHeld { .. })));
    log.append(&lease, Seq(1), &drafts(1..=1)).await.expect("an append");
}

/// A race, in rounds.
pub async fn of_many_who_want_a_lease_one_gets_it(factory: &dyn LogFactory) {
    let logs = [factory.enter(), factory.enter(), factory.enter()];
    for round in 0..10 {
        let mut tasks = tokio::task::JoinSet::new();
        for log in logs.iter().cycle().take(9) {
            let log = Arc::clone(log);
            tasks.spawn(async move { log.acquire(&session(&format!("s{round}"))).await });
        }
        let results = tasks.join_all().await;
        let (given, refused): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert_eq!((given.len(), refused.len()), (1, 8));
        assert!(refused.iter().all(|refused| matches!(refused, Err(LogError::Held { .. }))));
    }
}
