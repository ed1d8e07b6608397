//! Finds skills: folders that contain a `SKILL.md`, at any depth below some folders. Blocking.

use std::path::PathBuf;

use super::project::{InstructionPath, ReadError};

/// The name of the file that describes a skill.
pub const SKILL_FILE: &str = "SKILL.md";

/// How many bytes of a skill are read.
pub const SKILL_BYTES: u64 = 64 << 10;

/// How many levels below each folder are searched.
pub const MAX_SKILL_DEPTH: usize = 6;

/// How many folders are visited below each folder.
pub const MAX_SKILL_FOLDERS: usize = 2000;

/// How many directory entries are read below each folder. Low, because every turn searches.
pub const MAX_SKILL_NAMES: usize = 10_000;

/// A skill: instructions for a task.
#[derive(Clone, Debug, Default)]
pub struct Skill {
    /// The name of the skill's folder.
    pub name: String,
    /// The `name` in the file's front matter, if it is one word and differs from the folder's name.
    pub title: Option<String>,
    /// The `description` in the front matter, or the first paragraph. May be empty.
    pub description: String,
    /// The path of the `SKILL.md`.
    pub file: PathBuf,
    pub(super) path: Option<InstructionPath>,
}

/// The result of [`search_skills`].
#[derive(Clone, Debug, Default)]
pub struct SkillSearchResult {
    /// The skills, in the order of the folders.
    pub skills: Vec<Skill>,
    /// One sentence for each empty skill and each limit that was reached.
    pub errors: Vec<String>,
    /// One sentence for each file and folder that was refused, with the reason.
    pub refused: Vec<String>,
}

/// Finds all skills below `folders`. Missing folders are skipped.
pub fn search_skills(folders: &[InstructionPath]) -> SkillSearchResult {
    let mut found = SkillSearchResult::default();
    for folder in folders {
        let mut search =
            SkillSearch { folders_left: MAX_SKILL_FOLDERS, names_left: MAX_SKILL_NAMES, found: &mut found };
        search.visit(folder, 0);
        let limit = match (search.folders_left, search.names_left) {
            (0, _) => Some(format!("{MAX_SKILL_FOLDERS} folders")),
            (_, 0) => Some(format!("{MAX_SKILL_NAMES} names")),
            _ => None,
        };
        if let Some(limit) = limit {
            let error = format!("{}: only {limit} were looked at", folder.path.display());
            found.errors.push(error);
        }
    }
    found
}

struct SkillSearch<'a> {
    folders_left: usize,
    names_left: usize,
    found: &'a mut SkillSearchResult,
}

impl SkillSearch<'_> {
    fn visit(&mut self, folder: &InstructionPath, depth: usize) {
        let (names, entries_read) = match folder.inner_folders(self.names_left) {
            Ok(found) => found,
            Err(error) => return self.found.refused.extend(folder.refusal(error)),
        };
        self.names_left -= entries_read;
        for name in names.iter().filter(|name| !name.starts_with('.')) {
            let inner = folder.join(name);
            // Links are followed. The limits end a cycle of links.
            match inner.is_folder() {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    self.found.refused.extend(inner.refusal(error));
                    continue;
                }
            }
            let Some(left) = self.folders_left.checked_sub(1) else { return };
            self.folders_left = left;
            if !self.add_skill(name, inner.join(SKILL_FILE)) && depth + 1 < MAX_SKILL_DEPTH {
                self.visit(&inner, depth + 1);
            }
        }
    }

    /// Adds the skill that `file` describes. Returns whether the file exists.
    fn add_skill(&mut self, name: &str, file: InstructionPath) -> bool {
        match file.read_text(SKILL_BYTES) {
            Ok(text) if text.trim().is_empty() => {
                self.found.errors.push(format!("{} is empty", file.path.display()));
            }
            Ok(text) => self.found.skills.push(parse_skill(name, &text, file)),
            Err(ReadError::Missing) => return false,
            Err(error) => self.found.refused.extend(file.refusal(error)),
        }
        true
    }
}

