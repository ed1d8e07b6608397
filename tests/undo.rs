//! `parlor undo`, `parlor diff` and their API, on the real program: script agents run real commands and file tools.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]
#![expect(clippy::disallowed_methods, reason = "a test starts the program, and a clean-up reads its files")]

mod home;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use home::Home;
use serde_json::Value;

/// A state folder with a script agent that carries out `steps` whatever it is told.
fn scripted(steps: &str) -> Home {
    let home = Home::new();
    home.configure("demo.toml", &format!("[otherwise]\nsteps = [{steps}]\n"));
    home.configure(
        "parlor.toml",
        "default_agent = \"demo\"\n[agents.demo]\nkind = \"script\"\nfile = \"demo.toml\"\n",
    );
    home
}

/// All of the working folder but the state folder: kinds, permissions, contents and targets.
fn tree(home: &Home) -> BTreeMap<PathBuf, String> {
    let mut tree = BTreeMap::new();
    let mut waiting = vec![home.folder().to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let mode = metadata.mode();
            let text = if path == home.state() {
                continue;
            } else if metadata.is_dir() {
                waiting.push(path.clone());
                format!("folder {mode:o}")
            } else if metadata.is_symlink() {
                format!("link {:?}", fs::read_link(&path).unwrap())
            } else {
                format!("file {mode:o} {:?}", fs::read(&path).unwrap())
            };
            tree.insert(path, text);
        }
    }
    tree
}

#[test]
fn a_run_that_changes_a_thousand_files_in_every_way_is_undone() {
    let home = scripted(
        r#"
        { tool = "write_file", args = { path = "f1", content = "written\n" } },
        { tool = "write_file", args = { path = "by/tool/new", content = "new\n" } },
        { tool = "edit_file", args = { path = "text", old_text = "two", new_text = "2" } },
        { tool = "shell", args = { command = '''
            set -e
            i=0
            while [ $i -lt 1000 ]; do
              case $((i % 5)) in
                0) echo changed > f$i ;;
                1) rm f$i ;;
                2) mv f$i moved$i ;;
                3) chmod 751 f$i ;;
                4) ln -sf /etc/passwd f$i ;;
              esac
              i=$((i + 1))
            done
            rm -r sub; rm link; mkdir -p made/deep; echo x > made/deep/x; echo 3 >> text
        ''' } },
        { tool = "edit_file", args = { path = "text", old_text = "one", new_text = "1" } },
        "#,
    );
    for number in 0..1_000_u32 {
        let bytes: Vec<u8> = (0..number).map(|byte| (byte * 31 % 251) as u8).collect();
        fs::write(home.folder().join(format!("f{number}")), bytes).unwrap();
    }
    fs::write(home.folder().join("text"), "one\ntwo\n").unwrap();
    fs::set_permissions(home.folder().join("text"), fs::Permissions::from_mode(0o604)).unwrap();
    fs::create_dir_all(home.folder().join("sub/empty")).unwrap();
    symlink("f7", home.folder().join("link")).unwrap();
    let before = tree(&home);
    home.prints(&["chat", "go"]);
    let changed = tree(&home);
    assert_eq!(fs::read_to_string(home.folder().join("text")).unwrap(), "1\n2\n3\n");
    let diff = home.prints(&["diff"]);
    assert!(diff.contains("-one\n-two\n+1\n+2\n+3\n"), "{diff:.2000}");
    assert!(home.prints(&["undo", "--dry-run"]).contains("Would put back"));
    assert_eq!(tree(&home), changed);
    let report = &home.json(&["undo", "--json"])[0];
    assert_eq!(report["kept"], 0, "{report:.2000}");
    let after = tree(&home);
    let different: Vec<_> = before.iter().filter(|(path, text)| after.get(*path) != Some(text)).collect();
    assert!(different.is_empty(), "{different:?}");
    assert_eq!(after.len(), before.len());
    assert!(home.prints(&["undo"]).starts_with("Nothing to do"));
}

