//! `parlor chat`, `parlor sessions` and `parlor replay` without a terminal, as scripts use them.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

mod home;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use home::Home;

#[test]
fn chat_prints_the_answer_once_on_stdout() {
    let home = Home::new();
    assert_eq!(home.prints(&["chat", "/say hello there"]), "hello there\n");
    assert_eq!(home.prints(&["chat", "!echo $((6 * 7)); pwd"]).lines().next(), Some("42"));
}

#[test]
fn the_exit_status_shows_how_the_run_ended() {
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

/// Clients choose ids, and models and people choose titles. Neither may send control characters to a terminal (also not
/// through a pipe, since a pager may follow) or print a line that looks like another session.
#[test]
fn ids_and_titles_cannot_inject_control_characters_or_lines() {
    let home = Home::new();
    home.prints(&["chat", "/say hello"]);
    let database = rusqlite::Connection::open(home.state().join("parlor.db")).unwrap();
    let id = "mine\u{1b}[2J\u{202e}x\nfake-session\r\u{7}";
    let title = "a\u{1b}]0;t\u{7}b\u{202e}c\nfake  line";
    database.execute("UPDATE sessions SET id = ?1, title = ?2", [id, title]).unwrap();
    drop(database);
    let listed = home.prints(&["sessions"]);
    let replayed = home.prints(&["replay", "mine"]);
    let renamed = home.prints(&["sessions", "rename", "mine", "new\u{202e}\u{1b}[m name"]);
    let chatted = home.command(&["chat", "--session", "mine", "/say again"]).output().unwrap();
    let chatted = String::from_utf8([chatted.stdout, chatted.stderr].concat()).unwrap();
    let deleted = home.prints(&["sessions", "delete", "--yes", "mine"]);
    for text in [&listed, &replayed, &renamed, &chatted, &deleted] {
        let is_control = |letter: char| (letter.is_control() && letter != '\n') || letter == '\u{202e}';
        assert!(!text.contains(is_control), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("fake")), "{text:?}");
    }
    assert_eq!(
        listed.lines().filter(|line| line.contains("chat")).count(),
        2,
        "one session, one hint: {listed}"
    );
    assert!(deleted.starts_with("Deleted session"), "{deleted}");
}

