//! Decodes a request's params into the types of `parlor_vocab`.

use std::path::PathBuf;

use parlor_vocab::{ExecutorRequest, ProcessId, ProcessRequest, StartProcess, StdioKind};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::code::FrameError;
use super::wire::{ExecParams, InitializeParams, TerminateParams, WriteParams, method};
use super::{http, today};
use crate::json::error_text;

/// A request whose method is known and whose params are valid.
pub(super) enum Request {
    Initialize {
        /// The session that a client of today asks for; `Some(None)` for a new one.
        session: Option<Option<String>>,
    },
    /// Whether the server is ready, which it is.
    Status,
    Submit(ExecutorRequest),
}

impl Request {
    pub(super) fn decode(name: &str, params: Option<&RawValue>) -> Result<Self, FrameError> {
        let request = match name {
            method::INITIALIZE => {
                params_object::<InitializeParams>(params)?;
                return Ok(Self::Initialize { session: today::session(params)? });
            }
            method::STATUS => return today::nothing(params).map(|()| Self::Status),
            method::INFO => today::nothing(params).map(|()| ExecutorRequest::DescribeEnvironment)?,
            method::EXEC => {
                ExecutorRequest::Process(ProcessRequest::StartProcess(start(params_object(params)?)?))
            }
            method::WRITE => {
                let WriteParams { process_id, chunk } = params_object(params)?;
                let process = parse_process_id(&process_id)?;
                ExecutorRequest::Process(ProcessRequest::WriteProcess { process, bytes: chunk.0 })
            }
            method::TERMINATE => {
                let TerminateParams { process_id } = params_object(params)?;
                let process = parse_process_id(&process_id)?;
                ExecutorRequest::Process(ProcessRequest::TerminateProcess { process })
            }
            method::PROCESS_START => today::start(params)?,
            method::PROCESS_WRITE => today::write(params)?,
            method::PROCESS_SIGNAL => today::signal(params)?,
            method::PROCESS_TERMINATE => today::terminate(params)?,
            method::PROCESS_READ => today::read(params)?,
            method::HTTP_REQUEST => http::request(params)?,
            _ => today::file(name, params)?.ok_or_else(|| FrameError::UnknownMethod(name.to_owned()))?,
        };
        Ok(Self::Submit(request))
    }

    /// What an error calls the methods of this kind.
    pub(super) fn family(&self) -> &'static str {
        match self {
            Self::Status => "environment status",
            Self::Submit(ExecutorRequest::DescribeEnvironment) => "environment info",
            Self::Submit(ExecutorRequest::File { .. }) => "filesystem",
            Self::Submit(ExecutorRequest::Http(_)) => "http",
            Self::Initialize { .. } | Self::Submit(_) => "exec",
        }
    }
}

fn start(params: ExecParams) -> Result<StartProcess, FrameError> {
    let mut argv = params.argv.into_iter();
    let program =
        argv.next().ok_or_else(|| FrameError::InvalidParams("argv must not be empty".to_owned()))?;
    Ok(StartProcess {
        process: parse_process_id(&params.process_id)?,
        program,
        args: argv.collect(),
        arg0: params.arg0,
        folder: PathBuf::from(params.cwd),
        env: params.env.into_iter().collect(),
        stdio: if params.tty { StdioKind::Terminal } else { StdioKind::Pipes },
        retain_bytes: usize::try_from(params.output_bytes_cap).unwrap_or(usize::MAX),
    })
}

pub(super) fn parse_process_id(text: &str) -> Result<ProcessId, FrameError> {
    ProcessId::parse(text).map_err(|error| FrameError::InvalidParams(format!("processId: {error}")))
}

/// Decodes params that must be an object. A derived decoder alone would also accept a positional array.
pub(super) fn params_object<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, FrameError> {
    let Some(raw) = params else { return Err(FrameError::InvalidParams("missing params".to_owned())) };
    if !raw.get().starts_with('{') {
        return Err(FrameError::InvalidParams("params must be an object".to_owned()));
    }
    serde_json::from_str(raw.get()).map_err(|error| FrameError::InvalidParams(error_text(&error)))
}
