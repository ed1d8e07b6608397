//! A session with many processes whose connection is cut at random: whether the client gets every byte once.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use base64_simd::STANDARD;
use serde_json::{Value, json};

use super::channel::Channel;
use super::server::Client;

/// With this argument, the program is a child process: it writes numbered lines, and repeats the lines that it reads.
pub(crate) const CHATTER: &str = "chatter";

/// How long the child waits between two lines.
const LINE_PAUSE: Duration = Duration::from_millis(20);

/// How long a client tries to get its session back.
const RESUME_WAIT: Duration = Duration::from_secs(20);

const PROCESSES: usize = 100;
const CUTS: usize = 1000;

/// What went wrong or right in one run.
pub(super) struct CutFigures {
    pub(super) processes: usize,
    pub(super) cuts: usize,
    /// Lines that arrived, and were compared.
    pub(super) lines: usize,
    /// The time from the loss of a connection until all processes are caught up, in milliseconds.
    pub(super) resume: Vec<f64>,
}

/// The child: writes `line N` every now and then, `got TEXT` for each line that it reads, and `end` after the line `quit`.
pub(crate) fn chatter() -> anyhow::Result<()> {
    let (to, from) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                return;
            }
        }
    });
    let mut out = std::io::stdout().lock();
    for number in 1.. {
        writeln!(out, "line {number}")?;
        match from.recv_timeout(LINE_PAUSE) {
            Ok(line) if line == "quit" => break,
            Ok(line) => writeln!(out, "got {line}")?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("stdin has ended"),
        }
    }
    writeln!(out, "end")?;
    Ok(())
}

/// What the client has seen of a process.
#[derive(Default)]
struct Seen {
    last_seq: u64,
    text: Vec<u8>,
    is_closed: bool,
    writes: usize,
}

struct Session {
    address: SocketAddr,
    client: Client,
    processes: BTreeMap<String, Seen>,
    random: u64,
    resume: Vec<f64>,
    cuts: usize,
}

/// Cuts a session's connection again and again. Fails if a byte is lost or comes twice.
pub(super) fn measure(address: SocketAddr) -> anyhow::Result<CutFigures> {
    let client = Client::open(Channel::socket(address)?, None)?;
    let client = client.map_err(|code| anyhow::anyhow!("no session: {code}"))?;
    let this_program = std::env::current_exe()?;
    let mut session =
        Session { address, client, processes: BTreeMap::new(), random: 0x5eed, resume: Vec::new(), cuts: 0 };
    for number in 0..PROCESSES {
        let process = format!("p{number}");
        let params = json!({
            "processId": process, "argv": [this_program, CHATTER], "cwd": "file:///", "env": {}, "tty": false,
            "pipeStdin": true,
        });
        session.processes.insert(process, Seen::default());
        let id = session.client.request("process/start", &params)?;
        session.wait_for(id)?;
    }
    while session.cuts < CUTS {
        match session.below(3) {
            0 => session.write()?,
            _ => {
                for _ in 0..session.below(60) {
                    session.take()?;
                }
                session.cut()?;
            }
        }
    }
    session.finish()?;
    let mut lines = 0;
    for (process, seen) in &session.processes {
        lines += check(seen).with_context(|| format!("process {process}"))?;
    }
    Ok(CutFigures { processes: PROCESSES, cuts: session.cuts, lines, resume: session.resume })
}

/// Compares all lines of a process with what it wrote.
fn check(seen: &Seen) -> anyhow::Result<usize> {
    let text = std::str::from_utf8(&seen.text)?;
    let (mut next_line, mut next_write) = (1, 1);
    let mut lines = 0;
    for line in text.lines() {
        lines += 1;
        match line.split_once(' ') {
            Some(("line", number)) => {
                ensure!(number == next_line.to_string(), "line {number} in place of {next_line}");
                next_line += 1;
            }
            Some(("got", number)) => {
                ensure!(number == next_write.to_string(), "write {number} in place of {next_write}");
                next_write += 1;
            }
            _ => ensure!(line == "end", "{line:?}"),
        }
    }
    ensure!(text.ends_with("end\n"), "the last line is missing");
    ensure!(next_write == seen.writes + 1, "{} of {} writes arrived", next_write - 1, seen.writes);
    Ok(lines)
}

impl Session {
    /// A random number below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    /// Takes the next message. Returns it if it is an answer.
    fn take(&mut self) -> anyhow::Result<Option<Value>> {
        let message = self.client.message()?;
        let Some(method) = message["method"].as_str() else { return Ok(Some(message)) };
        let params = &message["params"];
        let process = params["processId"].as_str().context("a process")?;
        let seen = self.processes.get_mut(process).context("a known process")?;
        seen.take(method, params)?;
        Ok(None)
    }

