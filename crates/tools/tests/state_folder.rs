//! Parlor's state folder lies within the allowed folder, under several names: no file tool changes it or reads its
//! secrets.

#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as the test would")]

mod common;

use parlor_vocab::FailureCode;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use common::Desk;
use parlor_tools::Policy;
use serde_json::{Value, json};

const SECRET: &str = "a secret of parlor";

/// A working folder with a state folder in it that has all that one has, and links to it.
fn desk() -> Desk {
    let mut desk = Desk::new();
    for file in ["parlor.toml", "parlor.db", "supr.json", "secrets/key-a", "secrets/deep/er"] {
        desk.file(&format!("sub/.parlor/{file}"), SECRET);
    }
    desk.file("sub/.parlor/skills/a/SKILL.md", "how to\n");
    desk.file("sub/.parlor/media/a", "an attachment\n");
    desk.file("sub/.parlor/AGENTS.md", "be brief\n");
    symlink("sub/.parlor", desk.inside("link")).unwrap();
    symlink(desk.inside("sub/.parlor/secrets"), desk.inside("secrets")).unwrap();
    symlink("sub/.parlor/parlor.toml", desk.inside("settings")).unwrap();
    protect(&mut desk, "sub/.parlor");
    desk
}

fn protect(desk: &mut Desk, state: &str) {
    let policy = Policy::new([desk.inside("")]).unwrap().without_state(&desk.inside(state));
    desk.context.policy = Arc::new(policy);
}

/// Every way to a file or folder of the state folder that must not be changed.
const WAYS: [&str; 9] = [
    "sub/.parlor/parlor.toml",
    "sub/../sub/./.parlor/parlor.toml",
    "link/parlor.toml",
    "settings",
    "secrets/key-a",
    "secrets/deep/er",
    "link/secrets/deep/er",
    "secrets/../parlor.toml",
    "sub/.parlor/secrets/deep/../../parlor.db",
];

/// All that is in a folder, with content.
fn snapshot(folder: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(snapshot(&path));
        }
        let content = path.is_file().then(|| fs::read(&path).unwrap());
        all.push((path, content));
    }
    all.sort();
    all
}

async fn assert_refused(desk: &Desk, tool: &str, input: Value) {
    let (code, message) = desk.fail(tool, input.clone()).await;
    assert_eq!(code, FailureCode::PathRefused, "{tool} {input}: {message}");
    assert!(message.contains("is in parlor's own state folder"), "{tool} {input}: {message}");
}

#[tokio::test]
async fn nothing_in_it_is_written_edited_or_created_by_any_name() {
    let desk = desk();
    let before = snapshot(&desk.inside("sub/.parlor"));
    for path in WAYS.into_iter().chain([
        "link/new",
        "link/new/folder/file",
        "secrets/new",
        "sub/.parlor/skills/a/SKILL.md",
        "sub/.parlor/skills/new/SKILL.md",
        "link/media/b",
        "link/AGENTS.md",
    ]) {
        assert_refused(&desk, "write_file", json!({"path": path, "content": "new"})).await;
    }
    for path in WAYS {
        assert_refused(&desk, "edit_file", json!({"path": path, "old_text": "a", "new_text": "b"})).await;
    }
    // It may be read, and not be changed.
    let edit = json!({"path": "link/AGENTS.md", "old_text": "brief", "new_text": "evil"});
    assert_refused(&desk, "edit_file", edit).await;
    assert_eq!(snapshot(&desk.inside("sub/.parlor")), before);
}

#[tokio::test]
async fn secrets_in_it_are_not_read_listed_or_found() {
    let desk = desk();
    for path in WAYS {
        assert_refused(&desk, "read_file", json!({"path": path})).await;
        assert_refused(&desk, "grep_files", json!({"path": path, "pattern": "secret"})).await;
    }
    for path in ["sub/.parlor", "link", "secrets", "link/secrets/deep", "sub/.parlor/secrets/.."] {
        assert_refused(&desk, "list_dir", json!({"path": path, "depth": 5})).await;
        assert_refused(&desk, "grep_files", json!({"path": path, "pattern": "secret"})).await;
    }
    let listed = desk.text("list_dir", json!({"path": ".", "depth": 9})).await;
    assert!(listed.contains(".parlor") && !listed.contains("key-a"), "{listed}");
    assert!(listed.contains("is parlor's own state folder and is not listed"), "{listed}");
    let found = desk.text("grep_files", json!({"pattern": SECRET, "include_ignored": true})).await;
    assert!(
        !found.contains("key-a") && found.contains("[left out: 1, in parlor's own state folder]"),
        "{found}"
    );
}

