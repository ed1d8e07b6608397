//! The commands besides chat: sessions, replay, settings, doctor, gc and link, and the program's other names.
#![expect(clippy::disallowed_methods, reason = "links are started as a shell would")]
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on panics, as the test would")]

mod home;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use home::{Home, PARLOR};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::{Value, json};

/// The user id of `nobody`.
const NOBODY: u32 = 65534;

/// A project may contain a program with the name of a program that parlor needs.
#[test]
fn programs_for_parlor_itself_are_not_looked_up_in_the_working_folder() {
    let home = Home::new();
    for folder in ["", "bin"] {
        let folder = home.folder().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        parlor_testkit::write_executable(&folder.join("ruby"), "#!/bin/sh\ntouch trapped\n");
    }
    for relative in [".", "", "bin", "./bin"] {
        let path = format!("{relative}:/usr/local/bin:/usr/bin:/bin");
        let output = home.command(&["chat", "/ruby 6 * 7"]).env("PATH", &path).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(
            printed.contains("42"),
            "{relative:?}: {printed} {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(!home.folder().join("trapped").exists(), "{relative:?}: the project's ruby was run");
        // Commands of agents are looked up in the whole `PATH`.
        let output = home.command(&["chat", "!ruby"]).env("PATH", &path).output().unwrap();
        assert!(output.status.success(), "{relative:?}");
        std::fs::remove_file(home.folder().join("trapped")).expect("the project's ruby was run");
    }
    let output = home.command(&["chat", "/ruby 6 * 7"]).env("PATH", ".:bin").output().unwrap();
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(printed.contains("no Ruby") || printed.contains("install Ruby"), "{printed}");
    assert!(!home.folder().join("trapped").exists(), "the project's ruby was run");
}

/// File tools use the same home folder as commands do, and may read only the parts of it that they may read anyway.
#[test]
fn file_tools_expand_a_tilde_to_the_home_folder() {
    let home = Home::new();
    std::fs::create_dir(home.folder().join("project")).unwrap();
    std::fs::write(home.folder().join("project/notes.txt"), "in the project\n").unwrap();
    std::fs::write(home.folder().join("private.txt"), "beside it\n").unwrap();
    let read = |path: &str, user_home: &str| {
        let mut command = home.command(&["chat", &format!("/read {path}")]);
        command.current_dir(home.folder().join("project")).env("HOME", user_home);
        let output = command.output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let folder = home.folder().to_str().unwrap();
    let printed = read("~/project/notes.txt", folder);
    assert!(printed.contains("in the project"), "{printed}");
    let printed = read("~/private.txt", folder);
    assert!(printed.contains("`~/private.txt` is outside of the allowed folder"), "{printed}");
    let printed = read("~/notes.txt", "");
    assert!(printed.contains("no home folder is known"), "{printed}");
}

#[test]
fn sessions_are_listed_as_text_and_as_json() {
    let home = Home::new();
    assert!(home.json(&["sessions", "--json"]).is_empty());
    for text in ["/say one", "/say two", "/say three"] {
        home.prints(&["chat", text]);
    }
    let sessions = home.json(&["sessions", "--json"]);
    let titles: Vec<&str> = sessions.iter().map(|session| session["title"].as_str().unwrap()).collect();
    assert_eq!(titles, ["/say three", "/say two", "/say one"]);
    assert_eq!((&sessions[0]["door"], &sessions[0]["messages"]), (&"chat".into(), &2.into()));
    assert_eq!(home.json(&["sessions", "--json", "--limit", "2"]), sessions[..2]);
    let listed = home.prints(&["sessions", "--limit", "2"]);
    assert!(listed.contains("/say two") && !listed.contains("/say one"), "{listed}");
    assert!(listed.contains("More sessions exist"), "{listed}");
}

#[test]
fn a_session_is_found_by_a_unique_prefix_of_its_id() {
    let home = Home::new();
    home.prints(&["chat", "/say one"]);
    let first = home.last_session();
    let beginning: String = first.chars().take(13).collect();
    assert_eq!(home.prints(&["chat", "--session", &beginning, "/say more"]), "more\n");
    home.prints(&["chat", "/say two"]);
    // The ids begin with the time, so both begin with 0.
    let printed = home.refuses(&["replay", "0"]);
    assert!(printed.contains("the ids of 2 sessions start with \"0\"; give more of the id"), "{printed}");
    assert!(printed.contains(&first) && printed.contains("/say two"), "{printed}");
    let printed = home.refuses(&["replay", "nothing-like-it"]);
    assert!(printed.contains("parlor sessions lists all sessions"), "{printed}");
    assert!(home.refuses(&["replay", ""]).contains("the session id is empty"));
}

#[test]
fn sessions_are_renamed_and_deleted() {
    let home = Home::new();
    home.prints(&["chat", "/say one"]);
    let session = home.last_session();
    home.prints(&["sessions", "rename", &session, "  Another\ntitle "]);
    assert_eq!(home.json(&["sessions", "--json"])[0]["title"], "Another title");
    assert!(home.refuses(&["sessions", "rename", &session, " "]).contains("at least a letter"));

    let printed = home.refuses(&["sessions", "delete", &session]);
    assert!(printed.contains("confirm with --yes"), "{printed}");
    assert_eq!(home.json(&["sessions", "--json"]).len(), 1);
    home.prints(&["chat", "/say two"]);
    // If one of the ids does not exist, none is deleted.
    home.refuses(&["sessions", "delete", "--yes", &session, "nothing"]);
    assert_eq!(home.json(&["sessions", "--json"]).len(), 2);
    home.prints(&["sessions", "delete", "--yes", &session]);
    assert_eq!(home.json(&["sessions", "--json"]).len(), 1);
    assert!(home.refuses(&["replay", &session]).contains("no session has an id that starts with"));
}

#[test]
fn a_session_in_use_is_not_deleted() {
    let home = Home::new();
    let mut child = home.start_waiting("/wait 60");
    let session = home.last_session();
    let printed = home.refuses(&["sessions", "delete", "--yes", &session]);
    assert!(printed.contains("is active"), "{printed}");
    home.configure("parlor.toml", "[sessions]\njoin = false\n");
    let printed = home.refuses(&["sessions", "delete", "--yes", &session]);
    assert!(printed.contains(&format!("in use by process {}", child.id())), "{printed}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_replay_can_follow_another_process() {
    let home = Home::new();
    home.prints(&["chat", "/say one"]);
    let session = home.last_session();
    let mut follower = home.command(&["replay", &session, "--follow", "--json"]);
    let mut follower = follower.stdout(Stdio::piped()).spawn().unwrap();
    home.prints(&["chat", "--session", &session, "/say two"]);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(follower.stdout.take().unwrap()));
    assert!(lines.any(|line| {
        let line = line.unwrap();
        line.contains("message.completed") && line.contains("\"text\":\"two\"")
    }));
    let pid = rustix::process::Pid::from_raw(i32::try_from(follower.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(follower.wait().unwrap().code(), Some(0));
}

/// The lines of JSON that a child prints.
fn json_lines(child: &mut std::process::Child) -> impl Iterator<Item = Value> + use<> {
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap())
}

/// Takes lines up to the first for which `is_last` is true.
fn take_until(lines: &mut impl Iterator<Item = Value>, is_last: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut seen = Vec::new();
    for line in lines {
        seen.push(line);
        if seen.last().is_some_and(&is_last) {
            return seen;
        }
    }
    panic!("the output ended after {seen:?}");
}

#[test]
fn a_live_replay_prints_text_of_another_process_while_it_is_written() {
    let home = Home::new();
    home.configure("parlor.toml", "[sessions]\njoin = true\n");
    home.prints(&["chat", "/say one"]);
    let session = home.last_session();
    let mut writer = home.command(&["chat", "--session", &session, "/wait 600"]);
    let mut writer = writer.stdout(Stdio::piped()).spawn().unwrap();
    let mut follower = home.command(&["replay", &session, "--follow", "--live", "--json"]);
    let mut follower = follower.stdout(Stdio::piped()).spawn().unwrap();
    // The run does not end, so its text can only come from the other process.
    let seen = take_until(&mut json_lines(&mut follower), |line| line["type"] == "delta");
    let delta = seen.last().unwrap();
    assert_eq!(delta["session"], session.as_str());
    assert!(delta["run"].is_string() && delta["message"].is_string(), "{delta}");
    assert!(!delta["text"].as_str().unwrap().is_empty() && delta["seq"].is_null(), "{delta}");
    let deltas = seen.iter().filter(|line| line["type"] == "delta").count();
    assert_eq!(deltas, 1, "texts of the past have no deltas: {seen:?}");
    for child in [&mut follower, &mut writer] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_replay_that_is_not_live_prints_no_deltas() {
    let home = Home::new();
    home.prints(&["chat", "/say one"]);
    let session = home.last_session();
    let mut follower = home.command(&["replay", &session, "--follow", "--json"]);
    let mut follower = follower.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = json_lines(&mut follower);
    let mut seen = take_until(&mut lines, |line| line["type"] == "run.ended");
    home.prints(&["chat", "--session", &session, "/say two"]);
    seen.extend(take_until(&mut lines, |line| line["type"] == "run.ended"));
    assert!(seen.iter().any(|line| line["type"] == "message.completed" && line["text"] == "two"), "{seen:?}");
    assert!(seen.iter().all(|line| line["type"] != "delta"), "{seen:?}");
    follower.kill().unwrap();
    follower.wait().unwrap();
}

#[test]
fn a_replay_as_a_door_names_the_doors_and_escapes_hidden_characters() {
    let home = Home::new();
    home.prints(&["chat", "/say a\u{202e}b"]);
    let session = home.last_session();
    let unknown = home.run(&["replay", &session, "--as", "exec"]);
    assert_eq!(unknown.status.code(), Some(2));
    let printed = String::from_utf8(unknown.stderr).unwrap();
    assert!(printed.contains("invalid value 'exec' for '--as <DOOR>'"), "{printed}");
    assert!(printed.contains("supr, loaf, synaps"), "{printed}");
    let follow = home.run(&["replay", &session, "--as", "supr", "--follow"]);
    assert_eq!(follow.status.code(), Some(2));
    for door in ["supr", "loaf", "synaps"] {
        let printed = home.prints(&["replay", &session, "--as", door]);
        assert!(printed.contains("a\\u202eb") && !printed.contains('\u{202e}'), "{door}: {printed}");
        for line in printed.lines() {
            serde_json::from_str::<Value>(line).unwrap();
        }
    }
    assert!(home.refuses(&["replay", "nobody", "--as", "supr"]).contains("parlor sessions lists"));
}

#[test]
fn settings_prints_the_settings_and_reports_mistakes() {
    let home = Home::new();
    assert!(home.prints(&["settings"]).contains("\nretention.days = 90\n"));
    assert!(home.prints(&["settings", "--markdown"]).starts_with("# Settings\n"));
    home.configure("parlor.toml", "[retention]\ndyas = 3\n");
    for args in [&["settings"][..], &["chat", "hi"], &["sessions"]] {
        let printed = home.refuses(args);
        assert!(printed.contains("parlor.toml is not valid: line 2: "), "{printed}");
        assert!(printed.contains("did you mean \"days\"?"), "{printed}");
    }
}

#[test]
fn doctor_reports_what_is_ready() {
    let home = Home::new();
    let printed = home.prints(&["doctor"]);
    assert!(printed.contains("the first command creates it"), "{printed}");
    assert!(!home.state().exists(), "doctor creates nothing");
    home.prints(&["chat", "/say hi"]);
    let findings = home.json(&["doctor", "--json"]);
    let state = |check: &str| {
        let finding = findings.iter().find(|finding| finding["check"] == check);
        finding.unwrap_or_else(|| panic!("{check} is missing"))["state"].as_str().unwrap().to_owned()
    };
    for check in ["state folder", "parlor.toml", "database"] {
        assert_eq!(state(check), "ok");
    }
    for check in
        ["disk space", "ruby", "port 18790", "port 9876", "port 4433", "codex-exec-server", "loaf", "synaps"]
    {
        assert_ne!(state(check), "problem", "{check}");
    }
    for finding in &findings {
        assert_eq!(finding["state"] == "ok", finding["fix"].is_null(), "each problem has a fix: {finding}");
    }
}

#[test]
fn doctor_reports_what_is_enforced_and_warns_root() {
    let home = Home::new();
    let findings_as = |user: Option<u32>| {
        let mut command = home.command(&["doctor", "--json"]);
        if let Some(user) = user {
            chown(home.folder(), Some(user), Some(user)).unwrap();
            command.uid(user).gid(user);
        }
        match command.output() {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => None,
            output => {
                let printed = String::from_utf8(output.unwrap().stdout).unwrap();
                Some(printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>())
            }
        }
    };
    let state = |findings: &[Value], check: &str| {
        let finding = findings.iter().find(|finding| finding["check"] == check);
        finding.unwrap_or_else(|| panic!("{check} is missing"))["state"].as_str().unwrap().to_owned()
    };
    let findings = findings_as(None).unwrap();
    for check in ["enforced: files", "enforced: commands", "enforced: doors"] {
        assert_eq!(state(&findings, check), "ok", "{findings:?}");
    }
    let is_root = geteuid().is_root();
    assert_eq!(state(&findings, "user"), if is_root { "warning" } else { "ok" });
    if !is_root {
        return;
    }
    match findings_as(Some(NOBODY)) {
        Some(findings) => assert_eq!(state(&findings, "user"), "ok", "{findings:?}"),
        None => eprintln!("skipped: {} is in a folder that only root can enter", PARLOR),
    }
}

#[test]
fn a_server_that_runs_as_root_warns_once() {
    let home = Home::new();
    let mut command = home.command(&["serve", "--listen", "127.0.0.1:0", "--no-supex"]);
    let mut child = command.env("PARLOR_LOG", "info").stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let startup_lines: Vec<String> =
        lines.by_ref().map(Result::unwrap).take_while(|line| !line.contains("serving")).collect();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let printed: Vec<String> = startup_lines.into_iter().chain(lines.map(Result::unwrap)).collect();
    assert!(child.wait().unwrap().success());
    let warnings =
        printed.iter().filter(|line| line.contains("WARN") && line.contains("runs as root")).count();
    assert_eq!(warnings, usize::from(geteuid().is_root()), "{printed:?}");
}

#[test]
fn doctor_recovers_a_damaged_database() {
    let home = Home::new();
    for text in ["/say one", "/say two"] {
        home.prints(&["chat", text]);
    }
    assert!(home.prints(&["doctor", "--recover"]).contains("is intact; it was not changed"));
    let before = home.json(&["sessions", "--json"]);
    let file = home.state().join("parlor.db");
    let mut damaged = std::fs::read(&file).unwrap();
    damaged[..100].fill(0xa5);
    std::fs::write(&file, &damaged).unwrap();
    // No command writes to it, and each says what to do.
    for args in [&["chat", "/say three"][..], &["sessions"], &["gc"], &["serve", "--no-supex"]] {
        let printed = home.refuses(args);
        assert!(
            printed.contains("is damaged") && printed.contains("parlor doctor --recover"),
            "{args:?}: {printed}"
        );
    }
    let printed = String::from_utf8(home.run(&["doctor"]).stdout).unwrap();
    assert!(printed.contains("is damaged") && printed.contains("parlor doctor --recover"), "{printed}");
    assert_eq!(std::fs::read(&file).unwrap(), damaged);
    let [done] = &home.json(&["doctor", "--recover", "--json"])[..] else { panic!("one line") };
    assert_eq!(
        (&done["sessions"], &done["lost_sessions"], &done["lost_events"]),
        (&json!(2), &json!(0), &json!(0))
    );
    assert_eq!(std::fs::read(done["damaged"].as_str().unwrap()).unwrap(), damaged);
    assert_eq!(home.json(&["sessions", "--json"]), before);
    let session = home.last_session();
    assert_eq!(home.prints(&["chat", "--session", &session, "/say three"]), "three\n");
    assert!(home.prints(&["replay", &session]).contains("two"));
}

#[test]
fn doctor_shows_only_the_names_of_keys() {
    let home = Home::new();
    let output = home.command(&["doctor"]).env("OPENAI_API_KEY", "s3cret-value").output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("OPENAI_API_KEY set") && !printed.contains("s3cret"), "{printed}");
}

#[test]
fn doctor_finds_problems() {
    let home = Home::new();
    home.prints(&["chat", "/say hi"]);
    let problem = |check: &str| {
        let output = home.run(&["doctor", "--json"]);
        assert_eq!(output.status.code(), Some(1), "{check}");
        let printed = String::from_utf8(output.stdout).unwrap();
        let found = |line: &&str| line.contains(&format!("\"check\":\"{check}\",\"state\":\"problem\""));
        printed.lines().find(found).unwrap_or_else(|| panic!("{printed}")).to_owned()
    };
    home.configure("parlor.toml", "default_agent = \"nobody\"");
    assert!(problem("parlor.toml").contains("nobody"));
    home.configure("parlor.toml", "agents.x = { kind = \"script\", file = \"missing.toml\" }");
    assert!(problem("parlor.toml").contains("missing.toml"));
    home.configure("parlor.toml", "");
    // Damage the first page.
    let database = home.state().join("parlor.db");
    let mut bytes = std::fs::read(&database).unwrap();
    bytes[100..2000].fill(0xff);
    std::fs::write(&database, bytes).unwrap();
    let printed = problem("database");
    assert!(printed.contains("restore it from a backup"), "{printed}");
    std::fs::remove_dir_all(home.state()).unwrap();
    std::fs::write(home.state(), "").unwrap();
    assert!(problem("state folder").contains("is not a folder"));
}

#[test]
fn link_creates_links_and_never_replaces_another_file() {
    let home = Home::new();
    let folder = home.folder().join("bin");
    let link = |args: &[&str]| {
        let mut command = home.command(&[&["link", folder.to_str().unwrap()], args].concat());
        command.output().unwrap()
    };
    assert!(String::from_utf8(link(&[]).stderr).unwrap().contains("create it first"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("loaf"), "another").unwrap();
    let refused = String::from_utf8(link(&[]).stderr).unwrap();
    assert!(refused.contains("is another file; nothing was changed"), "{refused}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    assert!(link(&["--force"]).status.success());
    for name in ["codex-exec-server", "loaf", "parlor-acp", "synaps"] {
        assert_eq!(std::fs::read_link(folder.join(name)).unwrap(), std::fs::canonicalize(PARLOR).unwrap());
    }
    let again = link(&[]);
    assert!(again.status.success() && String::from_utf8(again.stdout).unwrap().contains("already exists"));
    // A link to an earlier path of parlor is replaced.
    std::fs::remove_file(folder.join("synaps")).unwrap();
    symlink("/gone/parlor", folder.join("synaps")).unwrap();
    assert!(link(&[]).status.success());
    std::fs::remove_file(folder.join("synaps")).unwrap();
    std::fs::create_dir(folder.join("synaps")).unwrap();
    assert!(!link(&["--force"]).status.success(), "a folder is never replaced");
}

#[test]
fn link_reports_whether_the_folder_is_in_path() {
    let home = Home::new();
    let folder = home.folder().join("bin");
    std::fs::create_dir(&folder).unwrap();
    let printed = home.prints(&["link", folder.to_str().unwrap()]);
    assert!(printed.contains("is not in PATH. Add it before the other folders"), "{printed}");
    let mut command = home.command(&["link", folder.to_str().unwrap()]);
    let printed = command.env("PATH", format!("/usr/bin:{}", folder.display())).output().unwrap().stdout;
    assert!(String::from_utf8(printed).unwrap().contains("is in PATH:"));
}

#[test]
fn a_link_with_another_name_behaves_like_that_program() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("codex-exec-server");
    symlink(PARLOR, &link).unwrap();
    let mut server = Command::new(&link);
    let mut server = server.arg("ignored").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let hello = b"{\"id\":1,\"method\":\"initialize\",\"params\":{\"clientName\":\"me\"}}\n";
    std::io::Write::write_all(&mut server.stdin.take().unwrap(), hello).unwrap();
    let printed = String::from_utf8(server.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(printed, "{\"id\":1,\"result\":{\"protocolVersion\":\"exec-server.v0\"}}\n");

    let output = Command::new(PARLOR).arg0("/some/where/loaf").arg("tui").output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("usage: loaf rpc"));
}

#[test]
fn every_command_and_flag_has_help() {
    let home = Home::new();
    let help = home.prints(&["--help"]);
    let commands = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names: Vec<&str> = commands.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() >= 8, "{help}");
    for name in names.into_iter().filter(|name| *name != "help") {
        let printed = home.prints(&[name, "--help"]);
        assert!(printed.contains("Usage: parlor") && printed.len() > 100, "{printed}");
        for line in printed.lines().filter(|line| line.trim_start().starts_with("--") && !line.contains("  "))
        {
            assert!(printed.contains(&format!("{line}\n          ")), "{name}: {line} has no help text");
        }
    }
    let wrong = home.run(&["no-such-command"]);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn only_the_owner_can_read_the_state_folder() {
    let home = Home::new();
    home.prints(&["chat", "/say hi"]);
    let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(home.state()), 0o700);
    for entry in std::fs::read_dir(home.state()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(path.clone()) & 0o077, 0, "{}", path.display());
    }
}

#[test]
fn gc_deletes_old_sessions_and_keeps_recent_ones() {
    let home = Home::new();
    home.prints(&["chat", "/say old"]);
    let old = home.last_session();
    home.age(&old, 100);
    home.prints(&["chat", "/say new"]);
    let printed = home.json(&["gc", "--dry-run", "--json"]);
    assert_eq!((&printed[0]["session"], &printed[0]["reason"]), (&old.as_str().into(), &"age".into()));
    assert_eq!((&printed[1]["deleted"], &printed[1]["dry_run"]), (&1.into(), &true.into()));
    assert_eq!(home.json(&["sessions", "--json"]).len(), 2, "a dry run deletes nothing");
    assert_eq!(home.json(&["gc", "--json", "--older-than", "200"])[0]["deleted"], 0);
    // A limit of 0 bytes deletes all but the recent session.
    let printed = home.prints(&["gc", "--older-than", "never", "--keep-bytes", "0"]);
    assert!(printed.contains("1 of 2 sessions deleted") && printed.contains(&old), "{printed}");
    let left = home.json(&["sessions", "--json"]);
    assert_eq!((left.len(), &left[0]["title"]), (1, &"/say new".into()));
    assert_eq!(home.run(&["gc", "--older-than", "0"]).status.code(), Some(2));
}

#[test]
fn gc_follows_the_settings_and_keeps_sessions_in_use() {
    let home = Home::new();
    let mut child = home.start_waiting("/wait 60");
    home.age(&home.last_session(), 10);
    home.configure("parlor.toml", "[retention]\ndays = 20\n");
    assert_eq!(home.json(&["gc", "--json"])[0]["in_use"], 0);
    home.configure("parlor.toml", "[retention]\ndays = 5\n");
    let printed = home.json(&["gc", "--json"]);
    assert_eq!((&printed[0]["in_use"], &printed[0]["deleted"]), (&1.into(), &0.into()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(home.json(&["gc", "--json"]).last().unwrap()["deleted"], 1);
}

#[test]
fn settings_are_checked_without_starting_anything() {
    let home = Home::new();
    assert!(home.prints(&["settings", "--check"]).contains("does not exist"));
    assert!(!home.state().exists(), "the check made the state folder");
    home.configure("parlor.toml", "[retention]\ndays = 7\n");
    assert!(home.prints(&["settings", "--check"]).ends_with("parlor.toml is valid.\n"));
    std::fs::write(home.folder().join("new.toml"), "[retention]\ndays = 0\ndasy = 1\n").unwrap();
    let output = home.run(&["settings", "--check", "new.toml"]);
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("new.toml:2: retention.days takes a whole number from 1 to 36500"), "{printed}");
    assert!(printed.contains("new.toml:3: there is no setting \"dasy\""), "{printed}");
    assert!(home.refuses(&["settings", "--check", "none.toml"]).contains("cannot read"));
}

/// A newer parlor may have written them, and its user went back to this one.
#[test]
fn unknown_settings_are_ignored_with_a_warning_and_mistyped_ones_are_refused() {
    let home = Home::new();
    home.configure("parlor.toml", "[quantum]\nqubits = 3\n[retention]\ndays = 7\n");
    let output = home.run(&["chat", "/say works"]);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"works\n".as_slice()));
    let warned = String::from_utf8(output.stderr).unwrap();
    assert!(
        warned.starts_with("Warning: a part of parlor.toml is ignored: line 1: there is no setting"),
        "{warned}"
    );
    let printed = home.prints(&["settings"]);
    assert!(printed.contains("# Ignored: line 1") && printed.contains("retention.days = 7"), "{printed}");
    let found = home.json(&["doctor", "--json"]);
    let of_settings = found.iter().find(|finding| finding["check"] == "parlor.toml").unwrap();
    assert_eq!(of_settings["state"], "warning", "{of_settings}");
    assert_eq!(home.run(&["settings", "--check"]).status.code(), Some(1));
    home.configure("parlor.toml", "[retentoin]\ndays = 7\n");
    assert!(home.refuses(&["chat", "/say works"]).contains("did you mean \"retention\"?"));
}

#[test]
fn the_verbose_version_names_formats_and_protocols() {
    let home = Home::new();
    let short = home.prints(&["--version"]);
    assert_eq!(home.prints(&["version"]), short);
    let verbose = home.prints(&["--version", "--verbose"]);
    assert_eq!(home.prints(&["version", "--verbose"]), verbose);
    assert!(
        verbose.starts_with(&short) && verbose.contains("\nformats   database 5; events 2; backup 1\n"),
        "{verbose}"
    );
    let versions = home.json(&["version", "--json"]).remove(0);
    let commit = versions["commit"].as_str().unwrap();
    let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(is_commit || commit == "unknown", "{commit}");
    for door in ["acp", "exec", "loaf", "peer", "supex", "supr", "synaps"] {
        assert!(versions["doors"][door].is_string() && verbose.contains(door), "{versions}");
    }
    assert!(!home.state().exists(), "the version made the state folder");
}
