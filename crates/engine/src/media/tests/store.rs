//! Storing, reading and opening files.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};

use parlor_vocab::MediaId;

use super::{empty_store, file_names, modified_at, unknown_id};
use crate::media::{MAX_MEDIA_BYTES, MAX_UPLOADS, MediaError, MediaStore, PIECE_BYTES, UNNAMED};

#[tokio::test]
async fn the_first_file_creates_the_folder() {
    let (home, store) = empty_store();
    assert!(matches!(store.read(&unknown_id(), 1).await, Err(MediaError::Missing(_))));
    assert!(matches!(store.renew(&unknown_id()).await, Err(MediaError::Missing(_))));
    assert!(!home.path().join("media").exists());
    let media = store.put("a.txt", b"hello", MAX_MEDIA_BYTES).await.unwrap();
    assert_eq!((media.name.as_str(), media.mime.as_str(), media.size), ("a.txt", "text/plain", 5));
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(home.path().join("media")), 0o700);
    assert_eq!(mode(store.path_of(&media.id).unwrap()), 0o600);
    assert_eq!(file_names(home.path()), [media.id.as_str()]);
}

#[tokio::test]
async fn a_missing_state_folder_is_created() {
    let (home, _) = empty_store();
    let store = MediaStore::open(&home.path().join("new/home")).unwrap();
    let media = store.put("", b"hello", MAX_MEDIA_BYTES).await.unwrap();
    assert_eq!(store.read(&media.id, 5).await.unwrap(), b"hello");
    assert_eq!(media.name, UNNAMED);
    // Somebody deletes the folder while the program runs.
    fs::remove_dir_all(home.path().join("new")).unwrap();
    assert!(matches!(store.read(&media.id, 5).await, Err(MediaError::Missing(_))));
    store.put("", b"hello", MAX_MEDIA_BYTES).await.unwrap();
    assert_eq!(store.read(&media.id, 5).await.unwrap(), b"hello");
}

#[tokio::test]
async fn a_file_in_place_of_the_folder_is_reported() {
    let (home, _) = empty_store();
    fs::write(home.path().join("media"), "").unwrap();
    let error = MediaStore::open(home.path()).unwrap_err().to_string();
    assert!(error.starts_with("cannot open the folder") && error.contains("Not a directory"), "{error}");
}

#[tokio::test]
async fn the_same_content_is_stored_once_under_any_name() {
    let (home, store) = empty_store();
    let one = store.put("one", b"same", MAX_MEDIA_BYTES).await.unwrap();
    let path = store.path_of(&one.id).unwrap();
    let before = fs::metadata(&path).unwrap();
    let other = store.put("other", b"same", MAX_MEDIA_BYTES).await.unwrap();
    let mut upload = store.begin_upload(MAX_MEDIA_BYTES).await.unwrap();
    upload.write(b"same").await.unwrap();
    let third = upload.finish("third").await.unwrap();
    assert_eq!((&one.id, &one.id), (&other.id, &third.id));
    assert_eq!([one.name, other.name, third.name], ["one", "other", "third"]);
    use std::os::unix::fs::MetadataExt;
    assert_eq!(fs::metadata(&path).unwrap().ino(), before.ino(), "the first file was not replaced");
    assert_eq!(file_names(home.path()), [one.id.as_str()]);
}

#[tokio::test]
async fn storing_content_again_renews_its_file() {
    let (_home, store) = empty_store();
    let media = store.put("a", b"again", MAX_MEDIA_BYTES).await.unwrap();
    let path = store.path_of(&media.id).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    let make_old = || file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    make_old();
    assert_eq!(modified_at(&path).0, 0);
    store.put("a", b"again", MAX_MEDIA_BYTES).await.unwrap();
    assert!(modified_at(&path).0 > 0);
    make_old();
    let mut upload = store.begin_upload(MAX_MEDIA_BYTES).await.unwrap();
    upload.write(b"again").await.unwrap();
    upload.finish("a").await.unwrap();
    assert!(modified_at(&path).0 > 0);
    make_old();
    store.renew(&media.id).await.unwrap();
    assert!(modified_at(&path).0 > 0);
}

#[tokio::test]
async fn a_file_of_the_limit_fits_and_one_byte_more_fails() {
    let (home, store) = empty_store();
    store.put("", vec![0; 10], 10).await.unwrap();
    assert!(matches!(store.put("", vec![0; 11], 10).await, Err(MediaError::TooLarge { limit: 10 })));
    let mut upload = store.begin_upload(10).await.unwrap();
    upload.write(&[1; 6]).await.unwrap();
    let error = upload.write(&[1; 5]).await.unwrap_err();
    assert_eq!(error.to_string(), "the file is larger than the limit of 10 bytes; send a smaller one");
    assert_eq!(file_names(home.path()).len(), 1, "its temporary file is deleted at once");
    assert!(matches!(upload.write(&[1; 1]).await, Err(MediaError::UploadFailed)));
    assert!(matches!(upload.finish("").await, Err(MediaError::UploadFailed)));
    assert_eq!(MAX_MEDIA_BYTES, 26_214_400);
}

