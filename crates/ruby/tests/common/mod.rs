//! Helpers for the tests of the Ruby host.
#![allow(dead_code, reason = "each test file uses some of the helpers")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use parlor_ruby::{Evaluation, RubyAnswer, RubyError, RubyException, RubyHost, RubySettings, RubySource};
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};

/// The `PATH` of workers.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(crate) fn settings() -> RubySettings {
    RubySettings::new(PathBuf::from("/tmp"), vec![("PATH".to_owned(), PATH.to_owned())])
}

pub(crate) fn host() -> RubyHost {
    RubyHost::new(settings())
}

/// A host with a short time limit for endless code, yet long enough for other code on a busy machine.
pub(crate) fn short_limit_host() -> RubyHost {
    RubyHost::new(RubySettings { time_limit: Duration::from_secs(2), ..settings() })
}

pub(crate) fn snippet(code: &str) -> Evaluation {
    Evaluation::new(RubySource::Snippet { code: code.to_owned() })
}

pub(crate) async fn answer(host: &RubyHost, code: &str) -> RubyAnswer {
    host.evaluate(snippet(code)).await
}

pub(crate) async fn value(host: &RubyHost, code: &str) -> String {
    answer(host, code).await.outcome.unwrap_or_else(|error| panic!("{code}: {error:?}"))
}

pub(crate) async fn error(host: &RubyHost, code: &str) -> RubyError {
    answer(host, code).await.outcome.expect_err(code)
}

pub(crate) async fn raised(host: &RubyHost, code: &str) -> RubyException {
    let error = error(host, code).await;
    let RubyError::Raised(raised) = error else { panic!("{code}: {error:?}") };
    *raised
}

pub(crate) async fn file(host: &RubyHost, path: &Path, content: impl AsRef<[u8]>) -> RubyAnswer {
    let source = RubySource::File { path: path.to_owned(), content: content.as_ref().to_vec() };
    host.evaluate(Evaluation::new(source)).await
}

pub(crate) async fn console(host: &RubyHost, code: &str) -> RubyAnswer {
    let source = RubySource::Console { path: PathBuf::from("/tmp/s1/0001.rb"), code: code.to_owned() };
    host.evaluate(Evaluation::new(source)).await
}

/// Polls a future once. Returns whether it is pending.
pub(crate) async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())
    })
    .await
}

/// Code that signals when it runs, and runs until the test lets it end.
pub(crate) struct Gate {
    path: PathBuf,
    listener: UnixListener,
}

impl Gate {
    pub(crate) fn new(folder: &Path) -> Self {
        let path = folder.join("gate");
        let listener = UnixListener::bind(&path).expect("a new socket");
        Self { path, listener }
    }

    pub(crate) fn code(&self) -> String {
        format!(
            "UNIXSocket.open('{}') {{ |gate| gate.write('x'); gate.read }}; 'opened'",
            self.path.display()
        )
    }

    /// Waits until the code runs. The code runs until the returned stream is dropped.
    pub(crate) async fn entered(&self) -> UnixStream {
        let (mut stream, _) = self.listener.accept().await.expect("the code connects");
        stream.read_u8().await.expect("the code has sent a byte");
        stream
    }
}
