//! The text that the user is writing, with a cursor, and the texts that were sent before.

use unicode_width::UnicodeWidthChar;

use super::wrap::clean;

/// The longest text that can be typed or pasted. A longer one belongs into a file, which a message can name.
pub(crate) const MAX_INPUT_BYTES: usize = 256 << 10;

/// The text and its cursor.
#[derive(Default)]
pub(super) struct Input {
    text: String,
    /// A byte offset between two letters of the text.
    cursor: usize,
    /// The texts that were sent before, the oldest first.
    history: Vec<String>,
    /// Where in the history the user is, and what the user had written before.
    recalled: Option<(usize, String)>,
}

impl Input {
    pub(super) fn new(history: Vec<String>) -> Self {
        Self { history, ..Self::default() }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn cursor(&self) -> usize {
        self.cursor
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The text before the cursor.
    pub(super) fn before(&self) -> &str {
        self.text.get(..self.cursor).unwrap_or_default()
    }

    fn after(&self) -> &str {
        self.text.get(self.cursor..).unwrap_or_default()
    }

    /// Inserts text at the cursor. `false` if it would be too long; then nothing is inserted.
    pub(super) fn insert(&mut self, text: &str) -> bool {
        let text = clean(text);
        if self.text.len() + text.len() > MAX_INPUT_BYTES {
            return false;
        }
        self.text.insert_str(self.cursor, &text);
        self.cursor += text.len();
        true
    }

    /// Replaces the whole text; the cursor goes to its end.
    pub(super) fn set(&mut self, text: &str) {
        self.text = clean(text);
        self.cursor = self.text.len();
    }

    /// Replaces the text from `start` to the cursor.
    pub(super) fn replace_before(&mut self, start: usize, text: &str) {
        if start <= self.cursor && self.text.is_char_boundary(start) {
            self.text.replace_range(start..self.cursor, "");
            self.cursor = start;
            self.insert(text);
        }
    }

    /// Takes the text to send it, and adds it to the history.
    pub(super) fn take(&mut self) -> String {
        let text = std::mem::take(&mut self.text);
        (self.cursor, self.recalled) = (0, None);
        if !text.trim().is_empty() && !text.starts_with(' ') && self.history.last() != Some(&text) {
            self.history.push(text.clone());
        }
        text
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        (self.cursor, self.recalled) = (0, None);
    }

    pub(super) fn left(&mut self) {
        self.cursor = self.previous();
    }

    pub(super) fn right(&mut self) {
        let mut letters = self.after().chars();
        let first = letters.next().map_or(0, char::len_utf8);
        // Marks belong to the letter before them.
        let marks: usize = letters.take_while(|letter| is_mark(*letter)).map(char::len_utf8).sum();
        self.cursor += first + marks;
    }

    pub(super) fn word_left(&mut self) {
        let trimmed = self.before().trim_end();
        self.cursor = trimmed.rfind(char::is_whitespace).map_or(0, |space| {
            space + trimmed.get(space..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8)
        });
    }

    pub(super) fn word_right(&mut self) {
        let rest = self.after();
        let word = rest.len() - rest.trim_start().len();
        let end = rest.get(word..).and_then(|rest| rest.find(char::is_whitespace));
        self.cursor += end.map_or(rest.len(), |end| word + end);
    }

    /// To the start of the line.
    pub(super) fn home(&mut self) {
        self.cursor = self.before().rfind('\n').map_or(0, |line_end| line_end + 1);
    }

    /// To the end of the line.
    pub(super) fn end(&mut self) {
        self.cursor += self.after().find('\n').unwrap_or(self.after().len());
    }

    pub(super) fn backspace(&mut self) {
        self.delete_from(self.previous());
    }

    pub(super) fn delete(&mut self) {
        let start = self.cursor;
        self.right();
        self.delete_from(start);
    }

    pub(super) fn delete_word(&mut self) {
        let end = self.cursor;
        self.word_left();
        let start = std::mem::replace(&mut self.cursor, end);
        self.delete_from(start);
    }

    pub(super) fn delete_to_home(&mut self) {
        let end = self.cursor;
        self.home();
        let start = std::mem::replace(&mut self.cursor, end);
        self.delete_from(start);
    }

    pub(super) fn delete_to_end(&mut self) {
        let start = self.cursor;
        self.end();
        self.delete_from(start);
    }

    fn delete_from(&mut self, start: usize) {
        self.text.replace_range(start..self.cursor, "");
        self.cursor = start;
    }

    /// One line up; in the first line, to the text that was sent before.
    pub(super) fn up(&mut self) {
        if !self.move_line(true) {
            let at = self.recalled.as_ref().map_or(self.history.len(), |(at, _)| *at);
            if at > 0 {
                self.recall(at - 1);
            }
        }
    }

    /// One line down; in the last line, to the text that was sent after the recalled one.
    pub(super) fn down(&mut self) {
        if !self.move_line(false)
            && let Some((at, draft)) = self.recalled.clone()
        {
            if at + 1 < self.history.len() {
                self.recall(at + 1);
            } else {
                self.recalled = None;
                self.set(&draft);
            }
        }
    }

    /// The newest text before `position` that contains `part`, with its position. `None` for the position means the end.
    pub(super) fn find(&self, part: &str, position: Option<usize>) -> Option<(usize, &str)> {
        let end = position.unwrap_or(self.history.len());
        let texts = self.history.iter().enumerate().take(end);
        texts.rev().find(|(_, text)| text.contains(part)).map(|(at, text)| (at, text.as_str()))
    }

    fn recall(&mut self, at: usize) {
        let Some(text) = self.history.get(at).cloned() else { return };
        let draft = self.recalled.take().map_or_else(|| self.text.clone(), |(_, draft)| draft);
        self.set(&text);
        self.recalled = Some((at, draft));
    }

    /// Moves to the line above or below. `false` if there is none.
    fn move_line(&mut self, is_up: bool) -> bool {
        let start = self.before().rfind('\n').map_or(0, |line_end| line_end + 1);
        let column = self.text.get(start..self.cursor).unwrap_or_default().chars().count();
        let target = if is_up {
            let Some(end) = start.checked_sub(1) else { return false };
            let above = self.text.get(..end).unwrap_or_default();
            above.rfind('\n').map_or(0, |line_end| line_end + 1)
        } else {
            let Some(line_end) = self.after().find('\n') else { return false };
            self.cursor + line_end + 1
        };
        let line = self.text.get(target..).unwrap_or_default().split('\n').next().unwrap_or_default();
        let offset: usize = line.chars().take(column).map(char::len_utf8).sum();
        self.cursor = target + offset;
        true
    }

    /// Where the letter before the cursor begins.
    fn previous(&self) -> usize {
        let letters = self.before().char_indices().rev();
        letters.into_iter().find(|(_, letter)| !is_mark(*letter)).map_or(0, |(index, _)| index)
    }
}

/// Whether a character takes no room of its own, such as an accent.
fn is_mark(letter: char) -> bool {
    letter.width() == Some(0) && letter != '\n'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> Input {
        let mut input = Input::default();
        assert!(input.insert(text));
        input
    }

    #[test]
    fn keys_move_and_delete() {
        let mut input = typed("one two");
        input.word_left();
        input.insert("and ");
        assert_eq!(input.text(), "one and two");
        input.home();
        input.delete();
        input.end();
        input.backspace();
        assert_eq!(input.text(), "ne and tw");
        input.delete_word();
        assert_eq!(input.text(), "ne and ");
        input.delete_to_home();
        assert!(input.is_empty());
    }

    #[test]
    fn an_accent_stays_with_its_letter() {
        let mut input = typed("ae\u{301}");
        input.backspace();
        assert_eq!(input.text(), "a");
    }

    #[test]
    fn up_and_down_walk_through_lines_and_then_through_the_history() {
        let mut input = Input::new(vec!["old".to_owned(), "newer".to_owned()]);
        input.insert("ab\ncdef");
        input.up();
        assert_eq!(input.cursor(), 2);
        input.up();
        assert_eq!(input.text(), "newer");
        input.up();
        input.up();
        assert_eq!(input.text(), "old");
        input.down();
        input.down();
        assert_eq!(input.text(), "ab\ncdef", "what was written is not lost");
    }

    #[test]
    fn sent_texts_are_remembered_once_and_not_with_a_space_before() {
        let mut input = Input::default();
        for text in ["a", "a", " secret", "b"] {
            input.insert(text);
            input.take();
        }
        assert_eq!(input.history, ["a", "b"]);
        assert_eq!(input.find("a", None), Some((0, "a")));
    }

    #[test]
    fn a_text_that_is_too_long_is_refused() {
        let mut input = typed("x");
        assert!(!input.insert(&"y".repeat(MAX_INPUT_BYTES)));
        assert_eq!(input.text(), "x");
    }

    #[test]
    fn pasted_control_characters_are_removed() {
        assert_eq!(typed("a\x1b[2Jb\r\nc").text(), "ab\nc");
    }
}
