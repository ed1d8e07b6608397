//! Folders and files that nobody but their owner looks into, whatever the umask is. What is evaluated and printed can
//! hold secrets.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, set_permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const FOLDER: u32 = 0o700;
const FILE: u32 = 0o600;

/// Makes a folder with all that are missing above it. One that is there is closed to others.
pub(super) fn make_folders(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER).create(path)?;
    set_permissions(path, Permissions::from_mode(FOLDER))
}

/// Makes a folder that is not there yet.
pub(super) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER).create(path)
}

/// Opens a file to write at its end. One that is there is closed to others.
pub(super) fn open_to_append(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).mode(FILE).open(path)?;
    file.set_permissions(Permissions::from_mode(FILE))?;
    Ok(file)
}

/// Writes a whole file.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(FILE).open(path)?;
    file.set_permissions(Permissions::from_mode(FILE))?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_an_older_version_left_open_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("a/b");
        std::fs::create_dir_all(&state).unwrap();
        let [log, snippet] = ["log", "snippet"].map(|name| state.join(name));
        for path in [&state, &log, &snippet] {
            if path != &state {
                std::fs::write(path, "old").unwrap();
            }
            set_permissions(path, Permissions::from_mode(0o777)).unwrap();
        }
        make_folders(&state).unwrap();
        drop(open_to_append(&log).unwrap());
        write(&snippet, "x").unwrap();
        assert_eq!([&state, &log, &snippet].map(|path| mode(path)), [FOLDER, FILE, FILE]);
        assert_eq!([&log, &snippet].map(|path| std::fs::read_to_string(path).unwrap()), ["old", "x"]);
    }
}
