//! The line a person types: editing, history and pasting, on a thread of its own.
//!
//! Reading a terminal cannot be given up halfway, and the runtime's thread has other things to do.

use std::io::{self, stdin};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::error::ReadlineError;
use rustyline::{Behavior, ColorMode, Config, DefaultEditor};
use tokio::sync::mpsc;

use crate::console::Console;

/// How many lines are remembered from one chat to the next.
pub(crate) const HISTORY_LINES: usize = 1000;
/// A longer line is not remembered.
pub(crate) const HISTORY_LINE_BYTES: usize = 16 * 1024;
/// What is asked of the thread and what it answers: one line at a time, and perhaps a remark.
const QUEUE: usize = 2;

/// Stands before what is typed.
pub(super) const PROMPT: &str = "> ";

/// What came of asking for a line.
#[derive(Debug)]
pub(super) enum Line {
    /// A line, perhaps pasted with several within.
    Text(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D, or the terminal is gone.
    End,
    /// A remark for the user; the line is still to come.
    Remark(String),
}

/// Asks the person at the terminal.
pub(super) struct Editor {
    asks: SyncSender<()>,
    lines: mpsc::Receiver<Line>,
    terminal: Option<Termios>,
}

impl Editor {
    /// Starts the thread. What is typed is remembered in the file `history`.
    pub(super) fn start(history: &Path, console: Console) -> anyhow::Result<Self> {
        // If output goes elsewhere, the line is edited on the terminal itself.
        let behavior = if console.output { Behavior::Stdio } else { Behavior::PreferTerm };
        let config = Config::builder()
            .max_history_size(HISTORY_LINES)?
            .history_ignore_space(true)
            .behavior(behavior)
            .color_mode(if console.style.0 { ColorMode::Enabled } else { ColorMode::Disabled })
            .bracketed_paste(!console.dumb)
            .build();
        let mut editor = DefaultEditor::with_config(config)?;
        let trouble = match editor.load_history(history) {
            Ok(()) => None,
            Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(format!("What was typed before is not known: {error}.")),
        };
        let (asks, asked) = sync_channel(QUEUE);
        let (answer, lines) = mpsc::channel(QUEUE);
        let typist =
            LineSource { editor, history: Some(history.to_owned()), trouble, console, asked, answer };
        thread::Builder::new().name("line editor".to_owned()).spawn(move || typist.run())?;
        Ok(Self { asks, lines, terminal: tcgetattr(stdin()).ok() })
    }

    /// Asks for a line. Nothing else is to be printed until there is one.
    pub(super) fn ask(&self) {
        // A thread that has ended is noticed by whoever waits for the line.
        let _ = self.asks.send(());
    }

    /// Waits for the line that was asked for. Cancel safe.
    pub(super) async fn line(&mut self) -> Line {
        self.lines.recv().await.unwrap_or(Line::End)
    }
}

impl Drop for Editor {
    /// The thread may be in the middle of a line, for which it changes how the terminal works.
    fn drop(&mut self) {
        if let Some(terminal) = &self.terminal {
            // A terminal that is gone needs no putting right.
            let _ = tcsetattr(stdin(), OptionalActions::Now, terminal);
        }
    }
}

struct LineSource {
    editor: DefaultEditor,
    /// `None` if it cannot be written.
    history: Option<PathBuf>,
    trouble: Option<String>,
    console: Console,
    asked: Receiver<()>,
    answer: mpsc::Sender<Line>,
}

impl LineSource {
    fn run(mut self) {
        let prompt = (PROMPT, self.console.style.bold(PROMPT));
        while self.asked.recv().is_ok() {
            let line = match self.editor.readline(&prompt) {
                Ok(text) => {
                    self.remember(&text);
                    Line::Text(text)
                }
                Err(ReadlineError::Interrupted) => Line::Interrupt,
                Err(ReadlineError::Eof) => Line::End,
                Err(error) => {
                    self.trouble = Some(format!("The terminal cannot be read: {error}."));
                    Line::End
                }
            };
            if let Some(trouble) = self.trouble.take() {
                let _ = self.answer.blocking_send(Line::Remark(trouble));
            }
            if self.answer.blocking_send(line).is_err() {
                return;
            }
        }
    }

    /// Remembers at once: who knows how this ends.
    fn remember(&mut self, text: &str) {
        let Some(history) = &self.history else { return };
        if text.trim().is_empty() || text.len() > HISTORY_LINE_BYTES {
            return;
        }
        let kept = self.editor.add_history_entry(text).and_then(|_| self.editor.append_history(history));
        if let Err(error) = kept {
            self.trouble = Some(format!("What is typed is not remembered: {}: {error}.", history.display()));
            self.history = None;
        }
    }
}
