//! The commands around the chat: sessions, replay, settings, doctor, link, and the program's other names.
#![expect(clippy::disallowed_methods, reason = "links are started as a shell would")]

mod home;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use home::{Home, PARLOR};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::{Value, json};

/// A user that owns nothing.
const NOBODY: u32 = 65534;

/// A project may hold a program that is called like one of those that parlor needs.
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
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("42"), "{relative:?}: {said} {}", String::from_utf8_lossy(&output.stderr));
        assert!(!home.folder().join("trapped").exists(), "{relative:?}: the project's ruby was run");
        // What agents run themselves is looked up as they are used to.
        let output = home.command(&["chat", "!ruby"]).env("PATH", &path).output().unwrap();
        assert!(output.status.success(), "{relative:?}");
        std::fs::remove_file(home.folder().join("trapped")).expect("the command was run as it is named");
    }
    let output = home.command(&["chat", "/ruby 6 * 7"]).env("PATH", ".:bin").output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(said.contains("no Ruby") || said.contains("install Ruby"), "{said}");
    assert!(!home.folder().join("trapped").exists(), "the project's ruby was run");
}

/// File tools know the same home folder as commands do, and may reach no more of it than they may reach anyway.
#[test]
fn a_tilde_is_the_home_folder() {
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
    let said = read("~/project/notes.txt", folder);
    assert!(said.contains("in the project"), "{said}");
    let said = read("~/private.txt", folder);
    assert!(said.contains("`~/private.txt` is outside of the allowed folder"), "{said}");
    let said = read("~/notes.txt", "");
    assert!(said.contains("no home folder is known"), "{said}");
}

