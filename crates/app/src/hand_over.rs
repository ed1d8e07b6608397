//! The end of a stdio door whose sessions other processes still use.

use parlor_engine::{OnDisconnect, Sessions};

/// Registers for the signals that end the program, and returns the function to call after the client has left: with
/// [`OnDisconnect::HandOver`], it waits until the runs that other processes watch have ended, and closes all sessions. A
/// signal stops these runs, also one that came since the registration. Fails if the system refuses the registration.
pub(crate) fn on_exit(on_disconnect: OnDisconnect) -> std::io::Result<impl AsyncFnOnce(&Sessions)> {
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
