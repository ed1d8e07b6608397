//! Carries out requests about files. Blocks, so it runs on the thread of [`FileWorker`](super::file_worker::FileWorker).

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use parlor_vocab::{ExecutorRefusal, FileAction, FileFacts, FileReply, FollowLinks, ListedFile};

use super::copy::copy;
use super::no_links;
use super::open_files::OpenFiles;
use super::walk::walk;

/// The largest file that is read, in bytes. In base64 it fits into a line.
pub const MAX_FILE_BYTES: u64 = 40 << 20;

/// How many entries a listed folder may have.
pub const MAX_LISTED_FILES: usize = 50_000;

pub(super) type Outcome<T> = Result<T, ExecutorRefusal>;

/// Carries out `action`. A long copy stops once `is_abandoned`.
pub(super) fn carry_out(
    action: FileAction,
    open: &OpenFiles,
    is_abandoned: &dyn Fn() -> bool,
) -> Outcome<FileReply> {
    match action {
        FileAction::Read { path, follow } => read(&path, follow).map(FileReply::Content),
        FileAction::Write { path, bytes, follow } => write(&path, &bytes, follow),
        FileAction::CreateFolder { path, recursive, follow } => {
            match (follow, recursive) {
                (FollowLinks::Yes, true) => fs::create_dir_all(&path).map_err(refusal)?,
                (FollowLinks::Yes, false) => fs::create_dir(&path).map_err(refusal)?,
                (FollowLinks::No, true) => no_links::create_folders(&path)?,
                (FollowLinks::No, false) => no_links::create_folder(&path)?,
            }
            Ok(FileReply::Done)
        }
        FileAction::Describe { path, follow } => describe(&path, follow).map(FileReply::Described),
        FileAction::Canonicalize { path } => fs::canonicalize(path).map(FileReply::Resolved).map_err(refusal),
        FileAction::List { path } => list(&path).map(FileReply::Listed),
        FileAction::Walk { path, options } => walk(&path, options).map(FileReply::Walked),
        FileAction::Remove { path, recursive, force, follow } => {
            let removed = match follow {
                FollowLinks::Yes => remove(&path, recursive).map_err(refusal),
                FollowLinks::No => {
                    no_links::in_parent(&path, |path| remove(path, recursive).map_err(refusal))
                }
            };
            match removed {
                Err(ExecutorRefusal::FileNotFound(_)) if force => Ok(FileReply::Done),
                removed => removed.map(|()| FileReply::Done),
            }
        }
        FileAction::Open { handle, path, replaces, follow } => open.open(handle, &path, replaces, follow),
        FileAction::ReadBlock { handle, offset, length } => open.read(&handle, offset, length),
        FileAction::WriteBlock { handle, offset, bytes } => open.write(&handle, offset, &bytes),
        FileAction::Close { handle } => {
            open.close(&handle);
            Ok(FileReply::Done)
        }
        FileAction::Copy { source, destination, recursive } => {
            copy(&source, &destination, recursive, is_abandoned)
        }
    }
}

/// The refusal for an error of the file system.
pub(super) fn refusal(error: io::Error) -> ExecutorRefusal {
    let (text, kind) = (error.to_string(), error.kind());
    if kind == ErrorKind::NotFound {
        ExecutorRefusal::FileNotFound(text)
    } else if [ErrorKind::InvalidInput, ErrorKind::PermissionDenied].contains(&kind) {
        ExecutorRefusal::FileRefused(text)
    } else {
        ExecutorRefusal::FileFailed(text)
    }
}

fn not_a_file(path: &Path) -> ExecutorRefusal {
    ExecutorRefusal::FileRefused(format!("path `{}` is not a file", path.display()))
}

/// Opens a regular file. The type is checked before the open, because opening a device can have effects, and after it,
/// because the file may be replaced in between.
pub(super) fn open_regular(options: &mut OpenOptions, path: &Path, follow: FollowLinks) -> Outcome<File> {
    let existing = match follow {
        FollowLinks::Yes => fs::metadata(path).map_err(refusal),
        FollowLinks::No => no_links::metadata(path),
    };
    match existing {
        Ok(metadata) if !metadata.is_file() => return Err(not_a_file(path)),
        // The open reports a missing file, or creates it.
        Ok(_) | Err(ExecutorRefusal::FileNotFound(_)) => {}
        Err(refusal) => return Err(refusal),
    }
    // Without waiting, as the open of a FIFO would.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = match follow {
        FollowLinks::Yes => options.custom_flags(flags).open(path).map_err(refusal)?,
        FollowLinks::No => {
            let flags = flags | libc::O_NOFOLLOW;
            no_links::in_parent(path, |path| options.custom_flags(flags).open(path).map_err(refusal))?
        }
    };
    if file.metadata().map_err(refusal)?.is_file() { Ok(file) } else { Err(not_a_file(path)) }
}

