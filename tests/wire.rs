//! Every transcript against the real program, over its real transport.
//!
//! The cases are `tests/transcripts/<door>/*.txt`; `parlor-testkit` tells their format. A door
//! gets one test here, for each transport that it has.

use std::path::{Path, PathBuf};

use parlor_testkit::{Case, Exec, Launch, Loaf, PlayedIn, Program, Synaps, play_cases, play_folder};

const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

fn transcripts(door: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts").join(door)
}

#[test]
fn exec_over_stdio() {
    play_folder(&transcripts("exec"), &Exec, || Program::start(PARLOR, &["stdio", "exec"]));
}

#[test]
fn synaps_over_stdio() {
    play_cases(&transcripts("synaps"), &Synaps, PlayedIn::Wire, |case| {
        at_home(Launch::new(PARLOR, &["stdio", "synaps"]), case).start()
    });
}

#[test]
fn synaps_under_its_own_name() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("synaps");
    std::os::unix::fs::symlink(PARLOR, &link).unwrap();
    play_cases(&transcripts("synaps"), &Synaps, PlayedIn::Wire, |case| {
        at_home(Launch::new(&link, &["rpc"]), case).start()
    });
}

#[test]
fn loaf_over_stdio() {
    play_cases(&transcripts("loaf"), &Loaf, PlayedIn::Wire, |case| {
        at_their_home(Launch::new(PARLOR, &["stdio", "loaf"]), case).start()
    });
}

#[test]
fn loaf_under_its_own_name() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("loaf");
    std::os::unix::fs::symlink(PARLOR, &link).unwrap();
    play_cases(&transcripts("loaf"), &Loaf, PlayedIn::Wire, |case| {
        at_their_home(Launch::new(&link, &["rpc"]), case).start()
    });
}

/// The same, with a user who has nothing: no skills, no keys, no screen.
fn at_their_home(launch: Launch, case: &Case) -> Launch {
    let ours = ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY", "DISPLAY"];
    let launch = ours.into_iter().fold(launch, |launch, name| launch.env(name, None::<&str>));
    at_home(launch.env("HOME", Some(&case.tmp)), case)
}

/// `launch` in the case's own surroundings, with none of ours.
fn at_home(launch: Launch, case: &Case) -> Launch {
    let launch = launch.args(&case.args).folder(&case.tmp).env("PARLOR_HOME", Some(&case.home));
    let launch = ["SYNAPS_BASE_DIR", "SYNAPS_PROFILE"]
        .into_iter()
        .fold(launch, |launch, name| launch.env(name, None::<&str>));
    case.env.iter().fold(launch, |launch, (name, value)| launch.env(name, value.as_ref()))
}
