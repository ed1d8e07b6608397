//! Both stores pass the conformance tests.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod memory {
    use std::sync::Arc;

    use parlor_log::conformance::LogFactory;
    use parlor_log::{EventLog, MemoryLog, SystemClock};

    struct Memory(MemoryLog);

    impl LogFactory for Memory {
        fn open(&self) -> Arc<dyn EventLog> {
            Arc::new(self.0.as_other_process())
        }
    }

    parlor_log::conformance_tests!(Memory(MemoryLog::new(Arc::new(SystemClock))));
}

mod sqlite {
    use std::sync::Arc;

    use parlor_log::conformance::LogFactory;
    use parlor_log::{EventLog, SqliteLog, SystemClock};

    struct Folder(tempfile::TempDir);

    impl LogFactory for Folder {
        fn open(&self) -> Arc<dyn EventLog> {
            Arc::new(SqliteLog::open(self.0.path(), Arc::new(SystemClock)).unwrap())
        }
    }

    parlor_log::conformance_tests!(Folder(tempfile::tempdir().unwrap()));
}
