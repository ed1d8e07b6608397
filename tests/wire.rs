//! Every transcript against the real program, over its real transport.
//!
//! The cases are `tests/transcripts/<door>/*.txt`; `parlor-testkit` documents their format. Each door has one test here
//! for each way to start it.

mod peer_process;
mod peer_sessions;

use std::path::{Path, PathBuf};

use parlor_testkit::{
    Acp, Case, Exec, Launch, Loaf, Mcp, PeerDialect, PlayedIn, Program, Synaps, play_cases, play_folder,
};

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
        in_home(Launch::new(PARLOR, &["stdio", "synaps"]), case).start()
    });
}

#[test]
fn synaps_under_its_own_name() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("synaps");
    std::os::unix::fs::symlink(PARLOR, &link).unwrap();
    play_cases(&transcripts("synaps"), &Synaps, PlayedIn::Wire, |case| {
        in_home(Launch::new(&link, &["rpc"]), case).start()
    });
}

#[test]
fn loaf_over_stdio() {
    play_cases(&transcripts("loaf"), &Loaf, PlayedIn::Wire, |case| {
        in_user_home(Launch::new(PARLOR, &["stdio", "loaf"]), case).start()
    });
}

#[test]
fn loaf_under_its_own_name() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("loaf");
    std::os::unix::fs::symlink(PARLOR, &link).unwrap();
    play_cases(&transcripts("loaf"), &Loaf, PlayedIn::Wire, |case| {
        in_user_home(Launch::new(&link, &["rpc"]), case).start()
    });
}

#[test]
fn acp_over_stdio() {
    play_cases(&transcripts("acp"), &Acp, PlayedIn::Wire, |case| {
        in_user_home(Launch::new(PARLOR, &["stdio", "acp"]), case).start()
    });
}

#[test]
fn acp_under_its_own_name() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("parlor-acp");
    std::os::unix::fs::symlink(PARLOR, &link).unwrap();
    play_cases(&transcripts("acp"), &Acp, PlayedIn::Wire, |case| {
        in_user_home(Launch::new(&link, &[]), case).start()
    });
}

#[test]
fn mcp_over_stdio() {
    play_cases(&transcripts("mcp"), &Mcp, PlayedIn::Wire, |case| {
        in_user_home(Launch::new(PARLOR, &["stdio", "mcp"]), case).start()
    });
}

#[test]
fn peer_over_its_socket() {
    play_cases(&transcripts("peer"), &PeerDialect, PlayedIn::Wire, |case| {
        peer_process::connect(PARLOR, case)
    });
}

/// The same, for a user without skills, keys or a screen.
fn in_user_home(launch: Launch, case: &Case) -> Launch {
    let removed = ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY", "DISPLAY"];
    let launch = removed.into_iter().fold(launch, |launch, name| launch.env(name, None::<&str>));
    in_home(launch.env("HOME", Some(&case.tmp)), case)
}

/// `launch` with the arguments, folders and variables of the case.
fn in_home(launch: Launch, case: &Case) -> Launch {
    let launch = launch.args(&case.args).folder(&case.tmp).env("PARLOR_HOME", Some(&case.home));
    let launch = ["SYNAPS_BASE_DIR", "SYNAPS_PROFILE"]
        .into_iter()
        .fold(launch, |launch, name| launch.env(name, None::<&str>));
    case.env.iter().fold(launch, |launch, (name, value)| launch.env(name, value.as_ref()))
}
