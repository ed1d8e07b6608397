//! From wire to vocabulary: one request, decoded and checked.

use std::path::PathBuf;

use parlor_vocab::{ProcessId, StartProcess, StdioKind};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::code::FrameError;
use super::protocol::{ExecParams, InitializeParams, TerminateParams, WriteParams, method};
use crate::json::words_of;

/// A request whose params fit its method.
pub(super) enum Request {
    Initialize,
    Start(StartProcess),
    Write { process: ProcessId, bytes: Vec<u8> },
    Terminate { process: ProcessId },
}

impl Request {
    pub(super) fn decode(name: &str, params: Option<&RawValue>) -> Result<Self, FrameError> {
        match name {
            method::INITIALIZE => object::<InitializeParams>(params).map(|_| Self::Initialize),
            method::EXEC => start(object(params)?).map(Self::Start),
            method::WRITE => {
                let WriteParams { process_id, chunk } = object(params)?;
                Ok(Self::Write { process: id(&process_id)?, bytes: chunk.0 })
            }
            method::TERMINATE => {
                let TerminateParams { process_id } = object(params)?;
                Ok(Self::Terminate { process: id(&process_id)? })
            }
            _ => Err(FrameError::UnknownMethod(name.to_owned())),
        }
    }
}

fn start(params: ExecParams) -> Result<StartProcess, FrameError> {
    let mut argv = params.argv.into_iter();
    let program = argv.next().ok_or_else(|| FrameError::BadParams("argv must not be empty".to_owned()))?;
    Ok(StartProcess {
        process: id(&params.process_id)?,
        program,
        args: argv.collect(),
        arg0: params.arg0,
        folder: PathBuf::from(params.cwd),
        env: params.env.into_iter().collect(),
        stdio: if params.tty { StdioKind::Terminal } else { StdioKind::Pipes },
        retain: usize::try_from(params.output_bytes_cap).unwrap_or(usize::MAX),
    })
}

fn id(text: &str) -> Result<ProcessId, FrameError> {
    ProcessId::parse(text).map_err(|error| FrameError::BadParams(format!("processId: {error}")))
}

/// Decodes params that must be an object. Derived decoders would also take a positional array.
fn object<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, FrameError> {
    let Some(raw) = params else { return Err(FrameError::BadParams("missing params".to_owned())) };
    if !raw.get().starts_with('{') {
        return Err(FrameError::BadParams("params must be an object".to_owned()));
    }
    serde_json::from_str(raw.get()).map_err(|error| FrameError::BadParams(words_of(&error)))
}
