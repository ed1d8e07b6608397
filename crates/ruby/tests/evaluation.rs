//! Tests of the rules in `docs/ruby.md`: what persists, how values are shown, and what exceptions contain.

mod common;

use std::path::Path;

use common::{answer, console, error, file, host, raised, settings, value};
use parlor_ruby::{RubyError, RubyHost, SKETCHUP_VERSION, SUPEX_VERSION};
use parlor_vocab::OutputStream;

const PATH: &str = "/tmp/scripts/t.rb";

#[tokio::test]
async fn values_are_shown_by_to_s() {
    let host = host();
    for (code, shown) in [
        ("1 + 1", "2"),
        ("", ""),
        ("nil", ""),
        ("\"a\"", "a"),
        (":a", "a"),
        ("[1, \"a\", nil]", "[1, \"a\", nil]"),
        ("\"Příliš žluťoučký\"", "Příliš žluťoučký"),
        ("Sketchup.version", "26.0.0"),
        ("Sketchup.active_model.inspect", "nil"),
        ("SupexRuntime::VERSION", "0.2.0"),
        ("__FILE__", "(eval)"),
        ("Class.new { def to_s = 5 }.new.to_s.class", "Integer"),
        ("local_variables", "[]"),
    ] {
        assert_eq!(value(&host, code).await, shown, "{code}");
    }
    assert_eq!(value(&host, "Sketchup.version").await, SKETCHUP_VERSION);
    assert_eq!(value(&host, "SupexRuntime::VERSION").await, SUPEX_VERSION);
    // If `to_s` does not return a string, Ruby uses a default text.
    assert!(value(&host, "Class.new { def to_s = 5 }.new").await.starts_with("#<#<Class:"));
}

#[tokio::test]
async fn snippets_share_all_but_local_variables() {
    let host = host();
    value(&host, "x = 5").await;
    let lost = raised(&host, "x").await;
    assert_eq!(lost.class, "NameError");
    assert!(lost.message.starts_with("undefined local variable or method"), "{}", lost.message);
    assert!(lost.hint.expect("a hint").contains("local variables last for one"));
    value(&host, "$g = 1; K1 = 2; @i = 4; def f1 = 3").await;
    value(&host, "class Thing; end; class ::String; def shout = upcase; end").await;
    assert_eq!(value(&host, "[$g, K1, f1, @i, 'a'.shout]").await, "[1, 2, 3, 4, \"A\"]");
    assert_eq!(value(&host, "self.class").await, "SupexRuntime::BridgeServer");
    assert_eq!(value(&host, "Thing").await, "SupexRuntime::BridgeServer::Thing");
    assert_eq!(value(&host, "Module.nesting").await, "[SupexRuntime::BridgeServer, SupexRuntime]");
    // Methods with the names of the worker's own have no effect on the worker.
    value(&host, "def eval_ruby = raise; def binding = raise; def eval(*) = raise; def puts(*) = raise")
        .await;
    assert_eq!(value(&host, "1").await, "1");
}

#[tokio::test]
async fn files_and_consoles_share_one_top_level() {
    let host = host();
    let path = Path::new(PATH);
    assert_eq!(
        file(&host, path, "x = 5; def f = 6; class Top; end; self").await.outcome,
        Ok("main".to_owned())
    );
    assert_eq!(console(&host, "[x, f, Top]").await.outcome, Ok("[5, 6, Top]".to_owned()));
    assert_eq!(console(&host, "y = 'a'").await.outcome, Ok("\"a\"".to_owned()), "shown by inspect");
    assert_eq!(file(&host, path, "y + x.to_s").await.outcome, Ok("a5".to_owned()));
    assert_eq!(value(&host, "[Top, defined?(x).inspect, f]").await, "[Top, \"nil\", 6]");
    // Methods of snippets are not at the top level; globals are visible everywhere.
    value(&host, "$g = 7; def h = 8").await;
    assert_eq!(console(&host, "[$g, respond_to?(:h, true)]").await.outcome, Ok("[7, false]".to_owned()));
    assert_eq!(console(&host, "local_variables.sort").await.outcome, Ok("[:x, :y]".to_owned()));
}

#[tokio::test]
async fn files_know_their_path() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("beside.rb"), "BESIDE = 1").unwrap();
    let path = folder.path().join("ä b.rb");
    let host = host();
    let answer = file(
        &host,
        &path,
        "require_relative 'beside'; [__FILE__, __dir__, __LINE__, BESIDE, $0 == __FILE__]",
    )
    .await;
    let (path, folder) = (path.display(), folder.path().display());
    assert_eq!(answer.outcome, Ok(format!("[\"{path}\", \"{folder}\", 1, 1, false]")));
}

