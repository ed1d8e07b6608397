//! Plays against a peer that says what the test tells it to.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::transcript::parse;

/// A door whose frames `[name, text]` are pieces of a stream called name.
struct Pieces;

impl Door for Pieces {
    fn join(&self, held: &Value, next: &Value) -> Option<Value> {
        let (held, next) = (held.as_array()?, next.as_array()?);
        let text = |piece: &[Value]| Some(piece.get(1)?.as_str()?.to_owned());
        (held.first()? == next.first()?)
            .then(|| Some(Value::from(vec![held.first()?.clone(), (text(held)? + &text(next)?).into()])))?
    }
}

/// Says its frames one after another, then closes its side.
#[derive(Default)]
struct Scripted {
    says: VecDeque<&'static str>,
    /// Stays silent instead of closing.
    hangs: bool,
    ends_badly: bool,
    heard: Vec<u8>,
    closed: bool,
    passed: Duration,
    begun_again: Vec<String>,
}

impl Peer for Scripted {
    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.heard.extend_from_slice(bytes);
        Ok(())
    }
    async fn close(&mut self) -> Result<(), String> {
        self.closed = true;
        Ok(())
    }
    async fn frame(&mut self) -> Option<Vec<u8>> {
        match self.says.pop_front() {
            Some(frame) => Some(frame.as_bytes().to_vec()),
            None if self.hangs => std::future::pending().await,
            None => None,
        }
    }
    async fn pass(&mut self, time: Duration) -> Result<(), String> {
        self.passed += time;
        Ok(())
    }
    async fn again(&mut self, args: &[String]) -> Result<(), String> {
        self.begun_again = args.to_vec();
        self.says = ["\"again\""].into();
        Ok(())
    }
    async fn finish(&mut self) -> Result<(), String> {
        if self.ends_badly { Err("exit status 9".to_owned()) } else { Ok(()) }
    }
}

fn saying(frames: &[&'static str]) -> Scripted {
    Scripted { says: frames.iter().copied().collect(), ..Scripted::default() }
}

/// Plays `lines` under a paused clock, where waiting in vain takes no time.
fn play_with(lines: &str, peer: &mut Scripted, golden: Golden) -> Result<Rewrites, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let steps = parse(&format!("# case\n{lines}"), Path::new("/t")).unwrap();
    runtime.block_on(play(&steps, peer, &Pieces, golden))
}

