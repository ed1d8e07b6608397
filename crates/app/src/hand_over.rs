//! The end of a stdio door whose sessions other processes still use.

use parlor_engine::{OnDisconnect, Sessions};

/// Returns what to do after the client has left: if the settings say so, it waits until the runs that other processes watch
/// have ended. A signal to end the program stops these runs, also one that came while the client was still there.
pub(crate) fn prepare(on_disconnect: OnDisconnect) -> std::io::Result<impl AsyncFnOnce(&Sessions)> {
    let signal = parlor_transport::termination_signal()?;
    Ok(async move |sessions: &Sessions| {
        if on_disconnect == OnDisconnect::HandOver {
            tokio::select! {
                biased;
                () = signal => sessions.close().await,
                () = sessions.hand_over() => {}
            }
        }
    })
}
