//! Carries out the slash commands.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use parlor_vocab::{
    AgentChoice, AgentId, HistoryItem, PolicyMode, Role, SessionCommand, SessionId, SessionReply,
};
use ratatui_core::text::{Line, Span};

use super::super::model_request::{ModelRequest, why_unavailable};
use super::commands::{COMMANDS, ChatCommand, CommandName, KEYS};
use super::driver::Driver;
use super::highlight::diff_line;
use super::region::usage_text;
use super::state::{LineKind, Screen, ScreenEvent};
use super::wrap::{Prefix, clean, wrap};
use crate::console::{Console, Style};
use crate::mcp::servers::list_servers;
use crate::sessions::checked_title;
use crate::sessions::pick::{pick_session, short_id};
use crate::settings::AgentKind;
use crate::settings::models::{REASONING, reasoning};
use crate::undo::{diff_last, undo_last};

/// No client of ours needs colours or the width: the lines are styled here.
const PLAIN: Console = Console {
    stdin_is_terminal: true,
    stdout_is_terminal: true,
    style: Style(false),
    unicode: true,
    is_dumb: false,
};

/// The width of the names in the help.
const HELP_COLUMNS: usize = 20;

impl Driver<'_> {
    pub(super) async fn run_command(&mut self, command: ChatCommand) {
        if let Err(error) = self.try_command(command).await {
            self.screen.error(&format!("{error:#}"));
        }
    }

    async fn try_command(&mut self, ChatCommand { name, argument }: ChatCommand) -> anyhow::Result<()> {
        match name {
            CommandName::Help => self.screen.show_help(),
            CommandName::Model => self.choose_model(argument).await?,
            CommandName::Agent => self.choose_agent(&argument)?,
            CommandName::Mode => self.choose_mode(&argument)?,
            CommandName::Reasoning => self.choose_reasoning(&argument)?,
            CommandName::Compact => self.compact()?,
            CommandName::Undo => {
                let (session, mut out) = (self.session()?, Vec::new());
                undo_last(self.sessions, &session, PLAIN, &mut out).await?;
                self.show_text(&out);
            }
            CommandName::Diff => {
                let (session, mut out) = (self.session()?, Vec::new());
                diff_last(self.sessions, &session, PLAIN, &mut out).await?;
                self.show_text(&out);
            }
            CommandName::Fork => {
                let fork = self.sessions.fork(None, &self.session()?, None).await?;
                let id = short_id(&fork);
                self.switch(fork).await;
                self.screen.notice(&format!("This is a copy of the session: {id}."));
            }
            CommandName::Resume if argument.is_empty() => self.offer_sessions().await,
            CommandName::Resume => {
                let record = pick_session(self.sessions, &argument).await?;
                self.switch(record.id).await;
            }
            CommandName::New => {
                self.link.leave();
                self.screen.leave_session();
                self.screen.notice("The next message begins a new session.");
            }
            CommandName::Rename => {
                let (id, title) = (self.session()?, checked_title(&argument)?);
                self.link.execute(id, SessionCommand::Rename { title });
            }
            CommandName::Export => self.export(&argument).await?,
            CommandName::Mcp => {
                let mut out = Vec::new();
                list_servers(self.home, self.environment, &mut out)?;
                self.show_text(&out);
            }
            CommandName::Cost => self.show_cost().await?,
            // The keys carry these out.
            CommandName::Steer | CommandName::Quit => {}
        }
        Ok(())
    }

    /// The session, if a message was sent.
    fn session(&self) -> anyhow::Result<SessionId> {
        self.link.id.clone().context("there is no session yet: send a message first")
    }

    /// Chooses for the session, or for the one that the first message creates.
    fn choose(&mut self, choice: AgentChoice) {
        match &self.link.id {
            Some(id) => self.link.execute(id.clone(), SessionCommand::ChooseAgent(choice.clone())),
            None => {
                let old = std::mem::take(&mut self.link.choice);
                let model = if choice.agent.is_some() { choice.model } else { choice.model.or(old.model) };
                self.link.choice = AgentChoice {
                    agent: choice.agent.or(old.agent),
                    model,
                    reasoning: choice.reasoning.or(old.reasoning),
                };
                let config = self.home.config();
                let agent =
                    self.link.choice.agent.as_ref().map_or(config.default_agent.as_str(), AgentId::as_str);
                self.screen.header.agent = agent.to_owned();
                self.screen.header.model.clone_from(&self.link.choice.model);
            }
        }
    }

    async fn choose_model(&mut self, model: String) -> anyhow::Result<()> {
        let config = self.home.config();
        if model.is_empty() {
            let names: Vec<&str> = config.models.keys().map(String::as_str).collect();
            bail!("/model needs a name: {}, or PROVIDER/NAME", names.join(", "));
        }
        let present = self.screen.header.agent.clone();
        let present = config.agents.contains_key(&present).then_some(present);
        let request =
            ModelRequest { agent: None, model: Some(model.clone()) }.resolve(config, present.as_deref());
        let id = request.agent.as_deref().or(present.as_deref()).unwrap_or(&config.default_agent);
        let agent = config.agents.get(id).with_context(|| format!("no agent {id:?} is configured"))?;
        if !matches!(agent.kind, AgentKind::Model(_)) && request.agent.is_none() {
            bail!(why_unavailable(self.home, agent, &model).await);
        }
        let agent = request.agent.as_deref().map(AgentId::parse).transpose()?;
        self.choose(AgentChoice { agent, model: request.model, reasoning: None });
        self.screen.notice(&format!("The model is now {model}."));
        Ok(())
    }

    fn choose_agent(&mut self, name: &str) -> anyhow::Result<()> {
        let agents = &self.home.config().agents;
        if !agents.contains_key(name) {
            let names: Vec<&str> = agents.keys().map(String::as_str).collect();
            bail!("/agent needs one of these names: {}", names.join(", "));
        }
        self.choose(AgentChoice { agent: Some(AgentId::parse(name)?), ..AgentChoice::default() });
        self.screen.notice(&format!("The agent is now {name}."));
        Ok(())
    }

    fn choose_mode(&mut self, name: &str) -> anyhow::Result<()> {
        let Some(mode) = PolicyMode::parse(name) else {
            bail!("/mode needs one of these names: read-only, workspace, full");
        };
        match &self.link.id {
            Some(id) => self.link.execute(id.clone(), SessionCommand::ChooseMode(mode)),
            None => (self.link.mode, self.screen.header.mode) = (Some(mode), mode),
        }
        self.screen.notice(&format!("The mode is now {name}."));
        Ok(())
    }

    fn choose_reasoning(&mut self, name: &str) -> anyhow::Result<()> {
        let Some(level) = reasoning(name) else {
            let names: Vec<&str> = REASONING.into_iter().map(|(name, _)| name).collect();
            bail!("/reasoning needs one of these names: {}", names.join(", "));
        };
        self.choose(AgentChoice { reasoning: Some(level), ..AgentChoice::default() });
        self.screen.notice(&format!("The reasoning is now {name}."));
        Ok(())
    }

    /// Begins to write the summary; the event of the session shows it.
    fn compact(&mut self) -> anyhow::Result<()> {
        let id = self.session()?;
        let (sessions, results) = (Arc::clone(self.sessions), self.results.clone());
        self.screen.notice("Writing a summary of the conversation.");
        tokio::spawn(async move {
            let text = match sessions.execute(&id, SessionCommand::Compact { keep: 0 }).await {
                Ok(SessionReply::Compacted(_)) => return,
                Ok(_) => "There is nothing to replace.".to_owned(),
                Err(refusal) => format!("The conversation was not replaced: {refusal}"),
            };
            // If the screen is gone, nobody is to be told.
            let _ = results.send(ScreenEvent::Error(text)).await;
        });
        Ok(())
    }

    async fn show_cost(&mut self) -> anyhow::Result<()> {
        let totals = self.sessions.totals(&self.session()?).await?;
        let dot = self.screen.theme.sign(" · ", " - ");
        let text = format!("{} messages{dot}{}", totals.messages, usage_text(totals.usage, dot));
        self.screen.notice(&text);
        Ok(())
    }

    /// Writes the conversation to a new file.
    async fn export(&mut self, file: &str) -> anyhow::Result<()> {
        let id = self.session()?;
        let path = match file {
            "" => PathBuf::from(format!("parlor-{}.md", short_id(&id).replace(['/', '\\', '\''], "_"))),
            file => PathBuf::from(file),
        };
        let session = self.sessions.read(&id).await?;
        let text = markdown_of(session.title(), session.history());
        let created = OpenOptions::new().write(true).create_new(true).open(&path);
        let mut out = created.with_context(|| format!("cannot create {}", path.display()))?;
        out.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
        self.screen.notice(&format!("The conversation is in {}.", path.display()));
        Ok(())
    }

    /// Shows the output of a command of parlor; diffs in colours.
    fn show_text(&mut self, bytes: &[u8]) {
        let text = clean(&String::from_utf8_lossy(bytes));
        let (width, theme) = (self.screen.columns, self.screen.theme);
        let lines = text
            .trim_end()
            .lines()
            .flat_map(|line| wrap(&[diff_line(line, theme)], width, &Prefix::indent(2)))
            .collect();
        self.screen.emit(LineKind::Block, lines);
    }
}

