//! Finding skills: folders with a `SKILL.md`, at any depth below some folders. Blocking.

use std::path::PathBuf;

use super::project::{InstructionPath, Unread};

/// The file's name.
pub const SKILL_FILE: &str = "SKILL.md";

/// How much of a skill is read.
pub const SKILL_BYTES: u64 = 64 << 10;

/// How deep below a folder of skills one may lie.
pub const MAX_SKILL_DEPTH: usize = 6;

/// How many folders are looked at below each folder of skills.
pub const MAX_SKILL_FOLDERS: usize = 2000;

/// How many names are looked at below each folder of skills: it is done at every turn.
pub const MAX_SKILL_NAMES: usize = 10_000;

/// Something that is known how to do.
#[derive(Clone, Debug, Default)]
pub struct Skill {
    /// The name of its folder.
    pub name: String,
    /// The name that the file gives, if it is another word.
    pub title: Option<String>,
    /// What it is for; empty if it does not say.
    pub description: String,
    /// Its file.
    pub file: PathBuf,
    pub(super) place: Option<InstructionPath>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct SkillSearchResult {
    /// The skills, folder by folder.
    pub skills: Vec<Skill>,
    /// What was wrong with others, in sentences.
    pub errors: Vec<String>,
    /// Which files and folders were not read because they may not be, in sentences.
    pub refused: Vec<String>,
}

/// All skills below `folders`, each of which need not be there.
pub fn search_skills(folders: &[InstructionPath]) -> SkillSearchResult {
    let mut found = SkillSearchResult::default();
    for folder in folders {
        let mut hunt = SkillSearch { left: MAX_SKILL_FOLDERS, names: MAX_SKILL_NAMES, found: &mut found };
        hunt.look(folder, 0);
        let limit = match (hunt.left, hunt.names) {
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
    left: usize,
    names: usize,
    found: &'a mut SkillSearchResult,
}

impl SkillSearch<'_> {
    fn look(&mut self, folder: &InstructionPath, depth: usize) {
        let (names, looked) = match folder.inner_folders(self.names) {
            Ok(found) => found,
            Err(why) => return self.found.refused.extend(folder.refusal(why)),
        };
        self.names -= looked;
        for name in names.iter().filter(|name| !name.starts_with('.')) {
            let inner = folder.join(name);
            // Links are followed; how many folders are looked at is bounded, so a circle ends.
            match inner.is_folder() {
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => {
                    self.found.refused.extend(inner.refusal(why));
                    continue;
                }
            }
            let Some(left) = self.left.checked_sub(1) else { return };
            self.left = left;
            if !self.take(name, inner.join(SKILL_FILE)) && depth + 1 < MAX_SKILL_DEPTH {
                self.look(&inner, depth + 1);
            }
        }
    }

    /// Takes the skill that `file` describes. Says whether there is such a file.
    fn take(&mut self, name: &str, file: InstructionPath) -> bool {
        match file.text(SKILL_BYTES) {
            Ok(text) if text.trim().is_empty() => {
                self.found.errors.push(format!("{} is empty", file.path.display()));
            }
            Ok(text) => self.found.skills.push(skill(name, &text, file)),
            Err(Unread::Missing) => return false,
            Err(why) => self.found.refused.extend(file.refusal(why)),
        }
        true
    }
}

fn skill(folder: &str, text: &str, place: InstructionPath) -> Skill {
    let (head, body) = front_matter(text);
    let member = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
        line.map(|value| value.trim().trim_matches(['"', '\'']).to_owned()).filter(|value| !value.is_empty())
    };
    let title = member("name").filter(|name| !name.contains(char::is_whitespace) && name != folder);
    let description = member("description").unwrap_or_else(|| first_paragraph(body));
    Skill { name: folder.to_owned(), title, description, file: place.path.clone(), place: Some(place) }
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
pub(super) fn write_skill(folder: &std::path::Path, name: &str, text: &str) {
    std::fs::create_dir_all(folder.join(name)).unwrap();
    std::fs::write(folder.join(name).join(SKILL_FILE), text).unwrap();
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::write_skill as write;
    use super::*;

    fn hunt(folders: &[PathBuf]) -> SkillSearchResult {
        search_skills(&folders.iter().cloned().map(InstructionPath::user_owned).collect::<Vec<_>>())
    }

    #[test]
    fn skills_are_found_at_any_depth_and_what_is_wrong_is_said() {
        let home = tempfile::tempdir().unwrap();
        write(home.path(), "deploy", "# Title\n\nHow to **deploy** `it`\nwell.\n\nMore.");
        write(home.path(), "a/b/nested", "```\ncode\n```");
        write(home.path(), "release", "---\nname: ship-it\ndescription: \"How to ship\"\n---\nbody");
        write(home.path(), "plain", "---\nno end");
        write(home.path(), "empty", " \n");
        write(home.path(), ".hidden", "x");
        let mut found = hunt(&[home.path().join("not-there"), home.path().to_owned()]);
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
        assert!(hunt(std::slice::from_ref(&skills)).skills.is_empty());
        for number in 0..=MAX_SKILL_FOLDERS {
            fs::create_dir(skills.join(format!("{number}"))).unwrap();
        }
        assert_eq!(hunt(&[skills]).errors.len(), 1);
    }

    #[test]
    fn there_is_an_end_to_names_in_one_folder_and_in_many() {
        let home = tempfile::tempdir().unwrap();
        write(home.path(), "one", "x");
        write(home.path(), "z/two", "x");
        for number in 0..MAX_SKILL_NAMES - 3 {
            fs::write(home.path().join(format!("y{number}")), "").unwrap();
        }
        let found = hunt(&[home.path().to_owned()]);
        assert_eq!(found.skills.len(), 2);
        fs::write(home.path().join("z/another"), "").unwrap();
        fs::write(home.path().join("z/two more"), "").unwrap();
        let found = hunt(&[home.path().to_owned()]);
        assert!(found.errors.len() == 1 && found.errors[0].ends_with("only 10000 names were looked at"));
    }
}
