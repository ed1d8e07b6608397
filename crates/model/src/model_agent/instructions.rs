//! Reads `AGENTS.md`: the instructions of a project and of the user for agents.

use std::path::PathBuf;

use super::project::{InstructionPath, Project};

/// The name of the instructions file.
pub const INSTRUCTIONS_FILE: &str = "AGENTS.md";

/// How many bytes of each instructions file are read.
pub const INSTRUCTIONS_BYTES: u64 = 64 << 10;

/// How many parent folders are searched for the root of the project.
pub const MAX_PARENTS: usize = 32;

/// The instructions that apply to a turn.
#[derive(Debug, Default)]
pub(super) struct Instructions {
    /// Each file's path and text.
    pub(super) texts: Vec<(String, String)>,
    /// Those of the files that belong to the project.
    pub(super) of_project: Vec<PathBuf>,
    /// One sentence for each file that was refused, with the reason.
    pub(super) refused: Vec<String>,
}

/// Reads the instructions of the user, then those of the project from its root down to the working folder. Blocking.
pub(super) fn read(user: Option<InstructionPath>, project: &Project) -> Instructions {
    let mut found = Instructions::default();
    let of_project = project.paths_named(INSTRUCTIONS_FILE).into_iter().map(|file| (file, true));
    for (file, is_of_project) in user.map(|file| (file, false)).into_iter().chain(of_project) {
        match file.read_text(INSTRUCTIONS_BYTES) {
            Ok(text) if text.trim().is_empty() => {}
            Ok(text) => {
                found.texts.push((file.path.display().to_string(), text));
                found.of_project.extend(is_of_project.then_some(file.path));
            }
            Err(error) => found.refused.extend(file.refusal(error)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::UserFolders;
    use super::*;

    #[test]
    fn the_users_instructions_come_first_and_the_nearest_last() {
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
            let mine = InstructionPath::user_owned(home.path().join("mine.md"));
            let project = Project::of(folder, &UserFolders::default());
            read(Some(mine), &project).texts.into_iter().map(|(_, text)| text).collect()
        };
        assert_eq!(texts(&sub.join("deep")), ["mine", "root", "deep"]);
        assert_eq!(texts(&sub), ["mine", "root"]);
        write(&sub.join("AGENTS.md"), " \n");
        assert_eq!(texts(&sub), ["mine"], "an empty file is skipped");
        write(&sub.join("AGENTS.md"), &"x".repeat(100_000));
        assert_eq!(texts(&sub)[1].len() as u64, INSTRUCTIONS_BYTES);
    }
}
