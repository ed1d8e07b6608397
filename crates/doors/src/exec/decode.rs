//! Decodes a request's params into the types of `parlor_vocab`.

use std::path::PathBuf;

use parlor_vocab::{ProcessId, StartProcess, StdioKind};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::code::FrameError;
use super::wire::{ExecParams, InitializeParams, TerminateParams, WriteParams, method};
use crate::json::error_text;

/// A request whose method is known and whose params are valid.
pub(super) enum Request {
    Initialize,
    Start(StartProcess),
    Write { process: ProcessId, bytes: Vec<u8> },
    Terminate { process: ProcessId },
}

impl Request {
    pub(super) fn decode(name: &str, params: Option<&RawValue>) -> Result<Self, FrameError> {
        match name {
            method::INITIALIZE => params_object::<InitializeParams>(params).map(|_| Self::Initialize),
            method::EXEC => start(params_object(params)?).map(Self::Start),
            method::WRITE => {
                let WriteParams { process_id, chunk } = params_object(params)?;
                Ok(Self::Write { process: parse_process_id(&process_id)?, bytes: chunk.0 })
            }
            method::TERMINATE => {
                let TerminateParams { process_id } = params_object(params)?;
                Ok(Self::Terminate { process: parse_process_id(&process_id)? })
            }
            _ => Err(FrameError::UnknownMethod(name.to_owned())),
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

fn parse_process_id(text: &str) -> Result<ProcessId, FrameError> {
    ProcessId::parse(text).map_err(|error| FrameError::InvalidParams(format!("processId: {error}")))
}

/// Decodes params that must be an object. A derived decoder alone would also accept a positional array.
fn params_object<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, FrameError> {
    let Some(raw) = params else { return Err(FrameError::InvalidParams("missing params".to_owned())) };
    if !raw.get().starts_with('{') {
        return Err(FrameError::InvalidParams("params must be an object".to_owned()));
    }
    serde_json::from_str(raw.get()).map_err(|error| FrameError::InvalidParams(error_text(&error)))
}
