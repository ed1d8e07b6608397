//! `parlor supex`: a command-line client of a Supex bridge, parlor's own or another one.

mod connection;
mod output;

use std::io::{Read, Write, stdin};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use parlor_client::supex::{Driver, DriverError, MAX_REQUEST_BYTES, Pong, SupexAnswer};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::console::Console;
use crate::environment::Environment;

use self::connection::ConnectionOptions;

/// How many bytes are read from standard input. A request cannot be longer.
const MAX_STDIN_BYTES: u64 = MAX_REQUEST_BYTES as u64;

/// The arguments of `parlor supex`.
#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: SupexCommand,
    #[command(flatten)]
    connection: ConnectionOptions,
}

#[derive(Subcommand)]
enum SupexCommand {
    /// Check whether a bridge answers, and print its version and latency
    #[command(after_help = STATUS_EXAMPLES)]
    Status {
        /// Print one line of JSON
        #[arg(long)]
        json: bool,
    },
    /// Run Ruby code and print the value of its last expression
    ///
    /// Exits with 1 if the code fails, and prints the error with its file, line and a hint on stderr.
    #[command(after_help = EVAL_EXAMPLES)]
    Eval {
        /// The code; - or nothing reads it from standard input
        #[arg(value_name = "CODE", allow_hyphen_values = true)]
        code: Option<String>,
        /// Print the whole result of the bridge as JSON
        #[arg(long)]
        json: bool,
    },
    /// Call a tool and print its result as JSON
    ///
    /// Exits with 1 if the tool fails, or if its result reports a failure.
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

/// Runs `parlor supex`.
pub(crate) fn run(
    environment: &Environment,
    options: &Options,
    console: Console,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let mut settings = options.connection.settings(environment)?;
    if let SupexCommand::Status { .. } = options.command {
        // The status is that of this moment, so a failure is not retried.
        settings.retries = 0;
    }
    let driver = Driver::new(settings);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match &options.command {
        SupexCommand::Status { json } => match runtime.block_on(fetch_status(&driver)) {
            Ok(status) => {
                status.print(out, *json)?;
                if status.sketchup == SketchUpState::Unreachable {
                    return Ok(ExitCode::FAILURE);
                }
            }
            Err(error) => return output::print_error(&error, console),
        },
        SupexCommand::Eval { code, json } => {
            let code = text_or_stdin(code.as_deref(), console, "code")?;
            let arguments = json!({"code": code});
            let answer = match runtime.block_on(driver.call("eval_ruby", &arguments)) {
                Ok(answer) => answer,
                Err(error) => return output::print_error(&error, console),
            };
            if !*json && answer.failure().is_none() {
                let Evaluated { result, restarted } = evaluated_value(&answer)?;
                let (value, notice) = split_notice(&result, restarted.as_deref());
                output::print_value(out, value, console)?;
                if let Some(notice) = notice {
                    eprintln!("{}", output::sanitized(notice));
                }
            } else {
                return print_result(out, "eval_ruby", &answer, console);
            }
        }
        SupexCommand::Call { tool, arguments } => {
            let arguments = match arguments.as_deref() {
                Some(text) => json_object(text_or_stdin(Some(text), console, "the arguments")?)?,
                None => json_object("{}".to_owned())?,
            };
            match runtime.block_on(driver.call(tool, &arguments)) {
                Ok(answer) => return print_result(out, tool, &answer, console),
                Err(error) => return output::print_error(&error, console),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a result. A result that reports a failure makes the command fail.
fn print_result(
    out: &mut dyn Write,
    tool: &str,
    answer: &SupexAnswer,
    console: Console,
) -> anyhow::Result<ExitCode> {
    writeln!(out, "{answer}")?;
    match answer.failure() {
        Some(message) => {
            output::print_error(&DriverError::Failed { tool: tool.to_owned(), message }, console)
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The result of `eval_ruby`.
#[derive(serde::Deserialize)]
struct Evaluated {
    /// The value of the last expression.
    result: String,
    /// The notice at the end of `result` that Ruby was restarted, if it was.
    restarted: Option<String>,
}

fn evaluated_value(answer: &SupexAnswer) -> anyhow::Result<Evaluated> {
    answer.decode().with_context(|| format!("the bridge sent a result without a value: {answer}"))
}

/// Separates a value from the notice at its end, which is no part of it.
fn split_notice<'a>(result: &'a str, notice: Option<&'a str>) -> (&'a str, Option<&'a str>) {
    let value = notice.and_then(|notice| result.strip_suffix(notice)?.strip_suffix('\n'));
    (value.unwrap_or(result), notice)
}

/// What `parlor supex status` prints.
#[derive(Serialize)]
struct Status {
    address: String,
    server: String,
    version: Option<String>,
    sketchup: SketchUpState,
    sketchup_version: Option<String>,
    /// Why SketchUp cannot be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    sketchup_error: Option<String>,
    attach: bool,
    latency_ms: f64,
}

/// The SketchUp that carries out calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum SketchUpState {
    /// There is none: the server evaluates Ruby by itself.
    None,
    /// The server runs in it, or forwards calls to it.
    Running,
    /// The server forwards calls to it, and it runs one now.
    Busy,
    /// The server forwards calls to it, and it cannot be reached.
    Unreachable,
}

async fn fetch_status(driver: &Driver) -> Result<Status, DriverError> {
    let server = driver.server().await?;
    let sent_at = Instant::now();
    let (pong, sketchup_error) = match driver.ping().await {
        Ok(pong) => (pong, None),
        // The server itself answers.
        Err(DriverError::Remote { message, data, .. }) if data["upstream"] == "unreachable" => {
            (Pong { version: None, sketchup_version: None, upstream: None }, Some(message))
        }
        Err(error) => return Err(error),
    };
    let latency_ms = sent_at.elapsed().as_secs_f64() * 1000.0;
    let sketchup = match pong.upstream.as_deref() {
        _ if sketchup_error.is_some() => SketchUpState::Unreachable,
        Some("busy") => SketchUpState::Busy,
        Some(_) => SketchUpState::Running,
        None if pong.sketchup_version.is_some() => SketchUpState::Running,
        None => SketchUpState::None,
    };
    Ok(Status {
        address: driver.address().to_owned(),
        server: server.name,
        version: pong.version.or(Some(server.version).filter(|version| !version.is_empty())),
        sketchup,
        sketchup_version: pong.sketchup_version,
        sketchup_error,
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
        let repeats = if self.attach { "wait for the running call" } else { "run the call again" };
        writeln!(out, "address   {}", self.address)?;
        writeln!(out, "server    {}", output::sanitized(&self.server))?;
        writeln!(out, "version   {}", output::sanitized(self.version.as_deref().unwrap_or("unknown")))?;
        let version = self.sketchup_version.as_deref();
        let sketchup = match self.sketchup {
            // Only parlor attaches repeats.
            SketchUpState::None if self.attach => "none: parlor evaluates Ruby by itself",
            SketchUpState::None => "none",
            SketchUpState::Running => version.unwrap_or("running, version unknown"),
            SketchUpState::Busy => "running, busy with another call",
            SketchUpState::Unreachable => self.sketchup_error.as_deref().unwrap_or("cannot be reached"),
        };
        writeln!(out, "SketchUp  {}", output::sanitized(sketchup))?;
        writeln!(out, "repeats   {repeats}")?;
        writeln!(out, "latency   {:.2} ms", self.latency_ms)?;
        Ok(())
    }
}

/// Checks that `text` is a JSON object.
fn json_object(text: String) -> anyhow::Result<Box<RawValue>> {
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
        None if console.stdin_is_terminal => {
            bail!("no code is given; write it after the command, or pipe it in on standard input")
        }
        Some(_) | None => read_stdin(what),
    }
}

fn read_stdin(what: &str) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let read = stdin().lock().take(MAX_STDIN_BYTES + 1).read_to_end(&mut bytes);
    read.with_context(|| format!("cannot read {what} from standard input"))?;
    if bytes.len() as u64 > MAX_STDIN_BYTES {
        bail!(
            "{what} on standard input is longer than {MAX_STDIN_BYTES} bytes; use a file and eval_ruby_file"
        );
    }
    String::from_utf8(bytes).with_context(|| format!("{what} on standard input is not valid UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_no_part_of_the_value() {
        assert_eq!(split_notice("2\n[new]", Some("[new]")), ("2", Some("[new]")));
        assert_eq!(split_notice("\n[new]", Some("[new]")), ("", Some("[new]")));
        assert_eq!(split_notice("2", Some("[new]")), ("2", Some("[new]")));
        assert_eq!(split_notice("2\n[new]", None), ("2\n[new]", None));
    }

    #[test]
    fn arguments_must_be_a_json_object() {
        assert_eq!(json_object(" {\"a\":1} ".to_owned()).unwrap().get(), "{\"a\":1}");
        for text in ["", "[]", "1", "{", "null"] {
            let error = format!("{:#}", json_object(text.to_owned()).unwrap_err());
            assert!(error.contains("are a JSON object, such as"), "{text}: {error}");
        }
    }
}
