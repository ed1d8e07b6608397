//! `skills.*` and `tools.*`.

use parlor_vocab::{FrontendReply, FrontendRequest, SessionRefusal, SkillList, SkillSummary};
use serde_json::{Value, json};

use super::machine::{LoafMachine, flaw_of};
use super::pending::{Pending, To};

/// How many words of a description are its preview.
const PREVIEW_WORDS: usize = 8;

impl LoafMachine {
    pub(super) fn ask_skills(&mut self, to: &To) {
        self.out.ask(FrontendRequest::ListSkills, Pending::Skills(to.clone()));
    }

    pub(super) fn on_skills(&mut self, to: &To, answer: Result<FrontendReply, SessionRefusal>) {
        match answer {
            Ok(FrontendReply::Skills(skills)) => {
                self.note_skills(&skills);
                let folders: Vec<_> = skills.folders.iter().map(|folder| folder.to_string_lossy()).collect();
                let list: Value = skills.skills.iter().map(told).collect();
                self.out.answer(to, json!({"directories": folders, "errors": skills.errors, "skills": list}));
            }
            other => self.out.refuse(&to.id, &flaw_of(other)),
        }
    }

    /// What snapshots tell of them.
    pub(super) fn note_skills(&mut self, skills: &SkillList) {
        self.state.server.skills = skills.skills.len();
        self.state.server.skill_folders.clone_from(&skills.folders);
    }

    pub(super) fn tell_tools(&mut self, to: &To) {
        let mut tools: Vec<&super::Tool> = self.state.server.tools.iter().collect();
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        let tools: Value = tools
            .into_iter()
            .map(|tool| json!({"name": tool.name, "description": tool.description, "input_schema": tool.schema}))
            .collect();
        self.out.answer(to, json!({"tools": tools}));
    }
}

fn told(skill: &SkillSummary) -> Value {
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