fn read(path: &Path, follow: FollowLinks) -> Outcome<Vec<u8>> {
    let too_large = || {
        ExecutorRefusal::FileRefused(format!(
            "file is too large to read: `{}` has more than {MAX_FILE_BYTES} bytes",
            path.display()
        ))
    };
    let file = open_regular(OpenOptions::new().read(true), path, follow)?;
    let size = file.metadata().map_err(refusal)?.len();
    if size > MAX_FILE_BYTES {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    // The file may grow meanwhile.
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(refusal)?;
    if bytes.len() as u64 > MAX_FILE_BYTES { Err(too_large()) } else { Ok(bytes) }
}

fn write(path: &Path, bytes: &[u8], follow: FollowLinks) -> Outcome<FileReply> {
    let mut options = OpenOptions::new();
    // Truncated only when it is known to be a regular file.
    options.write(true).create(true).truncate(false);
    let mut file = open_regular(&mut options, path, follow)?;
    file.set_len(0).and_then(|()| file.write_all(bytes)).map_err(refusal)?;
    Ok(FileReply::Done)
}

fn describe(path: &Path, follow: FollowLinks) -> Outcome<FileFacts> {
    let (is_link, metadata) = match follow {
        FollowLinks::Yes => {
            let is_link = fs::symlink_metadata(path).map_err(refusal)?.is_symlink();
            (is_link, fs::metadata(path).map_err(refusal)?)
        }
        FollowLinks::No => (false, no_links::metadata(path)?),
    };
    Ok(FileFacts {
        is_folder: metadata.is_dir(),
        is_file: metadata.is_file(),
        is_link,
        size: metadata.len(),
        created_ms: milliseconds(metadata.created()),
        modified_ms: milliseconds(metadata.modified()),
    })
}

fn milliseconds(time: io::Result<SystemTime>) -> u64 {
    let since = time.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn list(path: &Path) -> Outcome<Vec<ListedFile>> {
    let mut files = Vec::new();
    for (count, entry) in fs::read_dir(path).map_err(refusal)?.enumerate() {
        if count >= MAX_LISTED_FILES {
            return Err(ExecutorRefusal::FileFailed(format!(
                "the folder has more than {MAX_LISTED_FILES} entries"
            )));
        }
        let entry = entry.map_err(refusal)?;
        // Follows links; one that leads nowhere is left out.
        if let Ok(metadata) = fs::metadata(entry.path()) {
            let name = entry.file_name().to_string_lossy().into_owned();
            files.push(ListedFile { name, is_folder: metadata.is_dir(), is_file: metadata.is_file() });
        }
    }
    Ok(files)
}

fn remove(path: &Path, recursive: bool) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    match (metadata.is_dir(), recursive) {
        (true, true) => fs::remove_dir_all(path),
        (true, false) => fs::remove_dir(path),
        (false, _) => fs::remove_file(path),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    fn done(action: FileAction) -> Outcome<FileReply> {
        carry_out(action, &OpenFiles::default(), &|| false)
    }

    #[test]
    fn a_file_of_the_largest_size_is_read_and_a_larger_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let file = File::create(&path).unwrap();
        for (size, is_read) in [(MAX_FILE_BYTES, true), (MAX_FILE_BYTES + 1, false)] {
            file.set_len(size).unwrap();
            match done(FileAction::Read { path: path.clone(), follow: FollowLinks::Yes }) {
                Ok(FileReply::Content(bytes)) => assert!(is_read && bytes.len() as u64 == size),
                other => assert!(!is_read && matches!(other, Err(ExecutorRefusal::FileRefused(_))), "{size}"),
            }
        }
    }

    #[test]
    fn a_fifo_with_a_reader_gets_no_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("q");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        for follow in [FollowLinks::Yes, FollowLinks::No] {
            let refused = done(FileAction::Write { path: path.clone(), bytes: b"x".to_vec(), follow });
            assert!(matches!(refused, Err(ExecutorRefusal::FileRefused(_))), "{refused:?}");
        }
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "no writer and no bytes");
    }

    #[test]
    fn a_shorter_text_replaces_a_longer_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        for (follow, text) in
            [(FollowLinks::No, "long text"), (FollowLinks::Yes, "short"), (FollowLinks::No, "s")]
        {
            done(FileAction::Write { path: path.clone(), bytes: text.into(), follow }).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn a_path_with_a_link_is_refused_if_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        fs::create_dir(top.join("d")).unwrap();
        fs::write(top.join("d/f"), "text").unwrap();
        symlink("d", top.join("l")).unwrap();
        symlink("f", top.join("d/lf")).unwrap();
        let follow = FollowLinks::No;
        for path in [top.join("l/f"), top.join("d/lf")] {
            let actions = [
                FileAction::Read { path: path.clone(), follow },
                FileAction::Write { path: path.clone(), bytes: Vec::new(), follow },
                FileAction::Describe { path: path.clone(), follow },
            ];
            for action in actions {
                let refused = done(action.clone());
                assert!(matches!(refused, Err(ExecutorRefusal::FileRefused(_))), "{action:?} {refused:?}");
            }
        }
        for path in [top.join("l/new/deep"), top.join("d/lf/new")] {
            let refused = done(FileAction::CreateFolder { path, recursive: true, follow });
            assert!(matches!(refused, Err(ExecutorRefusal::FileRefused(_))), "{refused:?}");
        }
        let remove = |path: PathBuf| done(FileAction::Remove { path, recursive: true, force: true, follow });
        assert!(matches!(remove(top.join("l/f")), Err(ExecutorRefusal::FileRefused(_))));
        // A link itself is removed, and not what it leads to.
        assert_eq!(remove(top.join("d/lf")), Ok(FileReply::Done));
        assert_eq!(fs::read_to_string(top.join("d/f")).unwrap(), "text");

        let create =
            |recursive| done(FileAction::CreateFolder { path: top.join("d/a/b"), recursive, follow });
        assert!(matches!(create(false), Err(ExecutorRefusal::FileNotFound(_))));
        for _ in 0..2 {
            assert_eq!(create(true), Ok(FileReply::Done));
        }
        assert!(matches!(create(false), Err(ExecutorRefusal::FileFailed(_))), "it exists");
        assert_eq!(remove(top.join("d")), Ok(FileReply::Done));
        assert!(!top.join("d").exists());
        assert_eq!(remove(top.join("none/f")), Ok(FileReply::Done), "a missing parent is a missing file");
    }
}