#[test]
fn sessions_are_listed_for_people_and_for_programs() {
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
fn a_session_is_named_by_as_much_of_its_id_as_it_has_alone() {
    let home = Home::new();
    home.prints(&["chat", "/say one"]);
    let first = home.last_session();
    let beginning: String = first.chars().take(13).collect();
    assert_eq!(home.prints(&["chat", "--session", &beginning, "/say more"]), "more\n");
    home.prints(&["chat", "/say two"]);
    // Both were made in this century.
    let said = home.refuses(&["replay", "0"]);
    assert!(said.contains("the ids of 2 sessions start with \"0\"; give more of the id"), "{said}");
    assert!(said.contains(&first) && said.contains("/say two"), "{said}");
    let said = home.refuses(&["replay", "nothing-like-it"]);
    assert!(said.contains("parlor sessions lists all sessions"), "{said}");
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

    let said = home.refuses(&["sessions", "delete", &session]);
    assert!(said.contains("confirm with --yes"), "{said}");
    assert_eq!(home.json(&["sessions", "--json"]).len(), 1);
    home.prints(&["chat", "/say two"]);
    // One that does not exist among them: none is deleted.
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
    let said = home.refuses(&["sessions", "delete", "--yes", &session]);
    assert!(said.contains(&format!("in use by process {}", child.id())), "{said}");
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

#[test]
fn settings_are_printed_and_mistakes_are_named() {
    let home = Home::new();
    assert!(home.prints(&["settings"]).contains("\nretention.days = 90\n"));
    assert!(home.prints(&["settings", "--markdown"]).starts_with("# Settings\n"));
    home.configure("parlor.toml", "[retention]\ndyas = 3\n");
    for args in [&["settings"][..], &["chat", "hi"], &["sessions"]] {
        let said = home.refuses(args);
        assert!(said.contains("parlor.toml is not valid: line 2: "), "{said}");
        assert!(said.contains("did you mean \"days\"?"), "{said}");
    }
}

#[test]
fn the_doctor_says_what_is_ready() {
    let home = Home::new();
    let said = home.prints(&["doctor"]);
    assert!(said.contains("the first command creates it"), "{said}");
    assert!(!home.state().exists(), "looking makes nothing");
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
        assert_eq!(finding["state"] == "ok", finding["fix"].is_null(), "a fix for each: {finding}");
    }
}

#[test]
fn the_doctor_says_what_is_enforced_and_warns_root() {
    let home = Home::new();
    let look = |user: Option<u32>| {
        let mut command = home.command(&["doctor", "--json"]);
        if let Some(user) = user {
            chown(home.folder(), Some(user), Some(user)).unwrap();
            command.uid(user).gid(user);
        }
        match command.output() {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => None,
            output => {
                let said = String::from_utf8(output.unwrap().stdout).unwrap();
                Some(said.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>())
            }
        }
    };
    let state = |findings: &[Value], check: &str| {
        let finding = findings.iter().find(|finding| finding["check"] == check);
        finding.unwrap_or_else(|| panic!("{check} is missing"))["state"].as_str().unwrap().to_owned()
    };
    let findings = look(None).unwrap();
    for check in ["enforced: files", "enforced: commands", "enforced: doors"] {
        assert_eq!(state(&findings, check), "ok", "{findings:?}");
    }
    let is_root = geteuid().is_root();
    assert_eq!(state(&findings, "user"), if is_root { "warning" } else { "ok" });
    if !is_root {
        return;
    }
    match look(Some(NOBODY)) {
        Some(findings) => assert_eq!(state(&findings, "user"), "ok", "{findings:?}"),
        None => eprintln!("skipped: {} is in a folder that only root can enter", PARLOR),
    }
}

#[test]
fn a_server_that_root_starts_says_so_once() {
    let home = Home::new();
    let mut command = home.command(&["serve", "--listen", "127.0.0.1:0", "--no-supex"]);
    let mut child = command.env("PARLOR_LOG", "info").stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let begun: Vec<String> =
        lines.by_ref().map(Result::unwrap).take_while(|line| !line.contains("serving")).collect();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let said: Vec<String> = begun.into_iter().chain(lines.map(Result::unwrap)).collect();
    assert!(child.wait().unwrap().success());
    let warnings = said.iter().filter(|line| line.contains("WARN") && line.contains("runs as root")).count();
    assert_eq!(warnings, usize::from(geteuid().is_root()), "{said:?}");
}

#[test]
fn the_doctor_recovers_a_damaged_database() {
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
    // No command writes to it, and all of them say what to do.
    for args in [&["chat", "/say three"][..], &["sessions"], &["gc"], &["serve", "--no-supex"]] {
        let said = home.refuses(args);
        assert!(said.contains("is damaged") && said.contains("parlor doctor --recover"), "{args:?}: {said}");
    }
    let said = String::from_utf8(home.run(&["doctor"]).stdout).unwrap();
    assert!(said.contains("is damaged") && said.contains("parlor doctor --recover"), "{said}");
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
fn the_doctor_knows_keys_by_name_only() {
    let home = Home::new();
    let output = home.command(&["doctor"]).env("OPENAI_API_KEY", "s3cret-value").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("OPENAI_API_KEY set") && !said.contains("s3cret"), "{said}");
}

#[test]
fn the_doctor_finds_problems() {
    let home = Home::new();
    home.prints(&["chat", "/say hi"]);
    let problem = |check: &str| {
        let output = home.run(&["doctor", "--json"]);
        assert_eq!(output.status.code(), Some(1), "{check}");
        let said = String::from_utf8(output.stdout).unwrap();
        let found = |line: &&str| line.contains(&format!("\"check\":\"{check}\",\"state\":\"problem\""));
        said.lines().find(found).unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    home.configure("parlor.toml", "default_agent = \"nobody\"");
    assert!(problem("parlor.toml").contains("nobody"));
    home.configure("parlor.toml", "agents.x = { kind = \"script\", file = \"missing.toml\" }");
    assert!(problem("parlor.toml").contains("missing.toml"));
    home.configure("parlor.toml", "");
    // The first page is torn.
    let database = home.state().join("parlor.db");
    let mut bytes = std::fs::read(&database).unwrap();
    bytes[100..2000].fill(0xff);
    std::fs::write(&database, bytes).unwrap();
    let said = problem("database");
    assert!(said.contains("restore it from a backup"), "{said}");
    std::fs::remove_dir_all(home.state()).unwrap();
    std::fs::write(home.state(), "").unwrap();
    assert!(problem("state folder").contains("is not a folder"));
}

#[test]
fn links_are_written_once_and_never_over_something_else() {
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
    for name in ["codex-exec-server", "loaf", "synaps"] {
        assert_eq!(std::fs::read_link(folder.join(name)).unwrap(), std::fs::canonicalize(PARLOR).unwrap());
    }
    let again = link(&[]);
    assert!(again.status.success() && String::from_utf8(again.stdout).unwrap().contains("already exists"));
    // A link to where parlor was is ours to put right.
    std::fs::remove_file(folder.join("synaps")).unwrap();
    symlink("/gone/parlor", folder.join("synaps")).unwrap();
    assert!(link(&[]).status.success());
    std::fs::remove_file(folder.join("synaps")).unwrap();
    std::fs::create_dir(folder.join("synaps")).unwrap();
    assert!(!link(&["--force"]).status.success(), "a folder is never replaced");
}

#[test]
fn a_link_says_whether_it_will_be_found() {
    let home = Home::new();
    let folder = home.folder().join("bin");
    std::fs::create_dir(&folder).unwrap();
    let said = home.prints(&["link", folder.to_str().unwrap()]);
    assert!(said.contains("is not in PATH. Add it before the other folders"), "{said}");
    let mut command = home.command(&["link", folder.to_str().unwrap()]);
    let said = command.env("PATH", format!("/usr/bin:{}", folder.display())).output().unwrap().stdout;
    assert!(String::from_utf8(said).unwrap().contains("is in PATH:"));
}

#[test]
fn called_by_another_name_it_is_that_program() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("codex-exec-server");
    symlink(PARLOR, &link).unwrap();
    let mut server = Command::new(&link);
    let mut server = server.arg("ignored").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let hello = b"{\"id\":1,\"method\":\"initialize\",\"params\":{\"clientName\":\"me\"}}\n";
    std::io::Write::write_all(&mut server.stdin.take().unwrap(), hello).unwrap();
    let said = String::from_utf8(server.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(said, "{\"id\":1,\"result\":{\"protocolVersion\":\"exec-server.v0\"}}\n");

    let output = Command::new(PARLOR).arg0("/some/where/loaf").arg("tui").output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("usage: loaf rpc"));
}

#[test]
fn every_command_explains_itself() {
    let home = Home::new();
    let help = home.prints(&["--help"]);
    let commands = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names: Vec<&str> = commands.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() >= 8, "{help}");
    for name in names.into_iter().filter(|name| *name != "help") {
        let said = home.prints(&[name, "--help"]);
        assert!(said.contains("Usage: parlor") && said.len() > 100, "{said}");
        for line in said.lines().filter(|line| line.trim_start().starts_with("--") && !line.contains("  ")) {
            assert!(said.contains(&format!("{line}\n          ")), "{name}: {line} has no words");
        }
    }
    let wrong = home.run(&["no-such-command"]);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn the_state_is_for_its_owner_alone() {
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
fn old_sessions_are_collected_and_recent_ones_stay() {
    let home = Home::new();
    home.prints(&["chat", "/say old"]);
    let old = home.last_session();
    home.age(&old, 100);
    home.prints(&["chat", "/say new"]);
    let said = home.json(&["gc", "--dry-run", "--json"]);
    assert_eq!((&said[0]["session"], &said[0]["reason"]), (&old.as_str().into(), &"age".into()));
    assert_eq!((&said[1]["deleted"], &said[1]["dry_run"]), (&1.into(), &true.into()));
    assert_eq!(home.json(&["sessions", "--json"]).len(), 2, "a dry run deletes nothing");
    assert_eq!(home.json(&["gc", "--json", "--older-than", "200"])[0]["deleted"], 0);
    // A limit of no bytes takes all but the recent one.
    let said = home.prints(&["gc", "--older-than", "never", "--keep-bytes", "0"]);
    assert!(said.contains("1 of 2 sessions deleted") && said.contains(&old), "{said}");
    let left = home.json(&["sessions", "--json"]);
    assert_eq!((left.len(), &left[0]["title"]), (1, &"/say new".into()));
    assert_eq!(home.run(&["gc", "--older-than", "0"]).status.code(), Some(2));
}

#[test]
fn the_settings_say_what_is_collected_and_what_is_in_use_stays() {
    let home = Home::new();
    let mut child = home.start_waiting("/wait 60");
    home.age(&home.last_session(), 10);
    home.configure("parlor.toml", "[retention]\ndays = 20\n");
    assert_eq!(home.json(&["gc", "--json"])[0]["in_use"], 0);
    home.configure("parlor.toml", "[retention]\ndays = 5\n");
    let said = home.json(&["gc", "--json"]);
    assert_eq!((&said[0]["in_use"], &said[0]["deleted"]), (&1.into(), &0.into()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(home.json(&["gc", "--json"]).last().unwrap()["deleted"], 1);
}
