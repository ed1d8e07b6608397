//! Measures a call of the host beside a bare round trip: a Ruby that evaluates lines from a pipe.
//!
//! Both take turns in batches, so that what else the machine does hits both. The ratio is what counts.
#![expect(clippy::disallowed_methods, reason = "a benchmark starts programs itself")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on panics, and says where")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use parlor_ruby::{Evaluation, RubyHost, RubySettings, RubySource};

const BATCHES: usize = 60;
const CALLS: u32 = 200;
const BARE: &str = "STDOUT.sync = true; while (line = STDIN.gets); STDOUT.puts(eval(line).to_s); end";

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "the figures are what this program is for")]
async fn main() {
    let path = std::env::var("PATH").unwrap_or_default();
    let host = RubyHost::new(RubySettings::new("/tmp".into(), vec![("PATH".to_owned(), path)]));
    let mut bare = Command::new("ruby")
        .args(["-e", BARE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Ruby is installed");
    let mut input = bare.stdin.take().unwrap();
    let mut output = BufReader::new(bare.stdout.take().unwrap());

    let (mut of_host, mut of_pipe) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        let begin = Instant::now();
        for _ in 0..CALLS {
            let call = Evaluation::new(RubySource::Snippet { code: "1+1".to_owned() });
            assert_eq!(host.evaluate(call).await.outcome.as_deref(), Ok("2"));
        }
        of_host.push(begin.elapsed() / CALLS);
        let begin = Instant::now();
        let mut line = String::new();
        for _ in 0..CALLS {
            input.write_all(b"1+1\n").unwrap();
            line.clear();
            output.read_line(&mut line).unwrap();
            assert_eq!(line, "2\n");
        }
        of_pipe.push(begin.elapsed() / CALLS);
    }
    drop(input);
    bare.wait().unwrap();
    host.stop().await;

    let (host, pipe) = (median(of_host), median(of_pipe));
    let ratio = host.as_secs_f64() / pipe.as_secs_f64();
    println!("host {host:?}, bare pipe {pipe:?}, ratio {ratio:.2}");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