#[tokio::test]
async fn skills_media_and_instructions_are_read() {
    let desk = desk();
    for path in ["link/skills/a/SKILL.md", "sub/.parlor/media/a", "sub/.parlor/AGENTS.md"] {
        desk.text("read_file", json!({"path": path})).await;
    }
    assert!(desk.text("list_dir", json!({"path": "link/skills", "depth": 2})).await.contains("SKILL.md"));
}

#[tokio::test]
async fn what_lies_beside_it_is_changed_as_ever() {
    let mut desk = desk();
    desk.text("write_file", json!({"path": "sub/.parlor.toml", "content": "a"})).await;
    desk.text("write_file", json!({"path": "sub/.parlors/secrets/x", "content": "a"})).await;
    desk.text("read_file", json!({"path": "sub/.parlors/secrets/x"})).await;
    protect(&mut desk, "no/such/folder");
    desk.text("write_file", json!({"path": "sub/.parlor/parlor.toml", "content": "a"})).await;
}

#[tokio::test]
async fn a_working_folder_within_it_is_no_way_around() {
    let mut desk = desk();
    let state = desk.inside("sub/.parlor");
    for folder in ["sub/.parlor", "sub/.parlor/secrets", "sub/.parlor/skills"] {
        let folder = desk.inside(folder);
        let policy = Policy::new([&folder]).unwrap().without_state(&state);
        (desk.context.policy, desk.context.folder) = (Arc::new(policy), folder);
        assert_refused(&desk, "write_file", json!({"path": "key-a", "content": "a"})).await;
        let said = desk.text("shell", json!({"command": "pwd -P"})).await;
        assert!(said.contains(".parlor"), "commands can go there anyway: {said}");
        desk.context.folder = state.parent().unwrap().parent().unwrap().to_owned();
    }
}

#[tokio::test]
async fn a_hard_link_to_a_secret_is_not_read_and_writing_to_it_leaves_the_secret_alone() {
    let desk = desk();
    fs::hard_link(desk.inside("sub/.parlor/secrets/key-a"), desk.inside("innocent")).unwrap();
    fs::hard_link(desk.inside("sub/.parlor/parlor.toml"), desk.inside("innocent.toml")).unwrap();
    desk.file("twice", "harmless\n");
    fs::hard_link(desk.inside("twice"), desk.inside("two names")).unwrap();
    for path in ["innocent", "innocent.toml"] {
        assert_refused(&desk, "read_file", json!({"path": path})).await;
        desk.text("write_file", json!({"path": path, "content": "stolen"})).await;
    }
    assert_eq!(desk.content("sub/.parlor/parlor.toml"), SECRET);
    assert_eq!(desk.content("sub/.parlor/secrets/key-a"), SECRET);
    desk.text("read_file", json!({"path": "two names"})).await;
    let found = desk.text("grep_files", json!({"pattern": SECRET})).await;
    assert!(!found.contains("innocent"), "{found}");
}

/// Another name for the whole folder and for one within it, without any link. Only root can make one.
#[tokio::test]
async fn a_bind_mount_is_no_way_around() {
    let desk = desk();
    let mounts = ["sub/.parlor", "sub/.parlor/secrets"].map(|from| {
        let to = desk.inside(&format!("mounted {}", from.len()));
        fs::create_dir(&to).unwrap();
        Mounted::new(&desk.inside(from), to)
    });
    let [Some(whole), Some(secrets)] = mounts else {
        eprintln!("skipped: nothing can be mounted here");
        return;
    };
    for path in [whole.0.join("parlor.toml"), secrets.0.join("key-a"), secrets.0.join("deep/er")] {
        let path = path.to_str().unwrap();
        assert_refused(&desk, "read_file", json!({"path": path})).await;
        assert_refused(&desk, "write_file", json!({"path": path, "content": "new"})).await;
    }
    let found = desk.text("grep_files", json!({"pattern": SECRET})).await;
    assert!(!found.contains("mounted"), "{found}");
}

/// A bind mount for as long as a test runs.
struct Mounted(PathBuf);

impl Mounted {
    #[expect(clippy::disallowed_methods, reason = "a mount is made as a shell would")]
    fn new(from: &Path, to: PathBuf) -> Option<Self> {
        let done = Command::new("mount").arg("--bind").arg(from).arg(&to).output().ok()?;
        done.status.success().then_some(Self(to))
    }
}

impl Drop for Mounted {
    #[expect(clippy::disallowed_methods, reason = "a mount is taken away as a shell would")]
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
    }
}
