//! Parlor beside the programs whose place it takes: the same scripts, frame by frame.
//!
//! `make peers` installs the peers and plays everything. `script.rs` has what is said, `transcript.rs`
//! adds what the door's transcripts say, `run.rs` says
//! it to a program, `plain.rs` takes out of the frames what differs from run to run, and
//! `differences.rs` lists what is meant to differ, each with its reason. Another difference fails, and
//! so does a listed one that is gone.

mod differences;
mod plain;
mod run;
mod script;
mod transcript;

use differences::{DIFFERENCES, Difference};
use run::Program;
use script::{SCRIPTS, Script};

/// What only one of two programs said, between what both said.
fn difference<'a>(parlor: &'a [String], peer: &'a [String]) -> (&'a [String], &'a [String]) {
    let same = parlor.iter().zip(peer).take_while(|(a, b)| a == b).count();
    let (parlor, peer) = (&parlor[same..], &peer[same..]);
    let same = parlor.iter().rev().zip(peer.iter().rev()).take_while(|(a, b)| a == b).count();
    (&parlor[..parlor.len() - same], &peer[..peer.len() - same])
}

/// What is wrong with how `script` went, if anything is.
fn judge(script: &Script, listed: Option<&Difference>, parlor: &[String], peer: &[String]) -> Option<String> {
    let (parlor, peer) = difference(parlor, peer);
    let show = |lines: &[String]| lines.iter().map(|line| format!("      {line}\n")).collect::<String>();
    let found = format!("    parlor\n{}    peer\n{}", show(parlor), show(peer));
    match listed {
        None if parlor.is_empty() && peer.is_empty() => None,
        None => Some(format!("{}: they differ, and it is not listed\n{found}", script.name)),
        Some(_) if parlor.is_empty() && peer.is_empty() => {
            Some(format!("{}: a difference is listed, and there is none", script.name))
        }
        Some(listed) if parlor == listed.parlor && peer == listed.peer => None,
        Some(_) => Some(format!("{}: they differ in another way than listed\n{found}", script.name)),
    }
}

#[tokio::test]
#[ignore = "needs the peers: make peers"]
async fn synaps_is_answered_as_its_peer_answers() {
    let peer = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/bin/synaps");
    assert!(std::path::Path::new(peer).exists(), "run scripts/peers.sh first");
    let mut wrong = Vec::new();
    let transcripts = transcript::scripts();
    for script in SCRIPTS.iter().chain(&transcripts) {
        let parlor = run::play(script, Program::Parlor, env!("CARGO_BIN_EXE_parlor")).await;
        let peer = run::play(script, Program::Peer, peer).await;
        let listed = DIFFERENCES.iter().find(|difference| difference.script == script.name);
        match judge(script, listed, &parlor, &peer) {
            Some(flaw) => wrong.push(flaw),
            None => {
                eprintln!("{} {}", if listed.is_some() { "differs as listed:" } else { "same:" }, script.name)
            }
        }
    }
    let listed =
        DIFFERENCES.iter().filter(|listed| !SCRIPTS.iter().any(|script| script.name == listed.script));
    wrong.extend(listed.map(|listed| format!("{}: listed, and there is no such script", listed.script)));
    assert!(
        wrong.is_empty(),
        "{} of {} scripts:\n{}",
        wrong.len(),
        SCRIPTS.len() + transcripts.len(),
        wrong.join("\n")
    );
}

#[test]
fn every_difference_has_a_reason_and_every_script_a_name_of_its_own() {
    for listed in DIFFERENCES {
        assert!(listed.reason.ends_with('.'), "{}", listed.script);
        let twice = DIFFERENCES.iter().filter(|other| other.script == listed.script).count();
        assert_eq!(twice, 1, "{}", listed.script);
    }
    for script in SCRIPTS {
        assert_eq!(SCRIPTS.iter().filter(|other| other.name == script.name).count(), 1, "{}", script.name);
    }
}

#[test]
fn a_difference_is_what_stands_between_what_is_the_same() {
    let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (one, other) = (lines("a b c d"), lines("a x y d"));
    assert_eq!(difference(&one, &other), (&lines("b c")[..], &lines("x y")[..]));
    assert_eq!(difference(&one, &one), (&[][..], &[][..]));
    assert_eq!(difference(&lines("a a"), &lines("a")), (&lines("a")[..], &[][..]));
    let script = &SCRIPTS[0];
    assert!(judge(script, None, &one, &other).is_some());
    assert!(judge(script, None, &one, &one).is_none());
    let listed = Difference { script: script.name, reason: "", parlor: &["b", "c"], peer: &["x", "y"] };
    assert!(judge(script, Some(&listed), &one, &other).is_none());
    assert!(judge(script, Some(&listed), &one, &one).is_some());
    assert!(judge(script, Some(&listed), &other, &one).is_some());
}
