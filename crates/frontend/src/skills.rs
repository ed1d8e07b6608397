//! Lists the skills of a working folder and of its user.

use std::path::Path;

use parlor_model::{InstructionPath, Project, Skill, UserFolders, search_skills};
use parlor_vocab::{SkillList, SkillSummary};

/// Where skills are searched. The caller chooses the names, because they belong to the front end.
#[derive(Clone, Copy, Debug)]
pub struct SkillFolders {
    /// The folder with skills in each folder of a project.
    pub project: &'static str,
    /// The folders with skills in the user's home folder.
    pub user: &'static [&'static str],
}

/// The description of a skill that has none.
const NO_DESCRIPTION: &str = "no description provided";

/// Lists the skills for the working folder `folder`. `user_home` is the user's home folder, and `state` is parlor's
/// state folder. Blocks.
pub fn find_skills(
    skill_folders: SkillFolders,
    folder: &Path,
    user_home: Option<&Path>,
    state: Option<&Path>,
) -> SkillList {
    let (home, state) = (user_home.map(Path::to_owned), state.map(Path::to_owned));
    let folders =
        folders_to_search(skill_folders, folder, &UserFolders { home, state, ..UserFolders::default() });
    let found = search_skills(&folders);
    let mut skills: Vec<SkillSummary> = found.skills.into_iter().map(summary).collect();
    skills.sort_by(|a, b| (&a.name, &a.file).cmp(&(&b.name, &b.file)));
    let errors = found.errors.into_iter().chain(found.refused).collect();
    SkillList { folders: folders.into_iter().map(|folder| folder.path).collect(), skills, errors }
}

/// The folders to search: those of the project from its root down, then those of the user.
fn folders_to_search(skill_folders: SkillFolders, folder: &Path, user: &UserFolders) -> Vec<InstructionPath> {
    let mut folders = Project::of(folder, user).paths_named(skill_folders.project);
    folders.retain(|skills| skills.path.is_dir());
    for name in skill_folders.user {
        let skills = user.home.as_ref().map(|home| home.join(name));
        if let Some(skills) = skills.filter(|skills| folders.iter().all(|folder| folder.path != *skills)) {
            folders.push(InstructionPath::user_owned(skills));
        }
    }
    folders
}

fn summary(Skill { name, description, file, .. }: Skill) -> SkillSummary {
    let description = if description.is_empty() { NO_DESCRIPTION.to_owned() } else { description };
    SkillSummary { name, description, file }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const FOLDERS: SkillFolders =
        SkillFolders { project: ".agents/skills", user: &[".mine/skills", ".agents/skills"] };

    fn write(folder: &Path, name: &str, text: &str) {
        fs::create_dir_all(folder.join(name)).unwrap();
        fs::write(folder.join(name).join("SKILL.md"), text).unwrap();
    }

    #[test]
    fn skills_are_found_in_the_project_and_in_the_home_folder() {
        let home = tempfile::tempdir().unwrap();
        let project = home.path().join("p");
        fs::create_dir_all(project.join("sub/.git")).unwrap();
        fs::create_dir_all(project.join("sub/deep")).unwrap();
        write(&project.join(".agents/skills"), "outside", "x");
        write(&project.join("sub/.agents/skills"), "deploy", "How to deploy.");
        write(&home.path().join(".mine/skills"), "a/b/nested", "```\ncode\n```");
        write(&home.path().join(".mine/skills"), "empty", " \n");
        let found = find_skills(FOLDERS, &project.join("sub/deep"), Some(home.path()), None);
        let listed: Vec<(&str, &str)> =
            found.skills.iter().map(|skill| (skill.name.as_str(), skill.description.as_str())).collect();
        assert_eq!(listed, [("deploy", "How to deploy."), ("nested", NO_DESCRIPTION)]);
        assert!(found.errors.len() == 1 && found.errors[0].ends_with("empty/SKILL.md is empty"));
        assert_eq!(found.folders.len(), 3, "{:?}", found.folders);
    }
}
