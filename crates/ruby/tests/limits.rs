//! Tests of the limits: what exceeds one is refused or cut, with the numbers. Errors name a missing Ruby.

mod common;

use std::path::{Path, PathBuf};

use common::{Gate, answer, error, file, host, is_pending, raised, settings, snippet, value};
use parlor_ruby::{
    MAX_BACKTRACE_LINES, MAX_CODE_BYTES, MAX_MESSAGE_BYTES, MAX_OUTPUT_BYTES, MAX_VALUE_BYTES, MAX_WAITING,
    RubyError, RubyHost, RubySettings, START_LIMIT, START_TRIES,
};
use parlor_testkit::write_executable;

#[tokio::test]
async fn code_of_the_limit_runs_and_one_byte_more_is_refused() {
    let host = host();
    let code = |size: usize| format!("$ran = 1{}", " ".repeat(size - 8));
    assert_eq!(value(&host, &code(MAX_CODE_BYTES)).await, "1");
    value(&host, "$ran = 0").await;
    let refused = RubyError::CodeTooLarge { bytes: MAX_CODE_BYTES + 1, limit: MAX_CODE_BYTES };
    assert_eq!(error(&host, &code(MAX_CODE_BYTES + 1)).await, refused);
    let path = Path::new("/tmp/t.rb");
    assert_eq!(file(&host, path, code(MAX_CODE_BYTES + 1)).await.outcome, Err(refused));
    assert_eq!(value(&host, "$ran").await, "0");
}

#[tokio::test]
async fn a_value_of_the_limit_is_returned_and_one_byte_more_is_not() {
    let host = host();
    assert_eq!(value(&host, &format!("'x' * {MAX_VALUE_BYTES}")).await.len(), MAX_VALUE_BYTES);
    let too_large = |bytes| RubyError::ValueTooLarge { bytes, limit: MAX_VALUE_BYTES };
    let just = MAX_VALUE_BYTES as u64 + 1;
    assert_eq!(error(&host, &format!("'x' * {just}")).await, too_large(just));
    assert_eq!(error(&host, "'x' * 12_000_000").await, too_large(12_000_000));
    // The size counts after conversion to UTF-8.
    let latin = format!("(\"\\xE4\" * {}).force_encoding('ISO-8859-1')", MAX_VALUE_BYTES - 1);
    assert_eq!(error(&host, &latin).await, too_large(2 * (MAX_VALUE_BYTES as u64 - 1)));
    assert!(!too_large(1).is_state_lost());
}

#[tokio::test]
async fn output_beyond_the_limit_is_counted_and_the_code_continues() {
    let host = host();
    let answer =
        answer(&host, &format!("print 'x' * {MAX_OUTPUT_BYTES}; print 'y' * 5; system('echo'); 7")).await;
    assert_eq!(answer.outcome, Ok("7".to_owned()));
    assert_eq!(answer.output.omitted_bytes, 6);
    assert!(answer.output.text().ends_with("x\n[… 6 more bytes were printed …]\n"));
    let much = common::answer(&host, "200.times { puts 'z' * 1_000_000 }; 8").await;
    assert_eq!(
        (much.outcome, much.output.omitted_bytes),
        (Ok("8".to_owned()), 200_000_200 - MAX_OUTPUT_BYTES as u64)
    );
}

#[tokio::test]
async fn long_messages_and_backtraces_are_cut() {
    let host = host();
    let whole = raised(&host, &format!("raise 'm' * {MAX_MESSAGE_BYTES}")).await;
    assert_eq!(whole.message.len(), MAX_MESSAGE_BYTES);
    let cut = raised(&host, &format!("raise 'm' * {}", MAX_MESSAGE_BYTES + 7)).await;
    assert!(cut.message.ends_with("m [… 7 bytes cut here …]"), "{}", cut.message.len());
    let deep = raised(&host, "def down(n) = n == 0 ? raise('x') : down(n - 1); down(500)").await;
    assert_eq!(deep.backtrace.len(), MAX_BACKTRACE_LINES);
    let named =
        raised(&host, "Long = Class.new(StandardError); def Long.to_s = 'n' * 1_000_000; raise Long").await;
    assert_eq!(named.class, "SupexRuntime::BridgeServer::Long");
}

