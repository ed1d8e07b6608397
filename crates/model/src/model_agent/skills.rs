//! The skills of the project and of the user, and which of them a message mentions as `$name`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parlor_vocab::truncate_chars;

use super::UserFolders;
use super::project::{InstructionPath, Project};
use super::skill_search::{SKILL_BYTES, Skill, search_skills};

/// The most skills in one turn.
pub const MAX_SKILLS: usize = 200;

/// The most skills that one message can mention.
pub const MAX_MENTIONS: usize = 8;

/// The folders of a project that contain skills.
const PROJECT_FOLDERS: [&str; 2] = [".agents/skills", ".parlor/skills"];

/// How many characters of a description the system prompt includes.
const DESCRIPTION_CHARS: usize = 300;

/// A skill of the project or of the user.
#[derive(Clone, Debug)]
pub(super) struct KnownSkill {
    pub(super) skill: Skill,
    /// Whether it belongs to the project. Tools can read only such skills.
    pub(super) in_project: bool,
}

/// Finds the skills of the user and of the project. Of several skills with one name, the nearest to the working
/// folder wins. Also returns one sentence for each refused file. Blocking.
pub(super) fn find_skills(user: &[InstructionPath], project: &Project) -> (Vec<KnownSkill>, Vec<String>) {
    // The folders from the project root down, and in each of them both skill folders.
    let [one, other] = PROJECT_FOLDERS.map(|name| project.paths_named(name));
    let project: Vec<InstructionPath> =
        one.into_iter().zip(other).flat_map(|(one, other)| [one, other]).collect();
    let mut found: BTreeMap<String, KnownSkill> = BTreeMap::new();
    let mut refused = Vec::new();
    for (folders, in_project) in [(user, false), (project.as_slice(), true)] {
        let searched = search_skills(folders);
        refused.extend(searched.refused);
        for skill in searched.skills {
            let description = truncate_chars(&skill.description, DESCRIPTION_CHARS).into_owned();
            let known = KnownSkill { skill: Skill { description, ..skill }, in_project };
            found.insert(known.skill.name.to_lowercase(), known);
        }
    }
    (found.into_values().take(MAX_SKILLS).collect(), refused)
}

/// A skill with its text, for a list that people read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillText {
    /// The name by which users mention the skill.
    pub name: String,
    /// What the skill is for.
    pub description: String,
    /// The skill's file.
    pub file: PathBuf,
    /// The text of the file, as agents read it.
    pub text: String,
    /// Whether it belongs to the project and not to the user.
    pub in_project: bool,
}

/// The skills that an agent has in `folder`, with their texts. Blocks.
pub fn read_skills(user: &UserFolders, folder: &Path) -> Vec<SkillText> {
    let own: Vec<InstructionPath> = user.skills.iter().cloned().map(InstructionPath::user_owned).collect();
    let (skills, _) = find_skills(&own, &Project::of(folder, user));
    let with_text = skills.into_iter().map(|KnownSkill { skill, in_project }| {
        let text = text(&skill).unwrap_or_default();
        let Skill { name, description, file, .. } = skill;
        SkillText { name, description, file, text, in_project }
    });
    with_text.collect()
}

/// The skills that `text` mentions as `$name`, in the order of the mentions, each once.
pub(super) fn mentioned_skills<'a>(text: &str, skills: &'a [KnownSkill]) -> Vec<&'a KnownSkill> {
    let mut mentioned: Vec<&KnownSkill> = Vec::new();
    for (position, _) in text.match_indices('$') {
        let before = text.split_at(position).0.chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || "_$".contains(c)) {
            continue;
        }
        let rest = text.split_at(position + 1).1;
        let end = rest.find(|c: char| !(c.is_alphanumeric() || "._:-".contains(c)));
        let name =
            rest.split_at(end.unwrap_or(rest.len())).0.trim_end_matches(['.', ':', '-']).to_lowercase();
        let has_name = |known: &&KnownSkill| {
            let Skill { name: own, title, .. } = &known.skill;
            own.to_lowercase() == name || title.as_ref().is_some_and(|title| title.to_lowercase() == name)
        };
        if let Some(skill) = skills
            .iter()
            .find(has_name)
            .filter(|known| !mentioned.iter().any(|other| std::ptr::eq(*other, *known)))
        {
            mentioned.push(skill);
        }
    }
    mentioned.truncate(MAX_MENTIONS);
    mentioned
}

/// The text of a skill, up to [`SKILL_BYTES`].
pub(super) fn text(skill: &Skill) -> Option<String> {
    skill.path.as_ref()?.read_text(SKILL_BYTES).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::skill_search::write_skill as write;
    use super::*;

    fn find_skills(user: &[PathBuf], folder: &Path) -> Vec<KnownSkill> {
        let user: Vec<InstructionPath> = user.iter().cloned().map(InstructionPath::user_owned).collect();
        super::find_skills(&user, &Project::of(folder, &UserFolders::default())).0
    }

    #[test]
    fn project_skills_override_user_skills() {
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
        let listed: Vec<(&str, &str, bool)> = skills
            .iter()
            .map(|known| (&*known.skill.name, &*known.skill.description, known.in_project))
            .collect();
        let wanted = [
            ("build", "In the folder.", true),
            ("deploy", "The project's way.", true),
            ("release", "How to ship", false),
        ];
        assert_eq!(listed, wanted);
        let names: Vec<&str> = mentioned_skills("$ship-it and $release", &skills)
            .iter()
            .map(|known| &*known.skill.name)
            .collect();
        assert_eq!(names, ["release"], "a skill has two names");
    }

    #[test]
    fn a_mention_is_a_whole_word() {
        let known = |name: &str| KnownSkill {
            skill: Skill { name: name.to_owned(), ..Skill::default() },
            in_project: true,
        };
        let skills = [known("deploy"), known("a.b")];
        let names = |text| {
            mentioned_skills(text, &skills).iter().map(|known| known.skill.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names("$deploy, then $A.B. And $deploy"), ["deploy", "a.b"]);
        assert!(names("x$deploy $$deploy $deployed costs $5").is_empty());
        assert_eq!(names("($deploy)"), ["deploy"]);
    }

    #[test]
    fn skills_mentions_and_texts_are_limited() {
        let home = tempfile::tempdir().unwrap();
        for number in 0..MAX_SKILLS + 5 {
            write(home.path(), &format!("s{number:03}"), "x");
        }
        assert_eq!(find_skills(&[home.path().to_owned()], home.path()).len(), MAX_SKILLS);
        write(home.path(), "s000", &"x".repeat(100_000));
        let skills = find_skills(&[home.path().to_owned()], home.path());
        assert_eq!(text(&skills[0].skill).unwrap().len() as u64, SKILL_BYTES);
        let all: String = skills.iter().map(|known| format!("${} ", known.skill.name)).collect();
        assert_eq!(mentioned_skills(&all, &skills).len(), MAX_MENTIONS);
    }
}
