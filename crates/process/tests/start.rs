//! How processes start: what they are given, and why some do not.

mod common;

use common::{Watched, run, script, terminal};
use parlor_process::SpawnError;
use parlor_testkit::write_executable;
use parlor_vocab::{ProcessExit, StartProcess};
use rustix::io::Errno;

#[tokio::test]
async fn the_two_outputs_are_two_streams() {
    let (watched, ending) = run(&script("echo out; echo err >&2; exit 3")).await;
    assert_eq!(ending, ProcessExit::Code(3));
    assert_eq!((&watched.stdout[..], &watched.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
}

#[tokio::test]
async fn the_environment_is_what_was_given_and_nothing_else() {
    for mut start in [script(""), terminal("")] {
        start.program = "/usr/bin/env".to_owned();
        start.args = Vec::new();
        start.env = vec![("A".to_owned(), "b".to_owned())];
        let (watched, _) = run(&start).await;
        assert_eq!(watched.shown().trim_end(), "A=b");
    }
}

#[tokio::test]
async fn the_zeroth_argument_can_be_another_than_the_program() {
    for start in [script("echo $0"), terminal("echo $0")] {
        let start = StartProcess { arg0: Some("other".to_owned()), ..start };
        let (watched, _) = run(&start).await;
        assert_eq!(watched.shown().trim_end(), "other");
    }
}

#[tokio::test]
async fn standard_input_on_pipes_is_at_its_end() {
    let (watched, ending) = run(&script("cat; echo end")).await;
    assert_eq!((watched.shown().as_str(), ending), ("end\n", ProcessExit::Code(0)));
}

#[tokio::test]
async fn a_process_leads_its_own_session_and_group() {
    let (watched, _) =
        run(&script("echo pid=$$; ps -o pgid= -o sid= -p $$ | { read g s; echo pgid=$g sid=$s; }")).await;
    assert_eq!(watched.number("pgid"), watched.number("pid"));
    assert_eq!(watched.number("sid"), watched.number("pid"));
}

#[tokio::test]
async fn only_the_three_standard_descriptors_are_inherited() {
    // This file is opened without close-on-exec, as a careless parent would leave one behind.
    let leaked = tempfile::NamedTempFile::with_prefix("left-open").unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let (watched, _) = run(&script("readlink /proc/$$/fd/*; echo end")).await;
    let open = watched.shown();
    assert!(open.contains("pipe:") && open.contains("end"), "{open}");
    assert!(!open.contains("left-open"), "{open}");
}

#[tokio::test]
async fn the_program_is_looked_up_in_the_path_that_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("tool");
    // No interpreter is named, so the shell takes it, as it would from a command line.
    write_executable(&program, "echo \"$1\"");
    let path = format!("/nonexistent:{}:/usr/bin", folder.path().display());
    let mut start = script("");
    start.program = "tool".to_owned();
    start.args = vec!["found".to_owned()];
    start.env = vec![("PATH".to_owned(), path)];
    assert_eq!(run(&start).await.0.shown(), "found\n");

    start.env.clear();
    assert!(matches!(fails(&start), SpawnError::Program { errno: Errno::NOENT, .. }));
    start.program = "true".to_owned();
    assert_eq!(run(&start).await.1, ProcessExit::Code(0), "without a PATH the system's folders are searched");
}

#[tokio::test]
async fn what_cannot_be_started_says_which_and_why() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "no program").unwrap();
    for base in [script(""), terminal("")] {
        let with = |program: &str| StartProcess { program: program.to_owned(), ..base.clone() };
        let inside = |folder: &str| StartProcess { folder: folder.into(), ..base.clone() };

        assert!(matches!(fails(&with("/no/such")), SpawnError::Program { errno: Errno::NOENT, .. }));
        assert!(matches!(fails(&with("")), SpawnError::Program { errno: Errno::NOENT, .. }));
        assert!(matches!(
            fails(&with(plain.to_str().unwrap())),
            SpawnError::Program { errno: Errno::ACCESS, .. }
        ));
        assert!(matches!(fails(&with("/bin")), SpawnError::Program { errno: Errno::ACCESS, .. }));
        assert!(matches!(fails(&with("a\0b")), SpawnError::NulByte(_)));
        assert!(matches!(fails(&inside("/no/such")), SpawnError::Folder { errno: Errno::NOENT, .. }));
        assert!(matches!(
            fails(&inside(plain.to_str().unwrap())),
            SpawnError::Folder { errno: Errno::NOTDIR, .. }
        ));
        assert!(matches!(fails(&inside("relative")), SpawnError::RelativeFolder(_)));
    }
    let many = StartProcess { args: vec![String::new(); 1_000_000], ..script("") };
    assert!(matches!(fails(&many), SpawnError::Program { errno: Errno::TOOBIG, .. }));
    let said = fails(&StartProcess { program: "/no/such".to_owned(), ..script("") }).to_string();
    assert_eq!(said, "cannot run \"/no/such\": No such file or directory (os error 2)");
}

fn fails(start: &StartProcess) -> SpawnError {
    match Watched::start(start) {
        Ok(_) => panic!("{start:?} started"),
        Err(error) => error,
    }
}
