//! Races: a thread swaps links and folders while tools use them. No tool may read or write a file outside of the
//! root.

mod common;

use parlor_vocab::FailureCode;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::{Fixture, names};
use parlor_tools::ParentFolders;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};
use serde_json::json;

const SECRET: &str = "a secret of the outside";
const ROUNDS: usize = 8_000;
const CALLS: usize = 300;

/// A fixture in which [`swap`] makes `link`, `dir` and `last` lead inside and outside in turn.
fn swappable_fixture() -> Fixture {
    let fixture = Fixture::new();
    fs::write(fixture.outside("file"), SECRET).expect("it works");
    fs::create_dir(fixture.outside("below")).expect("it works");
    fs::write(fixture.outside("below/file"), SECRET).expect("it works");
    // A listing must not show names of the outside either.
    fs::write(fixture.outside(SECRET), "").expect("it works");
    fixture.file("real/file", "harmless\n");
    fixture.file("real/below/file", "harmless\n");
    fixture.file("dir/file", "harmless\n");
    fixture.file("dir/below/file", "harmless\n");
    symlink(fixture.inside("real"), fixture.inside("link")).expect("it works");
    symlink(fixture.outside(""), fixture.inside("link2")).expect("it works");
    symlink(fixture.outside(""), fixture.inside("dir2")).expect("it works");
    symlink("real/file", fixture.inside("last")).expect("it works");
    symlink("../outside/file", fixture.inside("last2")).expect("it works");
    fixture
}

/// Swaps until `stop` is set; returns how often.
fn swap(fixture: &Fixture, stop: &AtomicBool) -> u64 {
    let pairs = [("link", "link2"), ("dir", "dir2"), ("last", "last2")]
        .map(|(one, other)| (fixture.inside(one), fixture.inside(other)));
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        for (one, other) in &pairs {
            renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).expect("both are there");
        }
        count += 1;
    }
    count
}

fn assert_outside_untouched(fixture: &Fixture) {
    assert_eq!(names(&fixture.outside("")), [SECRET, "below", "file"]);
    assert_eq!(names(&fixture.outside("below")), ["file"]);
    for file in ["file", "below/file"] {
        assert_eq!(fs::read_to_string(fixture.outside(file)).expect("it works"), SECRET);
    }
}

#[test]
fn the_policy_never_opens_files_outside_of_the_root() {
    let fixture = swappable_fixture();
    let (stop, good, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let swapper = scope.spawn(|| swap(&fixture, &stop));
        let readers = ["link/file", "dir/below/file", "last", "link/../real/file"].map(|path| {
            let (fixture, good, refused) = (&fixture, &good, &refused);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let policy = &fixture.context.policy;
                    let opened = policy.open(&fixture.context.folder, path, OFlags::RDONLY);
                    let text = match opened {
                        Ok(opened) => {
                            let mut text = String::new();
                            let mut file = fs::File::from(opened.fd);
                            std::io::Read::read_to_string(&mut file, &mut text).unwrap();
                            good.fetch_add(1, Ordering::Relaxed);
                            text
                        }
                        Err(failure) => {
                            refused.fetch_add(1, Ordering::Relaxed);
                            failure.message
                        }
                    };
                    assert!(!text.contains(SECRET), "round {round} of {path}");
                    // Create a file next to it, through the descriptor of the folder.
                    if let Ok(spot) = policy.locate(
                        &fixture.context.folder,
                        &format!("{path}.{round}"),
                        ParentFolders::Create,
                    ) {
                        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                        let made = openat(&spot.folder, &spot.name, flags, Mode::from_raw_mode(0o600));
                        if made.is_ok() {
                            rustix::fs::unlinkat(&spot.folder, &spot.name, rustix::fs::AtFlags::empty())
                                .unwrap();
                        }
                    }
                    if round % 1000 == 0 {
                        assert_outside_untouched(fixture);
                    }
                }
            })
        });
        let outcomes = readers.map(|reader| reader.join());
        stop.store(true, Ordering::Relaxed);
        assert!(swapper.join().unwrap() > 100, "the swapper ran during the test");
        for outcome in outcomes {
            outcome.unwrap();
        }
    });
    assert_outside_untouched(&fixture);
    let (good, refused) = (good.into_inner(), refused.into_inner());
    assert!(good > 100 && refused > 100, "both cases occurred: {good} opened, {refused} refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn no_tool_reads_or_writes_outside_of_the_root() {
    let fixture = Arc::new(swappable_fixture());
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = thread::spawn({
        let (fixture, stop) = (Arc::clone(&fixture), Arc::clone(&stop));
        move || swap(&fixture, &stop)
    });
    let calls = [
        ("read_file", json!({"path": "link/file"})),
        ("read_file", json!({"path": "last"})),
        ("write_file", json!({"path": "link/new", "content": "new"})),
        ("write_file", json!({"path": "dir/made/new", "content": "new"})),
        ("write_file", json!({"path": "last", "content": "harmless\n"})),
        ("edit_file", json!({"path": "dir/file", "old_text": "harmless\n", "new_text": "harmless\n\n"})),
        ("edit_file", json!({"path": "dir/file", "old_text": "harmless\n\n", "new_text": "harmless\n"})),
        ("list_dir", json!({"path": ".", "depth": 5})),
        ("list_dir", json!({"path": "link", "depth": 5})),
        ("grep_files", json!({"pattern": "secret|harmless"})),
        ("grep_files", json!({"pattern": "secret|harmless", "path": "link"})),
    ];
    let tasks = calls.map(|(tool, input)| {
        let fixture = Arc::clone(&fixture);
        tokio::spawn(async move {
            for _ in 0..CALLS {
                let text = match fixture.call(tool, input.clone()).await {
                    Ok(output) => output.text,
                    Err(failure) => {
                        assert_ne!(failure.code, FailureCode::InvalidInput, "{}", failure.message);
                        failure.message
                    }
                };
                assert!(!text.contains(SECRET), "{tool} {input}");
            }
        })
    });
    for task in tasks {
        task.await.unwrap();
    }
    for _ in 0..200 {
        if let Ok(output) = fixture.call("shell", json!({"command": "cat file", "cwd": "link"})).await {
            assert!(!output.text.contains(SECRET));
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(swapper.join().unwrap() > 100, "the swapper ran during the test");
    assert_outside_untouched(&fixture);
}
