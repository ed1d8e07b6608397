//! Reads a backup into a new folder. The file may come from anybody: names, kinds, sizes and the end are checked, and
//! memory does not grow with the file.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use flate2::bufread::GzDecoder;
use parlor_log::LEAST_FREE_BYTES;

use super::archive::MAX_BACKUP_DEPTH;
use super::parts::{BACKUP_FORMAT, DATABASE, MANIFEST, Manifest, PARTS, PartKind};
use crate::settings::size;

/// The most files of a backup.
pub(crate) const MAX_BACKUP_FILES: u64 = 10_000_000;

/// The largest manifest, in bytes.
const MANIFEST_BYTES: u64 = 64 << 10;

/// The most bytes after the last file. Programs fill a tar file up to a multiple of some KiB.
const PADDING_BYTES: u64 = 1 << 20;

/// What [`unpack`] found.
#[derive(Debug)]
pub(super) struct Unpacked {
    pub(super) manifest: Manifest,
    pub(super) has_database: bool,
    /// How many files there are beside the database.
    pub(super) files: u64,
}

/// Writes the files of a backup to the folder `to`, which must be empty. If it fails, the folder has some of the files.
pub(super) fn unpack(input: impl Read, to: &Path, on_file: &mut dyn FnMut(u64)) -> anyhow::Result<Unpacked> {
    let mut archive = tar::Archive::new(GzDecoder::new(BufReader::new(input)));
    let mut manifest: Option<Manifest> = None;
    let (mut has_database, mut files) = (false, 0);
    // Raw entries: extensions, such as names and sizes in further entries, are refused like any other unusual entry.
    // Reading them takes memory, and no backup has them.
    for entry in archive.entries().map_err(wrong_bytes)?.raw(true) {
        let mut entry = entry.map_err(wrong_bytes)?;
        let name = PathBuf::from(entry.path().map_err(wrong_bytes)?);
        let shown = name.display();
        if !matches!(entry.header().entry_type(), tar::EntryType::Regular) {
            bail!("{shown:.200} in it is not a regular file, and a backup has nothing else");
        }
        let entry_size = entry.header().size().map_err(wrong_bytes)?;
        let Some(manifest) = &manifest else {
            if name != Path::new(MANIFEST) {
                bail!("it does not begin with {MANIFEST}, so it is not a backup of parlor");
            }
            manifest = Some(read_manifest(&mut entry, entry_size)?);
            continue;
        };
        check_name(&name, manifest.secrets)?;
        let free = free_bytes(to)?;
        if entry_size > free.saturating_sub(LEAST_FREE_BYTES) {
            bail!(
                "{shown} in it takes {} and the disk of {} has {} left; free some",
                size::show(entry_size),
                to.display(),
                size::show(free)
            );
        }
        write_file(&mut entry, entry_size, &to.join(&name))?;
        if name == Path::new(DATABASE) {
            has_database = true;
        } else {
            files += 1;
            on_file(files);
        }
        if files > MAX_BACKUP_FILES {
            bail!("it has more than {MAX_BACKUP_FILES} files, which no backup has");
        }
    }
    let manifest = manifest.ok_or_else(|| anyhow!("it is empty"))?;
    read_end(archive.into_inner())?;
    Ok(Unpacked { manifest, has_database, files })
}

fn read_manifest(entry: &mut impl Read, size: u64) -> anyhow::Result<Manifest> {
    if size > MANIFEST_BYTES {
        bail!("its {MANIFEST} is larger than {MANIFEST_BYTES} bytes");
    }
    let mut text = Vec::new();
    entry.read_to_end(&mut text).map_err(wrong_bytes)?;
    // A newer format may have other members, so its number comes first.
    let value: serde_json::Value =
        serde_json::from_slice(&text).with_context(|| format!("its {MANIFEST} is not JSON"))?;
    let format = value.get("format").and_then(serde_json::Value::as_u64);
    let format = format.with_context(|| format!("its {MANIFEST} has no format number"))?;
    if format == 0 || format > u64::from(BACKUP_FORMAT) {
        bail!("it has format {format} and this parlor knows {BACKUP_FORMAT}; use a newer parlor");
    }
    serde_json::from_value(value).with_context(|| format!("its {MANIFEST} is not that of a backup"))
}

/// Fails unless the name is that of a part, or of a file in a part that is a folder.
fn check_name(name: &Path, has_secrets: bool) -> anyhow::Result<()> {
    let shown = name.display();
    let parts: Vec<Component<'_>> = name.components().collect();
    let is_plain = parts.iter().all(|part| matches!(part, Component::Normal(_)));
    if !is_plain || parts.len() > MAX_BACKUP_DEPTH {
        bail!("the name {shown:.200} in it leads out of the state folder or is too deep");
    }
    let top = parts.first().map(|part| part.as_os_str());
    let part = PARTS.iter().find(|part| top == Some(part.name.as_ref()));
    let is_known = match part {
        _ if name == Path::new(DATABASE) => true,
        Some(part) if part.is_secret && !has_secrets => false,
        Some(part) => (part.kind == PartKind::File) == (parts.len() == 1),
        None => false,
    };
    if is_known { Ok(()) } else { bail!("{shown:.200} in it is not a part of a backup") }
}

