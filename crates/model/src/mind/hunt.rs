//! Finding skills: folders with a `SKILL.md`, at any depth below some folders. Blocking.

use std::fs;
use std::path::{Path, PathBuf};

use super::files::{project_folders, text_of};
use super::instructions::MAX_PARENTS;

/// The file's name.
pub const SKILL_FILE: &str = "SKILL.md";

/// How much of a skill is read.
pub const SKILL_BYTES: u64 = 64 << 10;

/// How deep below a folder of skills one may lie.
pub const MAX_SKILL_DEPTH: usize = 6;

/// How many folders are looked at below each folder of skills.
pub const MAX_SKILL_FOLDERS: usize = 2000;

/// Something that is known how to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skill {
    /// The name of its folder.
    pub name: String,
    /// The name that the file gives, if it is another word.
    pub title: Option<String>,
    /// What it is for; empty if it does not say.
    pub description: String,
    /// Its file.
    pub file: PathBuf,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundSkills {
    /// The skills, folder by folder.
    pub skills: Vec<Skill>,
    /// What was wrong with others, in sentences.
    pub errors: Vec<String>,
}

/// All skills below `folders`, each of which need not be there.
pub fn hunt_skills(folders: &[PathBuf]) -> FoundSkills {
    let mut found = FoundSkills::default();
    for folder in folders {
        let mut hunt = Hunt { left: MAX_SKILL_FOLDERS, found: &mut found };
        hunt.look(folder, 0);
        if hunt.left == 0 {
            let error = format!("{}: only {MAX_SKILL_FOLDERS} folders were looked at", folder.display());
            found.errors.push(error);
        }
    }
    found
}

/// The folder `name` in each folder of the project that `folder` is in, from its root down.
pub fn in_project(folder: &Path, name: &str) -> Vec<PathBuf> {
    project_folders(folder, MAX_PARENTS).into_iter().map(|folder| folder.join(name)).collect()
}

struct Hunt<'a> {
    left: usize,
    found: &'a mut FoundSkills,
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
        match text_of(&file, SKILL_BYTES) {
            Some(text) if text.trim().is_empty() => {
                self.found.errors.push(format!("{} is empty", file.display()));
            }
            Some(text) => self.found.skills.push(skill(name, &text, file)),
            None => self.found.errors.push(format!("{} cannot be read", file.display())),
        }
    }
}

fn skill(folder: &str, text: &str, file: PathBuf) -> Skill {
    let (head, body) = front_matter(text);
    let member = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
        line.map(|value| value.trim().trim_matches(['"', '\'']).to_owned()).filter(|value| !value.is_empty())
    };
    let title = member("name").filter(|name| !name.contains(char::is_whitespace) && name != folder);
    let description = member("description").unwrap_or_else(|| first_paragraph(body));
    Skill { name: folder.to_owned(), title, description, file }
}

/// The first lines of text, without marks.
fn first_paragraph(body: &str) -> String {
    let mut in_code = false;
    let lines = body.lines().map(str::trim).filter(|line| {
        let is_fence = line.starts_with("```");
        in_code ^= is_fence;
        !is_fence && !in_code && !line.starts_with('#')
    });
    let paragraph: Vec<&str> =
        lines.skip_while(|line| line.is_empty()).take_while(|line| !line.is_empty()).collect();
    paragraph.join(" ").replace("**", "").replace('`', "")
}

/// What stands between two lines of dashes at the beginning, and the rest.
fn front_matter(text: &str) -> (&str, &str) {
    let Some(rest) = text.strip_prefix("---\n") else { return ("", text) };
    rest.split_once("\n---").unwrap_or(("", text))
}

#[cfg(test)]
pub(super) fn write_skill(folder: &Path, name: &str, text: &str) {
    fs::create_dir_all(folder.join(name)).unwrap();
    fs::write(folder.join(name).join(SKILL_FILE), text).unwrap();
}

#[cfg(test)]
mod tests {
    use super::write_skill as write;
    use super::*;

    #[test]
    fn skills_are_found_at_any_depth_and_what_is_wrong_is_said() {
        let home = tempfile::tempdir().unwrap();
        write(home.path(), "deploy", "# Title\n\nHow to **deploy** `it`\nwell.\n\nMore.");
        write(home.path(), "a/b/nested", "```\ncode\n```");
        write(home.path(), "release", "---\nname: ship-it\ndescription: \"How to ship\"\n---\nbody");
        write(home.path(), "plain", "---\nno end");
        write(home.path(), "empty", " \n");
        write(home.path(), ".hidden", "x");
        let mut found = hunt_skills(&[home.path().join("not-there"), home.path().to_owned()]);
        found.skills.sort_by(|a, b| a.name.cmp(&b.name));
        let told: Vec<(&str, Option<&str>, &str)> = found
            .skills
            .iter()
            .map(|skill| (&*skill.name, skill.title.as_deref(), &*skill.description))
            .collect();
        let wanted = [
            ("deploy", None, "How to deploy it well."),
            ("nested", None, ""),
            ("plain", None, "--- no end"),
            ("release", Some("ship-it"), "How to ship"),
        ];
        assert_eq!(told, wanted);
        assert!(found.errors.len() == 1 && found.errors[0].ends_with("empty/SKILL.md is empty"));
    }

    #[test]
    fn there_is_an_end_to_what_is_looked_at() {
        let home = tempfile::tempdir().unwrap();
        let skills = home.path().join("skills");
        let deep: PathBuf = (0..MAX_SKILL_DEPTH).map(|_| "d").collect();
        write(&skills.join(&deep), "too_deep", "x");
        std::os::unix::fs::symlink(&skills, skills.join("circle")).unwrap();
        assert!(hunt_skills(std::slice::from_ref(&skills)).skills.is_empty());
        for number in 0..=MAX_SKILL_FOLDERS {
            fs::create_dir(skills.join(format!("{number}"))).unwrap();
        }
        assert_eq!(hunt_skills(&[skills]).errors.len(), 1);
    }
}
