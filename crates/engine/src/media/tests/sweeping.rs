//! Sweeping: removal of unreferenced files.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use parlor_vocab::Timestamp;

use super::{empty_store, file_names, modified_at, unknown_id};
use crate::media::{MAX_MEDIA_BYTES, PIECE_BYTES, SWEEP_GRACE, SweepReport};

/// Far later than any file of a test.
const LATER: Timestamp = Timestamp(i64::MAX);

#[tokio::test]
async fn a_store_without_a_folder_has_nothing_to_sweep() {
    let (home, store) = empty_store();
    assert_eq!(
        store.sweep(BTreeSet::new(), SWEEP_GRACE, LATER, false).await.unwrap(),
        SweepReport::default()
    );
    assert!(!home.path().join("media").exists());
}

#[tokio::test]
async fn referenced_files_stay_and_old_unreferenced_files_are_removed() {
    let (home, store) = empty_store();
    let kept = store.put("", b"kept", MAX_MEDIA_BYTES).await.unwrap();
    let orphan = store.put("", b"orphan", MAX_MEDIA_BYTES).await.unwrap();
    let referenced = BTreeSet::from([kept.id.clone(), unknown_id()]);
    let stored = modified_at(&store.path_of(&orphan.id).unwrap());
    let grace = i64::try_from(SWEEP_GRACE.as_millis()).unwrap();
    let sweep =
        |age, dry_run| store.sweep(referenced.clone(), SWEEP_GRACE, Timestamp(stored.0 + age), dry_run);
    assert_eq!(sweep(grace - 1, false).await.unwrap(), SweepReport::default(), "too young");
    assert_eq!(sweep(-grace, false).await.unwrap(), SweepReport::default(), "the clock was set back");
    let expected = SweepReport { files: 1, bytes: 6 };
    assert_eq!(sweep(grace, true).await.unwrap(), expected);
    assert_eq!(file_names(home.path()).len(), 2, "a dry run removes nothing");
    assert_eq!(sweep(grace, false).await.unwrap(), expected);
    assert_eq!(file_names(home.path()), [kept.id.as_str()]);
}

#[tokio::test]
async fn foreign_files_links_and_folders_are_left_alone() {
    let (home, store) = empty_store();
    store.put("", b"x", MAX_MEDIA_BYTES).await.unwrap();
    let media = home.path().join("media");
    fs::write(home.path().join("outside"), "outside").unwrap();
    let (link, folder) = ("1".repeat(64), "2".repeat(64));
    symlink(home.path().join("outside"), media.join(&link)).unwrap();
    fs::create_dir(media.join(&folder)).unwrap();
    fs::write(media.join("README"), "mine").unwrap();
    fs::write(media.join(".upload-me.tmp"), "mine").unwrap();
    symlink(home.path().join("outside"), media.join(".upload-1-1.tmp")).unwrap();
    let swept = store.sweep(BTreeSet::new(), Duration::ZERO, LATER, false).await.unwrap();
    assert_eq!(swept, SweepReport { files: 1, bytes: 1 });
    assert_eq!(file_names(home.path()), [".upload-1-1.tmp", ".upload-me.tmp", &link, &folder, "README"]);
    assert_eq!(fs::read(home.path().join("outside")).unwrap(), b"outside");
}

#[tokio::test]
async fn uploads_under_way_stay_and_abandoned_ones_are_removed() {
    let (home, store) = empty_store();
    let mut upload = store.begin_upload(MAX_MEDIA_BYTES).await.unwrap();
    upload.write(b"slow").await.unwrap();
    fs::write(home.path().join("media/.upload-1-1.tmp"), "of a dead process").unwrap();
    let sweep = |grace, now| store.sweep(BTreeSet::new(), grace, now, false);
    assert_eq!(sweep(SWEEP_GRACE, Timestamp(0)).await.unwrap(), SweepReport::default(), "too young");
    let dry = store.sweep(BTreeSet::new(), Duration::ZERO, LATER, true).await.unwrap();
    assert_eq!(sweep(Duration::ZERO, LATER).await.unwrap(), SweepReport { files: 1, bytes: 17 });
    assert_eq!(dry, SweepReport { files: 1, bytes: 17 });
    let media = upload.finish("slow").await.unwrap();
    assert_eq!(store.read(&media.id, 10).await.unwrap(), b"slow");
}

#[tokio::test]
async fn the_age_of_a_file_counts_from_the_end_of_its_upload() {
    let (home, store) = empty_store();
    let mut upload = store.begin_upload(MAX_MEDIA_BYTES).await.unwrap();
    // Exactly one piece, so that `finish` has nothing left to write.
    upload.write(&[1; PIECE_BYTES]).await.unwrap();
    let [temp] = file_names(home.path()).try_into().unwrap();
    let file = fs::File::options().write(true).open(home.path().join("media").join(temp)).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let media = upload.finish("").await.unwrap();
    assert!(modified_at(&store.path_of(&media.id).unwrap()).0 > 0);
}

#[tokio::test]
async fn files_of_a_deleted_session_are_removed_unless_stored_again_since() {
    let (_home, store) = empty_store();
    let media = store.put("a", b"text", MAX_MEDIA_BYTES).await.unwrap();
    let path = store.path_of(&media.id).unwrap();
    let stored = modified_at(&path);
    let ids = BTreeSet::from([media.id.clone()]);
    let before = Timestamp(stored.0 - 1);
    assert_eq!(store.remove(ids.clone(), before).await.unwrap(), SweepReport::default(), "stored since");
    assert!(path.exists());
    assert_eq!(
        store.remove(ids.clone(), Timestamp(stored.0 + 1)).await.unwrap(),
        SweepReport { files: 1, bytes: 4 }
    );
    assert!(!path.exists());
    assert_eq!(store.remove(ids, LATER).await.unwrap(), SweepReport::default(), "gone already");
}

/// Stores content again and again while sweeps remove everything that looks old. After each `put`, the content is
/// there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_never_removes_a_file_that_was_just_stored() {
    let (_home, store) = empty_store();
    let media = store.put("", b"content", MAX_MEDIA_BYTES).await.unwrap();
    let path = store.path_of(&media.id).unwrap();
    let now = modified_at(&path);
    let sweeper = {
        let store = store.clone();
        tokio::spawn(async move {
            loop {
                store.sweep(BTreeSet::new(), SWEEP_GRACE, now, false).await.unwrap();
            }
        })
    };
    for _ in 0..300 {
        if let Ok(file) = fs::File::options().write(true).open(&path) {
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        store.put("", b"content", MAX_MEDIA_BYTES).await.unwrap();
        assert_eq!(store.read(&media.id, 10).await.unwrap(), b"content");
    }
    sweeper.abort();
}
