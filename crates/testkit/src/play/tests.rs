//! Plays against a peer that sends scripted frames.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::transcript::parse;

/// A door whose frames `[name, text]` are pieces of the stream `name`.
struct Pieces;

impl Door for Pieces {
    fn join(&self, held: &Value, next: &Value) -> Option<Value> {
        let (held, next) = (held.as_array()?, next.as_array()?);
        let text = |piece: &[Value]| Some(piece.get(1)?.as_str()?.to_owned());
        (held.first()? == next.first()?)
            .then(|| Some(Value::from(vec![held.first()?.clone(), (text(held)? + &text(next)?).into()])))?
    }
}

/// A peer that sends its frames one after another and then closes its side.
#[derive(Default)]
struct Scripted {
    frames: VecDeque<&'static str>,
    /// Whether it sends nothing more instead of closing.
    is_silent_at_end: bool,
    fails_at_end: bool,
    sent_bytes: Vec<u8>,
    closed: bool,
    advanced_time: Duration,
    reconnect_args: Vec<String>,
}

impl Peer for Scripted {
    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.sent_bytes.extend_from_slice(bytes);
        Ok(())
    }
    async fn close(&mut self) -> Result<(), String> {
        self.closed = true;
        Ok(())
    }
    async fn frame(&mut self) -> Option<Vec<u8>> {
        match self.frames.pop_front() {
            Some(frame) => Some(frame.as_bytes().to_vec()),
            None if self.is_silent_at_end => std::future::pending().await,
            None => None,
        }
    }
    async fn advance(&mut self, time: Duration) -> Result<(), String> {
        self.advanced_time += time;
        Ok(())
    }
    async fn reconnect(&mut self, args: &[String]) -> Result<(), String> {
        self.reconnect_args = args.to_vec();
        self.frames = ["\"again\""].into();
        Ok(())
    }
    async fn finish(&mut self) -> Result<(), String> {
        if self.fails_at_end { Err("exit status 9".to_owned()) } else { Ok(()) }
    }
}

fn peer_with_frames(frames: &[&'static str]) -> Scripted {
    Scripted { frames: frames.iter().copied().collect(), ..Scripted::default() }
}

/// Plays `lines` with a paused clock, so that timeouts take no real time.
fn play_with(lines: &str, peer: &mut Scripted, golden: Golden) -> Result<Rewrites, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let steps = parse(&format!("# case\n{lines}"), Path::new("/t")).unwrap();
    runtime.block_on(play(&steps, peer, &Pieces, golden))
}

