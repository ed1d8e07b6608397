//! Skills as an agent knows them: those of the project and of the user, and which of them a message mentions as
//! `$name`.

use std::collections::BTreeMap;

use super::project::{InstructionPath, Project};
use super::skill_search::{SKILL_BYTES, Skill, search_skills};
use crate::quote::cut;

/// The most skills that an agent knows at once.
pub const MAX_SKILLS: usize = 200;

/// The most skills that one message can bring along.
pub const MAX_MENTIONS: usize = 8;

/// Where a project keeps skills.
const PROJECT_FOLDERS: [&str; 2] = [".agents/skills", ".parlor/skills"];

/// How much of a description is told.
const DESCRIPTION_CHARS: usize = 300;

/// A skill that an agent knows.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) skill: Skill,
    /// Whether the project has it, so that tools can read it.
    pub(super) in_project: bool,
}

/// The skills of a project and of the user, and which were not read and why. The nearest of a name counts. Blocking.
pub(super) fn find_skills(user: &[InstructionPath], project: &Project) -> (Vec<Known>, Vec<String>) {
    // From the root down, and in each folder one place after the other.
    let [one, other] = PROJECT_FOLDERS.map(|name| project.places(name));
    let project: Vec<InstructionPath> =
        one.into_iter().zip(other).flat_map(|(one, other)| [one, other]).collect();
    let mut found: BTreeMap<String, Known> = BTreeMap::new();
    let mut refused = Vec::new();
    for (folders, in_project) in [(user, false), (project.as_slice(), true)] {
        let searched = search_skills(folders);
        refused.extend(searched.refused);
        for skill in searched.skills {
            let description = cut(&skill.description, DESCRIPTION_CHARS).into_owned();
            let known = Known { skill: Skill { description, ..skill }, in_project };
            found.insert(known.skill.name.to_lowercase(), known);
        }
    }
    (found.into_values().take(MAX_SKILLS).collect(), refused)
}

/// Those of `skills` that `text` mentions as `$name`, in this order, each once.
pub(super) fn mentioned<'a>(text: &str, skills: &'a [Known]) -> Vec<&'a Known> {
    let mut named: Vec<&Known> = Vec::new();
    for (place, _) in text.match_indices('$') {
        let before = text.split_at(place).0.chars().next_back();
        if before.is_some_and(|letter| letter.is_alphanumeric() || "_$".contains(letter)) {
            continue;
        }
        let rest = text.split_at(place + 1).1;
        let end = rest.find(|letter: char| !(letter.is_alphanumeric() || "._:-".contains(letter)));
        let name =
            rest.split_at(end.unwrap_or(rest.len())).0.trim_end_matches(['.', ':', '-']).to_lowercase();
        let is_meant = |known: &&Known| {
            let Skill { name: own, title, .. } = &known.skill;
            own.to_lowercase() == name || title.as_ref().is_some_and(|title| title.to_lowercase() == name)
        };
        if let Some(skill) = skills
            .iter()
            .find(is_meant)
            .filter(|known| !named.iter().any(|other| std::ptr::eq(*other, *known)))
        {
            named.push(skill);
        }
    }
    named.truncate(MAX_MENTIONS);
    named
}

/// The whole of a skill.
pub(super) fn text(skill: &Skill) -> Option<String> {
    skill.place.as_ref()?.text(SKILL_BYTES).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::super::UserFolders;
    use super::super::skill_search::write_skill as write;
    use super::*;

    fn find_skills(user: &[PathBuf], folder: &Path) -> Vec<Known> {
        let user: Vec<InstructionPath> = user.iter().cloned().map(InstructionPath::user_owned).collect();
        super::find_skills(&user, &Project::of(folder, &UserFolders::default())).0
    }

    #[test]
    fn skills_are_found_in_the_project_and_with_the_user() {
        let home = tempfile::tempdir().unwrap();
        let (user, project) = (home.path().join("user"), home.path().join("project"));
        fs::create_dir_all(project.join(".git")).unwrap();
        fs::create_dir_all(project.join("sub")).unwrap();
        write(&user, "deploy", "# Deploy\n\nThe user's way.");
        write(&user, "release", "---\nname: ship-it\ndescription: \"How to ship\"\n---\nbody");
        write(&project.join(".agents/skills"), "deploy", "The project's way.");
        write(&project.join(".parlor/skills"), "build", "At the root.");
        write(&project.join("sub/.agents/skills"), "build", "In the folder.");
        let skills = find_skills(&[user], &project.join("sub"));
        let told: Vec<(&str, &str, bool)> = skills
            .iter()
            .map(|known| (&*known.skill.name, &*known.skill.description, known.in_project))
            .collect();
        let wanted = [
            ("build", "In the folder.", true),
            ("deploy", "The project's way.", true),
            ("release", "How to ship", false),
        ];
        assert_eq!(told, wanted);
        let names: Vec<&str> =
            mentioned("$ship-it and $release", &skills).iter().map(|known| &*known.skill.name).collect();
        assert_eq!(names, ["release"], "by either name");
    }

    #[test]
    fn a_mention_is_a_word_of_its_own() {
        let known = |name: &str| Known {
            skill: Skill { name: name.to_owned(), ..Skill::default() },
            in_project: true,
        };
        let skills = [known("deploy"), known("a.b")];
        let names =
            |text| mentioned(text, &skills).iter().map(|known| known.skill.name.clone()).collect::<Vec<_>>();
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
        assert_eq!(text(&skills[0].skill).unwrap().len() as u64, SKILL_BYTES);
        let all: String = skills.iter().map(|known| format!("${} ", known.skill.name)).collect();
        assert_eq!(mentioned(&all, &skills).len(), MAX_MENTIONS);
    }
}
