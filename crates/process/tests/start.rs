//! How processes start: their streams, environment and descriptors; and why a start fails.

mod common;

use common::{TestProcess, run, script, terminal};
use parlor_process::SpawnError;
use parlor_testkit::write_executable;
use parlor_vocab::{ProcessExit, StartProcess};
use rustix::io::Errno;

#[tokio::test]
async fn stdout_and_stderr_are_separate_streams() {
    let (test, ending) = run(&script("echo out; echo err >&2; exit 3")).await;
    assert_eq!(ending, ProcessExit::Code(3));
    assert_eq!((&test.stdout[..], &test.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
}

#[tokio::test]
async fn the_environment_is_exactly_the_given_one() {
    for mut start in [script(""), terminal("")] {
        start.program = "/usr/bin/env".to_owned();
        start.args = Vec::new();
        start.env = vec![("A".to_owned(), "b".to_owned())];
        let (test, _) = run(&start).await;
        assert_eq!(test.shown().trim_end(), "A=b");
    }
}

#[tokio::test]
async fn argument_0_can_differ_from_the_program() {
    for start in [script("echo $0"), terminal("echo $0")] {
        let start = StartProcess { arg0: Some("other".to_owned()), ..start };
        let (test, _) = run(&start).await;
        assert_eq!(test.shown().trim_end(), "other");
    }
}

#[tokio::test]
async fn standard_input_on_pipes_is_at_its_end() {
    let (test, ending) = run(&script("cat; echo end")).await;
    assert_eq!((test.shown().as_str(), ending), ("end\n", ProcessExit::Code(0)));
}

#[tokio::test]
async fn a_process_leads_its_own_session_and_group() {
    let (test, _) =
        run(&script("echo pid=$$; ps -o pgid= -o sid= -p $$ | { read g s; echo pgid=$g sid=$s; }")).await;
    assert_eq!(test.number("pgid"), test.number("pid"));
    assert_eq!(test.number("sid"), test.number("pid"));
}

#[tokio::test]
async fn only_the_three_standard_descriptors_are_inherited() {
    // This file is open without close-on-exec, as a careless parent might leave one.
    let leaked = tempfile::NamedTempFile::with_prefix("left-open").unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let (test, _) = run(&script("readlink /proc/$$/fd/*; echo end")).await;
    let open = test.shown();
    assert!(open.contains("pipe:") && open.contains("end"), "{open}");
    assert!(!open.contains("left-open"), "{open}");
}

#[tokio::test]
async fn the_program_is_looked_up_in_the_given_path() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("tool");
    // Without an interpreter line, the shell runs it, as on a command line.
    write_executable(&program, "echo \"$1\"");
    let path = format!("/nonexistent:{}:/usr/bin", folder.path().display());
    let mut start = script("");
    start.program = "tool".to_owned();
    start.args = vec!["found".to_owned()];
    start.env = vec![("PATH".to_owned(), path)];
    assert_eq!(run(&start).await.0.shown(), "found\n");

    start.env.clear();
    assert!(matches!(spawn_error(&start), SpawnError::Program { errno: Errno::NOENT, .. }));
    start.program = "true".to_owned();
    assert_eq!(run(&start).await.1, ProcessExit::Code(0), "without a PATH the system's folders are searched");
}

#[tokio::test]
async fn a_failed_start_reports_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "no program").unwrap();
    for base in [script(""), terminal("")] {
        let with = |program: &str| StartProcess { program: program.to_owned(), ..base.clone() };
        let inside = |folder: &str| StartProcess { folder: folder.into(), ..base.clone() };

        assert!(matches!(spawn_error(&with("/no/such")), SpawnError::Program { errno: Errno::NOENT, .. }));
        assert!(matches!(spawn_error(&with("")), SpawnError::Program { errno: Errno::NOENT, .. }));
        assert!(matches!(
            spawn_error(&with(plain.to_str().unwrap())),
            SpawnError::Program { errno: Errno::ACCESS, .. }
        ));
        assert!(matches!(spawn_error(&with("/bin")), SpawnError::Program { errno: Errno::ACCESS, .. }));
        assert!(matches!(spawn_error(&with("a\0b")), SpawnError::NulByte(_)));
        assert!(matches!(spawn_error(&inside("/no/such")), SpawnError::Folder { errno: Errno::NOENT, .. }));
        assert!(matches!(
            spawn_error(&inside(plain.to_str().unwrap())),
            SpawnError::Folder { errno: Errno::NOTDIR, .. }
        ));
        assert!(matches!(spawn_error(&inside("relative")), SpawnError::RelativeFolder(_)));
    }
    let many = StartProcess { args: vec![String::new(); 1_000_000], ..script("") };
    assert!(matches!(spawn_error(&many), SpawnError::Program { errno: Errno::TOOBIG, .. }));
    let text = spawn_error(&StartProcess { program: "/no/such".to_owned(), ..script("") }).to_string();
    assert_eq!(text, "cannot run \"/no/such\": No such file or directory (os error 2)");
}

fn spawn_error(start: &StartProcess) -> SpawnError {
    match TestProcess::start(start) {
        Ok(_) => panic!("{start:?} started"),
        Err(error) => error,
    }
}
