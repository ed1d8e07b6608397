//! The skills of a working folder and of its user, as lists show them.

use std::path::Path;

use parlor_model::{InstructionPath, Project, Skill, UserFolders, search_skills};
use parlor_vocab::{SkillList, SkillSummary};

/// Where a project keeps skills.
const PROJECT_SKILLS: &str = ".agents/skills";

/// Where a user keeps skills.
const USER_SKILLS: [&str; 2] = [".loaf/skills", ".agents/skills"];

/// What a skill is said to be for that does not say so.
const NO_DESCRIPTION: &str = "no description provided";

/// The skills that can be used in `folder`, by a user with this home folder and parlor's state in `state`. Blocking.
pub fn find_skills(folder: &Path, user_home: Option<&Path>, state: Option<&Path>) -> SkillList {
    let (home, state) = (user_home.map(Path::to_owned), state.map(Path::to_owned));
    let places = places(folder, &UserFolders { home, state, ..UserFolders::default() });
    let found = search_skills(&places);
    let mut skills: Vec<SkillSummary> = found.skills.into_iter().map(line).collect();
    skills.sort_by(|a, b| (&a.name, &a.file).cmp(&(&b.name, &b.file)));
    let errors = found.errors.into_iter().chain(found.refused).collect();
    SkillList { folders: places.into_iter().map(|place| place.path).collect(), skills, errors }
}

/// Where skills are looked for: in the project from its root down, then with the user.
fn places(folder: &Path, user: &UserFolders) -> Vec<InstructionPath> {
    let mut places = Project::of(folder, user).places(PROJECT_SKILLS);
    places.retain(|skills| skills.path.is_dir());
    for name in USER_SKILLS {
        let skills = user.home.as_ref().map(|home| home.join(name));
        if let Some(skills) = skills.filter(|skills| places.iter().all(|place| place.path != *skills)) {
            places.push(InstructionPath::user_owned(skills));
        }
    }
    places
}

fn line(Skill { name, description, file, .. }: Skill) -> SkillSummary {
    let description = if description.is_empty() { NO_DESCRIPTION.to_owned() } else { description };
    SkillSummary { name, description, file }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        fs::create_dir_all(folder.join(name)).unwrap();
        fs::write(folder.join(name).join("SKILL.md"), text).unwrap();
    }

    #[test]
    fn skills_are_found_from_the_root_of_the_project_down_and_with_the_user() {
        let home = tempfile::tempdir().unwrap();
        let project = home.path().join("p");
        fs::create_dir_all(project.join("sub/.git")).unwrap();
        fs::create_dir_all(project.join("sub/deep")).unwrap();
        write(&project.join(".agents/skills"), "outside", "x");
        write(&project.join("sub/.agents/skills"), "deploy", "How to deploy.");
        write(&home.path().join(".loaf/skills"), "a/b/nested", "```\ncode\n```");
        write(&home.path().join(".loaf/skills"), "empty", " \n");
        let found = find_skills(&project.join("sub/deep"), Some(home.path()), None);
        let told: Vec<(&str, &str)> =
            found.skills.iter().map(|skill| (skill.name.as_str(), skill.description.as_str())).collect();
        assert_eq!(told, [("deploy", "How to deploy."), ("nested", NO_DESCRIPTION)]);
        assert!(found.errors.len() == 1 && found.errors[0].ends_with("empty/SKILL.md is empty"));
        assert_eq!(found.folders.len(), 3, "{:?}", found.folders);
    }
}
