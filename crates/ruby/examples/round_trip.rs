//! Compares the time of a [`RubyHost`] call with a bare round trip to a Ruby process that evaluates lines from a
//! pipe.
//!
//! Batches of both alternate, so that other load on the machine affects both alike. The ratio is what counts.
#![expect(clippy::disallowed_methods, reason = "a benchmark starts programs itself")]
#![expect(clippy::unwrap_used, reason = "a panic ends the benchmark and shows the line")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use parlor_ruby::{Evaluation, RubyHost, RubySettings, RubySource};

const BATCHES: usize = 60;
const CALLS: u32 = 200;
const PIPE_SCRIPT: &str = "STDOUT.sync = true; while (line = STDIN.gets); STDOUT.puts(eval(line).to_s); end";

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "the figures are what this program is for")]
async fn main() {
    let path = std::env::var("PATH").unwrap_or_default();
    let host = RubyHost::new(RubySettings::new("/tmp".into(), vec![("PATH".to_owned(), path)]));
    let mut pipe_ruby = Command::new("ruby")
        .args(["-e", PIPE_SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Ruby is installed");
    let mut input = pipe_ruby.stdin.take().unwrap();
    let mut output = BufReader::new(pipe_ruby.stdout.take().unwrap());

    let (mut host_times, mut pipe_times) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        let begin = Instant::now();
        for _ in 0..CALLS {
            let call = Evaluation::new(RubySource::Snippet { code: "1+1".to_owned() });
            assert_eq!(host.evaluate(call).await.outcome.as_deref(), Ok("2"));
        }
        host_times.push(begin.elapsed() / CALLS);
        let begin = Instant::now();
        let mut line = String::new();
        for _ in 0..CALLS {
            input.write_all(b"1+1\n").unwrap();
            line.clear();
            output.read_line(&mut line).unwrap();
            assert_eq!(line, "2\n");
        }
        pipe_times.push(begin.elapsed() / CALLS);
    }
    drop(input);
    pipe_ruby.wait().unwrap();
    host.stop().await;

    let (host, pipe) = (median(host_times), median(pipe_times));
    let ratio = host.as_secs_f64() / pipe.as_secs_f64();
    println!("host {host:?}, bare pipe {pipe:?}, ratio {ratio:.2}");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