fn passes(lines: &str, frames: &[&'static str]) -> bool {
    play_with(lines, &mut saying(frames), Golden::Check).is_ok()
}

fn flaw(lines: &str, frames: &[&'static str]) -> String {
    play_with(lines, &mut saying(frames), Golden::Check).unwrap_err()
}

#[test]
fn frames_must_come_in_the_order_of_the_lines() {
    assert!(passes("< 1\n< 2\n", &["1", "2"]));
    assert!(!passes("< 1\n< 2\n", &["2", "1"]));
    assert!(!passes("< 1\n< 2\n", &["1"]));
}

#[test]
fn a_failure_tells_line_pattern_and_all_that_arrived() {
    let said = flaw("< 1\n< {\"id\":_}\n", &["1", "\"other\""]);
    for part in ["line 3:", "{\"id\":_}", "this came\n  \"other\"", "all that arrived:\n  1\n  \"other\""] {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
}

#[test]
fn pieces_are_joined_until_they_match() {
    assert!(passes(
        "< [\"a\",\"one two\"]\n< 1\n",
        &[r#"["a","one"]"#, r#"["a"," t"]"#, r#"["a","wo"]"#, "1"]
    ));
    assert!(!passes("< [\"a\",\"one two\"]\n< 1\n", &[r#"["a","one"]"#, "1", r#"["a"," two"]"#]));
    assert!(!passes("< [\"a\",\"one two\"]\n", &[r#"["a","one"]"#, r#"["b"," two"]"#]));
}

#[test]
fn a_set_is_matched_in_any_order_and_completely() {
    for frames in [["1", "2", "3"], ["2", "1", "3"]] {
        assert!(passes("<? 1\n<? 2\n< 3\n", &frames));
    }
    assert!(!passes("<? 1\n<? 2\n< 3\n", &["3", "1", "2"]), "the set comes before what follows it");
    assert!(!passes("<? 1\n<? 2\n", &["1", "1"]), "a line is used once");
    assert!(!passes("<? 1\n<? 2\n", &["1"]));
}

#[test]
fn streams_may_interleave_in_a_set() {
    let lines = "<? [\"a\",\"xyz\"]\n<? [\"b\",\"123\"]\n< 0\n";
    assert!(passes(
        lines,
        &[r#"["a","x"]"#, r#"["b","1"]"#, r#"["a","y"]"#, r#"["b","23"]"#, r#"["a","z"]"#, "0"]
    ));
    assert!(!passes(lines, &[r#"["a","x"]"#, r#"["b","123"]"#, "0", r#"["a","yz"]"#]));
    let said = flaw(lines, &[r#"["a","x"]"#, r#"["b","1"]"#, r#"["c","?"]"#]);
    assert!(said.contains("line 2:") && said.contains("line 3:") && said.contains(r#"["c","?"]"#), "{said}");
}

#[test]
fn a_frame_that_nobody_expected_is_seen_at_the_end() {
    assert!(passes("< 1\n>eof\n<end\n", &["1"]));
    for lines in ["< 1\n>eof\n<end\n", "< 1\n>eof\n", "< 1\n"] {
        assert!(flaw(lines, &["1", "\"extra\""]).contains("extra"), "{lines}");
    }
}

#[test]
fn the_sending_side_is_closed_if_the_transcript_does_not() {
    let mut peer = saying(&[]);
    play_with("> x\n>- y\n", &mut peer, Golden::Check).unwrap();
    assert!(peer.closed);
    assert_eq!(peer.heard, b"x\ny");

    let mut peer = saying(&[]);
    play_with("<end\n", &mut peer, Golden::Check).unwrap();
    assert!(!peer.closed, "with `<end` alone parlor must close by itself");
}

#[test]
fn a_bad_end_fails_at_the_end_and_explains_a_missing_frame() {
    for lines in ["", "< 1\n"] {
        let mut peer = Scripted { ends_badly: true, ..Scripted::default() };
        let said = play_with(lines, &mut peer, Golden::Check).unwrap_err();
        assert!(said.contains("exit status 9"), "{said}");
    }
}

#[test]
fn a_bad_end_can_be_expected() {
    let fails = |lines: &str, ends_badly| {
        play_with(lines, &mut Scripted { ends_badly, ..Scripted::default() }, Golden::Check)
    };
    assert!(fails("<fail status 9\n", true).is_ok());
    assert!(fails("<fail status 8\n", true).is_err());
    assert!(fails("<fail status 9\n", false).is_err());
    assert!(!passes("<fail status 9\n", &["1"]), "a frame is no end");
}

#[test]
fn names_are_spelled_out_in_what_follows() {
    let mut peer = saying(&[r#"{"s":"x-1"}"#]);
    let lines = "< {\"s\":as\"s\"}\n> see {s}, {t}\n~ 60s\n>again --continue {s}\n< \"again\"\n";
    play_with(lines, &mut peer, Golden::Check).unwrap();
    assert_eq!(peer.heard, b"see x-1, {t}\n");
    assert_eq!(peer.passed, Duration::from_secs(60));
    assert_eq!(peer.begun_again, ["--continue", "x-1"]);
    assert!(!passes("< 1\n>again\n< \"again\"\n", &["1", "2"]), "nothing may be left before it");
}

#[test]
fn patience_ends() {
    for lines in ["< 1\n< 2\n", "< 1\n", "< 1\n< [\"a\",\"long\"]\n"] {
        let mut peer = Scripted { says: ["1", r#"["a","lo"]"#].into(), hangs: true, ..Scripted::default() };
        let said = play_with(lines, &mut peer, Golden::Check).unwrap_err();
        assert!(said.contains("all that arrived:\n  1\n"), "{said}");
    }
    let mut silent = Scripted { hangs: true, ..Scripted::default() };
    assert!(play_with("", &mut silent, Golden::Check).unwrap_err().contains("within 20s"));
}

#[test]
fn what_is_no_json_fails() {
    assert!(flaw("< _\n", &["oops"]).contains("oops"));
    assert!(!passes("", &[""]));
}

#[test]
fn golden_writing_takes_what_arrived_and_keeps_what_matched() {
    let text = "< 1\n< 2\n<? [\"a\",\"xy\"]\n<? 5\n< 6\n";
    let frames = ["1", r#"{"b":1,"a":"/t/f"}"#, r#"["a","x"]"#, "5", r#"["a","z"]"#, "6"];
    let rewrites = play_with(text, &mut saying(&frames), Golden::Write).unwrap();
    let rewritten = rewritten(&format!("# case\n{text}"), &rewrites, Path::new("/t"));
    assert_eq!(rewritten, "# case\n< 1\n< {\"b\":1,\"a\":\"{tmp}/f\"}\n<? [\"a\",\"xz\"]\n<? 5\n< 6\n");
    assert!(passes(&rewritten.replace("{tmp}", "/t").replace("# case\n", ""), &frames));
}

#[test]
fn golden_writing_fills_a_whole_set() {
    let rewrites = play_with("<? 1\n<? 2\n<? 3\n< 4\n", &mut saying(&["7", "2", "8", "4"]), Golden::Write);
    assert_eq!(rewrites.unwrap(), Rewrites::from([(2, "7".to_owned()), (4, "8".to_owned())]));
}

#[test]
fn golden_writing_cannot_invent_a_frame() {
    assert!(play_with("< 1\n< 2\n", &mut saying(&["1"]), Golden::Write).is_err());
}
