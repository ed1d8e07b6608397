//! The system prompt. It is the same for every turn in the same folder, so that providers can cache it; therefore it
//! contains no date.

use std::path::{Path, PathBuf};

use super::ModelAgent;
use super::instructions::{self, Instructions};
use super::project::{InstructionPath, Project};
use super::skills::{self, KnownSkill, find_skills, mentioned_skills};
use crate::Turn;

/// The default instructions for every model.
const DEFAULT_INSTRUCTIONS: &str = "You are an agent that works for a person on their computer. Do what they ask, completely, and \
say plainly what you did and what you could not do. Ask only if you cannot go on without an answer. Be brief.";

/// Additional instructions for models with tools.
const TOOL_INSTRUCTIONS: &str = "Use your tools to look before you answer and to check what you have changed. Calls that do not \
depend on each other can be made together. If a tool fails, read why and try it differently. Never make up the \
content of a file or the result of a command.";

/// How many refused files get a warning of their own.
pub const MAX_WARNINGS: usize = 8;

/// The parts of a prompt.
pub(super) struct Prompt {
    /// The agent's own system prompt, or the default.
    base: String,
    /// The session's instructions.
    session: Option<String>,
    folder: String,
    has_tools: bool,
    instructions: Vec<(String, String)>,
    skills: Vec<KnownSkill>,
    /// The names and texts of the skills that the message mentions.
    mentioned: Vec<(String, String)>,
    /// One sentence for each file that was refused, with the reason.
    refused: Vec<String>,
    /// The files of the project that the prompt is made of.
    project_files: Vec<PathBuf>,
}

/// Whose instructions and skills a prompt has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PromptSources {
    /// Those of the user and of the project.
    WithProject,
    /// Those of the user.
    UserOnly,
}

/// What is read from files.
type ReadFiles = (Instructions, Vec<KnownSkill>, Vec<(String, String)>);

impl Prompt {
    /// Reads the instructions and skills of the user, and of the working folder if `sources` say so.
    pub(super) async fn read(
        agent: &ModelAgent,
        turn: &Turn,
        has_tools: bool,
        sources: PromptSources,
    ) -> Self {
        let (user, folder) = (agent.user_folders.clone(), turn.folder.clone());
        let message = turn.input.text.clone();
        let read = move || -> ReadFiles {
            let project = match sources {
                PromptSources::WithProject => Project::of(&folder, &user),
                PromptSources::UserOnly => Project::none(),
            };
            let own = user.instructions.map(InstructionPath::user_owned);
            let mut instructions = instructions::read(own, &project);
            let own: Vec<InstructionPath> =
                user.skills.into_iter().map(InstructionPath::user_owned).collect();
            let (skills, more) = find_skills(&own, &project);
            instructions.refused.extend(more);
            let mentioned: Vec<(String, String)> = mentioned_skills(&message, &skills)
                .into_iter()
                .filter_map(|known| Some((known.skill.name.clone(), skills::text(&known.skill)?)))
                .collect();
            (instructions, skills, mentioned)
        };
        // If the reading panics, the prompt has no instructions and skills.
        let (instructions, skills, mentioned) = tokio::task::spawn_blocking(read).await.unwrap_or_default();
        let Instructions { texts: instructions, of_project: mut project_files, refused } = instructions;
        let project_skills = skills.iter().filter(|known| known.in_project);
        project_files.extend(project_skills.map(|known| known.skill.file.clone()));
        Self {
            base: agent.system.clone().unwrap_or_else(|| DEFAULT_INSTRUCTIONS.to_owned()),
            session: turn.system.clone(),
            folder: display(&turn.folder),
            has_tools,
            instructions,
            skills,
            mentioned,
            refused,
            project_files,
        }
    }

    /// The files of the project that the model would obey.
    pub(super) fn project_files(&self) -> &[PathBuf] {
        &self.project_files
    }

