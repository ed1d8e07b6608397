//! Skills: folders with a `SKILL.md` that says how something is done. A message that mentions `$name`
//! gets the whole file; the model is told of the others by their names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::files::{project_folders, text_of};
use super::instructions::MAX_PARENTS;
use crate::quote::cut;

/// The file's name.
pub const SKILL_FILE: &str = "SKILL.md";

/// How much of a skill is read.
pub const SKILL_BYTES: u64 = 64 << 10;

/// The most skills that are known at once.
pub const MAX_SKILLS: usize = 200;

/// The most entries of a folder of skills that are looked at.
pub const MAX_SKILL_ENTRIES: usize = 2000;

/// The most skills that one message can bring along.
pub const MAX_MENTIONS: usize = 8;

/// Where a project keeps skills.
const PROJECT_FOLDERS: [&str; 2] = [".agents/skills", ".parlor/skills"];

/// How much of a description is told.
const DESCRIPTION_CHARS: usize = 300;

/// Something that is known how to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// The name of its folder, or the one that the file gives.
    pub name: String,
    /// What it is for, in a sentence.
    pub description: String,
    /// Its file.
    pub file: PathBuf,
    /// Whether the project has it, so that tools can read it.
    pub in_project: bool,
}

/// The skills of the project that `folder` is in, and of the user. The nearest of a name counts. Blocking.
pub fn find_skills(user: &[PathBuf], folder: &Path) -> Vec<Skill> {
    let mut found: BTreeMap<String, Skill> = BTreeMap::new();
    let project = project_folders(folder, MAX_PARENTS)
        .into_iter()
        .flat_map(|folder| PROJECT_FOLDERS.map(|name| (folder.join(name), true)));
    for (folder, in_project) in user.iter().map(|folder| (folder.clone(), false)).chain(project) {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.take(MAX_SKILL_ENTRIES).flatten() {
            if let Some(skill) = skill(&entry.path(), in_project) {
                found.insert(skill.name.to_lowercase(), skill);
            }
        }
    }
    found.into_values().take(MAX_SKILLS).collect()
}

/// Those of `skills` that `text` mentions as `$name`, in this order, each once.
pub(super) fn mentioned<'a>(text: &str, skills: &'a [Skill]) -> Vec<&'a Skill> {
    let mut named: Vec<&Skill> = Vec::new();
    for (place, _) in text.match_indices('$') {
        let before = text.split_at(place).0.chars().next_back();
        if before.is_some_and(|letter| letter.is_alphanumeric() || "_$".contains(letter)) {
            continue;
        }
        let rest = text.split_at(place + 1).1;
        let end = rest.find(|letter: char| !(letter.is_alphanumeric() || "._:-".contains(letter)));
        let name = rest.split_at(end.unwrap_or(rest.len())).0.trim_end_matches(['.', ':', '-']);
        let skill = skills.iter().find(|skill| skill.name.to_lowercase() == name.to_lowercase());
        if let Some(skill) = skill.filter(|skill| !named.contains(skill)) {
            named.push(skill);
        }
    }
    named.truncate(MAX_MENTIONS);
    named
}

/// The whole of a skill.
pub(super) fn text(skill: &Skill) -> Option<String> {
    text_of(&skill.file, SKILL_BYTES)
}

fn skill(folder: &Path, in_project: bool) -> Option<Skill> {
    let folder_name = folder.file_name()?.to_str()?;
    if folder_name.starts_with('.') {
        return None;
    }
    let file = folder.join(SKILL_FILE);
    let text = text_of(&file, SKILL_BYTES).filter(|text| !text.trim().is_empty())?;
    let (head, body) = front_matter(&text);
    let member = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
        line.map(|value| value.trim().trim_matches(['"', '\'']).to_owned()).filter(|value| !value.is_empty())
    };
    let name = member("name").filter(|name| !name.contains(char::is_whitespace));
    let first = body.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with(['#', '`']));
    let description = member("description").or_else(|| first.map(str::to_owned)).unwrap_or_default();
    Some(Skill {
        name: name.unwrap_or_else(|| folder_name.to_owned()),
        description: cut(&description, DESCRIPTION_CHARS).into_owned(),
        file,
        in_project,
    })
}

/// What stands between two lines of dashes at the beginning, and the rest.
fn front_matter(text: &str) -> (&str, &str) {
    let Some(rest) = text.strip_prefix("---\n") else { return ("", text) };
    rest.split_once("\n---").unwrap_or(("", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        fs::create_dir_all(folder.join(name)).unwrap();
        fs::write(folder.join(name).join(SKILL_FILE), text).unwrap();
    }

    #[test]
    fn skills_are_found_in_the_project_and_with_the_user() {
        let home = tempfile::tempdir().unwrap();
        let (user, project) = (home.path().join("user"), home.path().join("project"));
        fs::create_dir_all(project.join(".git")).unwrap();
        write(&user, "deploy", "# Deploy\n\nThe user's way.");
        write(&user, "release", "---\nname: ship-it\ndescription: \"How to ship\"\n---\nbody");
        write(&project.join(".agents/skills"), "deploy", "The project's way.");
        write(&project.join(".parlor/skills"), "empty", "  ");
        write(&project.join(".parlor/skills"), ".hidden", "x");
        let skills = find_skills(&[user], &project);
        let told: Vec<(&str, &str, bool)> =
            skills.iter().map(|skill| (&*skill.name, &*skill.description, skill.in_project)).collect();
        assert_eq!(told, [("deploy", "The project's way.", true), ("ship-it", "How to ship", false)]);
    }

    #[test]
    fn a_mention_is_a_word_of_its_own() {
        let skill = |name: &str| Skill {
            name: name.to_owned(),
            description: String::new(),
            file: PathBuf::new(),
            in_project: true,
        };
        let skills = [skill("deploy"), skill("a.b")];
        let names =
            |text| mentioned(text, &skills).iter().map(|skill| skill.name.clone()).collect::<Vec<_>>();
        assert_eq!(names("$deploy, then $A.B. And $deploy"), ["deploy", "a.b"]);
        assert!(names("x$deploy $$deploy $deployed costs $5").is_empty());
        assert_eq!(names("($deploy)"), ["deploy"]);
    }

    #[test]
    fn there_is_an_end_to_skills_and_to_each() {
        let home = tempfile::tempdir().unwrap();
        for number in 0..MAX_SKILLS + 5 {
            write(home.path(), &format!("s{number:03}"), "x");
        }
        assert_eq!(find_skills(&[home.path().to_owned()], home.path()).len(), MAX_SKILLS);
        write(home.path(), "s000", &"x".repeat(100_000));
        let skills = find_skills(&[home.path().to_owned()], home.path());
        assert_eq!(text(&skills[0]).unwrap().len() as u64, SKILL_BYTES);
        let all: String = skills.iter().map(|skill| format!("${} ", skill.name)).collect();
        assert_eq!(mentioned(&all, &skills).len(), MAX_MENTIONS);
    }
}
