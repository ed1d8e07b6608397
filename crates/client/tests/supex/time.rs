//! Patience. The clock is invented.

use std::time::Duration;

use parlor_client::supex::{
    CONNECT_LIMIT, CallFate, Dial, DialFuture, Driver, DriverError, IDLE_TIMEOUT, MAX_ANSWER_TIME,
    SupexSettings, TIMEOUT, TimeoutPhase,
};
use tokio::time::{Instant, sleep};

use crate::{Fake, attaching, plain, reply, settings, value, watched};

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_given_up_after_the_time_out() {
    let (mut fake, driver) = Fake::driven();
    let began = Instant::now();
    let server = async {
        let mut peer = fake.welcome(&plain()).await;
        peer.hear().await;
        peer.hear_or_end().await
    };
    let (result, end) = watched(async { tokio::join!(driver.eval("1"), server) }).await;
    let error = result.unwrap_err();
    let right = |error: &DriverError| {
        matches!(
            error,
            DriverError::Timeout {
                phase: TimeoutPhase::Answer,
                limit: TIMEOUT,
                fate: CallFate::Unknown,
                ..
            }
        )
    };
    assert!(right(&error), "{error:?}");
    let said = "fake:1 did not answer within 15 s; the call may have run, so look before you repeat it";
    assert_eq!(error.to_string(), said);
    assert_eq!((end, began.elapsed()), (None, TIMEOUT));
}

#[tokio::test(start_paused = true)]
async fn with_a_server_that_attaches_an_evaluation_may_last_three_time_outs() {
    let (mut fake, driver) = Fake::driven();
    let began = Instant::now();
    let server = async {
        for _ in 0..2 {
            let mut peer = fake.welcome(&attaching()).await;
            peer.hear().await;
            assert_eq!(peer.hear_or_end().await, None);
        }
        let mut peer = fake.welcome(&attaching()).await;
        let call = peer.hear().await;
        sleep(TIMEOUT - Duration::from_secs(1)).await;
        peer.say(&reply(&call, value("slow"))).await;
    };
    let (result, ()) = watched(async { tokio::join!(driver.eval("1"), server) }).await;
    assert_eq!(result.unwrap(), "slow");
    assert_eq!(began.elapsed(), TIMEOUT * 3 - Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn slow_bytes_are_waited_for_but_not_for_ever() {
    let (mut fake, driver) = Fake::driven();
    let pause = Duration::from_secs(10);
    let server = async {
        let mut peer = fake.welcome(&plain()).await;
        let call = peer.hear().await;
        // Each silence is shorter than the time-out, and all of them together are longer.
        for piece in format!("{}\n", reply(&call, value("2"))).as_bytes().chunks(8) {
            sleep(pause).await;
            peer.say_bytes(piece).await;
        }
        peer.hear().await;
        let began = Instant::now();
        while began.elapsed() < MAX_ANSWER_TIME + pause * 2 {
            sleep(pause).await;
            if tokio::io::AsyncWriteExt::write_all(peer.0.get_mut(), b" ").await.is_err() {
                return;
            }
        }
        panic!("it is waited for too long");
    };
    let calls = async {
        assert_eq!(driver.eval("1 + 1").await.unwrap(), "2");
        let error = driver.eval("1 + 1").await.unwrap_err();
        let right =
            |error: &DriverError| matches!(error, DriverError::Timeout { limit: MAX_ANSWER_TIME, .. });
        assert!(right(&error), "{error:?}");
    };
    watched(async { tokio::join!(server, calls) }).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_used_up_to_the_idle_time_out_and_then_replaced() {
    let (mut fake, driver) = Fake::driven();
    let server = async {
        let mut first = fake.welcome(&plain()).await;
        first.serve(value("1")).await;
        first.serve(value("2")).await;
        assert_eq!(first.hear_or_end().await, None);
        fake.welcome(&plain()).await.serve(value("3")).await;
    };
    let calls = async {
        driver.eval("1").await.unwrap();
        sleep(IDLE_TIMEOUT).await;
        driver.eval("2").await.unwrap();
        sleep(IDLE_TIMEOUT + Duration::from_millis(1)).await;
        assert_eq!(driver.eval("3").await.unwrap(), "3");
    };
    watched(async { tokio::join!(server, calls) }).await;
}

/// A way that does not end.
struct Endless;

impl Dial for Endless {
    fn dial(&self) -> DialFuture<'_> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn connecting_has_a_limit_of_its_own() {
    for (patience, limit) in
        [(Duration::from_secs(2), Duration::from_secs(2)), (Duration::MAX, CONNECT_LIMIT)]
    {
        let settings = SupexSettings { timeout: patience, retries: 0, ..settings() };
        let driver = Driver::over("fake:1", Box::new(Endless), settings);
        let began = Instant::now();
        let error = watched(driver.eval("1")).await.unwrap_err();
        let right = |error: &DriverError| {
            matches!(
                error,
                DriverError::Timeout { phase: TimeoutPhase::Connect, fate: CallFate::NotRun, .. }
            )
        };
        assert!(right(&error), "{error:?}");
        assert_eq!(began.elapsed(), limit);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_read_has_not_run_the_call() {
    let (mut fake, way) = Fake::new(256);
    let driver = Driver::over("fake:1", way, SupexSettings { retries: 0, ..settings() });
    let server = async {
        let mut peer = fake.welcome(&plain()).await;
        sleep(TIMEOUT * 2).await;
        // All that it will ever get is a part.
        assert!(
            tokio::io::AsyncBufReadExt::read_line(&mut peer.0, &mut String::new()).await.unwrap() < 10_000
        );
    };
    let code = "x".repeat(10_000);
    let (result, ()) = watched(async { tokio::join!(driver.eval(&code), server) }).await;
    let error = result.unwrap_err();
    let right = |error: &DriverError| {
        matches!(error, DriverError::Timeout { phase: TimeoutPhase::Send, fate: CallFate::NotRun, .. })
    };
    assert!(right(&error), "{error:?}");
}