#[tokio::test]
async fn files_may_begin_with_a_byte_order_mark_and_declare_their_encoding() {
    let host = host();
    let path = Path::new(PATH);
    assert_eq!(file(&host, path, "\u{feff}1 + 1").await.outcome, Ok("2".to_owned()));
    assert_eq!(file(&host, path, b"# encoding: iso-8859-1\n'\xe4'").await.outcome, Ok("ä".to_owned()));
    assert!(matches!(file(&host, path, b"'\xe4").await.outcome, Err(RubyError::Syntax(_))));
}

#[tokio::test]
async fn exceptions_have_class_message_file_line_and_backtrace() {
    let host = host();
    let error = raised(&host, "def deep = raise(ArgumentError, \"a\nb\")\n\ndeep").await;
    assert_eq!((error.class.as_str(), error.message.as_str()), ("ArgumentError", "a\nb"));
    assert_eq!((error.file.as_deref(), error.line), (Some("(eval)"), Some(1)));
    assert_eq!(error.backtrace.len(), 2, "no frames of the worker: {:?}", error.backtrace);
    assert!(error.backtrace[1].starts_with("(eval):4:in"), "{:?}", error.backtrace);
    assert_eq!(error.hint, None);

    let answer = file(&host, Path::new(PATH), "1\n2\nraise 'bad'").await;
    let Err(RubyError::Raised(error)) = answer.outcome else { panic!("{answer:?}") };
    assert_eq!((error.file.as_deref(), error.line, error.message.as_str()), (Some(PATH), Some(3), "bad"));
    assert!(error.backtrace.len() == 1 && error.backtrace[0].starts_with(&format!("{PATH}:3:in ")));

    let answer = console(&host, "puts 1; raise 'e'").await;
    let Err(RubyError::Raised(error)) = answer.outcome else { panic!("{:?}", answer.outcome) };
    assert_eq!((answer.output.text().as_str(), error.file.as_deref()), ("1\n", Some("/tmp/s1/0001.rb")));
    assert_eq!(value(&host, "1").await, "1", "an error does not affect the next call");
}

#[tokio::test]
async fn a_syntax_error_has_its_file_and_line() {
    let host = host();
    let RubyError::Syntax(wrong) = error(&host, "1\ndef broken(").await else { panic!("a syntax error") };
    assert_eq!(
        (wrong.class.as_str(), wrong.file.as_deref(), wrong.line),
        ("SyntaxError", Some("(eval)"), Some(2))
    );
    assert!(wrong.message.starts_with("(eval):2:"), "{}", wrong.message);
    let answer = file(&host, Path::new(PATH), "1\n2\n)").await;
    let Err(RubyError::Syntax(wrong)) = answer.outcome else { panic!("{answer:?}") };
    assert_eq!((wrong.file.as_deref(), wrong.line), (Some(PATH), Some(3)));
    for code in ["break", "next", "redo", "'"] {
        assert!(matches!(error(&host, code).await, RubyError::Syntax(_)), "{code}");
    }
}

#[tokio::test]
async fn a_return_at_the_top_is_unexpected() {
    let host = host();
    assert_eq!(raised(&host, "return 5").await.message, "unexpected return");
    for answer in [file(&host, Path::new(PATH), "return 5").await, console(&host, "return 5").await] {
        let Err(RubyError::Raised(error)) = answer.outcome else { panic!("{answer:?}") };
        assert_eq!((error.class.as_str(), error.message.as_str()), ("LocalJumpError", "unexpected return"));
    }
}

#[tokio::test]
async fn non_standard_exceptions_are_answered_and_keep_the_state() {
    let host = host();
    value(&host, "$kept = Process.pid").await;
    for (code, class) in [
        ("require 'nope_x'", "LoadError"),
        ("exit", "SystemExit"),
        ("exit 3", "SystemExit"),
        ("abort 'bye'", "SystemExit"),
        ("raise Exception", "Exception"),
        ("raise NotImplementedError", "NotImplementedError"),
        ("raise Interrupt", "Interrupt"),
        ("raise SignalException, 'TERM'", "SignalException"),
        ("def again = again; again", "SystemStackError"),
        ("throw :nobody", "UncaughtThrowError"),
        ("raise Class.new(StandardError) { def self.name = 'Fake' }", "#<Class:"),
        ("Thread.exit", "ThreadError"),
        ("Thread.main.kill; sleep", "SystemExit"),
        ("Thread.list.each(&:kill); sleep", "SystemExit"),
        ("Thread.current.kill", "ThreadError"),
        ("Fiber.yield", "FiberError"),
        ("BasicObject.new", "NoMethodError"),
    ] {
        let error = raised(&host, code).await;
        assert!(error.class.starts_with(class), "{code}: {error:?}");
        assert_eq!(value(&host, "$kept == Process.pid").await, "true", "after {code}");
    }
    assert!(raised(&host, "exit").await.hint.is_some());
    assert!(raised(&host, "UI.messagebox('x')").await.hint.expect("a hint").contains("outside of SketchUp"));
    assert!(
        raised(&host, "def again = again; again").await.backtrace.len() <= parlor_ruby::MAX_BACKTRACE_LINES
    );
}

