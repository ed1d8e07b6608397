//! Links and folders that are swapped as fast as possible while tools use them: never a byte from
//! or to the outside.

mod common;

use parlor_vocab::FailureCode;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::{Desk, names};
use parlor_tools::ParentFolders;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};
use serde_json::json;

const SECRET: &str = "a secret of the outside";
const LOOKS: usize = 8_000;
const CALLS: usize = 300;

/// A folder in which `link` and `dir` lead inside at one moment and outside at the next.
fn hall_of_mirrors() -> Desk {
    let desk = Desk::new();
    fs::write(desk.outside("file"), SECRET).expect("it works");
    fs::create_dir(desk.outside("below")).expect("it works");
    fs::write(desk.outside("below/file"), SECRET).expect("it works");
    // Names are secret as well: a listing must not show them.
    fs::write(desk.outside(SECRET), "").expect("it works");
    desk.file("real/file", "harmless\n");
    desk.file("real/below/file", "harmless\n");
    desk.file("dir/file", "harmless\n");
    desk.file("dir/below/file", "harmless\n");
    symlink(desk.inside("real"), desk.inside("link")).expect("it works");
    symlink(desk.outside(""), desk.inside("link2")).expect("it works");
    symlink(desk.outside(""), desk.inside("dir2")).expect("it works");
    symlink("real/file", desk.inside("last")).expect("it works");
    symlink("../outside/file", desk.inside("last2")).expect("it works");
    desk
}

/// Swaps until it is told to stop; returns how often.
fn swap(desk: &Desk, over: &AtomicBool) -> u64 {
    let pairs = [("link", "link2"), ("dir", "dir2"), ("last", "last2")]
        .map(|(one, other)| (desk.inside(one), desk.inside(other)));
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        for (one, other) in &pairs {
            renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).expect("both are there");
        }
        count += 1;
    }
    count
}

fn assert_outside_untouched(desk: &Desk) {
    assert_eq!(names(&desk.outside("")), [SECRET, "below", "file"]);
    assert_eq!(names(&desk.outside("below")), ["file"]);
    for file in ["file", "below/file"] {
        assert_eq!(fs::read_to_string(desk.outside(file)).expect("it works"), SECRET);
    }
}

#[test]
fn the_policy_never_opens_the_outside() {
    let desk = hall_of_mirrors();
    let (over, good, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let swapper = scope.spawn(|| swap(&desk, &over));
        let lookers = ["link/file", "dir/below/file", "last", "link/../real/file"].map(|path| {
            let (desk, good, refused) = (&desk, &good, &refused);
            scope.spawn(move || {
                for round in 0..LOOKS {
                    let policy = &desk.context.policy;
                    let opened = policy.open(&desk.context.folder, path, OFlags::RDONLY);
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
                    // And a new file next to it, by way of the folder's descriptor.
                    if let Ok(spot) =
                        policy.spot(&desk.context.folder, &format!("{path}.{round}"), ParentFolders::Made)
                    {
                        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                        let made = openat(&spot.folder, &spot.name, flags, Mode::from_raw_mode(0o600));
                        if made.is_ok() {
                            rustix::fs::unlinkat(&spot.folder, &spot.name, rustix::fs::AtFlags::empty())
                                .unwrap();
                        }
                    }
                    if round % 1000 == 0 {
                        assert_outside_untouched(desk);
                    }
                }
            })
        });
        let outcomes = lookers.map(|looker| looker.join());
        over.store(true, Ordering::Relaxed);
        assert!(swapper.join().unwrap() > 100, "there was a race");
        for outcome in outcomes {
            outcome.unwrap();
        }
    });
    assert_outside_untouched(&desk);
    let (good, refused) = (good.into_inner(), refused.into_inner());
    assert!(good > 100 && refused > 100, "both sides were met: {good} opened, {refused} refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn no_tool_reads_or_writes_the_outside() {
    let desk = Arc::new(hall_of_mirrors());
    let over = Arc::new(AtomicBool::new(false));
    let swapper = thread::spawn({
        let (desk, over) = (Arc::clone(&desk), Arc::clone(&over));
        move || swap(&desk, &over)
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
        let desk = Arc::clone(&desk);
        tokio::spawn(async move {
            for _ in 0..CALLS {
                let text = match desk.call(tool, input.clone()).await {
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
        if let Ok(output) = desk.call("shell", json!({"command": "cat file", "cwd": "link"})).await {
            assert!(!output.text.contains(SECRET));
        }
    }
    over.store(true, Ordering::Relaxed);
    assert!(swapper.join().unwrap() > 100, "there was a race");
    assert_outside_untouched(&desk);
}