#[test]
fn text_on_stdin_is_sent_as_the_message() {
    let home = Home::new();
    let mut command = home.command(&["chat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"/say piped").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "piped\n");
}

#[test]
fn commands_do_not_get_variables_that_look_like_secrets() {
    let home = Home::new();
    let seen = home.prints(&["chat", "!env"]);
    assert!(seen.contains("PATH=") && !seen.contains("s3cret"), "{seen}");
}

#[test]
fn a_session_can_be_continued_and_replayed() {
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
fn another_process_steers_and_stops_a_run_and_goes_on_in_its_session() {
    let home = Home::new();
    let mut child = home.start_waiting("/wait 60");
    let session = home.last_session();
    home.prints(&["sessions", "rename", &session, "renamed by another process"]);
    assert_eq!(home.json(&["sessions", "--json"])[0]["title"], "renamed by another process");
    home.prints(&["chat", "--session", &session, "--stop"]);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(home.prints(&["chat", "--session", &session, "/say hi"]), "hi\n");
    for arguments in [&["--stop"][..], &["--steer", "hurry"]] {
        let refused = home.run(&[&["chat", "--session", &session], arguments].concat());
        let printed = String::from_utf8(refused.stderr).unwrap();
        assert!(refused.status.code() == Some(1) && printed.contains("no run is active"), "{printed}");
    }
}

#[test]
fn only_one_process_at_a_time_can_use_a_session_if_the_settings_say_so() {
    let home = Home::new();
    home.configure("parlor.toml", "[sessions]\njoin = false\n");
    let mut child = home.start_waiting("/wait 60");
    let session = home.last_session();
    let refused = home.run(&["chat", "--session", &session, "/say hi"]);
    assert_eq!(refused.status.code(), Some(1));
    let printed = String::from_utf8(refused.stderr).unwrap();
    assert!(printed.contains(&format!("in use by process {}", child.id())), "{printed}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_run_that_was_killed_ends_as_interrupted_when_the_session_is_next_opened() {
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
fn sigterm_ends_the_run_as_stopped() {
    let home = Home::new();
    let child = home.start_waiting("/wait 60");
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    let replay = home.prints(&["replay", &home.last_session()]);
    assert!(replay.trim_end().ends_with("stopped: Stopped by user."), "{replay}");
}

#[test]
fn answers_of_a_subagent_are_not_printed() {
    let home = Home::new();
    home.configure(
        "parlor.toml",
        "default_agent = \"demo\"\nagents.demo.kind = \"script\"\nagents.demo.file = \"demo.toml\"\n",
    );
    let steps = "[otherwise]\nsteps = [ { subagent = \"scout\", task = \"look\", \
                 steps = [ { say = \"beside\" } ] }, { say = \"the answer\" } ]\n";
    home.configure("demo.toml", steps);
    assert_eq!(home.prints(&["chat", "go"]), "the answer\n");
}

#[test]
fn an_empty_message_is_refused() {
    let home = Home::new();
    for args in [&["chat"][..], &["chat", "--json"], &["chat", " \n"]] {
        let output = home.command(args).stdin(Stdio::null()).output().unwrap();
        assert!(String::from_utf8(output.stderr).unwrap().contains("the message is empty"), "{args:?}");
        assert!(!output.status.success(), "{args:?}");
    }
    assert_eq!(home.prints(&["sessions", "--json"]), "");
}

#[test]
fn a_message_on_stdin_has_a_size_limit() {
    let home = Home::new();
    let long = home.folder().join("long");
    std::fs::write(&long, vec![b'x'; (16 << 20) + 1]).unwrap();
    let output = home.command(&["chat"]).stdin(std::fs::File::open(&long).unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(printed.contains("longer than 16777216 bytes"), "{printed}");
}

#[test]
fn chat_json_prints_all_events_and_deltas() {
    let home = Home::new();
    let lines = home.json(&["chat", "--json", "!echo hi"]);
    let session = home.last_session();
    let events: Vec<&serde_json::Value> = lines.iter().filter(|line| line["type"] != "delta").collect();
    for (line, seq) in events.iter().zip(1..) {
        assert_eq!((&line["seq"], &line["session"]), (&seq.into(), &session.as_str().into()), "{line}");
    }
    assert_eq!(events[0]["type"], "session.created");
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["ending"]), (&"run.ended".into(), &"completed".into()));
    // The deltas together are the completed text.
    let completed = lines.iter().find(|line| line["type"] == "message.completed").unwrap();
    let deltas =
        lines.iter().filter(|line| line["type"] == "delta" && line["message"] == completed["message"]);
    let joined: String = deltas.map(|line| line["text"].as_str().unwrap()).collect();
    assert_eq!(joined, completed["text"].as_str().unwrap());
    // A replay has the same events.
    let replayed = home.json(&["replay", &session, "--json"]);
    assert_eq!(replayed.iter().collect::<Vec<_>>(), events);

    let failed = home.run(&["chat", "--json", "/fail x"]);
    assert_eq!(failed.status.code(), Some(1));
    let last = String::from_utf8(failed.stdout).unwrap().lines().last().unwrap().to_owned();
    let last: serde_json::Value = serde_json::from_str(&last).unwrap();
    assert_eq!((&last["ending"], &last["failure"]["code"]), (&"failed".into(), &"FAILED".into()));
}

#[test]
fn errors_before_the_run_are_printed_to_stderr_only() {
    let home = Home::new();
    for args in
        [&["chat", "--json", "--agent", "nobody", "hi"][..], &["chat", "--json", "--session", "x", "hi"]]
    {
        let output = home.run(args);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty() && output.stderr.starts_with(b"Error: "), "{output:?}");
        assert_eq!(output.stderr.iter().filter(|byte| **byte == b'\n').count(), 1, "{output:?}");
    }
}

#[test]
fn errors_in_the_settings_name_the_setting_and_the_choices() {
    let home = Home::new();
    home.configure("parlor.toml", "default_agent = \"demo\"\n");
    let printed = home.refuses(&["chat", "hi"]);
    assert!(
        printed.contains("default_agent is \"demo\", which is not configured; there are: local"),
        "{printed}"
    );

    let script = "[otherwise]\nsteps = [ { say = \"from the script\" } ]\n";
    home.configure("demo.toml", script);
    let settings =
        "default_agent = \"demo\"\n[agents.demo]\nname = \"Demo\"\nkind = \"script\"\nfile = \"demo.toml\"\n";
    home.configure("parlor.toml", settings);
    assert_eq!(home.prints(&["chat", "hi"]), "from the script\n");
    assert_eq!(home.prints(&["chat", "--agent", "local", "/say mine"]), "mine\n");
}

/// Starts `parlor chat --watch` with these further arguments, and waits until it watches.
fn start_watching(home: &Home, session: &str, args: &[&str]) -> std::process::Child {
    let mut command = home.command(&["chat", "--watch", session]);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut watcher = command.spawn().unwrap();
    let mut notice = String::new();
    let mut stderr = BufReader::new(watcher.stderr.take().unwrap());
    stderr.read_line(&mut notice).unwrap();
    assert!(notice.contains("Nothing is sent"), "{notice}");
    watcher
}

fn interrupt(child: &std::process::Child) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

#[test]
fn a_watcher_sees_what_others_do_and_neither_sends_nor_takes_the_session() {
    let home = Home::new();
    home.prints(&["chat", "/say one"]);
    let session = home.last_session();
    let mut watcher = start_watching(&home, &session, &[]);
    std::io::Write::write_all(&mut watcher.stdin.take().unwrap(), b"/say intruder\n").unwrap();
    // Sessions are not joined here, so these would be refused if the watcher had the session open.
    home.prints(&["chat", "--session", &session, "/say two\nlines"]);
    home.prints(&["chat", "--session", &session, "!echo three"]);
    home.run(&["chat", "--session", &session, "/fail four"]);
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines().map(Result::unwrap);
    let shown: Vec<String> = lines.by_ref().take_while(|line| !line.contains("four (FAILED)")).collect();
    let answers: Vec<&str> = shown.iter().map(|line| line.trim()).collect();
    assert_eq!(answers.get(..4), Some(&["> /say two", "> lines", "two", "lines"][..]), "{shown:?}");
    assert_eq!(answers.get(4..7), Some(&["> !echo three", "[shell] echo three", "three"][..]), "{shown:?}");
    assert_eq!(answers.last(), Some(&"> /fail four"), "{shown:?}");
    assert!(shown.iter().all(|line| !line.contains('\u{1b}')), "{shown:?}");
    interrupt(&watcher);
    assert_eq!(watcher.wait().unwrap().code(), Some(0));
    assert_eq!(lines.next(), None);
    assert!(!home.prints(&["replay", &session]).contains("intruder"));
}

#[test]
fn a_watcher_sees_the_text_of_another_process_while_it_is_written() {
    let home = Home::new();
    home.configure("parlor.toml", "[sessions]\njoin = true\n");
    let mut writer = home.start_waiting("/wait 600");
    let session = home.last_session();
    // The run does not end, so its text can only come from the other process.
    let mut watcher = start_watching(&home, &session, &["--json"]);
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first: serde_json::Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
    assert_eq!(first["type"], "run.started", "an active run is shown from its start");
    assert!(lines.any(|line| line.contains(r#""type":"delta""#)));
    interrupt(&watcher);
    assert_eq!(watcher.wait().unwrap().code(), Some(0));
    assert_eq!(writer.try_wait().unwrap(), None, "the run goes on");
    interrupt(&writer);
    assert_eq!(writer.wait().unwrap().code(), Some(130));
}

#[test]
fn a_watcher_has_no_message_and_needs_a_session() {
    let home = Home::new();
    assert_eq!(home.run(&["chat", "--watch", "x", "hello"]).status.code(), Some(2));
    assert_eq!(home.run(&["chat", "--watch", "x", "--session", "y"]).status.code(), Some(2));
    assert!(home.refuses(&["chat", "--watch", "nowhere"]).contains("no session has an id"));
}
