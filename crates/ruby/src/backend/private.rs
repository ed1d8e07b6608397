//! Creates folders and files that only their owner can read, whatever the umask is. Evaluated code and printed text
//! can hold secrets.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, set_permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Creates a folder and its missing parents. If the folder exists, removes the permissions of others.
pub(super) fn make_folders(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path)?;
    set_permissions(path, Permissions::from_mode(FOLDER_MODE))
}

/// Creates a folder. Fails if it exists.
pub(super) fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER_MODE).create(path)
}

/// Opens or creates a file to append to it. If the file exists, removes the permissions of others.
pub(super) fn open_to_append(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).append(true).mode(FILE_MODE).open(path)?;
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    Ok(file)
}

/// Writes a file, and replaces its content if it exists.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(FILE_MODE).open(path)?;
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_that_others_could_read_become_private() {
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
        assert_eq!([&state, &log, &snippet].map(|path| mode(path)), [FOLDER_MODE, FILE_MODE, FILE_MODE]);
        assert_eq!([&log, &snippet].map(|path| std::fs::read_to_string(path).unwrap()), ["old", "x"]);
    }
}
