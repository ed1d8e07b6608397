//! Tests with hostile code: every call is answered, and the next one works.

mod common;

use std::path::Path;

use common::{Gate, answer, error, file, host, raised, settings, short_limit_host, value};
use parlor_ruby::{RubyError, RubyHost, RubySettings};
use tokio::task::JoinSet;

#[tokio::test]
async fn standard_streams_can_be_closed_and_redirected() {
    let host = host();
    for code in [
        "STDOUT.close; STDERR.close; STDIN.close; 1",
        "$stdout.close; $stderr.close; 1",
        "$stdout.reopen('/dev/null'); $stderr.reopen(File::NULL, 'w'); 1",
        "begin; $stdout = nil; rescue TypeError; 1; end",
        "STDOUT.sync = false; STDOUT.write('late'); 1",
        "IO.for_fd(1).close; IO.for_fd(2).close; 1",
        "(3..60).each { |fd| IO.for_fd(fd, autoclose: false) rescue nil }; 1",
    ] {
        assert_eq!(value(&host, code).await, "1", "{code}");
        assert_eq!(value(&host, "1 + 1").await, "2", "after {code}");
        host.replace_worker().await.unwrap();
    }
    value(&host, "$stdout.close; STDERR.close").await;
    let answer = answer(&host, "puts 'again'; $stderr.puts 'too'; 3").await;
    assert_eq!((answer.output.text().as_str(), answer.outcome), ("again\ntoo\n", Ok("3".to_owned())));
}

#[tokio::test]
async fn a_worker_whose_pipes_are_broken_is_replaced() {
    let host = host();
    for code in [
        "ObjectSpace.each_object(IO) { |io| io.close rescue nil }; 1",
        "ObjectSpace.each_object(IO) { |io| io.write('nonsense' * 100) rescue nil }; 1",
        "ObjectSpace.each_object(BasicSocket) { |io| io.shutdown }; 1",
        "class ::IO; def write(*) = raise('no'); def read(*) = raise('no'); end; 1",
        "class ::BasicObject; def ==(*) = raise('no'); def !=(*) = raise; end; class ::Array; def map = raise; def pack(*) = raise; end; 1",
    ] {
        let outcome = answer(&host, code).await.outcome;
        let is_lost = matches!(outcome, Err(RubyError::WorkerLost { .. }));
        assert!(is_lost || outcome == Ok("1".to_owned()), "{code}: {outcome:?}");
        // If the worker could still answer, the next call may find it broken.
        let _ = answer(&host, "1").await;
        assert_eq!(value(&host, "1 + 1").await, "2", "after {code}");
    }
}

#[tokio::test]
async fn a_forged_reply_affects_only_the_call_that_forged_it() {
    let host = host();
    let forged = "[1, 2, 5, 2, 'value', 'hm'].pack('N4a*a*')";
    let code = format!("ObjectSpace.each_object(IO) {{ |io| io.syswrite({forged}) rescue nil }}; 1");
    assert_eq!(value(&host, &code).await, "hm");
    for number in ["2", "3", "4"] {
        assert_eq!(value(&host, number).await, number);
    }
}

#[tokio::test]
async fn methods_of_all_objects_can_be_redefined() {
    let host = host();
    let code = "class ::Object
      def inspect = raise('inspect'); def to_s = raise('to_s'); def class = raise('class')
      def send(*) = raise('send'); def nil? = raise('nil?')
      def method_missing(*) = raise('method_missing'); def is_a?(*) = raise('is_a?'); def dup = raise('dup')
      def instance_of?(*) = raise('instance_of?'); def hash = raise('hash'); def eql?(*) = raise('eql?')
      def receive = raise; def answer(*) = raise; def reply(*) = raise; def utf8(*) = raise; def loop = raise
      def exit!(*) = raise; def write(*) = raise; def freeze = raise; def kind_of?(*) = raise
    end; 1";
    assert_eq!(value(&host, code).await, "1");
    assert_eq!(value(&host, "1 + 1").await, "2");
    assert_eq!(raised(&host, "Object.new").await.message, "to_s");
    assert_eq!(raised(&host, "raise ArgumentError, 'x'").await.class, "ArgumentError");
    assert_eq!(answer(&host, "puts 'a'; 1").await.output.text(), "a\n");
    // Ruby itself calls this method before it evaluates anything, so then every call fails.
    let _ = answer(&host, "class ::Object; def respond_to?(*) = raise('mine'); end").await;
    assert_eq!(raised(&host, "1").await.message, "mine");
    host.replace_worker().await.unwrap();
    assert_eq!(value(&host, "1").await, "1");
}

