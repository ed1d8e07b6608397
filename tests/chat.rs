//! `parlor chat`, `parlor sessions` and `parlor replay`, as they are used from a shell.
#![expect(clippy::disallowed_methods, reason = "these tests start the program as a shell would")]
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

const PARLOR: &str = env!("CARGO_BIN_EXE_parlor");

/// A state folder of its own.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PARLOR);
        command.args(args).env("PARLOR_HOME", self.0.path().join("state")).current_dir(self.0.path());
        command.stdin(Stdio::null()).env("SOME_API_KEY", "s3cret");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn prints(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The id of the session that was used last.
    fn last_session(&self) -> String {
        let list = self.prints(&["sessions"]);
        list.lines().nth(1).unwrap().split_whitespace().next().unwrap().to_owned()
    }

    /// Starts a run and waits until it has said something.
    fn start_waiting(&self, text: &str) -> Child {
        let mut child = self.command(&["chat", text]).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        assert!(!said.fill_buf().unwrap().is_empty());
        child.stdout = Some(said.into_inner());
        child
    }
}

#[test]
fn a_message_is_answered_once_on_stdout() {
    let home = Home::new();
    assert_eq!(home.prints(&["chat", "/say hello there"]), "hello there\n");
    assert_eq!(home.prints(&["chat", "!echo $((6 * 7)); pwd"]).lines().next(), Some("42"));
}

#[test]
fn the_exit_status_says_how_the_run_ended() {
    let home = Home::new();
    let failed = home.run(&["chat", "/fail out of luck"]);
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(String::from_utf8(failed.stderr).unwrap(), "failed: out of luck (FAILED)\n");
    assert!(failed.stdout.is_empty());

    let child = home.start_waiting("/wait 60");
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let stopped = child.wait_with_output().unwrap();
    assert_eq!(stopped.status.code(), Some(130));
}

#[test]
fn text_from_a_pipe_is_a_message() {
    let home = Home::new();
    let mut command = home.command(&["chat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"/say piped").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "piped\n");
}

#[test]
fn commands_do_not_see_what_looks_like_a_secret() {
    let home = Home::new();
    let seen = home.prints(&["chat", "!env"]);
    assert!(seen.contains("PATH=") && !seen.contains("s3cret"), "{seen}");
}

#[test]
fn a_session_goes_on_and_can_be_replayed() {
    let home = Home::new();
    assert!(home.prints(&["sessions"]).starts_with("No sessions yet."));
    home.prints(&["chat", "/say first"]);
    let session = home.last_session();
    home.prints(&["chat", "--session", &session, "/say second"]);
    assert_eq!(home.last_session(), session);
    let replay = home.prints(&["replay", &session]);
    let messages: Vec<&str> = replay.lines().filter_map(|line| line.split("message: ").nth(1)).collect();
    assert_eq!(messages, ["first", "second"]);
    let from = home.prints(&["replay", &session, "--from", "3"]);
    assert_eq!(replay.lines().skip(2).collect::<Vec<_>>(), from.lines().collect::<Vec<_>>());

    let unknown = home.run(&["replay", "nowhere"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8(unknown.stderr).unwrap().contains("parlor sessions"));
}

#[test]
fn a_session_is_used_by_one_process_at_a_time() {
    let home = Home::new();
    let mut child = home.start_waiting("/wait 60");
    let session = home.last_session();
    let refused = home.run(&["chat", "--session", &session, "/say hi"]);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains(&format!("in use by process {}", child.id())), "{said}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_run_that_was_cut_off_is_ended_at_the_next_start() {
    let home = Home::new();
    let mut child = home.start_waiting("/wait 60");
    child.kill().unwrap();
    child.wait().unwrap();
    let session = home.last_session();
    assert_eq!(home.prints(&["chat", "--session", &session, "/say again"]), "again\n");
    let replay = home.prints(&["replay", &session]);
    let ends: Vec<&str> = replay
        .lines()
        .filter(|line| line.contains("failed, RUN_INTERRUPTED") || line.contains("completed after"))
        .collect();
    assert_eq!(ends.len(), 2, "{replay}");
    assert!(ends[0].contains("RUN_INTERRUPTED"), "{replay}");
}

#[test]
fn settings_that_are_wrong_say_where_and_what() {
    let home = Home::new();
    let state = home.0.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::write(state.join("parlor.toml"), "default_agent = \"demo\"\n").unwrap();
    let said = String::from_utf8(home.run(&["chat", "hi"]).stderr).unwrap();
    assert!(said.contains("default_agent is \"demo\", which is not configured; there are: local"), "{said}");

    let script = "[otherwise]\nsteps = [ { say = \"from the script\" } ]\n";
    std::fs::write(state.join("demo.toml"), script).unwrap();
    let settings =
        "default_agent = \"demo\"\n[agents.demo]\nname = \"Demo\"\nkind = \"script\"\nfile = \"demo.toml\"\n";
    std::fs::write(state.join("parlor.toml"), settings).unwrap();
    assert_eq!(home.prints(&["chat", "hi"]), "from the script\n");
    assert_eq!(home.prints(&["chat", "--agent", "local", "/say mine"]), "mine\n");
}
