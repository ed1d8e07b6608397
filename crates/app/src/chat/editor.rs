//! The line editor of a chat, with history and pasting. It runs on a thread of its own, because reading from a terminal
//! blocks and cannot be cancelled.

use std::io::{self, Write, stdin};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::error::ReadlineError;
use rustyline::{Behavior, ColorMode, Config, DefaultEditor, ExternalPrinter};
use tokio::sync::mpsc;

use crate::console::Console;

/// How many lines the history file keeps.
pub(crate) const HISTORY_LINES: usize = 1000;
/// A longer line is not added to the history.
pub(crate) const HISTORY_LINE_BYTES: usize = 16 * 1024;
/// The capacity of the channels to and from the thread: one line at a time, and perhaps a notice.
const QUEUE: usize = 2;

pub(super) const PROMPT: &str = "> ";

/// The result of a request for a line.
#[derive(Debug)]
pub(super) enum EditorEvent {
    /// A line. Pasted text may contain line breaks.
    Text(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D, or the terminal is gone.
    End,
    /// A message for the user; the line follows in another event.
    Notice(String),
}

/// Reads lines from the person at the terminal.
pub(super) struct Editor {
    requests: SyncSender<()>,
    events: mpsc::Receiver<EditorEvent>,
    /// Prints above the line that is being edited. `None` if the terminal cannot do that.
    printer: Option<Box<dyn ExternalPrinter + Send>>,
    /// The terminal modes before the editor changed them.
    initial_modes: Option<Termios>,
}

impl Editor {
    /// Starts the thread. `history` is the file that keeps the typed lines.
    pub(super) fn start(history: &Path, console: Console) -> anyhow::Result<Self> {
        // If stdout is redirected, edit the line on the terminal device.
        let behavior = if console.stdout_is_terminal { Behavior::Stdio } else { Behavior::PreferTerm };
        let config = Config::builder()
            .max_history_size(HISTORY_LINES)?
            .history_ignore_space(true)
            .behavior(behavior)
            .color_mode(if console.style.0 { ColorMode::Enabled } else { ColorMode::Disabled })
            .bracketed_paste(!console.is_dumb)
            .build();
        let mut editor = DefaultEditor::with_config(config)?;
        let notice = match editor.load_history(history) {
            Ok(()) => None,
            Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(format!("Cannot read the history file: {error}.")),
        };
        let printer = editor.create_external_printer().ok();
        let printer = printer.map(|printer| Box::new(printer) as Box<dyn ExternalPrinter + Send>);
        let (request_sender, requests) = sync_channel(QUEUE);
        let (events, event_receiver) = mpsc::channel(QUEUE);
        let history = Some(history.to_owned());
        let editor_thread = EditorThread { editor, history, notice, console, requests, events };
        thread::Builder::new().name("line editor".to_owned()).spawn(move || editor_thread.run())?;
        let initial_modes = tcgetattr(stdin()).ok();
        Ok(Self { requests: request_sender, events: event_receiver, printer, initial_modes })
    }

    /// Shows the prompt and reads a line. The caller must not print until the line has come.
    pub(super) fn request_line(&self) {
        // If the thread has ended, `next` returns `End`.
        let _ = self.requests.send(());
    }

    /// Prints text above the line that the user is editing. A terminal without line editing shows it at the cursor.
    pub(super) fn print_above(&mut self, text: String) {
        let printed = self.printer.as_mut().map(|printer| printer.print(text.clone()));
        if !matches!(printed, Some(Ok(()))) {
            // If stderr is gone, so is the user.
            let _ = write!(io::stderr(), "{text}");
        }
    }

    /// Waits for the requested line. Cancel safe.
    pub(super) async fn next(&mut self) -> EditorEvent {
        self.events.recv().await.unwrap_or(EditorEvent::End)
    }
}

impl Drop for Editor {
    /// Restores the terminal modes, which the thread changes while it reads a line.
    fn drop(&mut self) {
        if let Some(modes) = &self.initial_modes {
            // If the terminal is gone, there is nothing to restore.
            let _ = tcsetattr(stdin(), OptionalActions::Now, modes);
        }
    }
}

/// The part of the editor that runs on its thread.
struct EditorThread {
    editor: DefaultEditor,
    /// The history file; `None` if it cannot be written.
    history: Option<PathBuf>,
    /// A message for the user that is sent before the next line.
    notice: Option<String>,
    console: Console,
    requests: Receiver<()>,
    events: mpsc::Sender<EditorEvent>,
}

impl EditorThread {
    fn run(mut self) {
        let prompt = (PROMPT, self.console.style.bold(PROMPT));
        while self.requests.recv().is_ok() {
            let event = match self.editor.readline(&prompt) {
                Ok(text) => {
                    self.add_to_history(&text);
                    EditorEvent::Text(text)
                }
                Err(ReadlineError::Interrupted) => EditorEvent::Interrupt,
                Err(ReadlineError::Eof) => EditorEvent::End,
                Err(error) => {
                    self.notice = Some(format!("Cannot read from the terminal: {error}."));
                    EditorEvent::End
                }
            };
            if let Some(notice) = self.notice.take() {
                let _ = self.events.blocking_send(EditorEvent::Notice(notice));
            }
            if self.events.blocking_send(event).is_err() {
                return;
            }
        }
    }

    /// Adds a line to the history and writes the file at once, in case the program is killed.
    fn add_to_history(&mut self, text: &str) {
        let Some(history) = &self.history else { return };
        if text.trim().is_empty() || text.len() > HISTORY_LINE_BYTES {
            return;
        }
        let written = self.editor.add_history_entry(text).and_then(|_| self.editor.append_history(history));
        if let Err(error) = written {
            self.notice = Some(format!("Cannot write the history file {}: {error}.", history.display()));
            self.history = None;
        }
    }
}