impl Screen {
    fn show_help(&mut self) {
        let theme = self.theme;
        let commands =
            COMMANDS.iter().map(|command| (format!("{} {}", command.text, command.argument), command.help));
        let keys = KEYS.into_iter().map(|(key, help)| (key.to_owned(), help));
        let width = self.columns;
        let entry = |(name, help): (String, &'static str)| {
            wrap(&[Span::raw(help)], width, &Prefix::sign(&format!("  {name:HELP_COLUMNS$}"), theme.code()))
        };
        let title = |text: &'static str| Line::from(Span::styled(text, theme.bold()));
        let mut lines = vec![title("Commands")];
        lines.extend(commands.flat_map(entry));
        lines.extend([Line::default(), title("Keys")]);
        lines.extend(keys.flat_map(entry));
        lines.push(Line::default());
        lines.extend(wrap(
            &[Span::raw("Any other text goes to the agent; //help sends /help to it.")],
            width,
            &Prefix::default(),
        ));
        self.emit(LineKind::Block, lines);
    }

    /// Adds finished lines that may be wider than the terminal.
    pub(super) fn emit_wrapped(&mut self, lines: &[Line<'static>]) {
        let prefix = Prefix::default();
        let wrapped = lines.iter().flat_map(|line| wrap(&line.spans, self.columns, &prefix)).collect();
        self.emit(LineKind::Block, wrapped);
    }
}

/// The conversation as a Markdown text.
fn markdown_of(title: Option<&str>, history: &[HistoryItem]) -> String {
    let mut text = format!("# {}\n", title.unwrap_or("Conversation"));
    for item in history {
        match item {
            HistoryItem::Message(message) => {
                let author = match message.role {
                    Role::User => "User",
                    Role::Assistant => "Agent",
                    Role::System => "Note",
                };
                text += &format!("\n## {author}\n\n{}\n", message.text.trim_end());
            }
            HistoryItem::ToolUse(tool) => {
                text += &format!("\n### Tool: {}\n\n{}\n", tool.tool, fenced(&tool.input));
                match &tool.result {
                    Some(Ok(output)) => text += &format!("\n{}\n", fenced(output.trim_end())),
                    Some(Err(failure)) => text += &format!("\nFailed: {}\n", failure.message),
                    None => {}
                }
            }
            HistoryItem::UnfinishedRun { .. } => {}
        }
    }
    text
}

/// A block of code around a text that may have fences itself.
fn fenced(text: &str) -> String {
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{text}\n{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_with_fences_is_fenced_by_longer_ones() {
        assert_eq!(fenced("a"), "```\na\n```");
        assert_eq!(fenced("```\nx\n```"), "````\n```\nx\n```\n````");
    }
}
