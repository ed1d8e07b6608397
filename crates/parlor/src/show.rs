//! What a person sees of a session: events as lines, texts as they are written.

use std::io::{self, Write};

use parlor_engine::{Seen, Subject};
use parlor_vocab::{Entry, RunEnding, RunEvent, SessionEvent, Timestamp};

/// How many characters of a tool's input are shown.
const INPUT_CHARS: usize = 200;

/// How a run ended, for an exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Completed,
    Failed,
    Stopped,
}

/// Writes a conversation as it goes on. Answers go to `out`; what is about them goes to `aside`.
pub(crate) struct Show<'a> {
    pub(crate) out: &'a mut dyn Write,
    pub(crate) aside: &'a mut dyn Write,
    /// Whether tools and thoughts are shown.
    pub(crate) details: bool,
    /// Whether the last thing written did not end its line.
    unfinished: bool,
}

impl<'a> Show<'a> {
    pub(crate) fn new(out: &'a mut dyn Write, aside: &'a mut dyn Write, details: bool) -> Self {
        Self { out, aside, details, unfinished: false }
    }

    /// Shows one thing; says how the run ended, if this was its end.
    pub(crate) fn see(&mut self, seen: &Seen) -> io::Result<Option<Ended>> {
        match seen {
            Seen::Delta { subject: Subject::Message(_), text, .. } => {
                self.out.write_all(text.as_bytes())?;
                self.out.flush()?;
                self.unfinished = !text.ends_with('\n');
                Ok(None)
            }
            Seen::Delta { subject: Subject::Thought(_) | Subject::Tool(_), text, .. } => {
                if self.details {
                    self.aside.write_all(text.as_bytes())?;
                    self.aside.flush()?;
                    self.unfinished = !text.ends_with('\n');
                }
                Ok(None)
            }
            Seen::Entry(entry) => self.entry(entry),
        }
    }

    fn entry(&mut self, entry: &Entry) -> io::Result<Option<Ended>> {
        let SessionEvent::Run { event, .. } = &entry.event else { return Ok(None) };
        match event {
            RunEvent::MessageCompleted { .. } | RunEvent::Reasoned { .. } => self.end_line()?,
            RunEvent::ToolCalled { tool, input, .. } if self.details => {
                self.end_line()?;
                writeln!(self.aside, "[{tool}] {}", cut(input, INPUT_CHARS))?;
            }
            RunEvent::ToolFailed { failure, .. } if self.details => {
                self.end_line()?;
                writeln!(self.aside, "[failed] {}", failure.message)?;
            }
            RunEvent::Ended { ending, .. } => {
                self.end_line()?;
                return self.ending(ending).map(Some);
            }
            RunEvent::Started { .. }
            | RunEvent::Steered { .. }
            | RunEvent::MessageStarted { .. }
            | RunEvent::StepStarted { .. }
            | RunEvent::StepUpdated { .. }
            | RunEvent::StepCompleted { .. }
            | RunEvent::StepFailed { .. }
            | RunEvent::ToolCalled { .. }
            | RunEvent::ToolProgressed { .. }
            | RunEvent::ToolCompleted { .. }
            | RunEvent::ToolFailed { .. }
            | RunEvent::SubagentStarted { .. }
            | RunEvent::SubagentUpdated { .. }
            | RunEvent::SubagentDone { .. }
            | RunEvent::ErrorRaised { .. }
            | RunEvent::Consumed { .. } => {}
        }
        Ok(None)
    }

    fn ending(&mut self, ending: &RunEnding) -> io::Result<Ended> {
        match ending {
            RunEnding::Completed { .. } => Ok(Ended::Completed),
            RunEnding::Failed(failure) => {
                writeln!(self.aside, "failed: {} ({})", failure.message, failure.code)?;
                Ok(Ended::Failed)
            }
            RunEnding::Stopped { reason, .. } => {
                writeln!(self.aside, "stopped: {reason}")?;
                Ok(Ended::Stopped)
            }
        }
    }

    fn end_line(&mut self) -> io::Result<()> {
        if self.unfinished {
            self.out.write_all(b"\n")?;
            self.out.flush()?;
        }
        self.unfinished = false;
        Ok(())
    }
}

/// The first `limit` characters, with a sign that there are more.
pub(crate) fn cut(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let kept: String = text.chars().take(limit.saturating_sub(1)).collect();
    kept + "…"
}

/// `2026-03-04 12:00:00`, UTC.
pub(crate) fn time(at: Timestamp) -> String {
    let (days, seconds) = (at.0.div_euclid(86_400_000), at.0.rem_euclid(86_400_000) / 1000);
    let (year, month, day) = date(days);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// The calendar date of a day counted from 1970. Eras of 400 years repeat; a year that begins in
/// March has its leap day last, which makes months regular.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_calendar_times() {
        assert_eq!(time(Timestamp(0)), "1970-01-01 00:00:00");
        assert_eq!(time(Timestamp(951_826_209_000)), "2000-02-29 12:10:09");
        assert_eq!(time(Timestamp(-1)), "1969-12-31 23:59:59");
        assert_eq!(time(Timestamp(4_102_444_800_000)), "2100-01-01 00:00:00");
    }

    #[test]
    fn cutting_counts_letters() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüß", 3), "äö…");
    }
}