#[tokio::test]
async fn the_limit_also_counts_buffered_bytes() {
    let (home, store) = empty_store();
    let limit = 2 * PIECE_BYTES as u64;
    let mut upload = store.begin_upload(limit).await.unwrap();
    upload.write(&vec![1; PIECE_BYTES + 1]).await.unwrap();
    assert!(matches!(upload.write(&vec![1; PIECE_BYTES]).await, Err(MediaError::TooLarge { .. })));
    let mut upload = store.begin_upload(limit).await.unwrap();
    upload.write(&vec![1; 2 * PIECE_BYTES]).await.unwrap();
    assert_eq!(upload.finish("").await.unwrap().size, limit);
    assert_eq!(file_names(home.path()).len(), 1);
}

#[tokio::test]
async fn a_dropped_upload_leaves_no_file() {
    let (home, store) = empty_store();
    let mut upload = store.begin_upload(MAX_MEDIA_BYTES).await.unwrap();
    upload.write(&vec![7; 3 * PIECE_BYTES]).await.unwrap();
    assert!(file_names(home.path()).iter().all(|name| name.starts_with(".upload-")));
    assert_eq!(file_names(home.path()).len(), 1);
    drop(upload);
    assert!(file_names(home.path()).is_empty());
}

#[tokio::test]
async fn concurrent_uploads_are_limited_and_a_finished_one_frees_its_slot() {
    let (home, store) = empty_store();
    let mut uploads = Vec::new();
    for _ in 0..MAX_UPLOADS {
        uploads.push(store.begin_upload(1).await.unwrap());
    }
    let error = store.clone().begin_upload(1).await.err().expect("no slot is free");
    assert_eq!(error.to_string(), "64 uploads are under way, which is the limit; wait for one to end");
    uploads.pop().unwrap().finish("").await.unwrap();
    drop(store.begin_upload(1).await.unwrap());
    drop(uploads);
    assert_eq!(file_names(home.path()).len(), 1, "an empty file is stored too");
}

#[tokio::test]
async fn an_id_that_is_not_a_hash_finds_nothing() {
    let (home, store) = empty_store();
    store.put("", b"x", 1).await.unwrap();
    fs::write(home.path().join("secret"), "secret").unwrap();
    fs::write(home.path().join("media/plain"), "plain").unwrap();
    let absolute = home.path().join("secret").into_os_string().into_string().unwrap();
    for text in ["../secret", "", ".", "..", "plain", &absolute, &"A".repeat(64)] {
        let id = MediaId::parse(text).unwrap();
        assert!(matches!(store.read(&id, 100).await, Err(MediaError::Missing(_))), "{text}");
        assert!(matches!(store.open_file(&id).await, Err(MediaError::Missing(_))), "{text}");
        assert!(matches!(store.renew(&id).await, Err(MediaError::Missing(_))), "{text}");
        assert!(store.path_of(&id).is_err(), "{text}");
    }
    let error = store.read(&unknown_id(), 1).await.unwrap_err().to_string();
    assert_eq!(error, format!("no file {} is stored; send the file again", unknown_id()));
}

#[tokio::test]
async fn links_folders_and_fifos_do_not_count_as_stored_files() {
    let (home, store) = empty_store();
    store.put("", b"x", 1).await.unwrap();
    fs::write(home.path().join("secret"), "secret").unwrap();
    let path = store.path_of(&unknown_id()).unwrap();
    symlink(home.path().join("secret"), &path).unwrap();
    assert!(matches!(store.read(&unknown_id(), 100).await, Err(MediaError::Missing(_))));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(store.open_file(&unknown_id()).await, Err(MediaError::Missing(_))));
    fs::remove_dir(&path).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(matches!(store.open_file(&unknown_id()).await, Err(MediaError::Missing(_))));
}

#[tokio::test]
async fn storing_replaces_a_symlink_and_does_not_follow_it() {
    let (home, store) = empty_store();
    let media = store.put("", b"content", 10).await.unwrap();
    let path = store.path_of(&media.id).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(home.path().join("precious"), "precious").unwrap();
    symlink(home.path().join("precious"), &path).unwrap();
    store.put("", b"content", 10).await.unwrap();
    assert_eq!(fs::read(home.path().join("precious")).unwrap(), b"precious");
    assert_eq!(store.read(&media.id, 10).await.unwrap(), b"content");
}

#[tokio::test]
async fn reading_detects_damage_and_storing_again_repairs_it() {
    let (_home, store) = empty_store();
    let media = store.put("", b"content", 10).await.unwrap();
    let path = store.path_of(&media.id).unwrap();
    for damage in [&b"CONTENT"[..], b"cont", b"content and more"] {
        fs::write(&path, damage).unwrap();
        let error = store.read(&media.id, 100).await.unwrap_err();
        assert!(matches!(error, MediaError::Corrupt { .. }), "{error:?}");
        assert!(error.to_string().contains("send the file again, which repairs it"), "{error}");
        store.put("", b"content", 10).await.unwrap();
        assert_eq!(store.read(&media.id, 10).await.unwrap(), b"content");
        fs::write(&path, damage).unwrap();
        let mut upload = store.begin_upload(10).await.unwrap();
        upload.write(b"content").await.unwrap();
        upload.finish("").await.unwrap();
        assert_eq!(store.read(&media.id, 10).await.unwrap(), b"content");
    }
}

#[tokio::test]
async fn read_has_its_own_limit_and_open_file_has_none() {
    let (_home, store) = empty_store();
    let media = store.put("", b"content", 10).await.unwrap();
    assert!(matches!(store.read(&media.id, 6).await, Err(MediaError::TooLarge { limit: 6 })));
    let (mut file, size) = store.open_file(&media.id).await.unwrap();
    fs::remove_file(store.path_of(&media.id).unwrap()).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), size), ("content", 7));
}
