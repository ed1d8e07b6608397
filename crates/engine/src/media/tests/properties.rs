//! Property tests: what holds for any content.

use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::{empty_store, file_names};
use crate::media::{MAX_MEDIA_BYTES, PIECE_BYTES};

/// Arbitrary bytes, sometimes more than one piece.
fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..300),
        1 => (any::<u8>(), 0..3 * PIECE_BYTES).prop_map(|(byte, length)| vec![byte; length]),
    ]
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("threads")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_bytes_come_back_under_their_hash(bytes in content(), size in 1..2 * PIECE_BYTES) {
        let (home, store) = empty_store();
        runtime().block_on(async {
            let put = store.put("name", bytes.clone(), MAX_MEDIA_BYTES).await.unwrap();
            let hash: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(put.id.as_str(), hash);
            assert_eq!(put.size, bytes.len() as u64);
            assert_eq!(store.read(&put.id, put.size).await.unwrap(), bytes);
            std::fs::remove_file(store.path_of(&put.id).unwrap()).unwrap();
            let mut upload = store.begin_upload(put.size).await.unwrap();
            for piece in bytes.chunks(size) {
                upload.write(piece).await.unwrap();
            }
            assert_eq!(upload.finish("name").await.unwrap(), put, "the same for pieces of any size");
            assert_eq!(store.read(&put.id, put.size).await.unwrap(), bytes);
        });
        prop_assert_eq!(file_names(home.path()).len(), 1);
    }

    #[test]
    fn concurrent_writers_of_the_same_content_store_it_once(bytes in content(), times in 2_usize..8) {
        let (home, store) = empty_store();
        runtime().block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for number in 0..times {
                // Like another process: the stores share nothing but the folder.
                let store = crate::media::MediaStore::open(home.path()).unwrap();
                let bytes = bytes.clone();
                tasks.spawn(async move {
                    if number % 2 == 0 {
                        return store.put("name", bytes, MAX_MEDIA_BYTES).await.unwrap();
                    }
                    let mut upload = store.begin_upload(MAX_MEDIA_BYTES).await.unwrap();
                    upload.write(&bytes).await.unwrap();
                    upload.finish("name").await.unwrap()
                });
            }
            let all = tasks.join_all().await;
            assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
            assert_eq!(store.read(&all[0].id, MAX_MEDIA_BYTES).await.unwrap(), bytes);
        });
        prop_assert_eq!(file_names(home.path()).len(), 1);
    }
}