#[tokio::test]
async fn a_value_that_cannot_be_shown_is_an_error() {
    let host = host();
    assert_eq!(raised(&host, "Class.new { def to_s = raise('no text') }.new").await.message, "no text");
    let answer = console(&host, "Class.new { def inspect = raise('no look') }.new").await;
    let Err(RubyError::Raised(error)) = answer.outcome else { panic!("{answer:?}") };
    assert_eq!(error.message, "no look");
}

#[tokio::test]
async fn printed_text_is_in_order_whichever_process_writes_it() {
    let host = host();
    let code = "puts 'out'; warn 'err'; print 'a'; $stderr.print 'b'; STDOUT.puts 'c'; system('echo child; echo grandchild >&2'); p 1; $stderr.puts 2; 7";
    let answer = answer(&host, code).await;
    assert_eq!(answer.outcome, Ok("7".to_owned()));
    assert_eq!(answer.output.text(), "out\nerr\nabc\nchild\ngrandchild\n1\n2\n");
    let streams: Vec<_> =
        answer.output.pieces.iter().map(|piece| (piece.stream, piece.text.as_str())).collect();
    assert_eq!(
        streams,
        [
            (OutputStream::Stdout, "out\n"),
            (OutputStream::Stderr, "err\n"),
            (OutputStream::Stdout, "a"),
            (OutputStream::Stderr, "b"),
            (OutputStream::Stdout, "c\nchild\ngrandchild\n1\n"),
            (OutputStream::Stderr, "2\n"),
        ]
    );
    assert!(common::answer(&host, "1").await.output.is_empty(), "printed text is returned once");
    assert_eq!(common::answer(&host, "print 'ab'; raise 'x'").await.output.text(), "ab");
}

#[tokio::test]
async fn standard_input_is_empty() {
    let host = host();
    assert_eq!(
        value(&host, "[gets, $stdin.read, STDIN.gets, ARGV, `cat`]").await,
        "[nil, \"\", nil, [], \"\"]"
    );
}

#[tokio::test]
async fn texts_of_any_encoding_come_back_as_utf8() {
    let host = host();
    for (code, shown) in [
        ("\"\\xff\"", "\u{fffd}"),
        ("\"a\\xC3\"", "a\u{fffd}"),
        ("\"\\xE4\".dup.force_encoding('ISO-8859-1')", "ä"),
        ("'ä'.encode('UTF-16LE')", "ä"),
        ("'日本'.encode('Shift_JIS')", "日本"),
        ("\"\\xE4\".b", "\u{fffd}"),
        ("'ä'.b", "ä"),
        ("\"x\".dup.force_encoding('UTF-7')", "x"),
        ("\"\\u0000\\n\"", "\0\n"),
    ] {
        assert_eq!(value(&host, code).await, shown, "{code}");
    }
    let error = raised(&host, "raise \"\\xE4\\xff\".dup.force_encoding('ISO-8859-1')").await;
    assert_eq!(error.message, "äÿ");
    assert_eq!(answer(&host, "STDOUT.write(\"\\xff\")").await.output.text(), "\u{fffd}");
    assert_eq!(value(&host, "Encoding.default_external").await, "UTF-8");
}

#[tokio::test]
async fn the_library_named_in_the_environment_is_loaded_and_may_be_broken() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("supex_stdlib.rb");
    let mut settings = settings();
    settings.env.push(("SUPEX_STDLIB_PATH".to_owned(), library.display().to_string()));
    assert_eq!(value(&RubyHost::new(settings.clone()), "1").await, "1", "a missing library is ignored");
    std::fs::write(&library, "HELPER = 42").unwrap();
    assert_eq!(value(&RubyHost::new(settings.clone()), "HELPER").await, "42");
    std::fs::write(&library, "exit 1").unwrap();
    let answer = answer(&RubyHost::new(settings), "1").await;
    assert_eq!(answer.outcome, Ok("1".to_owned()));
    assert!(answer.output.text().contains("cannot be loaded"), "{answer:?}");
}