    fn wait_for(&mut self, id: u64) -> anyhow::Result<Value> {
        loop {
            let Some(mut answer) = self.take()? else { continue };
            ensure!(answer.get("error").is_none(), "{answer}");
            if answer["id"] == id {
                return Ok(answer["result"].take());
            }
        }
    }

    /// Loses the connection without a word, takes the session up over another one, and asks for what happened meanwhile. The
    /// new connection may be lost before that is done.
    fn cut(&mut self) -> anyhow::Result<()> {
        loop {
            let begun = Instant::now();
            self.cuts += 1;
            self.reconnect(begun)?;
            let names: Vec<String> = self.processes.keys().cloned().collect();
            let mut reads = BTreeMap::new();
            for process in names {
                let after = self.processes[&process].last_seq;
                let params = json!({"processId": process, "afterSeq": after, "maxBytes": null, "waitMs": 0});
                reads.insert(self.client.request("process/read", &params)?, process);
            }
            let answers = if self.below(8) == 0 { self.below(100) as usize } else { reads.len() };
            let is_cut_again = answers < reads.len();
            let end = reads.len() - answers;
            // Events that were pushed before an answer wait for it.
            let mut events = Vec::new();
            while reads.len() > end {
                let message = self.client.message()?;
                match message["id"].as_u64().and_then(|id| reads.remove(&id)) {
                    Some(process) => {
                        ensure!(message.get("error").is_none(), "{message}");
                        let seen = self.processes.get_mut(&process).context("a known process")?;
                        seen.take_page(&message["result"])?;
                    }
                    None => events.push(message),
                }
            }
            for event in events {
                let process = event["params"]["processId"].as_str().context("a process")?;
                if reads.values().any(|waiting| waiting == process) {
                    continue;
                }
                let seen = self.processes.get_mut(process).context("a known process")?;
                seen.take(event["method"].as_str().context("an event")?, &event["params"])?;
            }
            if !is_cut_again {
                self.resume.push(begun.elapsed().as_secs_f64() * 1e3);
                return Ok(());
            }
        }
    }

    fn reconnect(&mut self, begun: Instant) -> anyhow::Result<()> {
        const ATTACHED: i64 = -32010;
        let session = self.client.session.clone();
        self.client.lose()?;
        loop {
            match Client::open(Channel::socket(self.address)?, Some(&session))? {
                Ok(client) => {
                    self.client = client;
                    return Ok(());
                }
                Err(ATTACHED) if begun.elapsed() < RESUME_WAIT => {}
                Err(code) => bail!("the session is lost: {code}"),
            }
        }
    }

    /// Writes to a process. The connection may be lost before the answer; then the client sends the write again.
    fn write(&mut self) -> anyhow::Result<()> {
        let process = format!("p{}", self.below(PROCESSES as u64));
        let seen = self.processes.get_mut(&process).context("a known process")?;
        seen.writes += 1;
        let number = seen.writes;
        let text = STANDARD.encode_to_string(format!("{number}\n"));
        let params = json!({"processId": process, "chunk": text, "writeId": number.to_string()});
        loop {
            let id = self.client.request("process/write", &params)?;
            if self.below(3) == 0 {
                self.cut()?;
                continue;
            }
            let answer = self.wait_for(id)?;
            ensure!(answer["status"] == "accepted", "{answer}");
            return Ok(());
        }
    }

    /// Ends all processes and waits for their last events.
    fn finish(&mut self) -> anyhow::Result<()> {
        for number in 0..PROCESSES {
            let params = json!({
                "processId": format!("p{number}"), "chunk": STANDARD.encode_to_string("quit\n"), "writeId": "quit",
            });
            let id = self.client.request("process/write", &params)?;
            self.wait_for(id)?;
        }
        while !self.processes.values().all(|seen| seen.is_closed) {
            self.take()?;
        }
        Ok(())
    }
}

impl Seen {
    /// Takes an event if it is the next one. Those that a read has brought already are skipped.
    fn take(&mut self, method: &str, params: &Value) -> anyhow::Result<()> {
        let seq = params["seq"].as_u64().context("a number")?;
        if seq <= self.last_seq {
            return Ok(());
        }
        ensure!(seq == self.last_seq + 1, "event {seq} comes after {}", self.last_seq);
        self.last_seq = seq;
        match method {
            "process/output" => {
                let chunk = params["chunk"].as_str().context("a chunk")?;
                self.text.extend(STANDARD.decode_to_vec(chunk)?);
            }
            "process/closed" => self.is_closed = true,
            _ => {}
        }
        Ok(())
    }

    /// Takes what a read after a cut brings.
    fn take_page(&mut self, page: &Value) -> anyhow::Result<()> {
        for chunk in page["chunks"].as_array().context("chunks")? {
            self.take("process/output", chunk)?;
        }
        // The numbers without a chunk are those of the exit and the end.
        self.last_seq = page["nextSeq"].as_u64().context("a number")? - 1;
        self.is_closed = page["closed"].as_bool().context("closed")?;
        Ok(())
    }
}
