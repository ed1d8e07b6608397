//! What is left when processes are killed while they store files.
//!
//! The process is this test program once more, told by its environment to be the child.
#![expect(
    clippy::disallowed_methods,
    reason = "these tests start processes and are told what to do by their environment"
)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use parlor_vocab::{MediaId, Timestamp};

use super::names;
use crate::media::{MAX_MEDIA_BYTES, MediaStore, PIECE_BYTES};

/// Where the child finds the home of its store.
const HOME: &str = "PARLOR_MEDIA_TEST_HOME";

/// Where the child finds from which number on it makes up its content.
const FROM: &str = "PARLOR_MEDIA_TEST_FROM";

/// How often processes are killed.
const ROUNDS: usize = 8;

/// The child: stores files until it is killed, and says on standard error what is stored.
#[test]
#[ignore = "started by the other test"]
fn child() {
    let home = std::env::var_os(HOME).expect("the parent says where");
    let from: u64 = std::env::var(FROM).expect("the parent says from where").parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let store = MediaStore::open(Path::new(&home)).unwrap();
        for number in from.. {
            let content = number.to_le_bytes().repeat(PIECE_BYTES / 5);
            let mut upload = store.begin(MAX_MEDIA_BYTES).await.unwrap();
            upload.write(&content).await.unwrap();
            say(upload.finish("upload").await.unwrap().id);
            say(store.put("put", number.to_be_bytes(), MAX_MEDIA_BYTES).await.unwrap().id);
        }
    });
}

fn say(id: MediaId) {
    // One write for each line: a kill cuts between lines, or the last line short.
    let _ = std::io::stderr().write_all(format!("{id}\n").as_bytes());
}

fn start(home: &Path, from: usize) -> (Child, BufReader<ChildStderr>) {
    let mut child = Command::new(std::env::current_exe().expect("we run"))
        .args(["--ignored", "--exact", "media::tests::crash::child", "--nocapture"])
        .env(HOME, home)
        .env(FROM, from.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let output = BufReader::new(child.stderr.take().expect("piped"));
    (child, output)
}

#[tokio::test]
async fn what_was_said_to_be_stored_survives_sigkill() {
    let home = tempfile::tempdir().unwrap();
    let store = MediaStore::open(home.path()).unwrap();
    let mut stored = BTreeSet::new();
    for round in 0..ROUNDS {
        // Two that store the same, and what nobody stored before.
        let mut victims = [1, 2].map(|_| start(home.path(), round << 32));
        let mut said = String::new();
        for (_, output) in &mut victims {
            // A different moment each time, measured in its own progress.
            for _ in 0..=round * 3 % 7 {
                assert_ne!(output.read_line(&mut said).unwrap(), 0, "the child has ended: {said}");
            }
        }
        for (mut child, mut output) in victims {
            child.kill().unwrap();
            child.wait().unwrap();
            output.read_to_string(&mut said).unwrap();
            // A line that was cut short ends here.
            said.push('\n');
        }
        let ids = said.lines().filter(|line| line.len() == 64);
        stored.extend(ids.map(|line| MediaId::parse(line).unwrap()));
        for id in &stored {
            store.read(id, MAX_MEDIA_BYTES).await.expect("it was said to be stored");
        }
    }
    assert!(stored.len() >= ROUNDS, "{}", stored.len());
    // Whatever is there under a hash is complete, whether or not it was said to be.
    let whole: BTreeSet<MediaId> = names(home.path())
        .iter()
        .filter(|name| !name.starts_with(".upload-"))
        .map(|name| MediaId::parse(name).unwrap())
        .collect();
    for id in &whole {
        store.read(id, MAX_MEDIA_BYTES).await.expect("all or nothing");
    }
    // The dead left uploads, and nothing keeps these from being swept.
    store.sweep(whole.clone(), Duration::ZERO, Timestamp(i64::MAX), false).await.unwrap();
    assert_eq!(names(home.path()).len(), whole.len());
}