fn write_file(entry: &mut impl Read, size: u64, path: &Path) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(failed)?;
    }
    let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{} is in it twice", path.file_name().unwrap_or_default().display())
        }
        file => file.with_context(failed)?,
    };
    let mut content = ReadErrors { inner: entry, failed: None };
    let copied = io::copy(&mut content, &mut file);
    if let Some(error) = content.failed {
        return Err(wrong_bytes(error));
    }
    if copied.with_context(failed)? != size {
        return Err(wrong_bytes(ErrorKind::UnexpectedEof.into()));
    }
    Ok(())
}

/// Keeps the errors of reading apart from those of writing.
struct ReadErrors<'a, R> {
    inner: &'a mut R,
    failed: Option<io::Error>,
}

impl<R: Read> Read for ReadErrors<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer).map_err(|error| {
            let kind = error.kind();
            self.failed = Some(error);
            kind.into()
        })
    }
}

/// Fails unless nothing but padding comes after the last file, and the checksum is right.
fn read_end<R: BufRead>(mut decoder: GzDecoder<R>) -> anyhow::Result<()> {
    let mut padding = Vec::new();
    (&mut decoder).take(PADDING_BYTES + 1).read_to_end(&mut padding).map_err(wrong_bytes)?;
    if padding.len() as u64 > PADDING_BYTES || padding.iter().any(|byte| *byte != 0) {
        bail!("it has data after its last file");
    }
    if !decoder.into_inner().fill_buf().map_err(wrong_bytes)?.is_empty() {
        bail!("it has data after its end");
    }
    Ok(())
}

fn wrong_bytes(error: io::Error) -> anyhow::Error {
    use ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    if error.kind() == UnexpectedEof {
        anyhow!("it is cut off; make or copy the backup again")
    } else if [InvalidData, InvalidInput, Other].contains(&error.kind()) {
        anyhow!("it is damaged, or not a backup of parlor ({error}); make or copy the backup again")
    } else {
        anyhow!(error).context("it cannot be read")
    }
}

