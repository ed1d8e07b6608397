//! Writes a backup: a tar file, compressed with gzip, of regular files only.

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::OFlags;

use super::parts::{MANIFEST, MEDIA, Manifest, Part, PartKind};

/// The deepest folder of a part, counted from the state folder. A backup leaves out what is deeper, and a restore
/// refuses it.
pub(crate) const MAX_BACKUP_DEPTH: usize = 16;

/// The length of the name of an attached file.
const MEDIA_NAME: usize = 64;

/// A backup that is being written.
pub(super) struct BackupWriter<W: Write> {
    tar: tar::Builder<GzEncoder<W>>,
    /// How many files of the state folder it has, without the database and the manifest.
    files: u64,
    /// What was left out, with the reasons.
    left_out: Vec<String>,
}

/// What [`BackupWriter::finish`] reports.
pub(super) struct Written<W> {
    pub(super) output: W,
    pub(super) files: u64,
    pub(super) left_out: Vec<String>,
}

impl<W: Write> BackupWriter<W> {
    /// Begins a backup with its manifest.
    pub(super) fn begin(output: W, manifest: &Manifest) -> anyhow::Result<Self> {
        let tar = tar::Builder::new(GzEncoder::new(output, Compression::default()));
        let mut writer = Self { tar, files: 0, left_out: Vec::new() };
        writer.bytes(Path::new(MANIFEST), &serde_json::to_vec(manifest)?)?;
        Ok(writer)
    }

    /// Adds `bytes` as a file.
    pub(super) fn bytes(&mut self, name: &Path, bytes: &[u8]) -> anyhow::Result<()> {
        let header = header(name, bytes.len() as u64, 0).context("the name of a part is short")?;
        self.tar.append(&header, bytes).map_err(Into::into)
    }

    /// Adds the file at `path`.
    pub(super) fn file(&mut self, name: &Path, path: &Path) -> anyhow::Result<()> {
        let open = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let metadata = open.metadata()?;
        self.open_file(name, path, &open, &metadata)
    }

    /// Adds a part of the state folder `home`, if it exists.
    pub(super) fn part(
        &mut self,
        home: &Path,
        part: &Part,
        on_file: &mut dyn FnMut(u64),
    ) -> anyhow::Result<()> {
        let path = home.join(part.name);
        // A part itself may be a link, such as one to a larger disk; what is in it may not.
        let metadata = match std::fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error).with_context(|| format!("cannot look at {}", path.display())),
        };
        match part.kind {
            PartKind::File if metadata.is_file() => {
                self.files += 1;
                self.file(Path::new(part.name), &path)
            }
            PartKind::Folder if metadata.is_dir() => self.folder(home, Path::new(part.name), on_file),
            PartKind::File | PartKind::Folder => {
                bail!("{} is neither a file nor a folder as parlor makes it; inspect it", path.display())
            }
        }
    }

    /// Adds the files of a folder and of the folders in it.
    fn folder(&mut self, home: &Path, name: &Path, on_file: &mut dyn FnMut(u64)) -> anyhow::Result<()> {
        let path = home.join(name);
        let failed = || format!("cannot read {}", path.display());
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&path).with_context(failed)? {
            names.push(entry.with_context(failed)?.file_name());
        }
        names.sort();
        for member in names {
            let name = name.join(&member);
            if name.parent() == Some(Path::new(MEDIA)) && !is_media_name(&member) {
                // An upload that is not complete.
                continue;
            }
            let path = home.join(&name);
            let Ok(metadata) = std::fs::symlink_metadata(&path) else {
                // Deleted meanwhile, with its session.
                continue;
            };
            if metadata.is_dir() && name.components().count() < MAX_BACKUP_DEPTH {
                self.folder(home, &name, on_file)?;
            } else if metadata.is_dir() {
                self.leave_out(&name, "it is too deep in folders");
            } else if !metadata.is_file() {
                self.leave_out(&name, "it is not a regular file");
            } else {
                let open =
                    OpenOptions::new().read(true).custom_flags(OFlags::NOFOLLOW.bits() as i32).open(&path);
                let open = match open {
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    open => open.with_context(|| format!("cannot read {}", path.display()))?,
                };
                if header(&name, 0, 0).is_none() {
                    self.leave_out(&name, "its path is too long for a tar file");
                    continue;
                }
                let metadata = open.metadata()?;
                self.open_file(&name, &path, &open, &metadata)?;
                self.files += 1;
                on_file(self.files);
            }
        }
        Ok(())
    }

    fn open_file(
        &mut self,
        name: &Path,
        path: &Path,
        open: &File,
        metadata: &Metadata,
    ) -> anyhow::Result<()> {
        let size = metadata.len();
        let modified = u64::try_from(metadata.mtime()).unwrap_or(0);
        let header = header(name, size, modified).context("the name of a part is short")?;
        let mut content = CountedRead { inner: open.take(size), left: size };
        let added = self.tar.append(&header, &mut content);
        added.with_context(|| format!("cannot save {}", path.display()))?;
        if content.left > 0 {
            bail!("{} became shorter while it was saved; try again", path.display());
        }
        Ok(())
    }

    fn leave_out(&mut self, name: &Path, reason: &str) {
        self.left_out.push(format!("{}: {reason}", name.display()));
    }

    /// Completes the backup.
    pub(super) fn finish(self) -> io::Result<Written<W>> {
        let output = self.tar.into_inner()?.finish()?;
        Ok(Written { output, files: self.files, left_out: self.left_out })
    }
}

/// Knows how much of a file has not been read.
struct CountedRead<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for CountedRead<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.saturating_sub(read as u64);
        Ok(read)
    }
}

/// The header of a file; `None` if its name does not fit.
fn header(name: &Path, size: u64, modified: u64) -> Option<tar::Header> {
    let mut header = tar::Header::new_ustar();
    header.set_path(name).ok()?;
    header.set_size(size);
    header.set_mode(0o600);
    header.set_mtime(modified);
    header.set_entry_type(tar::EntryType::Regular);
    header.set_cksum();
    Some(header)
}

fn is_media_name(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.len() == MEDIA_NAME && name.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The paths of the new backup until it is complete. Dropping it removes the files.
pub(super) struct TemporaryFile(pub(super) PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        for suffix in ["", "-journal", "-wal", "-shm"] {
            let mut path = self.0.clone().into_os_string();
            path.push(suffix);
            // Fails if there is no such file, which is the usual case.
            let _ = std::fs::remove_file(path);
        }
    }
}
