//! Guards against a crash, a late watch and a lost reply. The fault plans of `kinds/model` disable one at a time, and one of the plans has to
//! notice. Outside tests every guard always holds. Guards that unit tests cover are not listed here: `xtask mutants` disables them.

/// A guard that tests can disable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// A WindowsMachine has our finalizer before its VM is created.
    MachineFinalizer,
    /// A WindowsBootstrapConfig has our finalizer before its token is created.
    ConfigFinalizer,
    /// An existing token of CAPW is reused.
    FoundToken,
    /// A configuration is released after its token is deleted.
    TokenBeforeFinalizer,
    /// The removal of a token is reported after its deletion.
    TokenBeforeReport,
    /// A WindowsMachine is released after proof that its VM no longer exists.
    ProofOfAbsence,
    /// The machines of a pool that no watch has reported yet are counted.
    MadeMachines,
    /// A create without an answer is retried with the same name.
    UnansweredNames,
}

impl Guard {
    #[cfg(not(test))]
    pub const fn holds(self) -> bool {
        true
    }

    #[cfg(test)]
    pub fn holds(self) -> bool {
        TAKEN.get() != Some(self)
    }

    /// Runs `test`, which stays on this thread, without the guard.
    #[cfg(test)]
    pub fn without<T>(self, test: impl FnOnce() -> T + std::panic::UnwindSafe) -> std::thread::Result<T> {
        TAKEN.set(Some(self));
        let done = std::panic::catch_unwind(test);
        TAKEN.set(None);
        done
    }
}

#[cfg(test)]
thread_local! {
    static TAKEN: std::cell::Cell<Option<Guard>> = const { std::cell::Cell::new(None) };
}