fn free_bytes(folder: &Path) -> anyhow::Result<u64> {
    let stats =
        rustix::fs::statvfs(folder).with_context(|| format!("cannot look at {}", folder.display()))?;
    Ok(stats.f_bavail.saturating_mul(stats.f_frsize))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const GOOD: &str = r#"{"format":1,"parlor":"0","made":"then","secrets":false}"#;

    struct Entry {
        name: &'static str,
        kind: tar::EntryType,
        size: Option<u64>,
        content: &'static [u8],
    }

    fn file(name: &'static str, content: &'static [u8]) -> Entry {
        Entry { name, kind: tar::EntryType::Regular, size: None, content }
    }

    /// A tar file as somebody else might make it.
    fn tar_of(manifest: &'static str, entries: &[Entry]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for entry in [&file(MANIFEST, manifest.as_bytes())].into_iter().chain(entries) {
            let mut header = tar::Header::new_gnu();
            // `set_path` refuses what an attacker would write.
            header.as_old_mut().name[..entry.name.len()].copy_from_slice(entry.name.as_bytes());
            header.set_entry_type(entry.kind);
            header.set_size(entry.size.unwrap_or(entry.content.len() as u64));
            header.set_mode(0o4777);
            header.set_cksum();
            bytes.extend_from_slice(header.as_bytes());
            bytes.extend_from_slice(entry.content);
            bytes.resize(bytes.len().next_multiple_of(512), 0);
        }
        bytes.resize(bytes.len() + 1024, 0);
        bytes
    }

    fn compressed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn unpacked(bytes: &[u8]) -> Result<Unpacked, String> {
        unpacked_with_history(bytes).map(|(found, _)| found)
    }

    /// The result, and the content of the file `history`.
    fn unpacked_with_history(bytes: &[u8]) -> Result<(Unpacked, Vec<u8>), String> {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("to");
        std::fs::create_dir(&folder).unwrap();
        let done = unpack(bytes, &folder, &mut |_| {}).map_err(|error| format!("{error:#}"));
        let names: Vec<_> =
            std::fs::read_dir(outer.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["to"], "a file was written elsewhere");
        done.map(|found| (found, std::fs::read(folder.join("history")).unwrap_or_default()))
    }

    fn refusal(entries: &[Entry]) -> String {
        unpacked(&compressed(&tar_of(GOOD, entries))).unwrap_err()
    }

    #[test]
    fn a_good_backup_is_unpacked() {
        let entries = [file("parlor.db", b"x"), file("media/a", b""), file("skills/a/SKILL.md", b"s")];
        let found = unpacked(&compressed(&tar_of(GOOD, &entries))).unwrap();
        assert_eq!((found.has_database, found.files), (true, 2));
    }

    #[test]
    fn names_that_lead_elsewhere_or_belong_to_no_part_are_refused() {
        for name in ["/etc/passwd", "../x", "media/../../x", "..", "media/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p"] {
            assert!(refusal(&[file(name, b"")]).contains("leads out of the state folder"), "{name}");
        }
        let foreign = [
            "serve.lock",
            "media",
            "holders/x",
            "parlor.toml/x",
            "parlor.db/x",
            "parlor.db-wal",
            ".",
            MANIFEST,
        ];
        for name in foreign {
            let printed = refusal(&[file(name, b"")]);
            assert!(
                printed.contains("not a part of a backup") || printed.contains("leads out"),
                "{name}: {printed}"
            );
        }
        assert!(
            refusal(&[file("secrets/x", b"")]).contains("not a part"),
            "the manifest promised no secrets"
        );
        assert!(refusal(&[file("history", b""), file("history", b"")]).contains("twice"));
    }

    #[test]
    fn links_devices_and_extensions_are_refused() {
        use tar::EntryType::{
            Block, Char, Continuous, Directory, Fifo, GNULongLink, GNULongName, GNUSparse, Link, Symlink,
            XGlobalHeader, XHeader,
        };
        for kind in [
            Link,
            Symlink,
            Char,
            Block,
            Directory,
            Fifo,
            Continuous,
            GNULongName,
            GNULongLink,
            GNUSparse,
            XGlobalHeader,
            XHeader,
        ] {
            let printed = refusal(&[Entry { name: "media/a", kind, size: None, content: b"" }]);
            assert!(printed.contains("not a regular file"), "{kind:?}: {printed}");
        }
    }

    #[test]
    fn absurd_sizes_are_refused_before_anything_is_written() {
        let regular = tar::EntryType::Regular;
        for size in [1 << 50, u64::MAX >> 1, u64::MAX] {
            let printed =
                refusal(&[Entry { name: "parlor.db", kind: regular, size: Some(size), content: b"" }]);
            assert!(printed.contains("the disk of") || printed.contains("damaged"), "{size}: {printed}");
        }
        let manifest = Entry { name: MANIFEST, kind: regular, size: Some(1 << 40), content: b"" };
        let mut bytes = tar_of(GOOD, &[manifest]);
        bytes.drain(..1024);
        assert!(unpacked(&compressed(&bytes)).unwrap_err().contains("larger than"));
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_noticed() {
        let content: &[u8] =
            b"some content that is long enough to be compressed, and compressed, and compressed";
        let whole = compressed(&tar_of(GOOD, &[file("history", content)]));
        assert!(unpacked(&whole).is_ok());
        for end in 0..whole.len() {
            assert!(unpacked(&whole[..end]).is_err(), "{end} of {} bytes were accepted", whole.len());
        }
        // The header of gzip has a time and flags that no checksum covers.
        for position in 10..whole.len() {
            let mut changed = whole.clone();
            changed[position] ^= 0x10;
            // A part of a code table that nothing uses may be anything.
            let found = unpacked_with_history(&changed);
            assert!(
                found.is_err() || found.is_ok_and(|(found, history)| found.files == 1 && history == content),
                "another byte {position} changes the content"
            );
        }
        for tail in [b"x".as_slice(), whole.as_slice()] {
            let printed = unpacked(&[whole.as_slice(), tail].concat()).unwrap_err();
            assert!(printed.contains("after its end"), "{printed}");
        }
        let mut hidden = tar_of(GOOD, &[]);
        hidden.extend_from_slice(b"more");
        assert!(unpacked(&compressed(&hidden)).unwrap_err().contains("after its last file"));
    }

    #[test]
    fn other_files_and_newer_formats_are_refused() {
        for foreign in [b"".as_slice(), b"text", &[0; 4096], &compressed(b"text"), &compressed(&[0; 2048])] {
            assert!(unpacked(foreign).is_err());
        }
        let of_manifest = |text| unpacked(&compressed(&tar_of(text, &[]))).unwrap_err();
        assert!(of_manifest(r#"{"format":2,"what":1}"#).contains("format 2 and this parlor knows 1"));
        for wrong in
            ["", "{}", "[]", r#"{"format":1}"#, r#"{"format":"1"}"#, r#"{"format":0}"#, r#"{"format":-1}"#]
        {
            assert!(of_manifest(wrong).contains(MANIFEST) || wrong.contains('0'), "{wrong}");
        }
        let bytes = tar_of(GOOD, &[file("history", b"")]);
        assert!(unpacked(&compressed(&bytes[1024..])).unwrap_err().contains("does not begin with"));
    }
}