fn passes(lines: &str, frames: &[&'static str]) -> bool {
    play_with(lines, &mut peer_with_frames(frames), Golden::Check).is_ok()
}

fn play_error(lines: &str, frames: &[&'static str]) -> String {
    play_with(lines, &mut peer_with_frames(frames), Golden::Check).unwrap_err()
}

#[test]
fn frames_must_come_in_the_order_of_the_lines() {
    assert!(passes("< 1\n< 2\n", &["1", "2"]));
    assert!(!passes("< 1\n< 2\n", &["2", "1"]));
    assert!(!passes("< 1\n< 2\n", &["1"]));
}

#[test]
fn an_error_shows_the_line_the_pattern_and_all_frames() {
    let error = play_error("< 1\n< {\"id\":_}\n", &["1", "\"other\""]);
    for part in ["line 3:", "{\"id\":_}", "this came\n  \"other\"", "all that arrived:\n  1\n  \"other\""] {
        assert!(error.contains(part), "{part:?} is not in: {error}");
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
    assert!(!passes("<? 1\n<? 2\n< 3\n", &["3", "1", "2"]), "the set comes before the next line");
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
    let error = play_error(lines, &[r#"["a","x"]"#, r#"["b","1"]"#, r#"["c","?"]"#]);
    assert!(
        error.contains("line 2:") && error.contains("line 3:") && error.contains(r#"["c","?"]"#),
        "{error}"
    );
}

#[test]
fn an_unexpected_frame_fails_at_the_end() {
    assert!(passes("< 1\n>eof\n<end\n", &["1"]));
    for lines in ["< 1\n>eof\n<end\n", "< 1\n>eof\n", "< 1\n"] {
        assert!(play_error(lines, &["1", "\"extra\""]).contains("extra"), "{lines}");
    }
}

#[test]
fn the_runner_closes_the_sending_side_if_the_transcript_does_not() {
    let mut peer = peer_with_frames(&[]);
    play_with("> x\n>- y\n", &mut peer, Golden::Check).unwrap();
    assert!(peer.closed);
    assert_eq!(peer.sent_bytes, b"x\ny");

    let mut peer = peer_with_frames(&[]);
    play_with("<end\n", &mut peer, Golden::Check).unwrap();
    assert!(!peer.closed, "with `<end` alone parlor must close by itself");
}

#[test]
fn a_failed_exit_fails_the_case_and_explains_a_missing_frame() {
    for lines in ["", "< 1\n"] {
        let mut peer = Scripted { fails_at_end: true, ..Scripted::default() };
        let error = play_with(lines, &mut peer, Golden::Check).unwrap_err();
        assert!(error.contains("exit status 9"), "{error}");
    }
}

#[test]
fn a_failed_exit_can_be_expected() {
    let fails = |lines: &str, fails_at_end| {
        play_with(lines, &mut Scripted { fails_at_end, ..Scripted::default() }, Golden::Check)
    };
    assert!(fails("<fail status 9\n", true).is_ok());
    assert!(fails("<fail status 8\n", true).is_err());
    assert!(fails("<fail status 9\n", false).is_err());
    assert!(!passes("<fail status 9\n", &["1"]), "a frame is not an end");
}

#[test]
fn names_are_replaced_in_later_lines() {
    let mut peer = peer_with_frames(&[r#"{"s":"x-1"}"#]);
    let lines = "< {\"s\":as\"s\"}\n> see {s}, {t}\n~ 60s\n>again --continue {s}\n< \"again\"\n";
    play_with(lines, &mut peer, Golden::Check).unwrap();
    assert_eq!(peer.sent_bytes, b"see x-1, {t}\n");
    assert_eq!(peer.advanced_time, Duration::from_secs(60));
    assert_eq!(peer.reconnect_args, ["--continue", "x-1"]);
    assert!(!passes("< 1\n>again\n< \"again\"\n", &["1", "2"]), "no frame may be left before it");
}

#[test]
fn a_silent_peer_times_out() {
    for lines in ["< 1\n< 2\n", "< 1\n", "< 1\n< [\"a\",\"long\"]\n"] {
        let mut peer =
            Scripted { frames: ["1", r#"["a","lo"]"#].into(), is_silent_at_end: true, ..Scripted::default() };
        let error = play_with(lines, &mut peer, Golden::Check).unwrap_err();
        assert!(error.contains("all that arrived:\n  1\n"), "{error}");
    }
    let mut silent = Scripted { is_silent_at_end: true, ..Scripted::default() };
    assert!(play_with("", &mut silent, Golden::Check).unwrap_err().contains("within 20s"));
}

#[test]
fn a_frame_that_is_not_json_fails() {
    assert!(play_error("< _\n", &["oops"]).contains("oops"));
    assert!(!passes("", &[""]));
}

#[test]
fn rewriting_replaces_only_lines_that_did_not_match() {
    let text = "< 1\n< 2\n<? [\"a\",\"xy\"]\n<? 5\n< 6\n";
    let frames = ["1", r#"{"b":1,"a":"/t/f"}"#, r#"["a","x"]"#, "5", r#"["a","z"]"#, "6"];
    let rewrites = play_with(text, &mut peer_with_frames(&frames), Golden::Write).unwrap();
    let rewritten = rewritten(&format!("# case\n{text}"), &rewrites, Path::new("/t"));
    assert_eq!(rewritten, "# case\n< 1\n< {\"b\":1,\"a\":\"{tmp}/f\"}\n<? [\"a\",\"xz\"]\n<? 5\n< 6\n");
    assert!(passes(&rewritten.replace("{tmp}", "/t").replace("# case\n", ""), &frames));
}

#[test]
fn rewriting_fills_a_whole_set() {
    let rewrites =
        play_with("<? 1\n<? 2\n<? 3\n< 4\n", &mut peer_with_frames(&["7", "2", "8", "4"]), Golden::Write);
    assert_eq!(rewrites.unwrap(), Rewrites::from([(2, "7".to_owned()), (4, "8".to_owned())]));
}

#[test]
fn rewriting_fails_without_a_frame() {
    assert!(play_with("< 1\n< 2\n", &mut peer_with_frames(&["1"]), Golden::Write).is_err());
}
