//! What a model is told before the conversation. The same folder gives the same bytes, turn after
//! turn, so that a provider can keep what it has read; hence there is no date in it.

use std::path::Path;

use super::ModelAgent;
use super::instructions::{self, Instructions};
use super::project::{InstructionPath, Project};
use super::skills::{self, Known, find_skills, mentioned};
use crate::Turn;

/// What every model is told that is not told otherwise.
const MANNERS: &str = "You are an agent that works for a person on their computer. Do what they ask, completely, and \
say plainly what you did and what you could not do. Ask only if you cannot go on without an answer. Be brief.";

/// What models with tools are told in addition.
const WORK: &str = "Use your tools to look before you answer and to check what you have changed. Calls that do not \
depend on each other can be made together. If a tool fails, read why and try it differently. Never make up the \
content of a file or the result of a command.";

/// How many files that were not read are told of, one by one.
pub const MAX_WARNINGS: usize = 8;

/// The parts of a prompt.
pub(super) struct Prompt {
    manners: String,
    session: Option<String>,
    folder: String,
    has_tools: bool,
    instructions: Vec<(String, String)>,
    skills: Vec<Known>,
    /// The skills that this message mentions, with their text.
    brought: Vec<(String, String)>,
    /// Which files were not read and why, in sentences.
    refused: Vec<String>,
}

impl Prompt {
    /// Reads what there is in the working folder and with the user.
    pub(super) async fn read(agent: &ModelAgent, turn: &Turn, has_tools: bool) -> Self {
        let (user, folder) = (agent.user_folders.clone(), turn.folder.clone());
        let message = turn.input.text.clone();
        let look = move || {
            let project = Project::of(&folder, &user);
            let own = user.instructions.map(InstructionPath::user_owned);
            let Instructions { texts: instructions, mut refused } = instructions::read(own, &project);
            let own: Vec<InstructionPath> =
                user.skills.into_iter().map(InstructionPath::user_owned).collect();
            let (skills, more) = find_skills(&own, &project);
            refused.extend(more);
            let brought: Vec<(String, String)> = mentioned(&message, &skills)
                .into_iter()
                .filter_map(|known| Some((known.skill.name.clone(), skills::text(&known.skill)?)))
                .collect();
            (instructions, skills, brought, refused)
        };
        // Files can take their time; a folder that breaks the reading has nothing to say.
        let (instructions, skills, brought, refused) =
            tokio::task::spawn_blocking(look).await.unwrap_or_default();
        Self {
            manners: agent.system.clone().unwrap_or_else(|| MANNERS.to_owned()),
            session: turn.system.clone(),
            folder: shown(&turn.folder),
            has_tools,
            instructions,
            skills,
            brought,
            refused,
        }
    }

    /// All that comes before the conversation.
    pub(super) fn system(&self) -> String {
        let mut parts: Vec<String> = self.session.iter().cloned().collect();
        parts.push(self.manners.clone());
        if self.has_tools {
            parts.push(WORK.to_owned());
            parts.push(format!("The working folder is {}. Paths are relative to it.", self.folder));
        }
        for (place, text) in &self.instructions {
            parts.push(format!("# Instructions from {place}\n\n{}", text.trim_end()));
        }
        // Of the user's own skills tools can read nothing; they come along when they are mentioned.
        let known: Vec<String> = self
            .skills
            .iter()
            .filter(|known| known.in_project && self.has_tools)
            .map(|Known { skill, .. }| {
                format!("- {}: {} ({})", skill.name, skill.description, shown(&skill.file))
            })
            .collect();
        if !known.is_empty() {
            let head = "# Skills\n\nRead the file of a skill before you do what it is for.";
            parts.push(format!("{head}\n\n{}", known.join("\n")));
        }
        parts.join("\n\n")
    }

    /// The message with the skills that it mentions, as `clean` leaves them: people may say what they like, files not.
    pub(super) fn with_skills(&self, message: &str, clean: impl Fn(&str) -> String) -> String {
        let mut text = message.to_owned();
        for (name, skill) in &self.brought {
            let skill = clean(skill.trim_end());
            text.push_str(&format!("\n\n<skill name=\"{name}\">\n{skill}\n</skill>"));
        }
        text
    }

    /// What is told of files that were not read.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut told: Vec<String> = self.refused.iter().take(MAX_WARNINGS).cloned().collect();
        let more = self.refused.len() - told.len();
        if more > 0 {
            told.push(format!("{more} more files or folders of instructions and skills were not read"));
        }
        told
    }

    /// The names of those skills.
    pub(super) fn applied(&self) -> impl Iterator<Item = &str> {
        self.brought.iter().map(|(name, _)| name.as_str())
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_agent::{INSTRUCTIONS_FILE, Skill};

    fn prompt() -> Prompt {
        Prompt {
            manners: "Be kind.".to_owned(),
            session: Some("Speak French.".to_owned()),
            folder: "/project".to_owned(),
            has_tools: true,
            instructions: vec![(format!("/project/{INSTRUCTIONS_FILE}"), "Use tabs.\n".to_owned())],
            skills: vec![Known {
                skill: Skill {
                    name: "deploy".to_owned(),
                    title: None,
                    description: "How".to_owned(),
                    file: "/project/.agents/skills/deploy/SKILL.md".into(),
                    place: None,
                },
                in_project: true,
            }],
            brought: vec![("deploy".to_owned(), "Push the button.\n".to_owned())],
            refused: Vec::new(),
        }
    }

    #[test]
    fn the_session_comes_first_and_the_folder_has_its_say() {
        let system = prompt().system();
        assert!(system.starts_with("Speak French.\n\nBe kind."), "{system}");
        assert!(system.contains("# Instructions from /project/AGENTS.md\n\nUse tabs."), "{system}");
        assert!(system.contains("- deploy: How (/project/.agents/skills/deploy/SKILL.md)"), "{system}");
        assert_eq!(system, prompt().system(), "the same each time");
    }

    #[test]
    fn not_every_file_of_many_is_told_of() {
        let refused = (0..MAX_WARNINGS + 3).map(|number| format!("{number} was not read")).collect();
        let told = Prompt { refused, ..prompt() }.warnings();
        assert_eq!(told.len(), MAX_WARNINGS + 1);
        assert!(told[MAX_WARNINGS].starts_with("3 more files"), "{told:?}");
    }

    #[test]
    fn without_tools_nothing_is_said_of_them() {
        let system = Prompt { has_tools: false, ..prompt() }.system();
        assert!(!system.contains("tools") && !system.contains("deploy"), "{system}");
    }

    #[test]
    fn a_skill_comes_along_with_the_message_that_mentions_it() {
        let prompt = prompt();
        assert_eq!(
            prompt.with_skills("$deploy it", |text| text.replace("Push", "Press")),
            "$deploy it\n\n<skill name=\"deploy\">\nPress the button.\n</skill>"
        );
        assert_eq!(prompt.applied().collect::<Vec<_>>(), ["deploy"]);
    }
}
