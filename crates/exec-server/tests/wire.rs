//! Plays the transcripts of the exec door on this crate's binary, with arguments that it ignores.

use std::path::Path;

use parlor_testkit::{Exec, Program, play_folder};

#[test]
fn exec_over_stdio() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/transcripts/exec");
    let server = env!("CARGO_BIN_EXE_codex-exec-server");
    play_folder(&folder, &Exec, || Program::start(server, &["--anything", "goes"]));
}
