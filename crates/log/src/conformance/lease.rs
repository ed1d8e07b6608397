//! Cases about leases.

use std::sync::Arc;

use parlor_vocab::Seq;

use super::{LogFactory, acquire, new_entries, seqs, session, write_session};
use crate::LogError;

/// Within one process and among several.
pub async fn a_session_has_one_holder_at_a_time(factory: &dyn LogFactory) {
    let (log, other) = (factory.open(), factory.open());
    let _lease = acquire(&*log, "s").await;
    for log in [&log, &other] {
        let error = log.acquire(&session("s")).await.expect_err("the session is held");
        let LogError::Held { by, .. } = &error else { panic!("{error:?}") };
        assert_eq!(by.pid, std::process::id());
        assert!(error.to_string().contains("session s is in use by process"), "{error}");
    }
    acquire(&*other, "another").await;
}

/// All see the same holder, and no holder after the release.
pub async fn every_process_sees_the_holder_of_a_session(factory: &dyn LogFactory) {
    let (log, other) = (factory.open(), factory.open());
    assert_eq!(other.holder(&session("s")).await.expect("an answer"), None);
    let lease = acquire(&*log, "s").await;
    for log in [&log, &other] {
        let holder = log.holder(&session("s")).await.expect("an answer").expect("a holder");
        assert_eq!(holder.pid, std::process::id());
        assert_eq!(log.holder(&session("another")).await.expect("an answer"), None);
    }
    log.release(lease).await.expect("a release succeeds");
    assert_eq!(other.holder(&session("s")).await.expect("an answer"), None);
}

/// The same process can take it again at once.
pub async fn dropping_a_lease_releases_it(factory: &dyn LogFactory) {
    let log = factory.open();
    for round in 0..10 {
        let lease = acquire(&*log, "s").await;
        log.append(&lease, Seq(round), &new_entries(1..=1)).await.expect("an append");
    }
}

/// As soon as `release` has returned.
pub async fn another_process_can_take_a_released_lease(factory: &dyn LogFactory) {
    let logs = [factory.open(), factory.open()];
    for round in 0..10_u64 {
        let log = &logs[round as usize % 2];
        let lease = acquire(&**log, "s").await;
        log.append(&lease, Seq(round), &new_entries(1..=1)).await.expect("an append");
        log.release(lease).await.expect("a release succeeds");
    }
}

/// A lease is lost with its session, and is not valid for a new session of the same name.
pub async fn a_lost_lease_is_refused(factory: &dyn LogFactory) {
    let log = factory.open();
    let old = acquire(&*log, "s").await;
    log.append(&old, Seq::START, &new_entries(1..=3)).await.expect("an append");
    log.delete(&old).await.expect("a session to delete");
    let refused = log.append(&old, Seq::START, &new_entries(1..=1)).await;
    assert!(matches!(refused, Err(LogError::NotHeld { .. })), "{refused:?}");
    let new = acquire(&*log, "s").await;
    log.append(&new, Seq::START, &new_entries(1..=1)).await.expect("an append");
    let refused = log.append(&old, Seq(1), &new_entries(1..=1)).await;
    assert!(matches!(refused, Err(LogError::NotHeld { .. })), "{refused:?}");
    let refused = log.delete(&old).await;
    assert!(matches!(refused, Err(LogError::NotHeld { .. })), "{refused:?}");
    // Releasing the old lease does not release the new one.
    log.release(old).await.expect("releasing a lost lease succeeds");
    log.append(&new, Seq(1), &new_entries(1..=1)).await.expect("an append");
    assert_eq!(seqs(&*log, "s").await, [1, 2]);
}

/// Without an append by the holder.
pub async fn a_lost_lease_is_reported_to_its_holder(factory: &dyn LogFactory) {
    let log = factory.open();
    let (lost_lease, kept_lease) = (acquire(&*log, "s").await, acquire(&*log, "another").await);
    log.append(&lost_lease, Seq::START, &new_entries(1..=1)).await.expect("an append");
    let (mut lost, kept) = (log.lost(&lost_lease), log.lost(&kept_lease));
    assert!(!*lost.borrow());
    log.delete(&lost_lease).await.expect("a session to delete");
    lost.wait_for(|is_lost| *is_lost).await.expect("the log reports the loss before it forgets the lease");
    assert!(!*kept.borrow());
}

/// Only the log that gave a lease accepts it.
pub async fn a_lease_is_refused_by_another_process(factory: &dyn LogFactory) {
    let (log, other) = (factory.open(), factory.open());
    write_session(&*log, "s", &new_entries(1..=1)).await;
    let lease = acquire(&*log, "s").await;
    let refused = other.append(&lease, Seq(1), &new_entries(1..=1)).await;
    assert!(matches!(refused, Err(LogError::NotHeld { .. })), "{refused:?}");
    assert!(matches!(other.delete(&lease).await, Err(LogError::NotHeld { .. })));
    log.append(&lease, Seq(1), &new_entries(1..=1)).await.expect("an append");
}

/// Ten rounds of a race.
pub async fn one_of_many_concurrent_acquires_succeeds(factory: &dyn LogFactory) {
    let logs = [factory.open(), factory.open(), factory.open()];
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
