//! `parlor supex`: a supex bridge from the command line, parlor's own or another.

mod reach;
mod say;

use std::io::{Read, Write, stdin};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use parlor_client::supex::{Answer, Driver, DriverError, MAX_REQUEST_BYTES};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::console::Console;
use crate::environment::Environment;

use self::reach::ServerAddress;

/// How much of standard input is taken. A request has room for less.
const PIPED_BYTES: u64 = MAX_REQUEST_BYTES as u64;

/// What to do, and with which bridge.
#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    task: Task,
    #[command(flatten)]
    reach: ServerAddress,
}

#[derive(Subcommand)]
enum Task {
    /// Say whether a bridge answers, what it is, and how long it takes
    #[command(after_help = STATUS_EXAMPLES)]
    Status {
        /// Print one line of JSON
        #[arg(long)]
        json: bool,
    },
    /// Run Ruby code and print the value of its last expression
    ///
    /// Exits with 1 if the code fails; what went wrong, where, and what helps is then on stderr.
    #[command(after_help = EVAL_EXAMPLES)]
    Eval {
        /// The code; - or nothing reads it from standard input
        #[arg(value_name = "CODE", allow_hyphen_values = true)]
        code: Option<String>,
        /// Print the whole result as the bridge wrote it
        #[arg(long)]
        json: bool,
    },
    /// Call a tool and print its result as JSON
    ///
    /// Exits with 1 if the tool fails, also if it says so in its result.
    #[command(after_help = CALL_EXAMPLES)]
    Call {
        /// The tool's name
        #[arg(value_name = "TOOL")]
        tool: String,
        /// Its arguments, a JSON object; - reads them from standard input [default: {}]
        #[arg(value_name = "JSON")]
        arguments: Option<String>,
    },
}

const STATUS_EXAMPLES: &str = "\
Examples:
  parlor supex status
  parlor supex status --host 192.168.1.20 --port 9876
  parlor supex status --json | jq .latency_ms";

const EVAL_EXAMPLES: &str = "\
Examples:
  parlor supex eval '1 + 1'
  parlor supex eval 'Sketchup.version'
  parlor supex eval < script.rb
  parlor supex eval --timeout 60 'sleep 50; :done'
  parlor supex eval --json '[1, nil]' | jq -r .result";

const CALL_EXAMPLES: &str = "\
Examples:
  parlor supex call ping
  parlor supex call eval_ruby_file '{\"file_path\":\"/home/me/model.rb\"}'
  parlor supex call list_entities '{\"entity_type\":\"faces\"}' | jq '.entities | length'";

/// Does it.
pub(crate) fn run(
    environment: &Environment,
    options: &Options,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let mut settings = options.reach.settings(environment)?;
    if let Task::Status { .. } = options.task {
        // Whether it answers is asked about this moment.
        settings.retries = 0;
    }
    let driver = Driver::new(settings);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match &options.task {
        Task::Status { json } => match runtime.block_on(look(&driver)) {
            Ok(status) => status.print(out, *json)?,
            Err(error) => return say::failed(&error, console),
        },
        Task::Eval { code, json } => {
            let code = text_or_stdin(code.as_deref(), console, "code")?;
            let arguments = json!({"code": code});
            let answer = match runtime.block_on(driver.call("eval_ruby", &arguments)) {
                Ok(answer) => answer,
                Err(error) => return say::failed(&error, console),
            };
            if !*json && answer.failure().is_none() {
                say::value(out, &value(&answer)?, console)?;
            } else {
                return print(out, "eval_ruby", &answer, console);
            }
        }
        Task::Call { tool, arguments } => {
            let arguments = match arguments.as_deref() {
                Some(text) => object(text_or_stdin(Some(text), console, "the arguments")?)?,
                None => object("{}".to_owned())?,
            };
            match runtime.block_on(driver.call(tool, &arguments)) {
                Ok(answer) => return print(out, tool, &answer, console),
                Err(error) => return say::failed(&error, console),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a result; one that reports a failure is one.
fn print(out: &mut dyn Write, tool: &str, answer: &Answer, console: Console) -> anyhow::Result<ExitCode> {
    writeln!(out, "{answer}")?;
    match answer.failure() {
        Some(message) => say::failed(&DriverError::Failed { tool: tool.to_owned(), message }, console),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn value(answer: &Answer) -> anyhow::Result<String> {
    #[derive(serde::Deserialize)]
    struct Evaluation {
        result: String,
    }
    let evaluation: Evaluation =
        answer.decode().with_context(|| format!("the bridge gave a result without a value: {answer}"))?;
    Ok(evaluation.result)
}

/// What a bridge is found to be.
#[derive(Serialize)]
struct Status {
    address: String,
    server: String,
    version: Option<String>,
    sketchup_version: Option<String>,
    attach: bool,
    latency_ms: f64,
}

async fn look(driver: &Driver) -> Result<Status, DriverError> {
    let server = driver.server().await?;
    let asked = Instant::now();
    let pong = driver.ping().await?;
    let latency_ms = asked.elapsed().as_secs_f64() * 1000.0;
    Ok(Status {
        address: driver.address().to_owned(),
        server: server.name,
        version: pong.version.or(Some(server.version).filter(|version| !version.is_empty())),
        sketchup_version: pong.sketchup_version,
        attach: server.attach,
        latency_ms,
    })
}

impl Status {
    fn print(&self, out: &mut dyn Write, json: bool) -> anyhow::Result<()> {
        if json {
            writeln!(out, "{}", serde_json::to_string(self)?)?;
            return Ok(());
        }
        let repeats = if self.attach { "attached to the call that runs" } else { "run again" };
        writeln!(out, "address   {}", self.address)?;
        writeln!(out, "server    {}", say::clean(&self.server))?;
        writeln!(out, "version   {}", say::clean(self.version.as_deref().unwrap_or("unknown")))?;
        writeln!(out, "SketchUp  {}", say::clean(self.sketchup_version.as_deref().unwrap_or("none")))?;
        writeln!(out, "repeats   {repeats}")?;
        writeln!(out, "latency   {:.2} ms", self.latency_ms)?;
        Ok(())
    }
}

fn object(text: String) -> anyhow::Result<Box<RawValue>> {
    let hint = "the arguments of a tool are a JSON object, such as '{\"code\":\"1 + 1\"}'";
    let raw = RawValue::from_string(text).context(hint)?;
    if !raw.get().starts_with('{') {
        bail!("{hint}");
    }
    Ok(raw)
}

fn text_or_stdin(text: Option<&str>, console: Console, what: &str) -> anyhow::Result<String> {
    match text {
        Some(text) if text != "-" => Ok(text.to_owned()),
        None if console.input => bail!("no code is given; write it after the command, or pipe it in"),
        Some(_) | None => piped(what),
    }
}

fn piped(what: &str) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let read = stdin().lock().take(PIPED_BYTES + 1).read_to_end(&mut bytes);
    read.with_context(|| format!("cannot read {what} from standard input"))?;
    if bytes.len() as u64 > PIPED_BYTES {
        bail!("{what} on standard input is longer than {PIPED_BYTES} bytes; use a file and eval_ruby_file");
    }
    String::from_utf8(bytes).with_context(|| format!("{what} on standard input is no text in UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_objects() {
        assert_eq!(object(" {\"a\":1} ".to_owned()).unwrap().get(), "{\"a\":1}");
        for text in ["", "[]", "1", "{", "null"] {
            let error = format!("{:#}", object(text.to_owned()).unwrap_err());
            assert!(error.contains("are a JSON object, such as"), "{text}: {error}");
        }
    }
}
