//! The skills of a working folder and of its user, as lists show them.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use parlor_vocab::{SkillLine, Skills};

/// How deep below a folder of skills one may lie.
pub const MAX_SKILL_DEPTH: usize = 6;

/// How many folders are looked at below each folder of skills.
pub const MAX_SKILL_FOLDERS: usize = 2000;

/// How much of a skill is read.
pub const SKILL_FILE_BYTES: u64 = 64 << 10;

/// What makes a folder a skill.
const SKILL_FILE: &str = "SKILL.md";

/// Where a project keeps skills.
const PROJECT_SKILLS: &str = ".agents/skills";

/// Where a user keeps skills.
const USER_SKILLS: [&str; 2] = [".loaf/skills", ".agents/skills"];

/// What a skill is said to be for that does not say so.
const NO_DESCRIPTION: &str = "no description provided";

/// The skills that can be used in `folder`. Blocking.
pub fn find_skills_in(folder: &Path, user_home: Option<&Path>) -> Skills {
    let mut found = Skills { folders: folders(folder, user_home), ..Skills::default() };
    for folder in found.folders.clone() {
        let mut hunt = Hunt { left: MAX_SKILL_FOLDERS, found: &mut found };
        hunt.look(&folder, 0);
        if hunt.left == 0 {
            let error = format!("{}: only {MAX_SKILL_FOLDERS} folders were looked at", folder.display());
            found.errors.push(error);
        }
    }
    found.skills.sort_by(|a, b| (&a.name, &a.file).cmp(&(&b.name, &b.file)));
    found
}

/// Where skills are looked for: in the project from its root down, then with the user.
fn folders(folder: &Path, user_home: Option<&Path>) -> Vec<PathBuf> {
    let root = folder.ancestors().find(|ancestor| ancestor.join(".git").exists()).unwrap_or(folder);
    let mut project: Vec<PathBuf> = folder
        .ancestors()
        .take_while(|ancestor| ancestor.starts_with(root))
        .map(|ancestor| ancestor.join(PROJECT_SKILLS))
        .filter(|skills| skills.is_dir())
        .collect();
    project.reverse();
    for place in USER_SKILLS {
        let skills = user_home.map(|home| home.join(place));
        if let Some(skills) = skills.filter(|skills| !project.contains(skills)) {
            project.push(skills);
        }
    }
    project
}

struct Hunt<'a> {
    left: usize,
    found: &'a mut Skills,
}

impl Hunt<'_> {
    fn look(&mut self, folder: &Path, depth: usize) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
            // Links are followed; how many folders are looked at is bounded, so a circle ends.
            if !path.is_dir() {
                continue;
            }
            let Some(left) = self.left.checked_sub(1) else { return };
            self.left = left;
            let file = path.join(SKILL_FILE);
            if file.is_file() {
                self.take(name, file);
            } else if depth + 1 < MAX_SKILL_DEPTH {
                self.look(&path, depth + 1);
            }
        }
    }

    fn take(&mut self, name: &str, file: PathBuf) {
        match text_of(&file) {
            Ok(text) if text.trim().is_empty() => {
                self.found.errors.push(format!("{} is empty", file.display()))
            }
            Ok(text) => {
                let (name, description) = (name.to_owned(), description(&text));
                self.found.skills.push(SkillLine { name, description, file });
            }
            Err(error) => self.found.errors.push(format!("{} cannot be read: {error}", file.display())),
        }
    }
}

fn text_of(file: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(file)?.take(SKILL_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What a skill is for: what it says at its head, else its first paragraph.
fn description(text: &str) -> String {
    let (head, body) = match text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---")) {
        Some((head, body)) => (head, body),
        None => ("", text),
    };
    let said = head.lines().find_map(|line| line.strip_prefix("description:"));
    let said = said.map(|said| said.trim().trim_matches(['"', '\'']).to_owned());
    let mut in_code = false;
    let lines = body.lines().map(str::trim).filter(|line| {
        let is_fence = line.starts_with("```");
        in_code ^= is_fence;
        !is_fence && !in_code && !line.starts_with('#')
    });
    let paragraph: Vec<&str> =
        lines.skip_while(|line| line.is_empty()).take_while(|line| !line.is_empty()).collect();
    let plain = paragraph.join(" ").replace("**", "").replace('`', "");
    said.filter(|said| !said.is_empty())
        .or(Some(plain).filter(|plain| !plain.is_empty()))
        .unwrap_or_else(|| NO_DESCRIPTION.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        fs::create_dir_all(folder.join(name)).unwrap();
        fs::write(folder.join(name).join(SKILL_FILE), text).unwrap();
    }

    #[test]
    fn skills_are_found_from_the_root_of_the_project_down_and_with_the_user() {
        let home = tempfile::tempdir().unwrap();
        let project = home.path().join("p");
        fs::create_dir_all(project.join("sub/.git")).unwrap();
        fs::create_dir_all(project.join("sub/deep")).unwrap();
        write(&project.join(".agents/skills"), "outside", "x");
        write(
            &project.join("sub/.agents/skills"),
            "deploy",
            "# Title\n\nHow to **deploy** `it`\nwell.\n\nMore.",
        );
        write(&home.path().join(".loaf/skills"), "a/b/nested", "```\ncode\n```");
        write(&home.path().join(".loaf/skills"), "empty", " \n");
        write(&home.path().join(".loaf/skills"), ".hidden", "x");
        let found = find_skills_in(&project.join("sub/deep"), Some(home.path()));
        let told: Vec<(&str, &str)> =
            found.skills.iter().map(|skill| (skill.name.as_str(), skill.description.as_str())).collect();
        assert_eq!(told, [("deploy", "How to deploy it well."), ("nested", NO_DESCRIPTION)]);
        assert!(found.errors.len() == 1 && found.errors[0].ends_with("empty/SKILL.md is empty"));
        assert_eq!(found.folders.len(), 3, "{:?}", found.folders);
    }

    #[test]
    fn there_is_an_end_to_what_is_looked_at() {
        let home = tempfile::tempdir().unwrap();
        let skills = home.path().join(".loaf/skills");
        let deep: PathBuf = (0..MAX_SKILL_DEPTH).map(|_| "d").collect();
        write(&skills.join(&deep), "too_deep", "x");
        fs::create_dir_all(&skills).unwrap();
        std::os::unix::fs::symlink(&skills, skills.join("circle")).unwrap();
        assert!(find_skills_in(home.path(), Some(home.path())).skills.is_empty());
        for number in 0..=MAX_SKILL_FOLDERS {
            fs::create_dir(skills.join(format!("{number}"))).unwrap();
        }
        assert_eq!(find_skills_in(home.path(), Some(home.path())).errors.len(), 1);
    }

    #[test]
    fn what_a_skill_is_for_may_stand_at_its_head() {
        assert_eq!(description("---\nname: x\ndescription: \"To ship\"\n---\nbody"), "To ship");
        assert_eq!(description("---\nno end"), "--- no end");
    }
}
