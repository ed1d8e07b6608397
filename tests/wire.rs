//! Every transcript against the real program, over its real transport.
//!
//! The cases are `tests/transcripts/<door>/*.txt`; `parlor-testkit` tells their format. A door
//! gets one test here, for each transport that it has.

use std::path::{Path, PathBuf};

use parlor_testkit::{Exec, Program, play_folder};

const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

fn transcripts(door: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts").join(door)
}

#[test]
fn exec_over_stdio() {
    play_folder(&transcripts("exec"), &Exec, || Program::start(PARLOR, &["stdio", "exec"]));
}
