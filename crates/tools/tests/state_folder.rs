//! Parlor's state folder inside of the allowed folder, reachable under several paths: no file tool changes it or
//! reads its secrets.

#![expect(clippy::unwrap_used, reason = "a failure in a test helper panics, as in the test itself")]

mod common;

use parlor_vocab::FailureCode;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use common::Fixture;
use parlor_tools::Policy;
use serde_json::{Value, json};

const SECRET: &str = "a secret of parlor";

/// A working folder that contains a complete state folder, and links to it.
fn fixture() -> Fixture {
    let mut fixture = Fixture::new();
    for file in ["parlor.toml", "parlor.db", "supr.json", "secrets/key-a", "secrets/deep/er"] {
        fixture.file(&format!("sub/.parlor/{file}"), SECRET);
    }
    fixture.file("sub/.parlor/skills/a/SKILL.md", "how to\n");
    fixture.file("sub/.parlor/media/a", "an attachment\n");
    fixture.file("sub/.parlor/AGENTS.md", "be brief\n");
    symlink("sub/.parlor", fixture.inside("link")).unwrap();
    symlink(fixture.inside("sub/.parlor/secrets"), fixture.inside("secrets")).unwrap();
    symlink("sub/.parlor/parlor.toml", fixture.inside("settings")).unwrap();
    protect(&mut fixture, "sub/.parlor");
    fixture
}

fn protect(fixture: &mut Fixture, state: &str) {
    let policy = Policy::new([fixture.inside("")]).unwrap().without_state(&fixture.inside(state));
    fixture.context.policy = Arc::new(policy);
}

