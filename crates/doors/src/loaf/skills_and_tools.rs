//! The `skills.*` and `tools.*` methods.

use parlor_vocab::{FrontendReply, FrontendRequest, SessionRefusal, SkillList, SkillSummary};
use serde_json::{Value, json};

use super::machine::{LoafMachine, answer_error};
use super::pending::{Pending, ReplyTo};

/// The number of words in the preview of a description.
const PREVIEW_WORDS: usize = 8;

impl LoafMachine {
    pub(super) fn request_skills(&mut self, reply_to: &ReplyTo) {
        self.out.submit(FrontendRequest::ListSkills, Pending::Skills(reply_to.clone()));
    }

    pub(super) fn on_skills(&mut self, reply_to: &ReplyTo, answer: Result<FrontendReply, SessionRefusal>) {
        match answer {
            Ok(FrontendReply::Skills(skills)) => {
                self.store_skills(&skills);
                let folders: Vec<_> = skills.folders.iter().map(|folder| folder.to_string_lossy()).collect();
                let list: Value = skills.skills.iter().map(skill_json).collect();
                self.out.send_result(
                    reply_to,
                    json!({"directories": folders, "errors": skills.errors, "skills": list}),
                );
            }
            other => self.out.send_error(&reply_to.id, &answer_error(other)),
        }
    }

    /// Stores what snapshots show of the skills.
    pub(super) fn store_skills(&mut self, skills: &SkillList) {
        self.state.params.skill_count = skills.skills.len();
        self.state.params.skill_folders.clone_from(&skills.folders);
    }

    pub(super) fn send_tools(&mut self, reply_to: &ReplyTo) {
        let mut tools: Vec<&crate::ToolDescription> = self.state.params.tools.iter().collect();
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        let tools: Value = tools
            .into_iter()
            .map(|tool| json!({"name": tool.name, "description": tool.description, "input_schema": tool.schema}))
            .collect();
        self.out.send_result(reply_to, json!({"tools": tools}));
    }
}

fn skill_json(skill: &SkillSummary) -> Value {
    let mut words = skill.description.split_whitespace();
    let mut preview = words.by_ref().take(PREVIEW_WORDS).collect::<Vec<_>>().join(" ");
    if words.next().is_some() {
        preview.push_str("...");
    }
    json!({
        "name": skill.name,
        "description": skill.description,
        "description_preview": preview,
        "source_path": skill.file.to_string_lossy(),
    })
}
