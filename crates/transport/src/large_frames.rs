//! Decodes large frames without blocking the other connections of the same runtime thread.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// A frame of at least this size is decoded inside [`block_in_place`]. Decoding takes a few milliseconds per MiB, and half a
/// second for the largest frame.
pub const LONG_FRAME_BYTES: usize = 1 << 20;

/// Runs `work`, the handling of a frame of `frame_bytes` bytes. For a large frame on a multi-thread runtime, the runtime
/// first moves this thread's other connections to another thread. A single-thread runtime serves one peer only, so there the
/// work runs directly.
pub fn block_in_place_if_large<R>(frame_bytes: usize, work: impl FnOnce() -> R) -> R {
    let is_multi_thread =
        || Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if frame_bytes >= LONG_FRAME_BYTES && is_multi_thread() { block_in_place(work) } else { work() }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_run_while_a_large_frame_is_decoded() {
        let ((started, has_started), (other_ran, has_other_run)) = (sync_channel(1), sync_channel(1));
        let decoding = tokio::spawn(async move {
            block_in_place_if_large(LONG_FRAME_BYTES, || {
                started.send(()).unwrap();
                has_other_run.recv_timeout(Duration::from_secs(20)).is_ok()
            })
        });
        has_started.recv().unwrap();
        tokio::spawn(async move { other_ran.send(()).unwrap() });
        assert!(decoding.await.unwrap(), "the large frame blocked the only thread");
    }

    #[tokio::test]
    async fn a_single_thread_runtime_runs_the_work_directly() {
        assert_eq!(block_in_place_if_large(LONG_FRAME_BYTES, || 5), 5);
    }
}