/// Paths of state files that must not be read or changed.
const PROTECTED_PATHS: [&str; 9] = [
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

/// All paths below a folder, with the content of files.
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

async fn assert_refused(fixture: &Fixture, tool: &str, input: Value) {
    let (code, message) = fixture.fail(tool, input.clone()).await;
    assert_eq!(code, FailureCode::PathRefused, "{tool} {input}: {message}");
    assert!(message.contains("is in parlor's own state folder"), "{tool} {input}: {message}");
}

#[tokio::test]
async fn no_file_of_the_state_folder_is_written_under_any_path() {
    let fixture = fixture();
    let before = snapshot(&fixture.inside("sub/.parlor"));
    for path in PROTECTED_PATHS.into_iter().chain([
        "link/new",
        "link/new/folder/file",
        "secrets/new",
        "sub/.parlor/skills/a/SKILL.md",
        "sub/.parlor/skills/new/SKILL.md",
        "link/media/b",
        "link/AGENTS.md",
    ]) {
        assert_refused(&fixture, "write_file", json!({"path": path, "content": "new"})).await;
    }
    for path in PROTECTED_PATHS {
        assert_refused(&fixture, "edit_file", json!({"path": path, "old_text": "a", "new_text": "b"})).await;
    }
    // This file is readable, but not writable.
    let edit = json!({"path": "link/AGENTS.md", "old_text": "brief", "new_text": "evil"});
    assert_refused(&fixture, "edit_file", edit).await;
    assert_eq!(snapshot(&fixture.inside("sub/.parlor")), before);
}

#[tokio::test]
async fn secrets_of_the_state_folder_are_not_read_listed_or_found() {
    let fixture = fixture();
    for path in PROTECTED_PATHS {
        assert_refused(&fixture, "read_file", json!({"path": path})).await;
        assert_refused(&fixture, "grep_files", json!({"path": path, "pattern": "secret"})).await;
    }
    for path in ["sub/.parlor", "link", "secrets", "link/secrets/deep", "sub/.parlor/secrets/.."] {
        assert_refused(&fixture, "list_dir", json!({"path": path, "depth": 5})).await;
        assert_refused(&fixture, "grep_files", json!({"path": path, "pattern": "secret"})).await;
    }
    let listed = fixture.text("list_dir", json!({"path": ".", "depth": 9})).await;
    assert!(listed.contains(".parlor") && !listed.contains("key-a"), "{listed}");
    assert!(listed.contains("is parlor's own state folder and is not listed"), "{listed}");
    let found = fixture.text("grep_files", json!({"pattern": SECRET, "include_ignored": true})).await;
    assert!(
        !found.contains("key-a")
            && found.contains("[left out: 1, in parlor's own state folder or among the user's secrets]"),
        "{found}"
    );
}

#[tokio::test]
async fn skills_media_and_instructions_of_the_state_folder_are_readable() {
    let fixture = fixture();
    for path in ["link/skills/a/SKILL.md", "sub/.parlor/media/a", "sub/.parlor/AGENTS.md"] {
        fixture.text("read_file", json!({"path": path})).await;
    }
    assert!(fixture.text("list_dir", json!({"path": "link/skills", "depth": 2})).await.contains("SKILL.md"));
}

#[tokio::test]
async fn files_beside_the_state_folder_are_writable() {
    let mut fixture = fixture();
    fixture.text("write_file", json!({"path": "sub/.parlor.toml", "content": "a"})).await;
    fixture.text("write_file", json!({"path": "sub/.parlors/secrets/x", "content": "a"})).await;
    fixture.text("read_file", json!({"path": "sub/.parlors/secrets/x"})).await;
    protect(&mut fixture, "no/such/folder");
    fixture.text("write_file", json!({"path": "sub/.parlor/parlor.toml", "content": "a"})).await;
}

#[tokio::test]
async fn a_working_folder_inside_the_state_folder_does_not_bypass_the_protection() {
    let mut fixture = fixture();
    let state = fixture.inside("sub/.parlor");
    for folder in ["sub/.parlor", "sub/.parlor/secrets", "sub/.parlor/skills"] {
        let folder = fixture.inside(folder);
        let policy = Policy::new([&folder]).unwrap().without_state(&state);
        (fixture.context.policy, fixture.context.folder) = (Arc::new(policy), folder);
        assert_refused(&fixture, "write_file", json!({"path": "key-a", "content": "a"})).await;
        let output = fixture.text("shell", json!({"command": "pwd -P"})).await;
        assert!(output.contains(".parlor"), "the policy does not confine commands: {output}");
        fixture.context.folder = state.parent().unwrap().parent().unwrap().to_owned();
    }
}

#[tokio::test]
async fn a_hard_link_to_a_secret_is_not_read_and_writing_to_it_keeps_the_secret() {
    let fixture = fixture();
    fs::hard_link(fixture.inside("sub/.parlor/secrets/key-a"), fixture.inside("innocent")).unwrap();
    fs::hard_link(fixture.inside("sub/.parlor/parlor.toml"), fixture.inside("innocent.toml")).unwrap();
    fixture.file("twice", "harmless\n");
    fs::hard_link(fixture.inside("twice"), fixture.inside("two names")).unwrap();
    for path in ["innocent", "innocent.toml"] {
        assert_refused(&fixture, "read_file", json!({"path": path})).await;
        fixture.text("write_file", json!({"path": path, "content": "stolen"})).await;
    }
    assert_eq!(fixture.content("sub/.parlor/parlor.toml"), SECRET);
    assert_eq!(fixture.content("sub/.parlor/secrets/key-a"), SECRET);
    fixture.text("read_file", json!({"path": "two names"})).await;
    let found = fixture.text("grep_files", json!({"pattern": SECRET})).await;
    assert!(!found.contains("innocent"), "{found}");
}

/// Bind mounts give the state folder and a folder inside of it other paths without links. Only root can mount.
#[tokio::test]
async fn a_bind_mount_does_not_bypass_the_protection() {
    let fixture = fixture();
    let mounts = ["sub/.parlor", "sub/.parlor/secrets"].map(|from| {
        let to = fixture.inside(&format!("mounted {}", from.len()));
        fs::create_dir(&to).unwrap();
        BindMount::new(&fixture.inside(from), to)
    });
    let [Some(whole), Some(secrets)] = mounts else {
        eprintln!("skipped: this test needs permission to mount");
        return;
    };
    for path in [whole.0.join("parlor.toml"), secrets.0.join("key-a"), secrets.0.join("deep/er")] {
        let path = path.to_str().unwrap();
        assert_refused(&fixture, "read_file", json!({"path": path})).await;
        assert_refused(&fixture, "write_file", json!({"path": path, "content": "new"})).await;
    }
    let found = fixture.text("grep_files", json!({"pattern": SECRET})).await;
    assert!(!found.contains("mounted"), "{found}");
}

/// A bind mount that is removed on drop.
struct BindMount(PathBuf);

impl BindMount {
    #[expect(clippy::disallowed_methods, reason = "the test runs mount(8)")]
    fn new(from: &Path, to: PathBuf) -> Option<Self> {
        let done = Command::new("mount").arg("--bind").arg(from).arg(&to).output().ok()?;
        done.status.success().then_some(Self(to))
    }
}

impl Drop for BindMount {
    #[expect(clippy::disallowed_methods, reason = "the test runs umount(8)")]
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
    }
}