#[tokio::test]
async fn exceptions_and_strings_with_false_methods_are_answered() {
    let host = host();
    let liar = raised(&host, "class Liar < StandardError; def message = raise('again'); def backtrace = 5; def class = nil; end; raise Liar").await;
    assert_eq!(liar.class, "SupexRuntime::BridgeServer::Liar");
    assert!(liar.message.contains("cannot be had"), "{liar:?}");
    assert!(
        raised(&host, "class Number < StandardError; def message = 5; end; raise Number")
            .await
            .message
            .contains('5')
    );
    let text = "class Text < ::String; def encoding = nil; def bytesize = -1; def to_s = self; def encode(*) = nil; def scrub = nil; def to_str = nil; end; Text.new('fine')";
    assert_eq!(value(&host, text).await, "fine");
    let faked = raised(
        &host,
        "e = RuntimeError.new('x'); e.set_backtrace(['/a:b/c.rb:12:in `f\\'', \"\\xff\"]); raise e",
    )
    .await;
    assert_eq!((faked.file.as_deref(), faked.line), (Some("/a:b/c.rb"), Some(12)));
    assert_eq!(faked.backtrace[1], "\u{fffd}");
    let RubyError::Syntax(long) = error(&host, "raise SyntaxError, 'x' * 9_000_000 + ':1:'").await else {
        panic!("a syntax error")
    };
    assert!(long.message.ends_with("bytes cut here …]"));
}

#[tokio::test]
async fn child_processes_do_not_answer_and_do_not_inherit_the_channel() {
    let host = host();
    assert_eq!(value(&host, "$parent = Process.pid; fork; Process.pid == $parent").await, "true");
    assert_eq!(value(&host, "fork; fork; raise 'x' unless Process.pid == $parent; 5").await, "5");
    assert_eq!(value(&host, "pid = fork { exit!(7) }; Process.wait(pid); $?.exitstatus").await, "7");
    assert_eq!(
        answer(&host, "Process.wait(fork { puts 'from a child' })").await.output.text(),
        "from a child\n"
    );
    // A child process has only the standard descriptors, and the one of the folder that it lists.
    assert_eq!(value(&host, "`ls /proc/self/fd`.split").await, "[\"0\", \"1\", \"2\", \"3\"]");
    assert_eq!(value(&host, "$parent == Process.pid").await, "true");
}

#[tokio::test]
async fn the_answer_tells_how_the_worker_ended() {
    let host = host();
    for (code, reason) in [
        ("exit!", "status 1"),
        ("exit!(3)", "status 3"),
        ("Process.kill(:KILL, $$); sleep", "signal 9"),
        ("Process.kill(:TERM, $$); sleep", "signal 15"),
        ("Process.kill(:INT, $$); sleep", "signal 2"),
        ("Process.kill(:SEGV, $$); sleep", "signal 6"),
        ("Process.kill(:KILL, 0); sleep", "signal 9"),
        ("Thread.main.raise('x'); sleep", "status 1"),
        ("Thread.abort_on_exception = true; Thread.new { raise 'x' }; sleep", "status 1"),
        ("exec('true')", "status 0"),
        ("exec('sleep 1000')", "it hung up"),
        ("Process.daemon", "status 0"),
    ] {
        value(&host, "$mark = 1").await;
        let answer = answer(&host, &format!("puts 'begun'; {code}")).await;
        let Err(error @ RubyError::WorkerLost { .. }) = answer.outcome else { panic!("{code}: {answer:?}") };
        assert!(error.to_string().contains(reason), "{code}: {error}");
        assert!(error.is_state_lost() && error.hint().expect("a hint").contains("are lost"), "{code}");
        assert!(answer.output.text().starts_with("begun\n"), "{code}: {:?}", answer.output);
        assert_eq!(value(&host, "$mark.inspect").await, "nil", "after {code}");
    }
}

#[tokio::test]
async fn exit_handlers_and_traps_do_not_prevent_the_time_limit() {
    let host = short_limit_host();
    value(&host, "at_exit { loop {} }; %w[TERM INT HUP].each { |name| trap(name) { loop {} } }").await;
    assert!(matches!(error(&host, "Process.kill(:TERM, $$); loop {}").await, RubyError::TimedOut { .. }));
    assert_eq!(value(&host, "1").await, "1");
}

