//! Work that takes long because somebody sent much.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// From this size on a frame is decoded on a thread that serves nobody else meanwhile. Decoding takes some milliseconds for
/// each MiB, and half a second for the largest frame.
pub const LONG_FRAME_BYTES: usize = 1 << 20;

/// Does what a frame of so many bytes asks for. If it is long, the connections that this thread serves besides go on
/// elsewhere, as long as the runtime has several threads; with one thread there is one peer.
pub(crate) fn without_holding_up_others<R>(frame_bytes: usize, work: impl FnOnce() -> R) -> R {
    let has_threads =
        || Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if frame_bytes >= LONG_FRAME_BYTES && has_threads() { block_in_place(work) } else { work() }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_are_served_while_a_long_frame_is_decoded() {
        let ((begun, has_begun), (served, is_served)) = (sync_channel(1), sync_channel(1));
        let long = tokio::spawn(async move {
            without_holding_up_others(LONG_FRAME_BYTES, || {
                begun.send(()).unwrap();
                is_served.recv_timeout(Duration::from_secs(20)).is_ok()
            })
        });
        has_begun.recv().unwrap();
        tokio::spawn(async move { served.send(()).unwrap() });
        assert!(long.await.unwrap(), "the only thread was held up");
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_does_it_itself() {
        assert_eq!(without_holding_up_others(LONG_FRAME_BYTES, || 5), 5);
    }
}