#[tokio::test]
async fn a_limited_number_of_calls_waits_and_they_run_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let (host, gate) = (host(), Gate::new(folder.path()));
    let running = tokio::spawn({
        let (host, code) = (host.clone(), gate.code());
        async move { answer(&host, &code).await }
    });
    let entered = gate.entered().await;
    // The first call runs, so the queue is empty. Each call enters the queue when it is first polled.
    let mut waiting = Vec::new();
    for number in 0..MAX_WAITING {
        let host = host.clone();
        let mut call =
            Box::pin(async move { value(&host, &format!("($order ||= []) << {number}; {number}")).await });
        assert!(is_pending(&mut call).await);
        waiting.push(call);
    }
    assert_eq!(error(&host, "1").await, RubyError::TooManyWaiting { limit: MAX_WAITING });
    drop(entered);
    assert_eq!(running.await.unwrap().outcome, Ok("opened".to_owned()));
    // Awaits the last call first: the order of awaiting does not change the order of running.
    let last = waiting.pop().unwrap();
    assert_eq!(last.await, (MAX_WAITING - 1).to_string());
    for (number, call) in waiting.into_iter().enumerate() {
        assert_eq!(call.await, number.to_string());
    }
    assert_eq!(value(&host, "$order == $order.sort").await, "true");
}

#[tokio::test]
async fn without_ruby_the_error_tells_what_to_do() {
    for (program, reason) in
        [("/no/such/ruby", "No such file"), ("no-such-ruby", "No such file"), ("/tmp", "denied")]
    {
        let host = RubyHost::new(RubySettings { program: program.to_owned(), ..settings() });
        for _ in 0..2 {
            let error = error(&host, "1").await;
            assert!(matches!(&error, RubyError::NoRuby { .. }), "{error:?}");
            assert!(error.to_string().contains(program) && error.to_string().contains(reason), "{error}");
            assert!(error.hint().expect("a hint").contains("PARLOR_RUBY"));
        }
        assert!(host.prepare().await.is_err());
        assert!(host.replace_worker().await.is_err());
        host.stop().await;
    }
}

#[tokio::test]
async fn a_program_that_is_not_ruby_fails_to_start() {
    for (program, reason) in [("/bin/true", "status 0"), ("/bin/false", "status 1"), ("/bin/ls", "it said: ")]
    {
        let host = RubyHost::new(RubySettings { program: program.to_owned(), ..settings() });
        let error = error(&host, "1").await;
        assert!(matches!(&error, RubyError::NotStarted { .. }), "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    let nowhere = RubyHost::new(RubySettings { folder: PathBuf::from("/no/such/folder"), ..settings() });
    assert!(error(&nowhere, "1").await.to_string().contains("/no/such/folder"));
}

/// Uses tokio's paused clock, which advances when nothing else happens.
#[tokio::test(start_paused = true)]
async fn waiting_for_a_worker_to_start_has_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let program = script(folder.path(), "exec sleep 1000");
    let error = error(&RubyHost::new(RubySettings { program, ..settings() }), "1").await;
    let limit = format!("not up after {} s", START_LIMIT.as_secs());
    assert!(matches!(&error, RubyError::NotStarted { reason } if reason.contains(&limit)), "{error:?}");
}

#[tokio::test]
async fn a_worker_that_is_killed_before_it_is_up_is_started_again_a_few_times() {
    let folder = tempfile::tempdir().unwrap();
    let program = script(folder.path(), "echo started >> \"${0%/*}/starts\"; kill -9 $$");
    let error = error(&RubyHost::new(RubySettings { program, ..settings() }), "1").await;
    assert!(matches!(&error, RubyError::NotStarted { reason } if reason.contains("signal 9")), "{error:?}");
    let starts = std::fs::read_to_string(folder.path().join("starts")).unwrap();
    assert_eq!(starts.lines().count(), START_TRIES);
}

fn script(folder: &Path, text: &str) -> String {
    let path = folder.join("program");
    write_executable(&path, &format!("#!/bin/sh\n{text}\n"));
    path.display().to_string()
}

#[tokio::test]
async fn stopping_ends_the_worker_and_refuses_later_calls() {
    let host = host();
    let pid: u32 = value(&host, "Process.pid").await.parse().unwrap();
    assert!(process_exists(pid));
    host.stop().await;
    assert!(!process_exists(pid));
    assert_eq!(host.evaluate(snippet("1")).await.outcome, Err(RubyError::Stopped { started: false }));
    host.stop().await;
}

fn process_exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}
