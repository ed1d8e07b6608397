//! What the text before the cursor can be completed to: commands and their arguments, and files after `@`.

use super::commands::{COMMANDS, ChatCommand, CommandName};
use super::fuzzy::{MAX_MATCHES, best};
use super::input::Input;

/// The names that arguments are completed to.
#[derive(Clone, Debug, Default)]
pub(super) struct Vocabulary {
    pub(super) models: Vec<String>,
    pub(super) agents: Vec<String>,
    pub(super) modes: Vec<String>,
    pub(super) reasoning: Vec<String>,
    /// The files of the working folder; `None` until they are asked for.
    pub(super) files: Option<Vec<String>>,
}

/// A list of completions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Popup {
    /// Where the text that is replaced begins; it ends at the cursor.
    pub(super) start: usize,
    pub(super) entries: Vec<Completion>,
    pub(super) selected: usize,
}

/// A text that can be inserted at the cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Completion {
    /// What is inserted.
    pub(super) text: String,
    /// What it means.
    pub(super) help: String,
    /// Whether the text is then ready to be sent.
    pub(super) is_whole: bool,
}

impl Popup {
    /// The completions for the text before the cursor.
    pub(super) fn of(input: &Input, vocabulary: &Vocabulary) -> Option<Self> {
        let before = input.before();
        let (start, entries) = match mention(before) {
            Some((start, part)) => (start, files(part, vocabulary)),
            None if before.starts_with('/') && !before.contains('\n') => commands(before, vocabulary),
            None => return None,
        };
        // A list with what is there already helps nobody.
        let is_done =
            matches!(entries.as_slice(), [only] if Some(only.text.trim_end()) == before.get(start..));
        (!entries.is_empty() && !is_done).then_some(Self { start, entries, selected: 0 })
    }

    pub(super) fn selected(&self) -> Option<&Completion> {
        self.entries.get(self.selected)
    }

    pub(super) fn up(&mut self) {
        self.selected = self.selected.checked_sub(1).unwrap_or(self.entries.len().saturating_sub(1));
    }

    pub(super) fn down(&mut self) {
        self.selected = if self.selected + 1 < self.entries.len() { self.selected + 1 } else { 0 };
    }
}

/// The mention of a file that the cursor is in: where it begins, and what follows the `@`.
pub(super) fn mention(before: &str) -> Option<(usize, &str)> {
    let start = before.rfind(char::is_whitespace).map_or(0, |space| {
        space + before.get(space..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8)
    });
    let word = before.get(start..)?;
    word.strip_prefix('@').map(|part| (start, part))
}

fn files(part: &str, vocabulary: &Vocabulary) -> Vec<Completion> {
    let files = vocabulary.files.as_deref().unwrap_or_default();
    let found = best(part, files.iter().map(String::as_str));
    let entry = |file: &str| Completion { text: format!("@{file} "), help: String::new(), is_whole: false };
    found.into_iter().map(entry).collect()
}

fn commands(before: &str, vocabulary: &Vocabulary) -> (usize, Vec<Completion>) {
    if !before.contains(' ') {
        let matching = COMMANDS.iter().filter(|command| command.text.starts_with(before));
        let entries = matching.map(|command| {
            let is_whole = command.argument.is_empty() || command.argument.starts_with('[');
            let space = if command.argument.is_empty() { "" } else { " " };
            let argument =
                if command.argument.is_empty() { String::new() } else { format!("{}: ", command.argument) };
            Completion { text: format!("{}{space}", command.text), help: argument + command.help, is_whole }
        });
        return (0, entries.collect());
    }
    let Some(command) = ChatCommand::parse(before) else { return (0, Vec::new()) };
    let names = match command.name {
        CommandName::Model => &vocabulary.models,
        CommandName::Agent => &vocabulary.agents,
        CommandName::Mode => &vocabulary.modes,
        CommandName::Reasoning => &vocabulary.reasoning,
        CommandName::Help
        | CommandName::Compact
        | CommandName::Undo
        | CommandName::Diff
        | CommandName::Fork
        | CommandName::Resume
        | CommandName::New
        | CommandName::Rename
        | CommandName::Export
        | CommandName::Mcp
        | CommandName::Cost
        | CommandName::Steer
        | CommandName::Quit => return (0, Vec::new()),
    };
    let start = before.len() - command.argument.len();
    let matching = names.iter().filter(|name| name.starts_with(&command.argument)).take(MAX_MATCHES);
    let entry = |name: &String| Completion { text: name.clone(), help: String::new(), is_whole: true };
    (start, matching.map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn popup(text: &str) -> Option<Popup> {
        let mut input = Input::default();
        input.insert(text);
        let vocabulary = Vocabulary {
            models: vec!["fast".to_owned(), "slow".to_owned()],
            files: Some(vec!["src/main.rs".to_owned(), "README.md".to_owned()]),
            ..Vocabulary::default()
        };
        Popup::of(&input, &vocabulary)
    }

    fn texts(text: &str) -> Vec<String> {
        popup(text)
            .map(|popup| popup.entries.into_iter().map(|entry| entry.text).collect())
            .unwrap_or_default()
    }

    #[test]
    fn commands_and_their_arguments_are_completed() {
        assert_eq!(texts("/re"), ["/reasoning ", "/resume ", "/rename "]);
        assert_eq!(texts("/model "), ["fast", "slow"]);
        assert_eq!(texts("/model f"), ["fast"]);
        assert_eq!(popup("/model f").unwrap().start, 7);
        for text in ["/say x", "/undo", "text /re", "/rename x", "/model fast", ""] {
            assert_eq!(texts(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn files_are_completed_after_an_at_sign() {
        let popup = popup("look at @mai").unwrap();
        assert_eq!((popup.start, popup.entries[0].text.as_str()), (8, "@src/main.rs "));
        assert_eq!(texts("mail@example"), [""; 0]);
    }

    #[test]
    fn the_selection_goes_round() {
        let mut popup = popup("/re").unwrap();
        popup.up();
        assert_eq!(popup.selected().unwrap().text, "/rename ");
        popup.down();
        assert_eq!(popup.selected().unwrap().text, "/reasoning ");
    }
}
