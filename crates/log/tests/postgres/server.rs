//! A server that goes away and comes back.

use parlor_log::postgres::test_server::TestServer;
use parlor_log::{EventLog, LogError};
use parlor_vocab::Seq;
use tokio::task::block_in_place;

use super::{acquire_when_free, ids, in_time, new_entry, open, quick_options, session};

/// The process gives up its leases in time, says so, and goes on by itself when the server is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_goes_on_when_the_server_is_back() {
    in_time(async {
        let server = block_in_place(|| TestServer::start(""));
        let database = server.new_database().await;
        let log = open(quick_options(&server.url(&database), "a")).await;
        let lease = log.acquire(&session("s")).await.unwrap();
        log.append(&lease, Seq::START, &[new_entry("before")]).await.unwrap();
        let mut lost = log.lost(&lease);
        let mut head = log.head(&session("s"));
        block_in_place(|| server.kill());
        let failed = log.append(&lease, Seq(1), &[new_entry("during")]).await;
        assert!(matches!(failed, Err(LogError::Unavailable { .. })), "{failed:?}");
        lost.wait_for(|is_lost| *is_lost).await.unwrap();
        let refused = log.append(&lease, Seq(1), &[new_entry("during")]).await;
        assert!(matches!(refused, Err(LogError::NotHeld { .. })), "{refused:?}");
        for failed in [
            log.acquire(&session("t")).await.map(|_| ()),
            log.session(&session("s")).await.map(|_| ()),
            log.check().await,
        ] {
            assert!(matches!(failed, Err(LogError::Unavailable { .. })), "{failed:?}");
        }
        block_in_place(|| server.restart());
        let lease = acquire_when_free(&log, "s").await;
        log.append(&lease, Seq(1), &[new_entry("after")]).await.unwrap();
        log.check().await.unwrap();
        assert_eq!(ids(&log, "s").await, ["before", "after"]);
        head.wait_for(|head| *head == Seq(2)).await.unwrap();
    })
    .await;
}
