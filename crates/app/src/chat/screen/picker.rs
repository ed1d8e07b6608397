//! A list of sessions to choose from.

use parlor_vocab::SessionId;

use super::wrap::clean;

/// How many sessions are offered: the most recently used ones.
pub(crate) const MAX_SESSIONS: usize = 200;

/// A session that can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionChoice {
    pub(super) id: SessionId,
    /// When it was used last.
    pub(super) time: String,
    pub(super) title: String,
    pub(super) messages: u64,
}

/// The list, and what the user has typed to narrow it.
pub(super) struct Picker {
    choices: Vec<SessionChoice>,
    pub(super) filter: String,
    selected: usize,
}

impl Picker {
    pub(super) fn new(mut choices: Vec<SessionChoice>) -> Self {
        for choice in &mut choices {
            choice.title = clean(&choice.title).replace('\n', " ");
        }
        Self { choices, filter: String::new(), selected: 0 }
    }

    /// The sessions whose title or id contains the filter.
    pub(super) fn matching(&self) -> Vec<&SessionChoice> {
        let filter = self.filter.to_lowercase();
        let is_match = |choice: &&SessionChoice| {
            choice.title.to_lowercase().contains(&filter) || choice.id.as_str().starts_with(&filter)
        };
        self.choices.iter().filter(is_match).collect()
    }

    pub(super) fn selected_index(&self) -> usize {
        self.selected.min(self.matching().len().saturating_sub(1))
    }

    pub(super) fn selected(&self) -> Option<SessionId> {
        self.matching().get(self.selected_index()).map(|choice| choice.id.clone())
    }

    pub(super) fn up(&mut self) {
        self.selected = self.selected_index().saturating_sub(1);
    }

    pub(super) fn down(&mut self) {
        self.selected = (self.selected_index() + 1).min(self.matching().len().saturating_sub(1));
    }

    pub(super) fn push(&mut self, letter: char) {
        self.filter.push(letter);
        self.selected = 0;
    }

    pub(super) fn backspace(&mut self) {
        self.filter.pop();
        self.selected = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_narrows_the_list() {
        let choice = |id: &str, title: &str| SessionChoice {
            id: SessionId::parse(id).unwrap(),
            time: String::new(),
            title: title.to_owned(),
            messages: 1,
        };
        let mut picker =
            Picker::new(vec![choice("1", "Build\x1b[2J"), choice("2", "Tests"), choice("3", "Build it")]);
        picker.down();
        picker.down();
        picker.down();
        assert_eq!(picker.selected().unwrap().as_str(), "3");
        "build".chars().for_each(|letter| picker.push(letter));
        assert_eq!(picker.matching().len(), 2);
        assert_eq!(picker.matching()[0].title, "Build");
        picker.down();
        assert_eq!(picker.selected().unwrap().as_str(), "3");
        picker.push('x');
        assert_eq!(picker.selected(), None);
        picker.backspace();
        picker.up();
        assert_eq!(picker.selected().unwrap().as_str(), "1");
    }
}