fn parse_skill(folder: &str, text: &str, path: InstructionPath) -> Skill {
    let (head, body) = front_matter(text);
    let member = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
        line.map(|value| value.trim().trim_matches(['"', '\'']).to_owned()).filter(|value| !value.is_empty())
    };
    let title = member("name").filter(|name| !name.contains(char::is_whitespace) && name != folder);
    let description = member("description").unwrap_or_else(|| first_paragraph(body));
    Skill { name: folder.to_owned(), title, description, file: path.path.clone(), path: Some(path) }
}

/// The first paragraph of text, without Markdown marks.
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

/// Splits a text into the front matter between two `---` lines at its beginning and the rest.
fn front_matter(text: &str) -> (&str, &str) {
    let Some(rest) = text.strip_prefix("---\n") else { return ("", text) };
    rest.split_once("\n---").unwrap_or(("", text))
}

#[cfg(test)]
pub(super) fn write_skill(folder: &std::path::Path, name: &str, text: &str) {
    std::fs::create_dir_all(folder.join(name)).unwrap();
    std::fs::write(folder.join(name).join(SKILL_FILE), text).unwrap();
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::write_skill as write;
    use super::*;

    fn search(folders: &[PathBuf]) -> SkillSearchResult {
        search_skills(&folders.iter().cloned().map(InstructionPath::user_owned).collect::<Vec<_>>())
    }

    #[test]
    fn skills_are_found_at_any_depth_and_errors_are_reported() {
        let home = tempfile::tempdir().unwrap();
        write(home.path(), "deploy", "# Title\n\nHow to **deploy** `it`\nwell.\n\nMore.");
        write(home.path(), "a/b/nested", "```\ncode\n```");
        write(home.path(), "release", "---\nname: ship-it\ndescription: \"How to ship\"\n---\nbody");
        write(home.path(), "plain", "---\nno end");
        write(home.path(), "empty", " \n");
        write(home.path(), ".hidden", "x");
        let mut found = search(&[home.path().join("not-there"), home.path().to_owned()]);
        found.skills.sort_by(|a, b| a.name.cmp(&b.name));
        let listed: Vec<(&str, Option<&str>, &str)> = found
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
        assert_eq!(listed, wanted);
        assert!(found.errors.len() == 1 && found.errors[0].ends_with("empty/SKILL.md is empty"));
    }

    #[test]
    fn depth_and_folders_are_limited() {
        let home = tempfile::tempdir().unwrap();
        let skills = home.path().join("skills");
        let deep: PathBuf = (0..MAX_SKILL_DEPTH).map(|_| "d").collect();
        write(&skills.join(&deep), "too_deep", "x");
        std::os::unix::fs::symlink(&skills, skills.join("circle")).unwrap();
        assert!(search(std::slice::from_ref(&skills)).skills.is_empty());
        for number in 0..=MAX_SKILL_FOLDERS {
            fs::create_dir(skills.join(format!("{number}"))).unwrap();
        }
        assert_eq!(search(&[skills]).errors.len(), 1);
    }

    #[test]
    fn directory_entries_are_limited_over_all_folders() {
        let home = tempfile::tempdir().unwrap();
        write(home.path(), "one", "x");
        write(home.path(), "z/two", "x");
        for number in 0..MAX_SKILL_NAMES - 3 {
            fs::write(home.path().join(format!("y{number}")), "").unwrap();
        }
        let found = search(&[home.path().to_owned()]);
        assert_eq!(found.skills.len(), 2);
        fs::write(home.path().join("z/another"), "").unwrap();
        fs::write(home.path().join("z/two more"), "").unwrap();
        let found = search(&[home.path().to_owned()]);
        assert!(found.errors.len() == 1 && found.errors[0].ends_with("only 10000 names were looked at"));
    }
}
