//! How soon a text reaches the client of the process that owns the session, and a client of another process.
//!
//! Both clients are parents of synaps children, so both texts take the same way once they have reached the child's process.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;

use super::child::SessionChild;
use crate::models::{Pace, Provider};
use crate::stats::{Spread, median};

/// How many rounds there are. In each, a session that nobody else has joined gets an answer, and one that is shared.
const ROUNDS: usize = 15;

/// The words come further apart than `TEXT_INTERVAL`, within which a client gets all words in one piece. So each word comes
/// at once, and the figures do not depend on when the intervals of both clients begin.
const PACE: Pace =
    Pace { before: Duration::from_millis(50), between: Duration::from_millis(40), words: WORDS };
const WORDS: u32 = 50;

const PROMPT: &str = r#"{"type":"prompt","id":"p","message":"go on"}"#;
/// The last line of a turn for the client that began it, and for another client.
const RESPONSE: &str = r#""command":"prompt""#;
const END: &str = r#""type":"agent_end""#;

/// How long the provider may take to report the time of a word.
const TIMES_WAIT: Duration = Duration::from_secs(10);

/// Medians of the words of a round, in milliseconds.
pub(super) struct Text {
    /// From the provider's write to the only client of a session. It shows whether other processes delay the owner's client.
    pub(super) alone: Spread,
    /// From the provider's write to the client of the owner.
    pub(super) owner: Spread,
    /// From the provider's write to the client of the other process.
    pub(super) other: Spread,
    /// From the client of the owner to the client of the other process.
    pub(super) added: Spread,
}

pub(super) fn measure(parlor: &Path) -> anyhow::Result<Text> {
    let provider = Provider::start(PACE)?;
    std::fs::create_dir_all(crate::DATABASE_FOLDER)?;
    let home = tempfile::tempdir_in(crate::DATABASE_FOLDER)?;
    let home = home.path().canonicalize()?;
    std::fs::write(home.join("parlor.toml"), provider.settings())?;
    let mut alone = SessionChild::owner(parlor, &home)?;
    let mut owner = SessionChild::owner(parlor, &home)?;
    let mut other = SessionChild::joining(parlor, &home, &owner.session)?;
    let (mut to_alone, mut to_owner, mut to_other, mut added) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.write_line(PROMPT)?;
        let at_alone = arrivals(&mut alone, RESPONSE)?;
        to_alone.push(median_ms(&write_times(&provider)?, &at_alone));
        owner.write_line(PROMPT)?;
        let (at_owner, at_other) = std::thread::scope(|scope| {
            let at_other = scope.spawn(|| arrivals(&mut other, END));
            let at_owner = arrivals(&mut owner, RESPONSE);
            (at_owner, at_other.join().expect("a reader does not panic"))
        });
        let (at_owner, at_other) = (at_owner?, at_other?);
        let written = write_times(&provider)?;
        to_owner.push(median_ms(&written, &at_owner));
        to_other.push(median_ms(&written, &at_other));
        added.push(median_ms(&at_owner, &at_other));
    }
    Ok(Text {
        alone: Spread::of(to_alone),
        owner: Spread::of(to_owner),
        other: Spread::of(to_other),
        added: Spread::of(added),
    })
}

/// When the provider wrote each word of an answer.
fn write_times(provider: &Provider) -> anyhow::Result<Vec<Instant>> {
    (0..WORDS).map(|_| Ok(provider.words.recv_timeout(TIMES_WAIT)?)).collect()
}

/// When each word of an answer arrived. Reads until a line contains `last`.
fn arrivals(child: &mut SessionChild, last: &str) -> anyhow::Result<Vec<Instant>> {
    let mut times = Vec::new();
    loop {
        let line = child.read_line()?;
        let now = Instant::now();
        // Several words can come in one line.
        times.extend(std::iter::repeat_n(now, line.matches("word ").count()));
        if line.contains(last) {
            break;
        }
    }
    ensure!(times.len() == WORDS as usize, "{} words of {WORDS} arrived", times.len());
    Ok(times)
}

/// The median of the times from `begins` to `ends`, of which the first may be the later.
fn median_ms(begins: &[Instant], ends: &[Instant]) -> f64 {
    let later = |begin: Instant, end: Instant| end.saturating_duration_since(begin).as_secs_f64() * 1e3;
    median(begins.iter().zip(ends).map(|(begin, end)| later(*begin, *end) - later(*end, *begin)).collect())
}