    /// The complete system prompt.
    pub(super) fn system(&self) -> String {
        let mut parts: Vec<String> = self.session.iter().cloned().collect();
        parts.push(self.base.clone());
        if self.has_tools {
            parts.push(TOOL_INSTRUCTIONS.to_owned());
            parts.push(format!("The working folder is {}. Paths are relative to it.", self.folder));
        }
        for (path, text) in &self.instructions {
            parts.push(format!("# Instructions from {path}\n\n{}", text.trim_end()));
        }
        // Tools cannot read the user's own skills, so these are not listed. They are added when a message mentions
        // them.
        let known: Vec<String> = self
            .skills
            .iter()
            .filter(|known| known.in_project && self.has_tools)
            .map(|KnownSkill { skill, .. }| {
                format!("- {}: {} ({})", skill.name, skill.description, display(&skill.file))
            })
            .collect();
        if !known.is_empty() {
            let head = "# Skills\n\nRead the file of a skill before you do what it is for.";
            parts.push(format!("{head}\n\n{}", known.join("\n")));
        }
        parts.join("\n\n")
    }

    /// The message with the texts of the skills that it mentions. `redact` removes secrets from the skills; the
    /// message of the user is not changed.
    pub(super) fn with_skills(&self, message: &str, redact: impl Fn(&str) -> String) -> String {
        let mut text = message.to_owned();
        for (name, skill) in &self.mentioned {
            let skill = redact(skill.trim_end());
            text.push_str(&format!("\n\n<skill name=\"{name}\">\n{skill}\n</skill>"));
        }
        text
    }

    /// The warnings about refused files.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = self.refused.iter().take(MAX_WARNINGS).cloned().collect();
        let more = self.refused.len() - warnings.len();
        if more > 0 {
            warnings.push(format!("{more} more files or folders of instructions and skills were not read"));
        }
        warnings
    }

    /// The names of the skills that the message mentions.
    pub(super) fn mentioned_names(&self) -> impl Iterator<Item = &str> {
        self.mentioned.iter().map(|(name, _)| name.as_str())
    }
}

fn display(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_agent::{INSTRUCTIONS_FILE, Skill};

    fn prompt() -> Prompt {
        Prompt {
            base: "Be kind.".to_owned(),
            session: Some("Speak French.".to_owned()),
            folder: "/project".to_owned(),
            has_tools: true,
            instructions: vec![(format!("/project/{INSTRUCTIONS_FILE}"), "Use tabs.\n".to_owned())],
            skills: vec![KnownSkill {
                skill: Skill {
                    name: "deploy".to_owned(),
                    title: None,
                    description: "How".to_owned(),
                    file: "/project/.agents/skills/deploy/SKILL.md".into(),
                    path: None,
                },
                in_project: true,
            }],
            mentioned: vec![("deploy".to_owned(), "Push the button.\n".to_owned())],
            refused: Vec::new(),
            project_files: Vec::new(),
        }
    }

    #[test]
    fn the_session_comes_first_and_the_folder_is_included() {
        let system = prompt().system();
        assert!(system.starts_with("Speak French.\n\nBe kind."), "{system}");
        assert!(system.contains("# Instructions from /project/AGENTS.md\n\nUse tabs."), "{system}");
        assert!(system.contains("- deploy: How (/project/.agents/skills/deploy/SKILL.md)"), "{system}");
        assert_eq!(system, prompt().system(), "the prompt is deterministic");
    }

    #[test]
    fn the_number_of_warnings_is_limited() {
        let refused = (0..MAX_WARNINGS + 3).map(|number| format!("{number} was not read")).collect();
        let warnings = Prompt { refused, ..prompt() }.warnings();
        assert_eq!(warnings.len(), MAX_WARNINGS + 1);
        assert!(warnings[MAX_WARNINGS].starts_with("3 more files"), "{warnings:?}");
    }

    #[test]
    fn without_tools_the_prompt_mentions_none() {
        let system = Prompt { has_tools: false, ..prompt() }.system();
        assert!(!system.contains("tools") && !system.contains("deploy"), "{system}");
    }

    #[test]
    fn a_mentioned_skill_is_appended_to_the_message() {
        let prompt = prompt();
        assert_eq!(
            prompt.with_skills("$deploy it", |text| text.replace("Push", "Press")),
            "$deploy it\n\n<skill name=\"deploy\">\nPress the button.\n</skill>"
        );
        assert_eq!(prompt.mentioned_names().collect::<Vec<_>>(), ["deploy"]);
    }
}
