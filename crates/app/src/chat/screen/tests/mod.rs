//! The screen without a terminal: events go in, and a terminal emulator shows what comes out.

use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use parlor_vocab::{
    AgentId, Entry, EventId, MessageEvent, MessageId, PolicyMode, RunEnding, RunEvent, RunId, Seq,
    SessionEvent, SessionUpdate, StreamKind, Timestamp, UserInput,
};

use super::completion::Vocabulary;
use super::paint::Painter;
use super::state::{Effect, Header, Screen, ScreenEvent};
use super::theme::Theme;

mod conversation;
mod keys;
mod questions;

/// A screen on an emulated terminal.
struct Emulated {
    screen: Screen,
    painter: Painter,
    terminal: vt100::Parser,
    now: Duration,
    seq: u64,
}

impl Emulated {
    fn new(columns: u16, rows: u16) -> Self {
        let theme = Theme { has_colours: true, has_unicode: true };
        let header = Header {
            agent: "local".to_owned(),
            model: None,
            mode: PolicyMode::Workspace,
            agents_under_policy: vec!["local".to_owned()],
            session: None,
            title: None,
        };
        let vocabulary = Vocabulary { modes: vec!["full".to_owned()], ..Vocabulary::default() };
        let screen = Screen::new(theme, header, vocabulary, vec!["sent before".to_owned()]);
        let terminal = vt100::Parser::new(rows.try_into().unwrap(), columns.try_into().unwrap(), 1000);
        let mut emulated =
            Self { screen, painter: Painter::default(), terminal, now: Duration::ZERO, seq: 0 };
        emulated.event(ScreenEvent::Resize { columns: columns.into(), rows: rows.into() });
        emulated
    }

    fn event(&mut self, event: ScreenEvent) -> Vec<Effect> {
        let effects = self.screen.handle(event, self.now);
        self.draw();
        effects
    }

    fn draw(&mut self) {
        let finished = self.screen.take_finished();
        let frame = self.painter.frame(&finished, &self.screen.region(), self.screen.columns);
        self.terminal.process(frame.as_bytes());
    }

    fn later(&mut self, time: Duration) {
        self.now += time;
        self.event(ScreenEvent::Tick);
    }

    fn type_text(&mut self, text: &str) -> Vec<Effect> {
        text.chars().flat_map(|letter| self.key(KeyCode::Char(letter), KeyModifiers::NONE)).collect()
    }

    fn key(&mut self, code: KeyCode, modifiers: KeyModifiers) -> Vec<Effect> {
        self.event(ScreenEvent::Key(KeyEvent::new(code, modifiers)))
    }

    fn press(&mut self, code: KeyCode) -> Vec<Effect> {
        self.key(code, KeyModifiers::NONE)
    }

    fn control(&mut self, letter: char) -> Vec<Effect> {
        self.key(KeyCode::Char(letter), KeyModifiers::CONTROL)
    }

    fn run_event(&mut self, event: RunEvent) -> Vec<Effect> {
        self.session_event(SessionEvent::Run { run: run(), sequence: 1, event })
    }

    fn session_event(&mut self, event: SessionEvent) -> Vec<Effect> {
        self.seq += 1;
        let entry = Entry { seq: Seq(self.seq), id: EventId::parse("e").unwrap(), at: Timestamp(0), event };
        self.event(ScreenEvent::Update(SessionUpdate::Entry(Arc::new(entry))))
    }

    fn start_run(&mut self, text: &str) {
        self.run_event(RunEvent::Started {
            parent: None,
            agent: AgentId::parse("local").unwrap(),
            model: None,
            missing_agent: None,
            input: UserInput { text: text.to_owned(), ..UserInput::default() },
            message: MessageId::parse("input").unwrap(),
        });
    }

    fn delta(&mut self, stream: StreamKind, text: &str) {
        let update = SessionUpdate::Delta { run: run(), stream, text: text.to_owned() };
        self.event(ScreenEvent::Update(update));
    }

    fn answer(&mut self, text: &str) {
        self.delta(StreamKind::Message(message()), text);
    }

    fn complete(&mut self, text: &str) {
        let (message, text, media) = (message(), text.to_owned(), Vec::new());
        self.run_event(RunEvent::Message(MessageEvent::Completed { message, text, media }));
    }

    fn end_run(&mut self, duration_ms: u64) -> Vec<Effect> {
        self.run_event(RunEvent::Ended { ending: RunEnding::Completed { message: None }, duration_ms })
    }

    /// The rows of the terminal, without spaces at their ends.
    fn rows(&self) -> Vec<String> {
        let contents = self.terminal.screen().contents();
        contents.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// The rows of the scrollback and the screen.
    fn all_rows(&mut self) -> Vec<String> {
        let mut rows = Vec::new();
        self.terminal.screen_mut().set_scrollback(usize::MAX);
        let mut above = self.terminal.screen().scrollback();
        while above > 0 {
            self.terminal.screen_mut().set_scrollback(above);
            rows.push(
                self.terminal.screen().rows(0, u16::MAX).next().unwrap_or_default().trim_end().to_owned(),
            );
            above -= 1;
        }
        self.terminal.screen_mut().set_scrollback(0);
        rows.extend(self.rows());
        rows
    }

    fn shows(&self, text: &str) -> bool {
        self.rows().iter().any(|row| row.contains(text))
    }
}

fn run() -> RunId {
    RunId::parse("run").unwrap()
}

fn message() -> MessageId {
    MessageId::parse("message").unwrap()
}
