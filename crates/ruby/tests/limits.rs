//! What is too much is refused or cut, with the number; and what is missing is named.

mod common;

use std::path::{Path, PathBuf};

use common::{Gate, answer, error, file, host, raised, settings, snippet, value, waits};
use parlor_ruby::{
    MAX_BACKTRACE_LINES, MAX_CODE_BYTES, MAX_MESSAGE_BYTES, MAX_OUTPUT_BYTES, MAX_VALUE_BYTES, MAX_WAITING,
    RubyError, RubyHost, RubySettings, START_LIMIT, START_TRIES,
};
use parlor_testkit::write_executable;

#[tokio::test]
async fn the_longest_code_runs_and_one_byte_more_does_not() {
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
async fn the_longest_value_is_given_and_one_byte_more_is_not() {
    let host = host();
    assert_eq!(value(&host, &format!("'x' * {MAX_VALUE_BYTES}")).await.len(), MAX_VALUE_BYTES);
    let too_large = |bytes| RubyError::ValueTooLarge { bytes, limit: MAX_VALUE_BYTES };
    let just = MAX_VALUE_BYTES as u64 + 1;
    assert_eq!(error(&host, &format!("'x' * {just}")).await, too_large(just));
    assert_eq!(error(&host, "'x' * 12_000_000").await, too_large(12_000_000));
    // Letters that grow when they become UTF-8 count as what they become.
    let latin = format!("(\"\\xE4\" * {}).force_encoding('ISO-8859-1')", MAX_VALUE_BYTES - 1);
    assert_eq!(error(&host, &latin).await, too_large(2 * (MAX_VALUE_BYTES as u64 - 1)));
    assert!(!too_large(1).lost_state());
}

#[tokio::test]
async fn more_output_than_is_kept_is_counted_and_the_code_goes_on() {
    let host = host();
    let answer =
        answer(&host, &format!("print 'x' * {MAX_OUTPUT_BYTES}; print 'y' * 5; system('echo'); 7")).await;
    assert_eq!(answer.outcome, Ok("7".to_owned()));
    assert_eq!(answer.output.cut, 6);
    assert!(answer.output.text().ends_with("x\n[… 6 more bytes were printed …]\n"));
    let much = common::answer(&host, "200.times { puts 'z' * 1_000_000 }; 8").await;
    assert_eq!((much.outcome, much.output.cut), (Ok("8".to_owned()), 200_000_200 - MAX_OUTPUT_BYTES as u64));
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
async fn only_so_many_calls_wait_and_they_are_served_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let (host, gate) = (host(), Gate::new(folder.path()));
    let running = tokio::spawn({
        let (host, code) = (host.clone(), gate.code());
        async move { answer(&host, &code).await }
    });
    let entered = gate.entered().await;
    // The lane has taken the first, so all places are free. Each call is put into its place before it
    // waits for anything.
    let mut waiting = Vec::new();
    for number in 0..MAX_WAITING {
        let host = host.clone();
        let mut call =
            Box::pin(async move { value(&host, &format!("($order ||= []) << {number}; {number}")).await });
        assert!(waits(&mut call).await);
        waiting.push(call);
    }
    assert_eq!(error(&host, "1").await, RubyError::TooManyWaiting { limit: MAX_WAITING });
    drop(entered);
    assert_eq!(running.await.unwrap().outcome, Ok("opened".to_owned()));
    // The last one first: asking does not change the order.
    let last = waiting.pop().unwrap();
    assert_eq!(last.await, (MAX_WAITING - 1).to_string());
    for (number, call) in waiting.into_iter().enumerate() {
        assert_eq!(call.await, number.to_string());
    }
    assert_eq!(value(&host, "$order == $order.sort").await, "true");
}

#[tokio::test]
async fn a_machine_without_ruby_is_told_what_to_do() {
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
async fn what_is_no_ruby_does_not_become_a_worker() {
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

/// Time is invented: it passes when nothing else happens.
#[tokio::test(start_paused = true)]
async fn a_worker_that_does_not_come_up_is_not_waited_for_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let program = script(folder.path(), "exec sleep 1000");
    let error = error(&RubyHost::new(RubySettings { program, ..settings() }), "1").await;
    let limit = format!("not up after {} s", START_LIMIT.as_secs());
    assert!(matches!(&error, RubyError::NotStarted { reason } if reason.contains(&limit)), "{error:?}");
}

#[tokio::test]
async fn a_worker_that_is_killed_before_it_is_up_is_started_a_few_times() {
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
async fn nothing_runs_before_the_first_call_and_nothing_after_the_end() {
    let host = host();
    let pid: u32 = value(&host, "Process.pid").await.parse().unwrap();
    assert!(is_there(pid));
    host.stop().await;
    assert!(!is_there(pid));
    assert_eq!(host.evaluate(snippet("1")).await.outcome, Err(RubyError::Stopped));
    host.stop().await;
}

fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}
