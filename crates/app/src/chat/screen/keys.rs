//! What keys do.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "most keys do nothing, also those that are invented later"
)]

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use parlor_engine::escaped;
use parlor_vocab::{QuestionAnswer, WhenBusy};
use ratatui_core::text::Span;

use super::commands::{ChatCommand, CommandName, message_of};
use super::completion::{Popup, mention};
use super::highlight::diff_line;
use super::input::MAX_INPUT_BYTES;
use super::state::{Effect, LineKind, Screen};
use super::wrap::{Prefix, wrap_exact};

/// A text that begins with this is a shell command.
const SHELL_SIGN: char = '!';

impl Screen {
    pub(super) fn key(&mut self, key: KeyEvent) -> Vec<Effect> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        self.hint = None;
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let is_interrupt = is_control && key.code == KeyCode::Char('c');
        let was_leaving = std::mem::replace(&mut self.is_leaving, false);
        if self.picker.is_some() {
            return self.picker_key(key, is_control);
        }
        if self.search.is_some() && !self.search_key(key, is_control) {
            return Vec::new();
        }
        if is_interrupt {
            return self.interrupt(was_leaving);
        }
        if let Some(effects) = self.popup_key(key) {
            return effects;
        }
        if let Some(effects) = self.answer_key(key) {
            return effects;
        }
        self.plain_key(key, is_control)
    }

    pub(super) fn paste(&mut self, text: &str) -> Vec<Effect> {
        (self.hint, self.is_leaving) = (None, false);
        if let Some(picker) = &mut self.picker {
            text.chars().filter(|letter| !letter.is_control()).for_each(|letter| picker.push(letter));
            return Vec::new();
        }
        self.type_text(text)
    }

    fn plain_key(&mut self, key: KeyEvent, is_control: bool) -> Vec<Effect> {
        let is_alt = key.modifiers.contains(KeyModifiers::ALT);
        let is_shift = key.modifiers.contains(KeyModifiers::SHIFT);
        match key.code {
            KeyCode::Enter if is_alt || is_shift => return self.type_text("\n"),
            KeyCode::Enter => return self.submit(WhenBusy::Enqueue),
            KeyCode::Esc => return self.stop(),
            KeyCode::Char(letter) if is_control => return self.control_key(letter),
            KeyCode::Char('b') if is_alt => self.input.word_left(),
            KeyCode::Char('f') if is_alt => self.input.word_right(),
            KeyCode::Char(_) if is_alt => {}
            KeyCode::Char(letter) => return self.type_text(letter.encode_utf8(&mut [0; 4])),
            KeyCode::Backspace if is_alt || is_control => self.input.delete_word(),
            KeyCode::Backspace => self.input.backspace(),
            KeyCode::Delete => self.input.delete(),
            KeyCode::Left if is_control || is_alt => self.input.word_left(),
            KeyCode::Right if is_control || is_alt => self.input.word_right(),
            KeyCode::Left => self.input.left(),
            KeyCode::Right => self.input.right(),
            KeyCode::Home => self.input.home(),
            KeyCode::End => self.input.end(),
            KeyCode::Up => return self.up(),
            KeyCode::Down => self.input.down(),
            _ => return Vec::new(),
        }
        self.refresh_popup()
    }

    fn control_key(&mut self, letter: char) -> Vec<Effect> {
        match letter {
            'a' => self.input.home(),
            'e' => self.input.end(),
            'b' => self.input.left(),
            'f' => self.input.right(),
            'k' => self.input.delete_to_end(),
            'u' => self.input.delete_to_home(),
            'w' => self.input.delete_word(),
            'h' => self.input.backspace(),
            'p' => return self.up(),
            'n' => self.input.down(),
            'j' => return self.type_text("\n"),
            's' => return self.submit(WhenBusy::Steer),
            'd' if self.input.is_empty() => return vec![Effect::Quit],
            'd' => self.input.delete(),
            'l' => return vec![Effect::ClearScreen],
            'o' => {
                self.unfold();
                return Vec::new();
            }
            'r' => {
                self.search = Some((String::new(), None));
                return Vec::new();
            }
            _ => return Vec::new(),
        }
        self.refresh_popup()
    }

    fn type_text(&mut self, text: &str) -> Vec<Effect> {
        if !self.input.insert(text) {
            self.hint = Some(format!(
                "A message has at most {} KiB. Put the text into a file and mention it with @.",
                MAX_INPUT_BYTES >> 10
            ));
        }
        self.refresh_popup()
    }

    /// Offers completions for what is typed now. Files are listed when the first mention begins.
    fn refresh_popup(&mut self) -> Vec<Effect> {
        self.popup = Popup::of(&self.input, &self.vocabulary);
        // The list is as old as the mention at most.
        let begins_mention = mention(self.input.before()).is_some_and(|(_, part)| part.is_empty());
        if begins_mention { vec![Effect::ListFiles] } else { Vec::new() }
    }

    /// Up recalls what was sent before; a message that waits is taken back first.
    fn up(&mut self) -> Vec<Effect> {
        if self.input.is_empty()
            && let Some((run, _)) = self.queue.back()
        {
            return vec![Effect::TakeBack(run.clone())];
        }
        self.input.up();
        self.popup = None;
        Vec::new()
    }

    fn interrupt(&mut self, was_leaving: bool) -> Vec<Effect> {
        self.popup = None;
        if was_leaving {
            return vec![Effect::Quit];
        }
        self.is_leaving = true;
        if self.run.is_some() {
            self.hint = Some("Stopping. Press Ctrl-C again to leave.".to_owned());
            return self.stop();
        }
        self.hint = Some("Press Ctrl-C again or Ctrl-D to leave.".to_owned());
        self.input.clear();
        Vec::new()
    }

    fn stop(&mut self) -> Vec<Effect> {
        let Some(run) = &mut self.run else { return Vec::new() };
        run.is_stopping = true;
        vec![Effect::Stop(run.run.clone())]
    }

    /// Sends what is typed, or runs it as a command.
    fn submit(&mut self, when_busy: WhenBusy) -> Vec<Effect> {
        self.popup = None;
        if self.input.text().trim().is_empty() {
            return Vec::new();
        }
        let text = self.input.take();
        let mut effects = vec![Effect::Remember(text.clone())];
        if let Some((question, _)) = self.question.as_ref().filter(|_| self.question_is_open()) {
            let answer = QuestionAnswer::Deny { message: Some(text.trim().to_owned()) };
            effects.push(Effect::Answer { question: question.id.clone(), answer });
            return effects;
        }
        let text = text.trim_end();
        effects.push(match ChatCommand::parse(text) {
            Some(ChatCommand { name: CommandName::Quit, .. }) => Effect::Quit,
            Some(ChatCommand { name: CommandName::Steer, argument }) => {
                Effect::Send { text: argument, when_busy: WhenBusy::Steer }
            }
            Some(command) => Effect::Run(command),
            None if text.starts_with(SHELL_SIGN) => Effect::Shell(text.to_owned()),
            None => {
                // With no run there is nothing to steer, so the message begins one.
                let when_busy = if self.run.is_some() { when_busy } else { WhenBusy::Enqueue };
                Effect::Send { text: message_of(text).to_owned(), when_busy }
            }
        });
        effects
    }

    /// Answers the question, if the user is not writing.
    fn answer_key(&mut self, key: KeyEvent) -> Option<Vec<Effect>> {
        let (question, _) = self.question.as_ref()?;
        let is_plain = key.modifiers.difference(KeyModifiers::SHIFT).is_empty();
        if !self.question_is_open() || !self.input.is_empty() || !is_plain {
            return None;
        }
        let answer = match key.code {
            KeyCode::Char('y' | 'Y') => QuestionAnswer::AllowOnce,
            KeyCode::Char('a' | 'A') if question.remembered.is_some() => QuestionAnswer::AllowAlways,
            KeyCode::Char('n' | 'N') => QuestionAnswer::Deny { message: None },
            _ => return None,
        };
        Some(vec![Effect::Answer { question: question.id.clone(), answer }])
    }

    fn popup_key(&mut self, key: KeyEvent) -> Option<Vec<Effect>> {
        let popup = self.popup.as_mut()?;
        match key.code {
            KeyCode::Up => popup.up(),
            KeyCode::Down => popup.down(),
            KeyCode::Esc => self.popup = None,
            KeyCode::Tab => return Some(self.accept_completion(false)),
            KeyCode::Enter if key.modifiers.is_empty() => return Some(self.accept_completion(true)),
            _ => return None,
        }
        Some(Vec::new())
    }

    /// Inserts the selected completion, and sends the text if nothing is missing and Enter was pressed.
    fn accept_completion(&mut self, is_enter: bool) -> Vec<Effect> {
        let Some(popup) = self.popup.take() else { return Vec::new() };
        let Some(entry) = popup.selected() else { return Vec::new() };
        self.input.replace_before(popup.start, &entry.text);
        if is_enter && entry.is_whole { self.submit(WhenBusy::Enqueue) } else { self.refresh_popup() }
    }

    fn picker_key(&mut self, key: KeyEvent, is_control: bool) -> Vec<Effect> {
        let Some(picker) = &mut self.picker else { return Vec::new() };
        match key.code {
            KeyCode::Up => picker.up(),
            KeyCode::Down => picker.down(),
            KeyCode::Char('p') if is_control => picker.up(),
            KeyCode::Char('n') if is_control => picker.down(),
            KeyCode::Char('c' | 'd') if is_control => self.picker = None,
            KeyCode::Esc => self.picker = None,
            KeyCode::Backspace => picker.backspace(),
            KeyCode::Char(letter) if !is_control => picker.push(letter),
            KeyCode::Enter => {
                let chosen = picker.selected();
                self.picker = None;
                return chosen.map(Effect::Switch).into_iter().collect();
            }
            _ => {}
        }
        Vec::new()
    }

    /// Searches what was sent before. `true` if the search is over and the key means what it always does.
    fn search_key(&mut self, key: KeyEvent, is_control: bool) -> bool {
        let Some((part, at)) = &mut self.search else { return true };
        match key.code {
            KeyCode::Char('r') if is_control => {}
            KeyCode::Char('c' | 'g') if is_control => {
                self.search = None;
                self.input.clear();
                return false;
            }
            KeyCode::Char(letter) if !is_control => {
                part.push(letter);
                *at = None;
            }
            KeyCode::Backspace => {
                part.pop();
                *at = None;
            }
            KeyCode::Enter | KeyCode::Esc => {
                self.search = None;
                return false;
            }
            _ => {
                self.search = None;
                return true;
            }
        }
        let (part, at) = (part.clone(), *at);
        let found = self.input.find(&part, at).map(|(at, text)| (at, text.to_owned()));
        match found {
            Some((at, text)) => {
                self.input.set(&text);
                self.search = Some((part, Some(at)));
            }
            None => self.hint = Some("Nothing else matches.".to_owned()),
        }
        false
    }

    /// Shows the whole question, or the last part that is folded.
    fn unfold(&mut self) {
        let (width, theme) = (self.columns, self.theme);
        if let Some((question, _)) = &self.question {
            let detail = question.detail.lines();
            let lines = detail
                .flat_map(|line| wrap_exact(&[diff_line(&escaped(line), theme)], width, &Prefix::indent(4)));
            let mut all = wrap_exact(
                &[Span::styled(escaped(&question.title), theme.bold())],
                width,
                &Prefix::default(),
            );
            all.extend(lines);
            self.emit(LineKind::Block, all);
            return;
        }
        match self.folded.pop_back().and_then(|part| part.unfolded(width, theme)) {
            Some(lines) => self.emit(LineKind::Block, lines),
            None => self.hint = Some("Nothing is folded.".to_owned()),
        }
    }
}