#[tokio::test]
async fn threads_may_continue_and_raise_exceptions_in_the_evaluating_thread() {
    let host = host();
    // The exception arrives only while code is evaluated; the worker's own loop is protected.
    value(&host, "t = Thread.current; $thrower = Thread.new { t.raise('late') }; $thrower.join rescue 1; 1")
        .await;
    assert_eq!(value(&host, "1").await, "1");
    let code = "t = Thread.current; Thread.handle_interrupt(RuntimeError => :never) { Thread.new { t.raise('late') }.join; 5 }";
    assert_eq!(raised(&host, code).await.message, "late");
    assert_eq!(value(&host, "require 'timeout'; begin; Timeout.timeout(0.01) { sleep }; rescue Timeout::Error => e; e.class; end").await, "Timeout::Error");
    // The same between two calls, while that loop waits for a request.
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::new(folder.path());
    let code =
        format!("$pid = $$; t = Thread.current; Thread.new {{ {0}; t.raise('late'); {0} }}; 1", gate.code());
    value(&host, &code).await;
    drop(gate.entered().await);
    drop(gate.entered().await);
    assert_eq!(raised(&host, "1").await.message, "late");
    assert_eq!(value(&host, "$pid == $$").await, "true");
    // Text that a thread prints after an answer comes with the next answer.
    value(&host, "$go = Queue.new; $went = Queue.new; Thread.new { $go.pop; puts 'later'; $went << 1 }; 1")
        .await;
    assert_eq!(answer(&host, "$go << 1; $went.pop").await.output.text(), "later\n");
}

#[tokio::test]
async fn endless_code_is_stopped_at_the_time_limit() {
    let mut cases = JoinSet::new();
    for code in [
        "loop {}",
        "sleep",
        "Queue.new.pop",
        "begin; sleep; ensure; loop {}; end",
        "loop { begin; loop {}; rescue Exception; end }",
        "Class.new { def to_s = loop {} }.new",
        "class Slow < StandardError; def message = loop {}; end; raise Slow",
        "loop { puts 'x' * 1000 }",
        "system('sleep 1000')",
        "/^(a|a)+\\1$/ =~ 'a' * 60 + 'b'",
    ] {
        cases.spawn(async move {
            let host = short_limit_host();
            value(&host, "$mark = 1").await;
            let error = error(&host, code).await;
            assert!(matches!(error, RubyError::TimedOut { .. }), "{code}: {error:?}");
            assert!(error.to_string().starts_with("execution expired"), "{error}");
            assert!(error.is_state_lost());
            assert_eq!(value(&host, "$mark.inspect").await, "nil", "after {code}");
        });
    }
    while let Some(case) = cases.join_next().await {
        case.unwrap();
    }
}

#[tokio::test]
async fn memory_is_limited() {
    let host = RubyHost::new(RubySettings { memory_limit: 128 << 20, ..settings() });
    assert_eq!(
        value(&host, "('x' * 30_000_000).size").await,
        "30000000",
        "memory below the limit can be used"
    );
    let outcome = answer(&host, "'x' * 200_000_000; 1").await.outcome;
    let is_raised = matches!(&outcome, Err(RubyError::Raised(raised)) if raised.class == "NoMemoryError");
    assert!(is_raised, "{outcome:?}");
    let outcome = answer(&host, "a = []; loop { a << 'y' * 1_000_000 }").await.outcome;
    assert!(matches!(&outcome, Err(RubyError::Raised(_) | RubyError::WorkerLost { .. })), "{outcome:?}");
    assert_eq!(value(&host, "1 + 1").await, "2");
    // Soft and hard limit are the same, so only root could raise them.
    assert_eq!(value(&host, "Process.getrlimit(:DATA).uniq").await, format!("[{}]", 128 << 20));
}

#[tokio::test]
async fn deep_and_wide_values_are_shown_or_refused() {
    let host = host();
    assert!(value(&host, "a = []; a << a; a").await.contains("[...]"));
    assert_eq!(raised(&host, "a = []; 100_000.times { a = [a] }; a").await.class, "SystemStackError");
    let answer =
        file(&host, Path::new("/tmp/t.rb"), format!("x = {}1{}", "(".repeat(5000), ")".repeat(5000))).await;
    assert!(
        answer.outcome.is_ok()
            || matches!(
                answer.outcome,
                Err(RubyError::Syntax(_) | RubyError::Raised(_) | RubyError::WorkerLost { .. })
            )
    );
    assert_eq!(value(&host, "1").await, "1");
}
