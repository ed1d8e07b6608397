//! Tests of time limits, with a paused clock.

use std::time::Duration;

use parlor_client::supex::{
    CONNECT_LIMIT, CallFate, Dial, DialFuture, Driver, DriverError, IDLE_TIMEOUT, MAX_ANSWER_TIME,
    SupexSettings, TIMEOUT, TimeoutPhase,
};
use tokio::time::{Instant, sleep};

use crate::{FakeServer, attaching, not_attaching, reply, settings, value, with_timeout};

#[tokio::test(start_paused = true)]
async fn a_silent_server_times_out() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let started = Instant::now();
    let server = async {
        let mut connection = fake_server.accept_hello(&not_attaching()).await;
        connection.receive().await;
        connection.receive_or_end().await
    };
    let (result, end) = with_timeout(async { tokio::join!(driver.eval("1"), server) }).await;
    let error = result.unwrap_err();
    let is_expected = |error: &DriverError| {
        matches!(
            error,
            DriverError::Timeout { phase: TimeoutPhase::Answer, limit: TIMEOUT, fate: CallFate::Unknown, .. }
        )
    };
    assert!(is_expected(&error), "{error:?}");
    let text = "fake:1 did not answer within 15 s; the call may have run, so look before you repeat it";
    assert_eq!(error.to_string(), text);
    assert_eq!((end, started.elapsed()), (None, TIMEOUT));
}

#[tokio::test(start_paused = true)]
async fn on_an_attaching_server_a_call_may_take_three_timeouts() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let started = Instant::now();
    let server = async {
        for _ in 0..2 {
            let mut connection = fake_server.accept_hello(&attaching()).await;
            connection.receive().await;
            assert_eq!(connection.receive_or_end().await, None);
        }
        let mut connection = fake_server.accept_hello(&attaching()).await;
        let call = connection.receive().await;
        sleep(TIMEOUT - Duration::from_secs(1)).await;
        connection.send(&reply(&call, value("slow"))).await;
    };
    let (result, ()) = with_timeout(async { tokio::join!(driver.eval("1"), server) }).await;
    assert_eq!(result.unwrap(), "slow");
    assert_eq!(started.elapsed(), TIMEOUT * 3 - Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_is_accepted_up_to_a_time_limit() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let pause = Duration::from_secs(10);
    let server = async {
        let mut connection = fake_server.accept_hello(&not_attaching()).await;
        let call = connection.receive().await;
        // Each pause is shorter than the timeout, and all of them together are longer.
        for piece in format!("{}\n", reply(&call, value("2"))).as_bytes().chunks(8) {
            sleep(pause).await;
            connection.send_bytes(piece).await;
        }
        connection.receive().await;
        let started = Instant::now();
        while started.elapsed() < MAX_ANSWER_TIME + pause * 2 {
            sleep(pause).await;
            if tokio::io::AsyncWriteExt::write_all(connection.0.get_mut(), b" ").await.is_err() {
                return;
            }
        }
        panic!("the client waits for too long");
    };
    let calls = async {
        assert_eq!(driver.eval("1 + 1").await.unwrap(), "2");
        let error = driver.eval("1 + 1").await.unwrap_err();
        let is_expected =
            |error: &DriverError| matches!(error, DriverError::Timeout { limit: MAX_ANSWER_TIME, .. });
        assert!(is_expected(&error), "{error:?}");
    };
    with_timeout(async { tokio::join!(server, calls) }).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_replaced_after_the_idle_timeout() {
    let (mut fake_server, driver) = FakeServer::with_driver();
    let server = async {
        let mut first = fake_server.accept_hello(&not_attaching()).await;
        first.serve(value("1")).await;
        first.serve(value("2")).await;
        assert_eq!(first.receive_or_end().await, None);
        fake_server.accept_hello(&not_attaching()).await.serve(value("3")).await;
    };
    let calls = async {
        driver.eval("1").await.unwrap();
        sleep(IDLE_TIMEOUT).await;
        driver.eval("2").await.unwrap();
        sleep(IDLE_TIMEOUT + Duration::from_millis(1)).await;
        assert_eq!(driver.eval("3").await.unwrap(), "3");
    };
    with_timeout(async { tokio::join!(server, calls) }).await;
}

/// A dial that never connects.
struct NeverConnects;

impl Dial for NeverConnects {
    fn dial(&self) -> DialFuture<'_> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn connecting_has_a_limit_of_its_own() {
    for (timeout, limit) in [(Duration::from_secs(2), Duration::from_secs(2)), (Duration::MAX, CONNECT_LIMIT)]
    {
        let settings = SupexSettings { timeout, retries: 0, ..settings() };
        let driver = Driver::over("fake:1", Box::new(NeverConnects), settings);
        let started = Instant::now();
        let error = with_timeout(driver.eval("1")).await.unwrap_err();
        let is_expected = |error: &DriverError| {
            matches!(error, DriverError::Timeout { phase: TimeoutPhase::Connect, fate: CallFate::NotRun, .. })
        };
        assert!(is_expected(&error), "{error:?}");
        assert_eq!(started.elapsed(), limit);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_read_has_not_run_the_call() {
    let (mut fake_server, dial) = FakeServer::new(256);
    let driver = Driver::over("fake:1", dial, SupexSettings { retries: 0, ..settings() });
    let server = async {
        let mut connection = fake_server.accept_hello(&not_attaching()).await;
        sleep(TIMEOUT * 2).await;
        // The server gets only a part of the request.
        assert!(
            tokio::io::AsyncBufReadExt::read_line(&mut connection.0, &mut String::new()).await.unwrap()
                < 10_000
        );
    };
    let code = "x".repeat(10_000);
    let (result, ()) = with_timeout(async { tokio::join!(driver.eval(&code), server) }).await;
    let error = result.unwrap_err();
    let is_expected = |error: &DriverError| {
        matches!(error, DriverError::Timeout { phase: TimeoutPhase::Send, fate: CallFate::NotRun, .. })
    };
    assert!(is_expected(&error), "{error:?}");
}
