//! What the screen shows, and the events that change it. Pure: it reads no clock, opens nothing and prints nothing.
//!
//! [`Screen::handle`] takes an event and returns what should be done about it; [`Screen::take_finished`] and
//! [`Screen::region`](super::region) give the lines.

use std::collections::VecDeque;
use std::time::Duration;

use crossterm::event::KeyEvent;
use parlor_vocab::{
    HistoryItem, PolicyMode, Question, QuestionAnswer, QuestionId, RunId, Seq, SessionId, SessionUpdate,
    Usage, WhenBusy,
};
use ratatui_core::text::{Line, Span};

use super::commands::ChatCommand;
use super::completion::{Popup, Vocabulary};
use super::input::Input;
use super::parts::Part;
use super::picker::{Picker, SessionChoice};
use super::theme::Theme;
use super::wrap::{Prefix, clean, wrap};

/// How many folded parts can be shown in full.
pub(super) const MAX_FOLDED: usize = 50;

/// A run that took at least this long is announced by the terminal when it ends.
pub(crate) const LONG_RUN: Duration = Duration::from_secs(10);

/// A question takes no key for this long, so that somebody who is typing does not answer it by accident.
pub(crate) const QUESTION_DELAY: Duration = Duration::from_millis(500);

/// All that can happen to the screen.
pub(super) enum ScreenEvent {
    Key(KeyEvent),
    /// Text that was pasted.
    Paste(String),
    Resize {
        columns: usize,
        rows: usize,
    },
    /// Time has passed.
    Tick,
    /// Something happened in the session.
    Update(SessionUpdate),
    /// The screen shows this session from now on.
    Joined(Box<JoinedSession>),
    Error(String),
    /// The files of the working folder.
    Files(Vec<String>),
    /// The sessions to choose from.
    Sessions(Vec<SessionChoice>),
    /// A queued message was taken back: its text.
    TakenBack(String),
}

/// All that the screen can want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Send {
        text: String,
        when_busy: WhenBusy,
    },
    /// Runs a shell command of the user.
    Shell(String),
    Stop(RunId),
    Answer {
        question: QuestionId,
        answer: QuestionAnswer,
    },
    TakeBack(RunId),
    Run(ChatCommand),
    ListFiles,
    Switch(SessionId),
    /// Adds a text to the history file.
    Remember(String),
    /// Rings the bell of the terminal, and shows the text if the terminal can.
    Notify(String),
    ClearScreen,
    Quit,
}

/// What is known of a session when the screen begins to show it.
pub(super) struct JoinedSession {
    /// The short id.
    pub(super) id: String,
    pub(super) title: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) model: Option<String>,
    pub(super) mode: Option<PolicyMode>,
    pub(super) usage: Usage,
    /// Up to here, `usage` counts.
    pub(super) head: Seq,
    /// The last messages, the oldest first.
    pub(super) tail: Vec<HistoryItem>,
    /// Whether older messages are missing.
    pub(super) is_cut: bool,
    pub(super) queue: Vec<(RunId, String)>,
}

/// The run that is active.
pub(super) struct LiveRun {
    pub(super) run: RunId,
    pub(super) since: Duration,
    pub(super) parts: Vec<Part>,
    /// Whether it was told to stop.
    pub(super) is_stopping: bool,
    /// What it does besides its parts, such as waiting for a server.
    pub(super) status: Option<String>,
    pub(super) usage: Usage,
    /// The result of the last tool call, which an answer may repeat.
    pub(super) last_result: Option<String>,
}

/// What stands under the text.
pub(super) struct Header {
    pub(super) agent: String,
    pub(super) model: Option<String>,
    pub(super) mode: PolicyMode,
    /// The agents that the policy, and so the mode, holds for.
    pub(super) agents_under_policy: Vec<String>,
    pub(super) session: Option<String>,
    pub(super) title: Option<String>,
}

/// The state of the screen.
pub(super) struct Screen {
    pub(super) theme: Theme,
    pub(super) columns: usize,
    pub(super) rows: usize,
    pub(super) now: Duration,
    pub(super) header: Header,
    pub(super) input: Input,
    pub(super) popup: Option<Popup>,
    pub(super) picker: Option<Picker>,
    /// The text that is searched for in what was sent before, and where the last match is.
    pub(super) search: Option<(String, Option<usize>)>,
    pub(super) vocabulary: Vocabulary,
    pub(super) run: Option<LiveRun>,
    pub(super) queue: VecDeque<(RunId, String)>,
    /// The question that is asked, and since when.
    pub(super) question: Option<(Question, Duration)>,
    pub(super) usage: Usage,
    /// Events up to here are counted in `usage`.
    pub(super) counted: Seq,
    /// A short text for the user until the next key.
    pub(super) hint: Option<String>,
    /// Whether the next Ctrl-C leaves.
    pub(super) is_leaving: bool,
    /// Parts that were folded, the newest last.
    pub(super) folded: VecDeque<Part>,
    finished: Vec<Line<'static>>,
    /// What was finished last; decides whether an empty line comes before the next.
    last_kind: Option<LineKind>,
}

/// What finished lines are, for the space between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineKind {
    /// Tool calls and other short lines, which stay together.
    Short,
    /// A part of an answer; further blocks of it follow.
    Text,
    /// Anything else.
    Block,
}

