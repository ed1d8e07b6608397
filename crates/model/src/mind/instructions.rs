//! `AGENTS.md`: what a project and a user want every agent to know.

use std::path::Path;

use super::files::{project_folders, text_of};

/// The file's name.
pub const INSTRUCTIONS_FILE: &str = "AGENTS.md";

/// How much of each file is read.
pub const INSTRUCTIONS_BYTES: u64 = 64 << 10;

/// How many folders upwards a project is looked for.
pub const MAX_PARENTS: usize = 32;

/// The instructions of the user, then those of the project from its root down to `folder`, each with
/// its place. Blocking.
pub(super) fn read(user: Option<&Path>, folder: &Path) -> Vec<(String, String)> {
    let project =
        project_folders(folder, MAX_PARENTS).into_iter().map(|folder| folder.join(INSTRUCTIONS_FILE));
    let files = user.map(Path::to_owned).into_iter().chain(project);
    files
        .filter_map(|file| {
            let text = text_of(&file, INSTRUCTIONS_BYTES)?;
            (!text.trim().is_empty()).then(|| (file.display().to_string(), text))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_nearest_instructions_come_last_and_the_users_first() {
        let home = tempfile::tempdir().unwrap();
        let sub = home.path().join("sub");
        fs::create_dir_all(sub.join(".git")).unwrap();
        fs::create_dir_all(sub.join("deep")).unwrap();
        let write = |path: &Path, text: &str| fs::write(path, text).unwrap();
        write(&home.path().join("AGENTS.md"), "outside of the project");
        write(&home.path().join("mine.md"), "mine");
        write(&sub.join("AGENTS.md"), "root");
        write(&sub.join("deep/AGENTS.md"), "deep");
        let texts = |folder: &Path| -> Vec<String> {
            read(Some(&home.path().join("mine.md")), folder).into_iter().map(|(_, text)| text).collect()
        };
        assert_eq!(texts(&sub.join("deep")), ["mine", "root", "deep"]);
        assert_eq!(texts(&sub), ["mine", "root"]);
        write(&sub.join("AGENTS.md"), " \n");
        assert_eq!(texts(&sub), ["mine"], "an empty file says nothing");
        write(&sub.join("AGENTS.md"), &"x".repeat(100_000));
        assert_eq!(texts(&sub)[1].len() as u64, INSTRUCTIONS_BYTES);
    }
}