#[test]
fn a_file_that_was_changed_by_hand_is_reported_and_kept() {
    let home = scripted(r#"{ tool = "shell", args = { command = "echo run > a; echo run > b" } }"#);
    fs::write(home.folder().join("a"), "before\n").unwrap();
    home.prints(&["chat", "go"]);
    fs::write(home.folder().join("a"), "by hand\n").unwrap();
    let output = home.run(&["undo"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("kept      a: it was changed after the run"), "{text}");
    assert_eq!(fs::read_to_string(home.folder().join("a")).unwrap(), "by hand\n");
    assert!(!home.folder().join("b").exists());
    home.prints(&["undo", "--force"]);
    assert_eq!(fs::read_to_string(home.folder().join("a")).unwrap(), "before\n");
}

#[test]
fn a_run_whose_process_was_killed_is_undone() {
    let home = Home::new();
    fs::write(home.folder().join("a"), "before\n").unwrap();
    fs::write(home.folder().join("b"), "before\n").unwrap();
    let fifo = home.state().join("fifo");
    fs::create_dir(home.state()).unwrap();
    fs::set_permissions(home.state(), fs::Permissions::from_mode(0o700)).unwrap();
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let command = "!echo run > a; rm b; echo run > c; echo ready > state/fifo; exec sleep 600";
    let mut chat = home.command(&["chat", command]).stdout(Stdio::null()).spawn().unwrap();
    assert_eq!(fs::read_to_string(fifo).unwrap(), "ready\n");
    chat.kill().unwrap();
    chat.wait().unwrap();
    let report = &home.json(&["undo", "--json"])[0];
    assert_eq!((&report["restored"], &report["kept"]), (&3.into(), &0.into()), "{report}");
    assert_eq!(fs::read_to_string(home.folder().join("a")).unwrap(), "before\n");
    assert_eq!(fs::read_to_string(home.folder().join("b")).unwrap(), "before\n");
    assert!(!home.folder().join("c").exists());
}

#[test]
fn deleting_a_session_deletes_the_contents_that_were_kept() {
    let home = Home::new();
    fs::write(home.folder().join("a"), "kept-before").unwrap();
    home.prints(&["chat", "!printf kept-after > a"]);
    assert!(holds(&home.state().join("undo"), "kept-before"));
    home.prints(&["sessions", "delete", "--yes", &home.last_session()]);
    assert!(!holds(&home.state().join("undo"), "kept-before"));
    assert!(!holds(&home.state().join("undo"), "kept-after"));
    assert!(home.refuses(&["undo"]).contains("no run changed files in"));
}

fn holds(folder: &Path, text: &str) -> bool {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| match path.is_dir() {
        true => holds(&path, text),
        false => String::from_utf8_lossy(&fs::read(&path).unwrap()).contains(text),
    })
}

/// A server that is killed at the end of the test.
struct Server(Child, String);

impl Server {
    fn start(home: &Home) -> Self {
        let mut command = home.command(&["serve", "--listen", "127.0.0.1:0", "--no-supex"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // The server writes the file when it is ready.
        let mut stderr = child.stderr.take().unwrap();
        let file = home.state().join("serve.json");
        let mut seen = Vec::new();
        let mut byte = [0];
        while !file.exists() {
            assert_ne!(stderr.read(&mut byte).unwrap(), 0, "{}", String::from_utf8_lossy(&seen));
            seen.push(byte[0]);
        }
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        let serve: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        Self(child, serve["http"].as_str().unwrap().to_owned())
    }

    /// The status and the body of an answer.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(&self.1).unwrap();
        write!(
            socket,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.1,
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn the_api_shows_and_undoes_what_a_run_changed() {
    let home = Home::new();
    fs::write(home.folder().join("a"), "one\n").unwrap();
    home.prints(&["chat", "!echo two > a; echo new > b"]);
    let run = home.json(&["diff", "--json"])[0]["run"].as_str().unwrap().to_owned();
    let server = Server::start(&home);
    let path = format!("/api/sessions/{}/runs/{run}", home.last_session());
    let (status, body) = server.ask("GET", &format!("{path}/changes"), "");
    let changes: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 200);
    assert_eq!(changes["files"][0]["diff"], "@@ -1 +1 @@\n-one\n+two\n", "{changes}");
    assert_eq!(changes["files"][1]["change"], "created");
    fs::write(home.folder().join("b"), "by hand\n").unwrap();
    let (status, body) = server.ask("POST", &format!("{path}/undo"), r#"{"dry_run":true}"#);
    assert_eq!((status, body.contains("\"dry_run\":true")), (200, true), "{body}");
    assert_eq!(fs::read_to_string(home.folder().join("a")).unwrap(), "two\n");
    let (status, body) = server.ask("POST", &format!("{path}/undo"), "");
    let report: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &report["restored"], &report["kept"]), (200, &1.into(), &1.into()), "{report}");
    assert_eq!(report["files"][0]["path"], "b", "what is kept comes first: {report}");
    assert_eq!(fs::read_to_string(home.folder().join("a")).unwrap(), "one\n");
    let (status, _) = server.ask("POST", &format!("{path}/undo"), r#"{"force":1}"#);
    assert_eq!(status, 400);
    let (status, body) = server.ask("GET", &format!("{path}x/changes"), "");
    assert_eq!((status, body.starts_with("no changes of run")), (404, true), "{body}");
    let (status, _) = server.ask("POST", "/api/sessions/none/runs/none/undo", "");
    assert_eq!(status, 404);
}