impl Screen {
    pub(super) fn new(theme: Theme, header: Header, vocabulary: Vocabulary, history: Vec<String>) -> Self {
        Self {
            theme,
            columns: 80,
            rows: 24,
            now: Duration::ZERO,
            header,
            input: Input::new(history),
            popup: None,
            picker: None,
            search: None,
            vocabulary,
            run: None,
            queue: VecDeque::new(),
            question: None,
            usage: Usage::default(),
            counted: Seq::START,
            hint: None,
            is_leaving: false,
            folded: VecDeque::new(),
            finished: Vec::new(),
            last_kind: None,
        }
    }

    /// Takes an event; `now` is the time since some start.
    pub(super) fn handle(&mut self, event: ScreenEvent, now: Duration) -> Vec<Effect> {
        self.now = now;
        match event {
            ScreenEvent::Key(key) => return self.key(key),
            ScreenEvent::Paste(text) => return self.paste(&text),
            ScreenEvent::Resize { columns, rows } => {
                (self.columns, self.rows) = (columns.max(1), rows.max(1))
            }
            ScreenEvent::Tick => {}
            ScreenEvent::Update(update) => return self.update(&update),
            ScreenEvent::Joined(joined) => self.join(*joined),
            ScreenEvent::Error(text) => self.error(&text),
            ScreenEvent::Files(files) => {
                self.vocabulary.files = Some(files);
                self.popup = Popup::of(&self.input, &self.vocabulary);
            }
            ScreenEvent::Sessions(sessions) if sessions.is_empty() => {
                self.notice("There are no other sessions.")
            }
            ScreenEvent::Sessions(sessions) => self.picker = Some(Picker::new(sessions)),
            ScreenEvent::TakenBack(text) if self.input.is_empty() => self.input.set(&text),
            ScreenEvent::TakenBack(text) => self.notice(&format!("Taken back: {text}")),
        }
        Vec::new()
    }

    /// The lines that will not change any more, for the scrollback of the terminal.
    pub(super) fn take_finished(&mut self) -> Vec<Line<'static>> {
        self.finish_parts();
        std::mem::take(&mut self.finished)
    }

    /// Moves the lines of parts that will not change any more to the finished ones.
    pub(super) fn finish_parts(&mut self) {
        let (width, theme) = (self.columns, self.theme);
        while let Some(run) = &mut self.run
            && let Some(part) = run.parts.first_mut()
        {
            let (lines, is_complete) = (part.take_finished(width, theme), part.is_complete());
            let kind = if part.is_short() { LineKind::Short } else { LineKind::Text };
            let done = is_complete.then(|| run.parts.remove(0));
            self.emit(kind, lines);
            let Some(done) = done else { break };
            // The next message is a text of its own, not a further block of this one.
            if self.last_kind == Some(LineKind::Text) {
                self.last_kind = Some(LineKind::Block);
            }
            if done.is_short() {
                self.folded.push_back(done);
                if self.folded.len() > MAX_FOLDED {
                    self.folded.pop_front();
                }
            }
        }
    }

    /// Adds finished lines, with an empty line before them unless they continue short ones.
    pub(super) fn emit(&mut self, kind: LineKind, lines: Vec<Line<'static>>) {
        if lines.is_empty() {
            return;
        }
        let is_together = kind == LineKind::Short && self.last_kind == Some(LineKind::Short);
        if self.last_kind.is_some() && !is_together {
            self.finished.push(Line::default());
        }
        self.finished.extend(lines);
        self.last_kind = Some(kind);
    }

    pub(super) fn notice(&mut self, text: &str) {
        let lines = wrap(&[Span::styled(clean(text), self.theme.dim())], self.columns, &Prefix::default());
        self.emit(LineKind::Short, lines);
    }

    pub(super) fn error(&mut self, text: &str) {
        let lines = wrap(&[Span::styled(clean(text), self.theme.error())], self.columns, &Prefix::default());
        self.emit(LineKind::Block, lines);
    }

    /// Shows what a user said. `sender` names another client.
    pub(super) fn user_message(&mut self, text: &str, sender: Option<&str>) {
        let mut lines = Vec::new();
        if let Some(sender) = sender {
            let name = Span::styled(format!("{}:", clean(sender).replace('\n', " ")), self.theme.dim());
            lines.extend(wrap(&[name], self.columns, &Prefix::default()));
        }
        let text = Span::styled(clean(text).trim_end().to_owned(), self.theme.bold());
        lines.extend(wrap(&[text], self.columns, &Prefix::sign("> ", self.theme.accent())));
        self.emit(LineKind::Block, lines);
    }

    /// Whether the question takes keys already.
    pub(super) fn question_is_open(&self) -> bool {
        self.question.as_ref().is_some_and(|(_, since)| self.now.saturating_sub(*since) >= QUESTION_DELAY)
    }

    /// Whether lines are finished already.
    pub(super) fn has_finished(&self) -> bool {
        self.last_kind.is_some()
    }

    /// Whether the last finished line is one of several short ones.
    pub(super) fn ends_short(&self) -> bool {
        self.last_kind == Some(LineKind::Short)
    }

    /// Whether the picture changes by itself.
    pub(super) fn is_animated(&self) -> bool {
        self.run.is_some() || self.question.is_some()
    }
}
