//! Compares parlor with the programs that it replaces (the peers): both play the same scripts, frame by frame.
//!
//! `make peers` installs the peers and plays everything. `codex.rs` compares the exec door with `codex exec-server`, and
//! `codex_cli.rs` runs the codex CLI with either. The
//! other files compare the synaps door with `synaps`: `script.rs` has the scripts, `transcript.rs` makes scripts of
//! the door's transcripts, `run.rs` plays a script to a program, `normalize.rs` replaces what differs from run to run,
//! and `differences.rs` lists the intended differences, each with its reason. A difference that is not listed fails the
//! test, and so does a listed one that does not occur.

mod codex;
mod codex_cli;
mod differences;
mod normalize;
mod run;
mod script;
mod transcript;

use differences::{DIFFERENCES, Difference};
use run::Program;
use script::{SCRIPTS, Script};

/// The lines of each program between their common beginning and their common end.
fn difference<'a>(parlor: &'a [String], peer: &'a [String]) -> (&'a [String], &'a [String]) {
    let same = parlor.iter().zip(peer).take_while(|(a, b)| a == b).count();
    let (parlor, peer) = (&parlor[same..], &peer[same..]);
    let same = parlor.iter().rev().zip(peer.iter().rev()).take_while(|(a, b)| a == b).count();
    (&parlor[..parlor.len() - same], &peer[..peer.len() - same])
}

/// Compares the two outputs of `script` with the listed difference. Returns a message if something is errors.
fn check(script: &Script, listed: Option<&Difference>, parlor: &[String], peer: &[String]) -> Option<String> {
    let (parlor, peer) = difference(parlor, peer);
    let show = |lines: &[String]| lines.iter().map(|line| format!("      {line}\n")).collect::<String>();
    let report = format!("    parlor\n{}    peer\n{}", show(parlor), show(peer));
    match listed {
        None if parlor.is_empty() && peer.is_empty() => None,
        None => Some(format!("{}: they differ, and it is not listed\n{report}", script.name)),
        Some(_) if parlor.is_empty() && peer.is_empty() => {
            Some(format!("{}: a difference is listed, and there is none", script.name))
        }
        Some(listed) if parlor == listed.parlor && peer == listed.peer => None,
        Some(_) => Some(format!("{}: they differ in another way than listed\n{report}", script.name)),
    }
}

#[tokio::test]
#[ignore = "needs the peers: make peers"]
async fn parlor_answers_scripts_as_the_original_synaps_does() {
    let peer = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/bin/synaps");
    assert!(std::path::Path::new(peer).exists(), "run scripts/peers.sh first");
    let mut errors = Vec::new();
    let transcripts = transcript::scripts();
    for script in SCRIPTS.iter().chain(&transcripts) {
        let parlor = run::play(script, Program::Parlor, env!("CARGO_BIN_EXE_parlor")).await;
        let peer = run::play(script, Program::Peer, peer).await;
        let listed = DIFFERENCES.iter().find(|difference| difference.script == script.name);
        match check(script, listed, &parlor, &peer) {
            Some(error) => errors.push(error),
            None => {
                eprintln!("{} {}", if listed.is_some() { "differs as listed:" } else { "same:" }, script.name)
            }
        }
    }
    let listed =
        DIFFERENCES.iter().filter(|listed| !SCRIPTS.iter().any(|script| script.name == listed.script));
    errors.extend(
        listed
            .map(|listed| format!("{}: a difference is listed, but there is no such script", listed.script)),
    );
    assert!(
        errors.is_empty(),
        "{} of {} scripts:\n{}",
        errors.len(),
        SCRIPTS.len() + transcripts.len(),
        errors.join("\n")
    );
}

#[test]
fn every_difference_has_a_reason_and_every_script_a_unique_name() {
    for listed in DIFFERENCES {
        assert!(listed.reason.ends_with('.'), "{}", listed.script);
        let count = DIFFERENCES.iter().filter(|other| other.script == listed.script).count();
        assert_eq!(count, 1, "{}", listed.script);
    }
    for script in SCRIPTS {
        assert_eq!(SCRIPTS.iter().filter(|other| other.name == script.name).count(), 1, "{}", script.name);
    }
}

#[test]
fn a_difference_is_between_the_common_beginning_and_the_common_end() {
    let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (one, other) = (lines("a b c d"), lines("a x y d"));
    assert_eq!(difference(&one, &other), (&lines("b c")[..], &lines("x y")[..]));
    assert_eq!(difference(&one, &one), (&[][..], &[][..]));
    assert_eq!(difference(&lines("a a"), &lines("a")), (&lines("a")[..], &[][..]));
    let script = &SCRIPTS[0];
    assert!(check(script, None, &one, &other).is_some());
    assert!(check(script, None, &one, &one).is_none());
    let listed = Difference { script: script.name, reason: "", parlor: &["b", "c"], peer: &["x", "y"] };
    assert!(check(script, Some(&listed), &one, &other).is_none());
    assert!(check(script, Some(&listed), &one, &one).is_some());
    assert!(check(script, Some(&listed), &other, &one).is_some());
}
