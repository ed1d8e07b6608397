//! Kills processes while they store files, and checks what is left.
//!
//! The test starts its own program again as the child; environment variables tell the child what to do.
#![expect(clippy::disallowed_methods, reason = "these tests start processes and read environment variables")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use parlor_vocab::{MediaId, Timestamp};

use super::file_names;
use crate::media::{MAX_MEDIA_BYTES, MediaStore, PIECE_BYTES};

/// The environment variable with the child's state folder.
const HOME: &str = "PARLOR_MEDIA_TEST_HOME";

/// The environment variable with the first number that the child generates content from.
const FROM: &str = "PARLOR_MEDIA_TEST_FROM";

/// How many times the test kills its children.
const ROUNDS: usize = 8;

/// The child: stores files until it is killed, and prints the id of each stored file to standard error.
#[test]
#[ignore = "started by the other test as a child process"]
fn child() {
    let home = std::env::var_os(HOME).expect("the parent sets the folder");
    let from: u64 = std::env::var(FROM).expect("the parent sets the number").parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let store = MediaStore::open(Path::new(&home)).unwrap();
        for number in from.. {
            let content = number.to_le_bytes().repeat(PIECE_BYTES / 5);
            let mut upload = store.begin_upload(MAX_MEDIA_BYTES).await.unwrap();
            upload.write(&content).await.unwrap();
            print_id(upload.finish("upload").await.unwrap().id);
            print_id(store.put("put", number.to_be_bytes(), MAX_MEDIA_BYTES).await.unwrap().id);
        }
    });
}

fn print_id(id: MediaId) {
    // One write for each line, so that a kill can cut only the last line short.
    let _ = std::io::stderr().write_all(format!("{id}\n").as_bytes());
}

fn start(home: &Path, from: usize) -> (Child, BufReader<ChildStderr>) {
    let mut child = Command::new(std::env::current_exe().expect("the path of this program"))
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
async fn files_reported_as_stored_survive_sigkill() {
    let home = tempfile::tempdir().unwrap();
    let store = MediaStore::open(home.path()).unwrap();
    let mut stored = BTreeSet::new();
    for round in 0..ROUNDS {
        // Two children store the same new content.
        let mut children = [1, 2].map(|_| start(home.path(), round << 32));
        let mut printed = String::new();
        for (_, output) in &mut children {
            // Kill at a different moment each time, measured in printed lines.
            for _ in 0..=round * 3 % 7 {
                assert_ne!(output.read_line(&mut printed).unwrap(), 0, "the child has ended: {printed}");
            }
        }
        for (mut child, mut output) in children {
            child.kill().unwrap();
            child.wait().unwrap();
            output.read_to_string(&mut printed).unwrap();
            // Ends a line that was cut short.
            printed.push('\n');
        }
        let ids = printed.lines().filter(|line| line.len() == 64);
        stored.extend(ids.map(|line| MediaId::parse(line).unwrap()));
        for id in &stored {
            store.read(id, MAX_MEDIA_BYTES).await.expect("the child reported it as stored");
        }
    }
    assert!(stored.len() >= ROUNDS, "{}", stored.len());
    // Every file under a hash is complete, whether or not a child reported it.
    let complete: BTreeSet<MediaId> = file_names(home.path())
        .iter()
        .filter(|name| !name.starts_with(".upload-"))
        .map(|name| MediaId::parse(name).unwrap())
        .collect();
    for id in &complete {
        store.read(id, MAX_MEDIA_BYTES).await.expect("all or nothing");
    }
    // The killed children left unfinished uploads, and a sweep removes them.
    store.sweep(complete.clone(), Duration::ZERO, Timestamp(i64::MAX), false).await.unwrap();
    assert_eq!(file_names(home.path()).len(), complete.len());
}
