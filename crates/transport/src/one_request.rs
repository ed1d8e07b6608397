//! The driver of a connection that consists of one request, such as a POST: one frame goes in, and frames come out until
//! the machine closes the connection.

use parlor_doors::{BackendFor, Input, Machine, Output};
use parlor_vocab::Update;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Serves the request in `frame` until the machine closes the connection or `cancel` is cancelled; then ends what it
/// started. The frames go to `frames`; without a receiver they are dropped, and the request is served to its end.
pub async fn serve_one_request<M, B>(
    mut machine: M,
    mut backend: B,
    frame: &[u8],
    frames: mpsc::Sender<Vec<u8>>,
    cancel: CancellationToken,
) where
    M: Machine,
    B: BackendFor<M>,
{
    let (mut wake_at, mut is_closed) = (None, false);
    machine.handle(now(), Input::Frame(frame));
    loop {
        while let Some(output) = machine.poll() {
            let frame = match output {
                Output::Send(frame) => frame,
                Output::SendShared(frame) => frame.into(),
                Output::Request(ticket, request) => {
                    if let Some((ticket, answer)) = backend.submit(ticket, request) {
                        machine.handle(now(), Input::Answer(ticket, answer));
                    }
                    continue;
                }
                Output::WakeAt(moment) => {
                    wake_at = Some(Instant::from_std(moment));
                    continue;
                }
                Output::Close => {
                    is_closed = true;
                    continue;
                }
            };
            tokio::select! {
                // An error means that the client has left.
                _ = frames.send(frame) => {}
                () = cancel.cancelled() => is_closed = true,
            }
        }
        if is_closed {
            break;
        }
        tokio::select! {
            () = cancel.cancelled() => break,
            update = backend.next() => match update {
                Some(Update::Answer(ticket, answer)) => machine.handle(now(), Input::Answer(ticket, answer)),
                Some(Update::Event(event)) => machine.handle(now(), Input::Event(&event)),
                None => break,
            },
            () = sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => {
                wake_at = None;
                machine.handle(now(), Input::Deadline);
            }
        }
    }
    // The client has its answer, whatever the end of the rest takes.
    drop(frames);
    backend.begin_close();
    backend.closed().await;
}

/// The runtime's time, which tests can pause.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}
